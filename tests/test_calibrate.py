"""Honest probabilities and a threshold, on photos that did not choose them."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.small import photos, tiny_start
from vit import checkpoint
from vit.__main__ import main
from vit.calibrate import Calibrated, calibrate
from vit.card import Card
from vit.data import open_photos
from vit.evaluate import evaluate
from vit.finetune import finetune
from vit.metrics import Calibration, Count
from vit.model import ViT
from vit.photoset import PhotoSet
from vit.recipe import Recipe
from vit.reliability import in_words, reliability_plot


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> tuple[ViT, Card, PhotoSet, Path]:
    """A small model that learnt two colours, made ten times too sure of itself."""
    folder = tmp_path_factory.mktemp("taught")
    recipe = Recipe(
        str(photos(folder / "learn", 16)),
        start=str(tiny_start(folder / "tiny.safetensors")),
        mode="all",
        epochs=2,
        batch=8,
    )
    list(finetune(recipe, folder / "run"))
    model, card = checkpoint.load(folder / "run" / "my-dishes.safetensors")
    for parameter in model.head.parameters():
        parameter.data *= 10
    known = open_photos(photos(folder / "judge", 30))
    path = checkpoint.save(folder / "sure.safetensors", model, card, torch.float32)
    return model, card, known, path


def test_the_temperature_undoes_being_too_sure(taught) -> None:
    model, card, known, _ = taught
    result = calibrate(model, card, known)
    surer = copy.deepcopy(model)
    for parameter in surer.head.parameters():
        parameter.data *= 2
    twice = calibrate(surer, card, known)
    assert twice.card.temperature == pytest.approx(2 * result.card.temperature, rel=0.01)
    assert twice.card.unsure_below == pytest.approx(result.card.unsure_below, abs=0.01)


def test_what_makes_it_worse_is_not_taken(taught, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a temperature fitted on photos that the model learnt by heart may be."""
    model, card, known, _ = taught
    monkeypatch.setattr("vit.calibrate.fit_temperature", lambda logits, targets: 1000.0)
    result = calibrate(model, card, known)
    assert result.card.temperature == 1 and result.after == result.before


def test_the_threshold_lets_the_wanted_share_be_unsure(taught) -> None:
    model, card, known, _ = taught
    result: Calibrated = calibrate(model, card, known, share=0.3)
    logits = evaluate(model, known, card.preprocess, card.classes).logits
    sure = (logits / result.card.temperature).softmax(1).amax(1)
    assert result.known.total == len(known) // 2
    assert result.card.unsure_below is not None
    unsure = int((sure < result.card.unsure_below).sum())
    assert 0.15 * len(known) <= unsure <= 0.45 * len(known)


def test_a_dish_struck_from_two_leaves_the_other_at_certainty(taught) -> None:
    model, card, known, _ = taught
    assert calibrate(model, card, known).unknown == Count(0, len(known) // 2)


def test_strangers_are_counted_and_the_record_says_so(taught) -> None:
    model, card, known, _ = taught
    grey = [Image.new("RGB", (40, 40), (v, v, v)) for v in (0, 128, 255)]
    result = calibrate(model, card, known, grey, share=0.999)
    assert result.strangers.total == 3
    record = result.card.training["calibration"]
    assert record["strangers_called_unsure"] == result.strangers.to_json()
    assert record["photos"] == {"choosing": 30, "judging": 30}
    assert math.isfinite(record["ece_after"])
    for name, found in (("before", result.before), ("after", result.after)):
        kept = Calibration.from_json(record[f"bins_{name}"])
        assert kept.count == found.count and kept.counts == found.counts
        assert kept.ece == pytest.approx(found.ece, abs=1e-4)


def test_plot_has_both_halves(taught, tmp_path: Path) -> None:
    model, card, known, _ = taught
    result = calibrate(model, card, known)
    reliability_plot(result.before, result.after).savefig(tmp_path / "plot.png")
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.width > picture.height > 400
    drawn = reliability_plot(result.before, result.after, dark=True).axes
    points = [np.asarray(axis.get_lines()[-1].get_xydata()) for axis in drawn[:2]]
    for found, shown in zip((result.before, result.after), points, strict=True):
        filled = np.array([found.confidence, found.accuracy]).T[np.array(found.count) > 0]
        np.testing.assert_allclose(shown, filled)
    sure, right = result.after.confidence[-1], result.after.counts[-1]
    assert f"{100 * sure:.0f} % sure: {right.correct} of {right.total} right." in in_words(
        result.before, result.after
    )


def test_the_command_writes_a_calibrated_checkpoint(
    taught, vit_home: Path, tmp_path: Path, capsys
) -> None:
    _, _, _, path = taught
    judge = photos(tmp_path / "judge", 10)
    out = tmp_path / "out.safetensors"
    assert main(["calibrate", str(path), str(judge), "--out", str(out)]) == 0
    assert "temperature" in capsys.readouterr().out
    card = checkpoint.read_card(out)
    assert card.temperature != 1 and "calibration" in card.training
    assert main(["calibrate", str(path), str(judge), "--share", "2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
