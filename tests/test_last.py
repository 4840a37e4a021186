"""Mode last: the upper blocks as a model of their own, and what is kept of the blocks below."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from small import TINY, losses, photos, run, same, tiny_start, weights

from vit import checkpoint
from vit.activations import ACTIVATIONS, Activations
from vit.attention import explicit_attention
from vit.finetune import finetune
from vit.model import ViT
from vit.optim import parameter_groups
from vit.recipe import Recipe
from vit.reports import Finished, Prepared, Report, Step
from vit.top import Top, below

DEEP = dataclasses.replace(TINY, depth=4, registers=1)


def random_model(config=DEEP) -> ViT:
    torch.manual_seed(3)
    model = ViT(config).eval()
    torch.nn.init.normal_(model.head.weight)
    for parameter in model.parameters():  # also what begins as zeros
        torch.nn.init.normal_(parameter, std=0.2)
    return model


# --- The model -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(
    "changes", [{}, {"representation": 7}, {"class_tokens": 2}, {"layer_scale": True}, {"stem": ()}]
)
def test_the_top_on_what_lies_below_is_the_model(count, changes):
    model = random_model(dataclasses.replace(DEEP, **changes))
    images = torch.randn(3, 3, 32, 40)
    logits = Top(model, count)(below(model, images, count))
    torch.testing.assert_close(logits, model(images), atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_whole_model():
    model, images = random_model(), torch.randn(3, 3, 32, 32)
    top = Top(model, 2)
    wanted = torch.autograd.grad(model(images).square().sum(), list(top.parameters()))
    made = torch.autograd.grad(
        top(below(model, images, 2).detach()).square().sum(), list(top.parameters())
    )
    for one, other in zip(made, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_attention_written_out_gives_the_same():
    model, images = random_model(), torch.randn(2, 3, 32, 32)
    top, tokens = Top(model, 1), below(model, images, 1)
    before = top(tokens)
    with explicit_attention(model):
        torch.testing.assert_close(top(tokens), before, atol=1e-5, rtol=1e-5)


def test_parameters_keep_their_names_and_rates():
    model = random_model()
    names = dict(Top(model, 2).named_parameters())
    assert all(names[name] is model.get_parameter(name) for name in names)
    assert {name.split(".")[1] for name in names if name.startswith("blocks.")} == {"2", "3"}
    scales = {
        id(p): group["scale"]
        for group in parameter_groups(Top(model, 2), 4, 0.05, 0.5)
        for p in group["params"]
    }
    assert scales[id(model.get_parameter("blocks.3.mlp.fc1.weight"))] == 0.5
    assert scales[id(model.get_parameter("blocks.2.mlp.fc1.weight"))] == 0.25
    assert scales[id(model.head.weight)] == scales[id(model.norm.weight)] == 1


# --- What is kept -----------------------------------------------------------------------------


def filled(path: Path, limit: int, rows: int = 5) -> Activations:
    kept = Activations(path, rows, limit)
    kept.append(torch.arange(12.0).view(3, 2, 2))
    kept.append(torch.arange(12.0, 20.0).view(2, 2, 2))
    kept.finish()
    if kept.in_file:
        kept.open()
    return kept


@pytest.mark.parametrize(("limit", "in_file"), [(80, False), (79, True)])
def test_rows_come_back_from_memory_and_from_a_file(tmp_path, limit, in_file):
    kept = filled(tmp_path / ACTIVATIONS, limit)
    assert kept.in_file == in_file == (tmp_path / ACTIVATIONS).exists()
    rows = kept[np.array([4, 0, 4])]
    assert rows[:, 0, 0].tolist() == [16, 0, 16] and rows.shape == (3, 2, 2)
    rows += 1  # a copy
    assert kept[[0]][0, 0, 0] == 0
    assert len(kept[np.array([], int)]) == 0
    kept.delete()
    assert not list(tmp_path.iterdir())


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / ACTIVATIONS
    half = Activations(path, 5, 0)
    half.append(torch.zeros(3, 2, 2))
    assert not path.exists() and not Activations(path, 5, 0).reopen()
    half.delete()
    filled(path, 0)
    again = Activations(path, 5, 0)
    assert again.reopen() and again[[1]][0, 0, 0] == 4
    other = Activations(path, 6, 0)  # not of this run
    assert not other.reopen() and not path.exists()


def test_a_full_disk_is_said_before_it_is_full(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 79})
    monkeypatch.setattr("vit.activations.shutil.disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="fewer photos"):
        filled(tmp_path / ACTIVATIONS, 0)
    assert not list(tmp_path.iterdir())


# --- Runs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """The last two of four blocks, on 20 photos, in three epochs."""
    folder = tmp_path_factory.mktemp("made")
    photos(folder / "data" / "train", 12)
    photos(folder / "data" / "test", 4)
    return Recipe(
        str(folder / "data"),
        start=str(tiny_start(folder / "tiny.safetensors", dataclasses.replace(TINY, depth=4))),
        mode="last",
        blocks=2,
        epochs=3,
        batch=8,
        rate=3e-3,
        flip=False,
        val_fraction=0.2,
        threads=1,
    )


def end(reports: list[Report]) -> Finished:
    assert isinstance(reports[-1], Finished)
    return reports[-1]


def test_only_the_last_blocks_change(recipe, tmp_path):
    reports = run(recipe, tmp_path)
    before, after = weights(recipe.start), weights(end(reports).path)
    fixed = ("patch_embed", "cls_token", "pos_embed", "blocks.0.", "blocks.1.")
    for name in after:
        if not name.startswith("head."):  # it has other classes
            close = torch.allclose(after[name], before[name], atol=1e-4, rtol=1e-3)
            assert close == name.startswith(fixed), name
    assert checkpoint.read_card(end(reports).path).training["recipe"]["blocks"] == 2


def test_losses_are_those_of_a_full_forward_in_every_step(recipe, tmp_path, monkeypatch):
    """Against mode all with the lower blocks' rates at zero and photos left alone."""
    alone = dataclasses.replace(recipe, mode="all", blocks=None, min_area=1, colour=0, mixup=0)
    alone = dataclasses.replace(alone, warmup=0.1, smoothing=0.1, layer_decay=0.75, clip=1e9)

    def frozen(module, depth, weight_decay, layer_decay):
        groups = parameter_groups(module, depth, weight_decay, layer_decay)
        for group in groups:
            if group["scale"] < layer_decay**2 - 1e-9:
                group["scale"] = 0.0
        return groups

    last = run(dataclasses.replace(recipe, clip=1e9), tmp_path / "last")
    monkeypatch.setattr("vit.finetune.parameter_groups", frozen)
    whole = run(alone, tmp_path / "all")
    assert losses(last) == pytest.approx(losses(whole), abs=1e-5)
    assert end(last).metrics == end(whole).metrics


def test_blocks_below_see_every_photo_once(recipe, tmp_path, monkeypatch):
    seen = []
    embed = ViT.embed

    def watched(self: ViT, images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return embed(self, images)

    monkeypatch.setattr(ViT, "embed", watched)
    reports = run(dataclasses.replace(recipe, flip=True, views=5, min_area=0.5), tmp_path)
    assert sum(seen) == 5 * 20 + 4 + 8  # views of training photos, validation, test
    assert [r for r in reports if isinstance(r, Prepared)][-1] == Prepared(24, 24)


def test_a_file_changes_nothing_and_is_gone_at_the_end(recipe, tmp_path):
    in_memory = run(recipe, tmp_path / "memory")
    there = []
    reports = []
    for report in finetune(dataclasses.replace(recipe, memory=0), tmp_path / "file"):
        reports.append(report)
        if isinstance(report, Step):
            there.append((tmp_path / "file" / ACTIVATIONS).stat().st_size)
    assert all(size > 24 * 17 * 48 * 4 for size in there)
    assert losses(reports) == losses(in_memory)
    assert same(weights(end(reports).path), weights(end(in_memory).path))
    assert not (tmp_path / "file" / ACTIVATIONS).exists()
    assert not (tmp_path / "memory" / ACTIVATIONS).exists()


def test_the_mirror_image_and_other_views_are_used(recipe, tmp_path):
    plain = losses(run(recipe, tmp_path / "1"))
    mirrored = losses(run(dataclasses.replace(recipe, flip=True), tmp_path / "2"))
    more = dataclasses.replace(recipe, views=4, min_area=0.5, colour=0.3)
    changed = losses(run(more, tmp_path / "3"))
    assert plain[1:] != mirrored[1:] and plain[1:] != changed[1:]


def test_a_disk_without_room_ends_the_run_in_one_sentence(recipe, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("vit.activations.shutil.disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="has 0.0 GB left"):
        run(dataclasses.replace(recipe, memory=0), tmp_path)
