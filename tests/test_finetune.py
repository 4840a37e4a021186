"""Training on two easy classes: what is learned, kept, resumed, counted, and what is not."""

import dataclasses
import json
import math
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from small import TINY, losses, photos, run, same, tiny_start, weights

from vit import checkpoint
from vit import finetune as finetune_module
from vit.activations import ACTIVATIONS
from vit.classifier import Classifier
from vit.data import DataError
from vit.defaults import MODES
from vit.finetune import finetune
from vit.model import ViT
from vit.optim import Average, parameter_groups, rate_at
from vit.photoset import PhotoSet
from vit.recipe import Recipe
from vit.reports import (
    Epoch,
    Finished,
    Prepared,
    Report,
    Started,
    Step,
    Warned,
    duration,
    in_words,
    report_to_json,
)
from vit.runstate import BEST, RECIPE, SKIPPED, STATE, STOP, RunError, forget_after
from vit.speed import Speed, TimeLeft
from vit.start import read_start


@pytest.fixture
def recipe(made: Path) -> Recipe:
    """Every weight, three epochs of five steps each."""
    return Recipe(
        str(made / "data"),
        start=str(made / "tiny.safetensors"),
        mode="all",
        epochs=3,
        batch=4,
        rate=3e-3,
        layer_decay=1.0,
        min_area=0.7,
        val_fraction=0.2,
    )


def head_only(recipe: Recipe, **changes: Any) -> Recipe:
    return dataclasses.replace(recipe, mode="head", min_area=None, rate=1e-2, **changes)


def last_block(recipe: Recipe, **changes: Any) -> Recipe:
    return dataclasses.replace(recipe, mode="last", blocks=1, min_area=None, **changes)


def in_mode(recipe: Recipe, mode: str) -> Recipe:
    return {"all": lambda r: r, "last": last_block, "head": head_only}[mode](recipe)


def end(reports: list[Report]) -> Finished:
    assert isinstance(reports[-1], Finished)
    return reports[-1]


def warnings(reports: list[Report]) -> list[str]:
    return [report.text for report in reports if isinstance(report, Warned)]


# --- What is learned and kept -----------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_two_easy_classes_are_learned(recipe, tmp_path, mode):
    recipe = dataclasses.replace(recipe, epochs=8)
    reports = run(in_mode(recipe, mode), tmp_path)
    started, finished = reports[0], end(reports)
    assert isinstance(started, Started)
    assert (started.train, started.val, started.test) == (20, 4, 8)
    assert started.steps == finished.step == 8 * 5 == len(losses(reports))
    assert finished.outcome == "finished"
    assert finished.metrics["test"].total == 8
    assert finished.metrics["test"].correct >= 7
    assert losses(reports)[-1] < 0.6 < losses(reports)[0]
    answers = Classifier.load(finished.path).classify(recipe.data + "/test/tomato/000.png")
    assert answers.classes[0] == "tomato"


def test_the_kept_weights_are_the_best_by_the_validation_photos(recipe, tmp_path):
    reports = run(recipe, tmp_path)
    epochs = [report for report in reports if isinstance(report, Epoch)]
    best = max(epochs, key=lambda epoch: (epoch.val.correct, -epoch.val_loss))
    assert [e for e in epochs if e.best][-1] == best
    assert end(reports).metrics["validation"] == best.val


def test_the_record_is_complete(recipe, made, tmp_path):
    reports = run(dataclasses.replace(recipe, threads=1, licence="MIT"), tmp_path)
    card = checkpoint.read_card(end(reports).path)
    record = card.training
    assert card.title == "my-dishes" and card.licence == "MIT"
    assert card.classes == ("beans", "tomato") and card.trained_head
    assert record["data"] == getattr(reports[0], "fingerprint")  # noqa: B009
    assert record["start"] == recipe.start and record["started_from"] == "tiny"
    assert record["start_fingerprint"] == checkpoint.fingerprint(made / "tiny.safetensors")
    assert record["photos"] == {"train": 20, "validation": 4, "test": 8}
    assert record["outcome"] == "finished" and record["steps"] == 15
    assert record["seconds"] > 0 and record["seed"] == 0 and record["precision"] == "float32"
    assert record["versions"].keys() == {"python", "torch", "torchvision", "pillow"}
    assert Recipe.from_json(record["recipe"]).command() == record["command"]
    assert json.loads((tmp_path / RECIPE).read_text("utf-8")) == json.loads(
        json.dumps(record["recipe"])
    )


def test_a_head_for_other_classes_takes_the_place_of_the_old_one(recipe, made):
    start, _ = read_start(recipe)
    model = start.new_model(("a", "b", "c"), recipe)
    assert model.head.weight.shape == (3, 48) and not model.head.weight.any()
    old = weights(made / "tiny.safetensors")
    kept = {name: value for name, value in model.state_dict().items() if name[:4] != "head"}
    assert same(kept, {name: old[name] for name in kept})


def test_a_head_for_the_same_classes_is_trained_on(recipe, made):
    start, _ = read_start(recipe)
    assert start.model is not None
    model = start.new_model(start.card.classes, recipe)
    assert same(model.state_dict(), start.model.state_dict())
    other = start.new_model(start.card.classes[::-1], recipe)
    assert not other.head.weight.any()
    untrained = dataclasses.replace(start, card=dataclasses.replace(start.card, trained_head=False))
    assert not untrained.new_model(start.card.classes, recipe).head.weight.any()


def test_registers_are_added_to_a_start_without_any(recipe, made, tmp_path):
    reports = run(dataclasses.replace(recipe, registers=2, epochs=1), tmp_path)
    model, card = checkpoint.load(end(reports).path)
    assert card.config == dataclasses.replace(TINY, classes=2, registers=2)
    begun, _ = read_start(recipe)
    fresh = begun.new_model(card.classes, dataclasses.replace(recipe, registers=2))
    assert fresh.reg_token is not None and model.reg_token is not None
    assert not torch.allclose(fresh.reg_token, model.reg_token, atol=1e-4)


def test_registers_take_over_the_corners(recipe, made):
    begun, _ = read_start(recipe)
    assert begun.model is not None
    (h, w), old = TINY.grid, begun.model.pos_embed.detach()[0, 1:].unflatten(0, TINY.grid)
    fresh = begun.new_model(("a", "b"), dataclasses.replace(recipe, registers=4))
    new = fresh.pos_embed.detach()[0, 1:].unflatten(0, (h, w))
    grey = fresh.embed(torch.zeros(1, 3, *TINY.image_size))[0, fresh.num_prefix_tokens :]
    assert fresh.reg_token is not None
    lost = old - new + grey.unflatten(0, (h, w))  # the old position on a grey patch
    for register, (row, column) in zip(
        fresh.reg_token[0], [(0, 0), (0, -1), (-1, 0), (-1, -1)], strict=True
    ):
        torch.testing.assert_close(register, lost[row, column])
        beside = old[row, 1 if column == 0 else -2]
        below = old[1 if row == 0 else -2, column]
        torch.testing.assert_close(new[row, column], (beside + below) / 2)
    new, old = new.clone(), old.clone()
    for picture in (new, old):
        picture[:: h - 1, :: w - 1] = 0
    assert torch.equal(new, old)  # nowhere else


def test_stages_change_the_picture_size_and_the_share_of_patches(recipe, tmp_path, monkeypatch):
    seen = []
    encode = ViT.encode

    def watched(self: ViT, tokens: torch.Tensor) -> torch.Tensor:
        if self.training:
            seen.append(tokens.shape[1])
        return encode(self, tokens)

    monkeypatch.setattr(ViT, "encode", watched)
    staged = dataclasses.replace(recipe, epochs=None, image_size="32:1,48:1:0.5")
    reports = run(staged, tmp_path)
    assert seen == 5 * [1 + 4 * 4] + 5 * [1 + 18]
    card = checkpoint.read_card(end(reports).path)
    assert card.preprocess.size == (48, 48) and card.preprocess.crop == 1.0
    assert [e.best for e in reports if isinstance(e, Epoch)][-1], "the last stage is what is kept"


def test_from_scratch(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("vit.start.PRESETS", {"Ti/16": TINY})
    scratch = dataclasses.replace(recipe, start="Ti/16", mode=None, epochs=1)
    reports = run(scratch, tmp_path)
    record = checkpoint.read_card(end(reports).path).training
    assert record["started_from"] == "Ti/16" and record["start_fingerprint"] == ""
    assert record["recipe"]["mode"] == "all"


def test_rectangular_letterboxed_starts_stay_so(made, recipe, tmp_path):
    model, card = checkpoint.load(made / "tiny.safetensors")
    rules = dataclasses.replace(card.preprocess, size=(24, 40), fit="letterbox")
    wide = tmp_path / "wide.safetensors"
    checkpoint.save(wide, model, dataclasses.replace(card, preprocess=rules))
    for mode in MODES:
        short = dataclasses.replace(in_mode(recipe, mode), start=str(wide), epochs=1)
        reports = run(short, tmp_path / mode)
        assert checkpoint.read_card(end(reports).path).preprocess == rules


# --- The same again ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_losses_and_another_seed_others(recipe, tmp_path, mode):
    recipe = in_mode(recipe, mode)
    one, again = run(recipe, tmp_path / "1"), run(recipe, tmp_path / "2")
    other = run(dataclasses.replace(recipe, seed=1), tmp_path / "3")
    assert losses(one) == losses(again) != losses(other)
    assert same(weights(end(one).path), weights(end(again).path))


@pytest.mark.parametrize("mode", MODES)
def test_a_run_killed_at_any_step_goes_on_as_if_nothing_had_happened(recipe, tmp_path, mode):
    """A kill leaves on disk what lay there: the same as never asking for the next report."""
    recipe = dataclasses.replace(recipe, mixup=0.3)
    if mode == "all":
        recipe = dataclasses.replace(
            recipe, epochs=None, image_size="32:2,48:1:0.5", drop_path=0.2, colour=0.2
        )
        teacher = tiny_start(tmp_path / "teacher.safetensors", classes=("beans", "tomato"))
        recipe = dataclasses.replace(recipe, teacher=str(teacher))
    elif mode == "last":  # kept in a file
        recipe = last_block(recipe, memory=0, views=3, drop_path=0.2)
    else:
        recipe = head_only(recipe)
    whole = run(recipe, tmp_path / "whole")
    for number, (kill_at, save_every) in enumerate(((1, 0), (4, 1e9), (7, 0), (10, 1e9), (13, 0))):
        folder = tmp_path / str(number)
        before: list[float] = []
        reports = finetune(recipe, folder, save_every=save_every)
        for report in reports:
            if isinstance(report, Step):
                before.append(report.loss)
                if report.step == kill_at:
                    break
        for half in (f".{STATE}.x.tmp", ".tmpAb12cD"):
            (folder / half).write_bytes(b"half a state")
        copy = shutil.copytree(folder, tmp_path / f"{number} resumed")
        reports.close()  # wrote nothing
        resumed = run(recipe, copy, save_every=save_every)
        started = resumed[0]
        assert isinstance(started, Started)
        expected = kill_at - 1 if save_every == 0 else 5 * (kill_at // 5)
        # The state after a step is written once its report is out; epochs end with one as well.
        assert started.resumed_at == (expected if kill_at % 5 else 5 * ((kill_at - 1) // 5))
        assert before[: started.resumed_at] + losses(resumed) == losses(whole)
        assert same(weights(end(resumed).path), weights(end(whole).path))
        assert end(resumed).metrics == end(whole).metrics
        assert not list(copy.glob(".*")) and not (copy / ACTIVATIONS).exists()
        computed = any(isinstance(report, Prepared) for report in resumed)
        assert computed == (mode == "head" or mode == "last" and not started.resumed_at)


def test_a_finished_run_resumed_counts_again(recipe, tmp_path):
    first, again = run(recipe, tmp_path), run(recipe, tmp_path)
    assert losses(again) == [] and end(again).metrics == end(first).metrics


def test_a_run_goes_on_with_the_same_photos_and_start_only(made, recipe, tmp_path):
    data, start = shutil.copytree(made / "data", tmp_path / "data"), tmp_path / "tiny.safetensors"
    shutil.copy(recipe.start, start)
    recipe = dataclasses.replace(recipe, data=str(data), start=str(start), epochs=1)
    run(recipe, tmp_path / "run")
    checkpoint.save(start, *checkpoint.load(end(run(recipe, tmp_path / "other")).path))
    with pytest.raises(RunError, match="start changed since this run began"):
        run(recipe, tmp_path / "run")
    shutil.copy(made / "tiny.safetensors", start)
    run(recipe, tmp_path / "run")
    (data / "train" / "beans" / "000.png").unlink()
    with pytest.raises(RunError, match="photos changed since this run began"):
        run(recipe, tmp_path / "run")


def test_a_damaged_state_is_one_sentence(recipe, tmp_path):
    tmp_path.joinpath(STATE).write_bytes(b"\x10\0\0\0\0\0\0\0nonsense")
    with pytest.raises(RunError, match="damaged .* start a new run"):
        run(recipe, tmp_path)


def test_the_log_loses_what_came_after_the_state(tmp_path):
    log = tmp_path / "history.jsonl"
    lines = [{"kind": "started"}, {"kind": "warned", "step": 0}]
    lines += [{"kind": "step", "step": step} for step in range(1, 8)]
    lines += [{"kind": "finished", "step": 3}]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "ste')
    forget_after(log, 3)
    kept = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line.get("step") for line in kept] == [None, 0, 1, 2, 3]
    forget_after(log, 0)
    assert log.read_text() == ""
    forget_after(tmp_path / "none.jsonl", 3)


# --- Stopping and failing ---------------------------------------------------------------------


def stopped_after(recipe: Recipe, folder: Path, kind: type, step: int) -> list[Report]:
    reports = []
    for report in finetune(recipe, folder):
        reports.append(report)
        if isinstance(report, kind) and getattr(report, "step", 0) == step:
            (folder / STOP).touch()
    return reports


def test_a_stop_keeps_the_best_and_can_be_taken_back(recipe, tmp_path):
    reports = stopped_after(recipe, tmp_path / "a", Step, 8)
    assert end(reports).outcome == "stopped" and end(reports).step == 8
    assert checkpoint.read_card(end(reports).path).training["outcome"] == "stopped"
    best = [report for report in reports if isinstance(report, Epoch)]
    assert len(best) == 1 and end(reports).metrics["validation"] == best[0].val
    (tmp_path / "a" / STOP).unlink()
    resumed, whole = run(recipe, tmp_path / "a"), run(recipe, tmp_path / "b")
    assert getattr(resumed[0], "resumed_at") == 8  # noqa: B009
    assert losses(reports) + losses(resumed) == losses(whole)
    assert same(weights(end(resumed).path), weights(end(whole).path))


def test_a_stop_before_the_first_epoch_ends_keeps_weights(recipe, tmp_path):
    reports = stopped_after(recipe, tmp_path / "a", Step, 2)
    assert end(reports).outcome == "stopped" and end(reports).step == 2
    assert end(reports).metrics.keys() == {"validation", "test"}
    assert Path(end(reports).path).is_file()
    (tmp_path / "a" / STOP).unlink()
    whole = run(recipe, tmp_path / "b")
    assert same(weights(end(run(recipe, tmp_path / "a")).path), weights(end(whole).path))


def test_a_stop_while_features_are_computed_has_nothing_to_keep(recipe, tmp_path):
    reports = stopped_after(head_only(recipe), tmp_path, Prepared, 0)
    assert end(reports) == Finished(0, "stopped", {}, end(reports).seconds, "")
    assert not [t for t in threading.enumerate() if t.name.startswith("photos")]


@pytest.mark.parametrize("mode", MODES)
def test_a_loss_that_is_no_number_ends_the_run_with_the_best_weights(
    recipe, tmp_path, monkeypatch, mode
):
    recipe = in_mode(recipe, mode)
    rates = finetune_module.rate_at
    monkeypatch.setattr(
        finetune_module, "rate_at", lambda step, *rest: rates(step, *rest) if step < 6 else 1e30
    )
    reports = run(recipe, tmp_path)
    assert end(reports).outcome == "failed" and 6 <= end(reports).step < 15
    assert any("no longer a number" in text and "rate" in text for text in warnings(reports))
    assert all(math.isfinite(loss) for loss in losses(reports))
    best = [report for report in reports if isinstance(report, Epoch)]
    assert end(reports).metrics["validation"] == best[0].val
    assert all(value.isfinite().all() for value in weights(end(reports).path).values())


def test_weights_beyond_bounds_are_not_kept(recipe, tmp_path):
    wild = dataclasses.replace(recipe, rate=1e12, clip=1e12, warmup=0.0, epochs=1)
    reports = run(wild, tmp_path)
    assert end(reports).outcome == "failed" and end(reports).path == ""
    assert warnings(reports)


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_answers_one_class_is_called_out(recipe, tmp_path, mode):
    """At such a rate the head stays as it begins, all zeros."""
    reports = run(dataclasses.replace(in_mode(recipe, mode), rate=1e-50, epochs=1), tmp_path)
    assert any("The model answers beans for every" in text for text in warnings(reports))


# --- Settings ---------------------------------------------------------------------------------


def test_label_smoothing_bounds_the_loss(recipe, tmp_path):
    recipe = head_only(recipe, epochs=20)
    soft = run(dataclasses.replace(recipe, smoothing=0.5, rate=0.1), tmp_path / "a")
    hard = run(dataclasses.replace(recipe, smoothing=0.0, rate=0.1), tmp_path / "b")
    least = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))  # targets of 3/4 and 1/4
    assert min(losses(soft)) >= least - 1e-4
    assert min(losses(hard)) < 0.3


def test_mixup_and_bfloat16_train(recipe, tmp_path):
    plain = losses(run(dataclasses.replace(recipe, epochs=1), tmp_path / "a"))
    mixed = losses(run(dataclasses.replace(recipe, epochs=1, mixup=0.5), tmp_path / "b"))
    lower = dataclasses.replace(recipe, epochs=1, precision="bfloat16")
    assert mixed[1:] != plain[1:]
    assert losses(run(lower, tmp_path / "c")) == pytest.approx(plain, abs=0.05)


@pytest.mark.parametrize("mode", ["all", "last"])
def test_branches_are_left_out_while_training_and_the_result_is_a_plain_model(
    recipe, tmp_path, mode
):
    short = dataclasses.replace(in_mode(recipe, mode), epochs=1)
    dropping = dataclasses.replace(short, drop_path=0.5)
    plain, dropped = run(short, tmp_path / "a"), run(dropping, tmp_path / "b")
    assert losses(dropped)[1:] != losses(plain)[1:]
    cards = [checkpoint.read_card(end(reports).path) for reports in (plain, dropped)]
    assert cards[0].config == cards[1].config
    assert cards[1].training["recipe"]["drop_path"] == 0.5


def test_averaged_weights_follow_by_hand():
    module = torch.nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(0.0)
    average = Average(module, 0.5)
    module.weight.data.fill_(1.0)
    average.update(module, 0)  # the first steps move fast: decay 1/10
    assert average.module.get_parameter("weight").item() == pytest.approx(0.9)
    average.update(module, 1000)  # decay 1/2
    assert average.module.get_parameter("weight").item() == pytest.approx(0.95)
    none = Average(module, 0.0)
    module.weight.data.fill_(5.0)
    none.update(module, 1000)
    assert none.module.get_parameter("weight").item() == 5.0
    assert not none.module.training and not none.module.get_parameter("weight").requires_grad


def test_the_rate_rises_and_falls():
    rates = [rate_at(step, 100, 0.1) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == rates[10] == 1
    assert rates[10:] == sorted(rates[10:], reverse=True) and 0 < rates[99] < 0.001
    assert rate_at(0, 1, 0.0) == 1


def test_rates_shrink_towards_the_photo():
    model = ViT(dataclasses.replace(TINY, registers=1))
    groups = parameter_groups(model, 2, 0.05, 0.5)
    found = {id(p): group for group in groups for p in group["params"]}
    assert len(found) == len(list(model.parameters()))

    def of(name: str) -> tuple[float, float]:
        group = found[id(model.get_parameter(name))]
        return group["scale"], group["weight_decay"]

    assert of("head.weight") == (1, 0.05) and of("head.bias") == of("norm.weight") == (1, 0)
    assert of("blocks.1.attn.qkv.weight") == (0.5, 0.05)
    assert of("blocks.0.attn.qkv.weight") == (0.25, 0.05)
    assert of("patch_embed.proj.weight") == (0.125, 0.05)
    assert of("pos_embed") == of("cls_token") == (0.125, 0)
    assert of("reg_token") == (1, 0), "new tokens learn as fast as the new head"


# --- What is looked at, and when --------------------------------------------------------------


@pytest.mark.parametrize(("flip", "pictures"), [(None, 1), (True, 2)])
def test_the_head_alone_computes_features_once(recipe, tmp_path, monkeypatch, flip, pictures):
    seen = []
    embed = ViT.embed

    def watched(self: ViT, images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return embed(self, images)

    monkeypatch.setattr(ViT, "embed", watched)
    reports = run(head_only(recipe, epochs=6, flip=flip), tmp_path)
    photos_in_all = pictures * 20 + 4 + 8  # training, validation, test
    assert sum(seen) == photos_in_all
    assert [r for r in reports if isinstance(r, Prepared)][-1] == Prepared(24, 24)
    before = weights(recipe.start)
    after = weights(end(reports).path)
    kept = [name for name in after if not name.startswith("head.")]
    assert all(torch.allclose(after[name], before[name], atol=1e-3) for name in kept)


@pytest.mark.parametrize("mode", MODES)
def test_test_photos_are_used_at_the_very_end_only(recipe, tmp_path, monkeypatch, mode):
    used: list[str] = []
    photo = PhotoSet.photo

    def watched(self: PhotoSet, index: int, at_least: int | None = None) -> Any:
        used.append(self.samples[index].name)
        return photo(self, index, at_least)

    monkeypatch.setattr(PhotoSet, "photo", watched)
    recipe = dataclasses.replace(recipe, epochs=2)
    reports = []
    at_last_epoch = 0
    for report in finetune(in_mode(recipe, mode), tmp_path):
        reports.append(report)
        if isinstance(report, Epoch):
            at_last_epoch = len(used)
    assert len([report for report in reports if isinstance(report, Epoch)]) == 2
    assert all(name.startswith("train/") for name in used[:at_last_epoch])
    assert sorted(used[at_last_epoch:]) == sorted(
        f"test/{name}/00{n}.png" for name in ("beans", "tomato") for n in range(4)
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_loaded_model_is_not_touched(recipe, tmp_path, mode):
    served = Classifier.load(recipe.start)
    before = {name: value.clone() for name, value in served.model.state_dict().items()}
    for report in finetune(in_mode(recipe, mode), tmp_path):
        assert not served.model.training, report
    assert same(dict(served.model.state_dict()), before)
    assert Classifier.load(recipe.start) is served


def test_what_is_left_out_is_said_and_listed(made, recipe, tmp_path):
    data = shutil.copytree(made / "data", tmp_path / "data")
    (data / "train" / "beans" / "notes.txt").write_text("shopping list")
    (data / "train" / "beans" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    shutil.copy(data / "train" / "tomato" / "000.png", data / "train" / "tomato" / "copy.png")
    more = photos(tmp_path / "more", 2)
    (more / "tomato" / "empty.jpg").touch()
    shutil.copy(data / "train" / "beans" / "003.png", more / "beans" / "seen.png")
    recipe = dataclasses.replace(recipe, data=str(data), test=(f"more={more}",), epochs=1)
    reports = run(recipe, tmp_path / "run")
    said = warnings(reports)
    assert any("3 files (" in text and "unreadable: 1" in text for text in said)
    assert any("1 file (empty: 1) left out of" in text and "more" in text for text in said)
    assert any("1 of 5 photos of the test set more" in text for text in said)
    listed = json.loads((tmp_path / "run" / SKIPPED).read_text("utf-8"))
    assert sorted(name for name, _ in listed[str(data)]) == [
        "train/beans/bad.png", "train/beans/notes.txt", "train/tomato/copy.png"
    ]  # fmt: skip
    assert [name for name, _ in listed[str(more)]] == ["tomato/empty.jpg"]
    assert end(reports).metrics["more"].total == 5


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"image_size": "36"}, "image_size must be a multiple of 8.* got 36, so take 32"),
        ({"start": "nowhere"}, "no checkpoint named 'nowhere'"),
        ({"start": "Ti/16", "image_size": "100"}, "multiple of 16, the patches of Ti/16"),
    ],
)
def test_a_bad_start_is_refused_before_anything_is_read_or_written(recipe, tmp_path, changes, says):
    recipe = dataclasses.replace(recipe, data="no such folder", **changes)
    with pytest.raises(ValueError, match=says):
        run(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_test_sets_are_checked_at_the_start(made, recipe, tmp_path):
    strange = photos(tmp_path / "strange", 1, ["beans", "plum"])
    for test in (f"more={strange}", "more=nowhere", f"test={made / 'data' / 'test'}"):
        with pytest.raises(DataError):
            next(finetune(dataclasses.replace(recipe, test=(test,)), tmp_path / "run"))


def test_only_so_many_photos_of_each_class(recipe, tmp_path):
    few = run(dataclasses.replace(recipe, per_class=3, epochs=1), tmp_path)
    assert getattr(few[0], "train") == 6  # noqa: B009


# --- Reports ----------------------------------------------------------------------------------


def test_reports_can_be_said_and_written(recipe, tmp_path):
    for report in run(dataclasses.replace(recipe, epochs=1), tmp_path):
        written = json.loads(json.dumps(report_to_json(report)))
        assert written["kind"] == type(report).__name__.lower()
        assert in_words(report)


def test_durations():
    assert [duration(s) for s in (0.4, 61, 3661.2)] == ["0 s", "1 min 1 s", "1 h 1 min"]


def test_speed_counts_waiting_and_what_is_left(monkeypatch):
    now = 0.0
    monkeypatch.setattr("vit.speed.time.perf_counter", lambda: now)
    speed = Speed([1.0, 1.0, 4.0], steps_per_epoch=10)

    def batches():
        nonlocal now
        for _ in range(10):
            now += 1.0
            yield None

    step = 1000  # long resumed: what was before does not count
    for _ in speed.timed(batches()):
        now += 3.0
        speed.did_batch(8)
        rate, left, waited = speed.report(0, 4)
        assert rate == pytest.approx(2) and waited == pytest.approx(0.25)
        assert left == pytest.approx(4 * (6 + 10 + 40))
        step += 1
    speed.did_validation(0, 5.0)
    assert speed.report(1, 20)[1] == pytest.approx(4 * 40 + 5 * (1 + 4))


def test_time_left_goes_by_what_was_done_since_it_was_asked(monkeypatch):
    now = 100.0
    monkeypatch.setattr("vit.speed.time.perf_counter", lambda: now)
    whole, joined = TimeLeft(), TimeLeft(None)
    now += 50
    assert joined.seconds(0.5) is None  # half was done by somebody else
    now += 0.5
    assert joined.seconds(0.75) is None  # too early to tell
    now += 1.5
    assert joined.seconds(0.75) == pytest.approx(2.0)
    assert whole.seconds(0.8) == pytest.approx(52 / 4)
    assert whole.seconds(0) is None and whole.seconds(1) is None


def test_best_is_replaced_when_a_run_begins_anew(recipe, tmp_path):
    """Weights that an earlier try kept before its first state do not pass for this one's."""
    shutil.copy(recipe.start, tmp_path / BEST)
    reports = stopped_after(head_only(recipe), tmp_path, Prepared, 0)
    assert end(reports).path == ""
