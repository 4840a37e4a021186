"""Between the weights that a run began with and those it ended with."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small import TINY

from vit import checkpoint
from vit.__main__ import main
from vit.blend import blend
from vit.card import Card, CheckpointError
from vit.images import Preprocess
from vit.metrics import Count
from vit.model import ViT


def random_model(**changes: int) -> ViT:
    model = ViT(replace(TINY, **changes))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    return model.eval()


def test_the_ends_are_the_two_models_and_the_middle_is_their_mean() -> None:
    fine, start = random_model(), random_model()
    images = torch.randn(2, 3, *TINY.image_size)
    assert torch.equal(blend(fine, start, 1)(images), fine(images))
    first = blend(fine, start, 0)
    assert torch.equal(first.embed(images), start.embed(images))
    assert torch.equal(first.head.weight, fine.head.weight)
    half = blend(fine, start, 0.5)
    torch.testing.assert_close(half.cls_token, (fine.cls_token + start.cls_token) / 2)


def test_two_runs_have_the_mean_of_their_heads() -> None:
    one, other = random_model(registers=2), random_model(registers=2)
    between = blend(one, other, 0.25, same_classes=True)
    firsts, seconds = one.state_dict(), other.state_dict()
    for name, found in between.state_dict().items():
        expected = seconds[name] + 0.25 * (firsts[name] - seconds[name])
        torch.testing.assert_close(found, expected, msg=name)


def test_registers_are_added_to_the_start_as_training_adds_them() -> None:
    fine, start = random_model(registers=4), random_model()
    first = blend(fine, start, 0)
    assert first.reg_token is not None and fine.reg_token is not None
    assert not torch.equal(first.pos_embed[0, 1], start.pos_embed[0, 1])  # a corner
    assert torch.equal(first.pos_embed[0, 2], start.pos_embed[0, 2])
    assert torch.equal(blend(fine, start, 1).reg_token, fine.reg_token)  # pyright: ignore[reportArgumentType]


def test_what_cannot_be_blended_is_refused() -> None:
    with pytest.raises(CheckpointError, match="different shapes"):
        blend(random_model(depth=1), random_model(depth=2), 0.5)
    with pytest.raises(ValueError, match="from 0"):
        blend(random_model(), random_model(), 1.5)


def test_the_command_forgets_the_counts_of_the_old_weights(tmp_path: Path, capsys) -> None:
    card = Card(TINY, Preprocess(TINY.image_size), tuple(f"c{i}" for i in range(TINY.classes)))
    counted = replace(card, metrics={"validation": Count(3, 4)}, unsure_below=0.5, temperature=2.0)
    fine, start, out = (str(tmp_path / f"{name}.safetensors") for name in ("fine", "start", "out"))
    checkpoint.save(fine, random_model(), counted)
    checkpoint.save(start, random_model(), card)
    assert main(["blend", fine, start, "--share", "0.25", "--out", out]) == 0
    written = checkpoint.read_card(out)
    assert not written.metrics and written.unsure_below is None and written.temperature == 1
    assert written.training["blend"]["share"] == 0.25
    heads = [checkpoint.load(path)[0].head.weight for path in (fine, start, out)]
    torch.testing.assert_close(heads[2], heads[1] + 0.25 * (heads[0] - heads[1]), atol=1e-3, rtol=0)

    again = str(tmp_path / "again.safetensors")
    assert main(["blend", out, start, "--share", "0.5", "--out", again]) == 0
    twice = checkpoint.read_card(again).training["blend"]
    assert (twice["share"], twice["before"]["share"]) == (0.5, 0.25)

    others = replace(card, classes=tuple(f"other{i}" for i in range(TINY.classes)))
    checkpoint.save(start, random_model(), others)
    assert main(["blend", fine, start, "--share", "0.25", "--out", out]) == 0
    assert torch.equal(checkpoint.load(out)[0].head.weight, heads[0])  # it names what fine names
    assert main(["blend", fine, start, "--share", "2", "--out", out]) == 2
    assert capsys.readouterr().err.count("\n") == 1
