"""Faster answers: without the work that no answer needs, and in bfloat16 where that is quick."""

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from vit.checkpoint import resolve
from vit.classifier import Classifier, Prediction
from vit.data import open_photos
from vit.evaluate import evaluate
from vit.model import ViT, ViTConfig
from vit.precision import PRODUCTS, check_precision, has_bfloat16, quicken_float32
from vit.top import answer
from vit.ui.header import loaded

ROOT = Path(__file__).resolve().parents[1]
PIZZA = ROOT / "examples" / "pizza_margherita.jpg"
needs_bfloat16 = pytest.mark.skipif(
    not has_bfloat16(), reason="needs a processor with bfloat16 arithmetic"
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"registers": 2, "depth": 1},
        {"class_tokens": 2, "representation": 8},
        {"layer_scale": True},
        {"patch_mean": True},
        {"stem": (), "patch_size": (16, 16)},
    ],
    ids=str,
)
def test_an_answer_is_what_the_whole_model_gives(changes: dict) -> None:
    torch.manual_seed(0)
    settings = {"width": 16, "depth": 3, "heads": 2, "mlp_width": 24, "classes": 5, **changes}
    model = ViT(ViTConfig(**{"image_size": (32, 32), "patch_size": (8, 8), **settings})).eval()
    for weights in model.parameters():
        nn.init.normal_(weights, std=0.5)
    images = torch.randn(3, 3, 32, 48)  # another grid too
    with torch.inference_mode():
        torch.testing.assert_close(answer(model, images), model(images), rtol=1e-4, atol=1e-4)


def test_processors_with_and_without() -> None:
    assert has_bfloat16({"architecture": "x86_64", "avx2": True, "avx512_bf16": True})
    assert has_bfloat16({"amx_bf16": True})
    assert has_bfloat16({"architecture": "aarch64", "bf16": True})
    assert not has_bfloat16({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False})
    assert has_bfloat16() in (True, False)


@pytest.fixture
def torchs_own_products() -> Iterator[None]:
    """As torch multiplies when nobody told it how."""
    before, PRODUCTS.fp32_precision = PRODUCTS.fp32_precision, "none"
    yield
    PRODUCTS.fp32_precision = before


def error(model: ViT, images: torch.Tensor) -> float:
    """The greatest difference between the logits and those computed in float64."""
    with torch.inference_mode():
        truth = copy.deepcopy(model).double()(images.double())
        return float((model(images) - truth).abs().max())


def test_quicker_products_are_exact() -> None:
    torch.manual_seed(0)
    model = Classifier.load("food101").model  # from here on they are quicker where they can be
    assert 0 < error(model, torch.randn(2, 3, 224, 224)) < 2e-5


@pytest.mark.usefixtures("torchs_own_products")
@pytest.mark.parametrize(
    "machine",
    [
        {"avx512_f": True, "cpu_name": "Intel(R) Xeon(R)"},
        {"avx512_f": True, "amx_tile": True, "cpu_name": "AMD EPYC"},
        {"avx512_f": False, "cpu_name": "AMD EPYC"},
        {"architecture": "aarch64"},
    ],
    ids=str,
)
def test_other_machines_multiply_as_torch_does(
    machine: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: machine)
    assert quicken_float32.__wrapped__() is False
    assert PRODUCTS.fp32_precision == "none"


@pytest.mark.usefixtures("torchs_own_products")
def test_products_that_round_are_turned_back(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"avx512_f": True, "cpu_name": "AMD EPYC"}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert quicken_float32.__wrapped__() is False
    finally:
        torch.set_default_dtype(torch.float32)
    assert PRODUCTS.fp32_precision == "none"


def test_other_precisions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_precision("float32") == "float32"
    with pytest.raises(ValueError, match="must be float32 or bfloat16, not 'half'"):
        Classifier.load("food101", "half")  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr("vit.precision.has_bfloat16", lambda: False)
    with pytest.raises(ValueError, match="no bfloat16 arithmetic and would be slower"):
        Classifier.load("food101", "bfloat16")


@needs_bfloat16
def test_both_precisions_are_there_at_once_and_nearly_agree() -> None:
    exact, quick = Classifier.load("food101"), Classifier.load("food101", "bfloat16")
    assert quick is Classifier.load("food101", "bfloat16")
    assert exact is Classifier.load("food101")
    kinds = [{w.dtype for w in each.model.parameters()} for each in (exact, quick)]
    assert kinds == [{torch.float32}, {torch.bfloat16}]
    answers = [each.classify(PIZZA) for each in (exact, quick)]
    assert answers[0].classes[0] == answers[1].classes[0] == "pizza"
    assert answers[0].confidence == pytest.approx(answers[1].confidence, abs=0.03)
    assert answers[0].probabilities != answers[1].probabilities
    (many,) = quick.classify_many([PIZZA])
    assert isinstance(many, Prediction)
    assert many.probabilities == answers[1].probabilities


@needs_bfloat16
def test_as_many_photos_are_right(shared_data: Path) -> None:
    """The README counts more of them; this is what a mistake would not leave alone."""
    photos = open_photos(shared_data / "pizza_steak_sushi" / "test")
    right = []
    for precision in ("float32", "bfloat16"):
        used = Classifier.load("pizza-steak-sushi", precision)
        result = evaluate(used.model, photos, used.card.preprocess, used.card.classes)
        assert result.logits.dtype == torch.float32
        right.append(result.top1.correct)
    assert right[0] > 70 and abs(right[1] - right[0]) <= 1


@needs_bfloat16
def test_the_command_line_and_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "vit", "classify", str(PIZZA), "--json", "--precision"]
    done = subprocess.run([*command, "bfloat16"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("VIT_PRECISION", "bfloat16")
    page = loaded("food101")
    assert page.model.pos_embed.dtype == torch.bfloat16
    assert Classifier.load(resolve("food101")).model.pos_embed.dtype == torch.float32
    said = json.loads(done.stdout)[0]["top"]
    assert [row["probability"] for row in said] == pytest.approx(
        page.classify(PIZZA).probabilities, abs=1e-3
    )


@pytest.mark.parametrize("how", ["command", "page"])
def test_a_precision_that_is_none_ends_in_one_sentence(how: str, tmp_path: Path) -> None:
    command, variable = ["app.py"], "half"
    if how == "command":
        command, variable = ["-m", "vit", "classify", str(PIZZA), "--precision", "half"], ""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": "", "VIT_HOME": str(tmp_path), "VIT_PRECISION": variable},
    )
    assert done.returncode == 2
    assert done.stderr.strip().endswith("The precision must be float32 or bfloat16, not 'half'.")
    assert done.stderr.count("\n") == 1
