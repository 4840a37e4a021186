"""What a run got right and wrong: numbers worked out by hand, kept, found again, counted anew."""

import dataclasses
import io
import json
import os
import shutil
import threading
import zipfile
from pathlib import Path

import pytest
from PIL import Image
from small import lay_out, run

from vit import checkpoint
from vit import outcome as outcome_module
from vit.__main__ import main
from vit.data import open_photos
from vit.images import Photo
from vit.metrics import Count
from vit.outcome import (
    OUTCOME,
    Answer,
    Answers,
    Outcome,
    OutcomeError,
    counted,
    open_answers,
    photo_bytes,
    publish,
    read_outcome,
    result_file,
)
from vit.photoset import Kept
from vit.recipe import Recipe
from vit.reports import Finished
from vit.runstate import BEST, STOP, RunError


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data (two classes, a test set), a start, and a finished run in `run`."""
    folder = lay_out(tmp_path_factory.mktemp("trained"))
    recipe = Recipe(
        str(folder / "data"),
        start=str(folder / "tiny.safetensors"),
        name="pasta",
        epochs=2,
        batch=8,
        test=(f"again={folder / 'data' / 'test'}",),
    )
    assert isinstance(run(recipe, folder / "run")[-1], Finished)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder; the photos stay where they are."""
    return shutil.copytree(trained / "run", tmp_path / "run")


def ask(folder: Path) -> tuple[Outcome, list[tuple[int, int]]]:
    """What `counted` gives, and what it yielded on the way."""
    said, asked = [], counted(folder)
    while True:
        try:
            said.append(next(asked))
        except StopIteration as end:
            return end.value, said


def answers(*rows: tuple[int, int, float]) -> Answers:
    kept = Kept("/nowhere", "", "photo.jpg", "")
    return Answers("test", ("beans", "plum", "tomato"), tuple(Answer(kept, *r) for r in rows))


# Three classes: beans 2 of 3, plum 0 of 2, tomato 1 of 1.
BY_HAND = answers(
    (0, 0, 0.9), (0, 0, 0.6), (0, 1, 0.7), (1, 0, 0.95), (1, 2, 0.5), (2, 2, 0.8), (1, 0, 0.4)
)  # fmt: skip


# --- Counts -----------------------------------------------------------------------------------


def test_counts_by_hand():
    assert BY_HAND.count == Count(3, 7)
    assert BY_HAND.confusion.tolist() == [[2, 1, 0], [2, 0, 1], [0, 0, 1]]
    assert BY_HAND.recalls == (Count(2, 3), Count(0, 3), Count(1, 1))
    assert BY_HAND.precisions == (Count(2, 4), Count(0, 1), Count(1, 2))
    assert BY_HAND.confused() == [(1, 0, 2), (0, 1, 1), (1, 2, 1)]


def test_the_most_certain_come_first():
    assert BY_HAND.mistakes() == [3, 2, 4, 6]  # 0.95, 0.7, 0.5, 0.4
    assert BY_HAND.cell(1, 0) == [3, 6]
    assert BY_HAND.cell(0, 0) == [0, 1]
    assert BY_HAND.cell(2, 0) == []
    assert BY_HAND.of_class(0) == [2, 0, 1]  # its mistake before its two right ones


def test_the_largest_test_set_counts_before_the_validation_photos():
    small = dataclasses.replace(BY_HAND, name="small", answers=BY_HAND.answers[:2])
    validation = dataclasses.replace(BY_HAND, name="validation")
    assert Outcome("", (validation,)).best_known.name == "validation"
    both = Outcome("", (validation, small))
    assert both.best_known.name == both.named("no such set").name == "small"
    assert both.named("validation") is validation


# --- Kept by the training ---------------------------------------------------------------------


def test_the_training_keeps_what_its_result_answered(trained, folder):
    outcome = read_outcome(folder)
    assert outcome is not None
    card = checkpoint.read_card(folder / "pasta.safetensors")
    assert {each.name: each.count for each in outcome.sets} == dict(card.metrics)
    assert [each.name for each in outcome.sets] == ["validation", "test", "again"]
    test = outcome.named("test")
    assert sorted(a.photo.name for a in test.answers) == sorted(
        f"test/{name}/{number:03}.png" for name in ("beans", "tomato") for number in range(4)
    )
    for answer in test.answers:
        assert test.classes[answer.actual] in answer.photo.name
        assert 0.5 <= answer.probability <= 1  # of two classes, the larger
    assert not list(folder.glob(".*"))


def test_the_answers_are_those_of_the_checkpoint(trained, folder):
    outcome, asked = ask(folder)
    assert asked == []  # nothing was asked again
    (folder / OUTCOME).unlink()
    again, asked = ask(folder)
    assert asked[0] == (0, 4 + 8 + 8)
    for before, after in zip(outcome.sets, again.sets, strict=True):
        assert [a.photo for a in before.answers] == [a.photo for a in after.answers]
        assert [a.predicted for a in before.answers] == [a.predicted for a in after.answers]
        for one, other in zip(before.answers, after.answers, strict=True):
            # The validation photos' were taken before the weights were rounded to half precision.
            assert one.probability == pytest.approx(other.probability, abs=2e-3)
    assert read_outcome(folder) == again


def test_a_run_without_a_test_set_has_its_validation_photos(trained, tmp_path):
    recipe = Recipe(
        str(trained / "data" / "train"), start=str(trained / "tiny.safetensors"), epochs=1
    )
    run(recipe, tmp_path)
    outcome = read_outcome(tmp_path)
    assert outcome is not None and [each.name for each in outcome.sets] == ["validation"]
    assert outcome.best_known.count.total == 4


def test_a_stopped_run_has_a_result_too(trained, tmp_path):
    recipe = Recipe(str(trained / "data"), start=str(trained / "tiny.safetensors"), batch=8)
    reports = []
    from vit.finetune import finetune
    from vit.reports import Epoch

    for report in finetune(recipe, tmp_path):
        reports.append(report)
        if isinstance(report, Epoch):
            (tmp_path / STOP).touch()
    assert isinstance(reports[-1], Finished) and reports[-1].outcome == "stopped"
    outcome = read_outcome(tmp_path)
    assert outcome is not None
    assert outcome.named("test").count == reports[-1].metrics["test"]


def test_what_is_no_finished_run_is_said(tmp_path, folder):
    with pytest.raises(RunError, match="holds no run"):
        read_outcome(tmp_path)
    (folder / "pasta.safetensors").unlink()
    assert result_file(folder) == folder / BEST  # of a run that was killed before its end
    (folder / BEST).unlink()
    with pytest.raises(OutcomeError, match="kept no weights yet"):
        read_outcome(folder)


# --- Damage -----------------------------------------------------------------------------------


def stored(folder: Path) -> dict:
    return json.loads((folder / OUTCOME).read_text("utf-8"))


def spoil(name: str, values: dict) -> object:
    """The contents of a file that is no outcome."""
    first = values["sets"][0]["photos"][0]
    if name == "format":
        values["format"] = 2
    elif name == "another model":
        values["weights"] = "0" * 16
    elif name == "class out of range":
        first[4] = 2
    elif name == "negative class":
        first[3] = -1
    elif name == "class as text":
        first[3] = "beans"
    elif name == "place out of range":
        first[0] = 9
    elif name == "outside":
        first[1] = "../../secret.png"
    elif name == "absolute":
        first[1] = "/etc/passwd"
    elif name == "probability":
        first[5] = 1.5
    elif name == "no number":
        first[5] = float("nan")
    elif name == "short row":
        first.pop()
    elif name == "no sets":
        values["sets"] = []
    elif name == "a list":
        return [values]
    return values


DAMAGES = [
    "format", "another model", "class out of range", "negative class", "class as text",
    "place out of range", "outside", "absolute", "probability", "no number", "short row",
    "no sets", "a list",
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_counted_anew(folder, damage):
    good = read_outcome(folder)
    (folder / OUTCOME).write_text(json.dumps(spoil(damage, stored(folder))), "utf-8")
    assert read_outcome(folder) is None
    again, asked = ask(folder)
    assert asked and again.weights == getattr(good, "weights")  # noqa: B009
    assert read_outcome(folder) == again


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_half_a_file_is_none(folder, content):
    (folder / OUTCOME).write_bytes(content)
    assert read_outcome(folder) is None


def test_it_is_written_whole_or_not_at_all(folder, monkeypatch):
    before = (folder / OUTCOME).read_bytes()
    (folder / "pasta.safetensors").write_bytes((folder / BEST).read_bytes())  # other weights

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        ask(folder)
    assert (folder / OUTCOME).read_bytes() == before and not list(folder.glob(".*"))


def test_two_that_count_at_once_do_not_disturb_each_other(folder):
    (folder / OUTCOME).unlink()
    found, threads = [], []
    for _ in range(3):
        threads.append(threading.Thread(target=lambda: found.append(ask(folder)[0])))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and found[0] == found[1] == found[2] == read_outcome(folder)
    assert not list(folder.glob(".*"))


def test_other_photos_are_not_counted(trained, folder, tmp_path):
    data = shutil.copytree(trained / "data", tmp_path / "data")
    recipe = json.loads((folder / "recipe.json").read_text("utf-8"))
    recipe["data"] = str(data)
    (folder / "recipe.json").write_text(json.dumps(recipe), "utf-8")
    (folder / OUTCOME).unlink()
    shutil.copytree(folder, tmp_path / "same photos")
    assert ask(tmp_path / "same photos")[0].sets
    (data / "train" / "beans" / "000.png").unlink()
    with pytest.raises(OutcomeError, match="photos have changed since this run"):
        ask(folder)


# --- Its photos -------------------------------------------------------------------------------


def test_photos_are_found_again_in_a_folder_and_in_a_zip(trained, tmp_path):
    packed = tmp_path / "data.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted((trained / "data").rglob("*.png")):
            archive.write(path, Path("deep") / path.relative_to(trained / "data"))
    for place in (trained / "data" / "test", f"{packed}/deep/test"):
        found = open_photos(place, check=True)
        kept = [found.kept(i) for i in range(len(found))]
        assert [each.name for each in kept] == [sample.name for sample in found.samples]
        for index, data in enumerate(photo_bytes(kept)):
            assert isinstance(data, bytes)
            with Image.open(io.BytesIO(data)) as picture:
                assert picture.convert("RGB").tobytes() == found.photo(index).tobytes()


def test_a_photo_that_is_gone_or_another_is_not_shown(trained, tmp_path):
    data = shutil.copytree(trained / "data" / "test", tmp_path / "data")
    found = open_photos(data, check=True)
    rows = [Answer(found.kept(i), 0, 0, 0.5) for i in range(len(found))]
    (data / "beans" / "000.png").unlink()
    shutil.copy(data / "tomato" / "001.png", data / "beans" / "001.png")
    gone, other, fine = open_answers(Answers("test", found.classes, tuple(rows)), [0, 1, 2])
    assert isinstance(fine, Photo) and fine.size == (44, 36)
    assert "beans/000.png" in str(gone) and "it is gone" in str(gone)
    assert "beans/001.png" in str(other) and "replaced" in str(other)
    shutil.rmtree(data)
    assert all(isinstance(each, OutcomeError) for each in photo_bytes([r.photo for r in rows]))


# --- Large sets -------------------------------------------------------------------------------


def test_six_thousand_photos_of_a_hundred_classes_stay_small_and_fast(folder, monkeypatch):
    """Bounds that a slow machine keeps: what matters is that nothing grows with the square."""
    classes = tuple(f"dish_{number}" for number in range(101))
    rows = tuple(
        Answer(
            Kept("/data/food.zip", "", f"{classes[i % 101]}/{i}.webp", "0" * 16),
            i % 101,
            (i * i) % 101,
            0.5,
        )
        for i in range(6060)
    )
    large = Outcome(checkpoint.fingerprint(result_file(folder)), (Answers("test", classes, rows),))
    outcome_module.write_json(folder / OUTCOME, outcome_module._to_json(large), indent=None)
    assert (folder / OUTCOME).stat().st_size < 600_000
    assert read_outcome(folder) == large
    assert large.best_known.confusion.sum() == 6060
    assert sum(count.total for count in large.best_known.recalls) == 6060


# --- Its checkpoint ---------------------------------------------------------------------------


def test_publish_puts_the_result_among_the_checkpoints_once(folder, vit_home):
    assert publish(folder) == "pasta"
    kept = vit_home / "checkpoints" / "pasta.safetensors"
    assert checkpoint.read_card(kept) == checkpoint.read_card(result_file(folder))
    assert publish(folder) == "pasta" and len(list(kept.parent.iterdir())) == 1


def test_publish_takes_the_place_of_no_other(folder, trained, vit_home):
    taken = vit_home / "checkpoints" / "pasta.safetensors"
    taken.parent.mkdir(parents=True)
    shutil.copy(trained / "tiny.safetensors", taken)
    before = taken.read_bytes()
    assert publish(folder) == publish(folder) == "pasta-2"
    assert taken.read_bytes() == before


# --- The command line -------------------------------------------------------------------------


def test_results_on_the_command_line(folder, vit_home, capsys):
    assert main(["results", str(folder)]) == 0
    said = capsys.readouterr().out
    outcome = read_outcome(folder)
    assert outcome is not None
    assert f"test: {outcome.named('test').count}" in said
    assert "Beans" in said and "Tomato" in said
    assert main(["results", str(folder), "--set", "validation", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    validation = outcome.named("validation")
    assert values["set"] == "validation"
    assert values["top1"] == validation.count.to_json()
    assert values["confusion"]["rows_actual"] == validation.confusion.tolist()
    assert len(values["photos"]) == 4


def test_results_of_a_run_by_its_name(folder, vit_home, capsys):
    shutil.copytree(folder, vit_home / "runs" / "20260101-pasta")
    assert main(["results", "20260101-pasta"]) == 0
    assert main(["results", "pasta"]) == 0
    assert "test:" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["nowhere", "set"])
def test_results_says_what_is_wrong(folder, vit_home, capsys, what):
    wrong = ["results", "nowhere"] if what == "nowhere" else ["results", str(folder), "--set", "x"]
    assert main(wrong) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert ("holds no run" in said) if what == "nowhere" else ("validation, test, again" in said)
