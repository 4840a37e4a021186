"""Stochastic depth: the mean stays, it rises with depth, and it is gone as soon as it is done."""

from dataclasses import replace

import pytest
import torch
from small import TINY
from torch import Tensor, nn

from vit.distributed import World
from vit.droppath import drop_path
from vit.model import ViT

ALL = World().mine


def model_of(depth: int) -> ViT:
    torch.manual_seed(0)
    model = ViT(replace(TINY, depth=depth)).train()
    nn.init.normal_(model.head.weight)
    return model


def dropped(model: ViT, block: int, branch: Tensor) -> Tensor:
    return model.blocks[block].get_submodule("drop")(branch)


def test_branches_are_left_out_for_whole_photos_and_more_so_the_deeper() -> None:
    model, branch = model_of(3), torch.ones(20_000, 2, 3)
    with drop_path(model, 0.5, len(branch), ALL):
        assert dropped(model, 0, branch) is branch
        for block, rate in ((1, 0.25), (2, 0.5)):
            values = dropped(model, block, branch).flatten(1)
            assert (values == values[:, :1]).all()
            kept = values[:, 0] > 0
            torch.testing.assert_close(values[kept], torch.full_like(values[kept], 1 / (1 - rate)))
            deviation = (rate * (1 - rate) / len(branch)) ** 0.5
            assert kept.float().mean().item() == pytest.approx(1 - rate, abs=5 * deviation)


@torch.no_grad()
def test_the_mean_of_a_block_is_what_it_gives_without() -> None:
    model = model_of(2)
    # What comes after the attention would bend the mean.
    nn.init.zeros_(model.get_parameter("blocks.1.mlp.fc2.weight"))
    tokens = torch.randn(1, 5, TINY.width)
    plain = model.blocks[1](tokens)[0]
    with drop_path(model, 0.25, 4000, ALL):
        many = model.blocks[1](tokens.expand(4000, -1, -1))
    assert len(many.flatten(1).unique(dim=0)) == 2
    branch = (plain - tokens[0]).abs().max().item()
    torch.testing.assert_close(many.mean(0), plain, rtol=0, atol=5 * branch * (1 / 3 / 4000) ** 0.5)


def test_outside_the_model_answers_as_before_also_after_an_error() -> None:
    model, images = model_of(3), torch.randn(4, 3, 32, 32)
    before = model(images)
    with pytest.raises(KeyError), drop_path(model, 0.9, 4, ALL):
        assert not torch.equal(model(images), before)
        raise KeyError
    assert torch.equal(model(images), before)
    assert not any(module._forward_hooks for module in model.modules())
    with drop_path(model, 0.0, 4, ALL):
        assert torch.equal(model(images), before)


def test_processes_draw_together_what_one_draws() -> None:
    model, images = model_of(3), torch.randn(5, 3, 32, 32)

    def answers(mine: slice) -> Tensor:
        torch.manual_seed(1)
        with drop_path(model, 0.5, len(images), mine):
            return model(images[mine])

    whole = answers(ALL)
    for rank in range(2):
        mine = World(rank, 2).mine
        torch.testing.assert_close(answers(mine), whole[mine], rtol=1e-5, atol=1e-5)
    assert answers(World(5, 6).mine).shape == (0, TINY.classes)  # more processes than photos
