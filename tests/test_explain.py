"""What-if questions: each answer against the same done by hand, and against chance."""

import threading
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from vit.attention import attend, class_relevance
from vit.explain import predictions_after_each_block, without_heads, without_patches
from vit.faithfulness import deletion_curve, faithfulness, insertion_curve
from vit.model import ViT, ViTConfig

CONFIG = ViTConfig((16, 24), (8, 8), width=24, depth=2, heads=3, mlp_width=48, classes=5)


def tiny(**changes: object) -> ViT:
    torch.manual_seed(5)
    model = ViT(replace(CONFIG, **changes)).eval()  # pyright: ignore[reportArgumentType]
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model


def photos(count: int = 1, height: int = 16, width: int = 24) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(count))


# --- Heads -------------------------------------------------------------------------------------


def test_a_head_is_off_when_its_columns_of_the_projection_are_zero() -> None:
    model, images, heads = tiny(), photos(2), {(0, 1), (1, 0), (1, 2)}
    before = model(images)
    by_hand = tiny()
    for layer, head in heads:
        weight = by_hand.get_parameter(f"blocks.{layer}.attn.proj.weight")
        weight.data[:, head * 8 : (head + 1) * 8] = 0
    changed = without_heads(model, heads)
    torch.testing.assert_close(changed(images), by_hand(images))
    assert not torch.allclose(changed(images), before, atol=1e-2)
    assert torch.equal(model(images), before)
    assert torch.equal(without_heads(model, set())(images), before)


def test_heads_go_off_one_after_another_and_may_be_watched() -> None:
    model, images = tiny(), photos(2)
    both = without_heads(without_heads(model, {(0, 1)}), {(0, 2), (1, 0)})
    logits, maps = attend(both, images)
    assert torch.equal(logits, without_heads(model, {(0, 1), (0, 2), (1, 0)})(images))
    assert torch.equal(maps[0], attend(model, images)[1][0])  # the first layer sees what it saw
    assert not torch.allclose(maps[1], attend(model, images)[1][1])
    torch.testing.assert_close(class_relevance(both, images)[0], logits.detach())


def test_all_heads_off_leaves_the_mlp_and_the_bias() -> None:
    model, images = tiny(depth=1), photos()
    silent = without_heads(model, {(0, head) for head in range(3)})
    one, other = photos(), photos().flip(-1)
    torch.testing.assert_close(silent(one), silent(other))  # the class token sees no patch
    assert not torch.allclose(model(one), model(other))
    assert torch.equal(images, one)


@pytest.mark.parametrize("head", [(2, 0), (0, 3), (-1, 0), (0, -1)])
def test_a_head_that_is_not_there(head: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="2 layers of 3 heads"):
        without_heads(tiny(), {head})


def test_one_visitor_switches_heads_off_while_another_looks() -> None:
    model, images = tiny(), photos()
    plain, silent = model(images).detach(), without_heads(model, {(0, 0), (1, 1)})(images).detach()
    start, wrong = threading.Barrier(4), []

    def visit(switches: bool) -> None:
        start.wait()
        for _ in range(60):
            asked = without_heads(model, {(0, 0), (1, 1)}) if switches else model
            if not torch.equal(asked(images), silent if switches else plain):
                wrong.append(switches)

    visitors = [threading.Thread(target=visit, args=(number % 2 == 0,)) for number in range(4)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert wrong == []


# --- Patches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("registers", [0, 2])
def test_without_patches_is_encoding_the_others(registers: int) -> None:
    model, images = tiny(registers=registers), photos(2)
    prefix = model.num_prefix_tokens
    keep = torch.tensor([0, 2, 5])
    tokens = model.embed(images)[:, [*range(prefix), *(keep + prefix).tolist()]]
    expected = model.classify(model.encode(tokens))
    assert torch.equal(without_patches(model, images, keep), expected)
    mask = torch.tensor([[True, False, True], [False, False, True]])
    for same in (mask, mask.flatten()):
        assert torch.equal(without_patches(model, images, same), expected)
    none = model.classify(model.encode(model.embed(images)[:, :prefix]))
    assert torch.equal(without_patches(model, images, torch.tensor([], dtype=torch.long)), none)
    torch.testing.assert_close(without_patches(model, images, torch.arange(6)), model(images))


def test_each_row_may_keep_its_own_patches() -> None:
    model, image = tiny(), photos()
    keep = torch.tensor([[0, 1], [5, 3], [2, 2]])
    got = without_patches(model, image, keep)
    for row, patches in zip(got, keep, strict=True):
        torch.testing.assert_close(row, without_patches(model, image, patches)[0])


def test_patches_that_are_not_there() -> None:
    model, image = tiny(), photos()
    for keep in (torch.tensor([6]), torch.tensor([-1])):
        with pytest.raises(ValueError, match="from 0 to 5"):
            without_patches(model, image, keep)
    with pytest.raises(ValueError, match="5 places, the photo 6 patches"):
        without_patches(model, image, torch.ones(5, dtype=torch.bool))


# --- After each block --------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"representation": 6, "registers": 1}])
def test_prediction_after_each_block(changes: dict) -> None:
    model, images = tiny(depth=3, **changes), photos(2)
    answers = predictions_after_each_block(model, images)
    assert answers.shape == (3, 2, 5)
    torch.testing.assert_close(answers[-1], model(images).detach())
    short = tiny(depth=3, **changes)
    short.blocks = short.blocks[:1]
    torch.testing.assert_close(answers[0], short(images).detach())


# --- Faithfulness ------------------------------------------------------------------------------


class Counts(nn.Module):
    """An encoder whose answer is the sum of what the patches carry in their first number."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.sum(1, keepdim=True).expand_as(tokens)


def counting(worth: Tensor) -> tuple[ViT, Tensor]:
    """A model whose logit of class 0 is the sum of `worth` (h, w) over the patches shown, the
    others' is zero; and the photo."""
    config = replace(CONFIG, image_size=(8 * worth.shape[0], 8 * worth.shape[1]), classes=2)
    model = ViT(config).eval()
    for weight in model.parameters():
        nn.init.zeros_(weight)
    model.blocks, model.norm = nn.ModuleList([Counts()]), nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    model.patch_embed.proj.weight.data[0] = 1 / (3 * 64)  # the mean colour of a patch
    model.head.weight.data[0, 0] = 1
    pixels = worth.repeat_interleave(8, 0).repeat_interleave(8, 1)
    return model, pixels.expand(1, 3, -1, -1)


WORTH = torch.tensor([[4.0, 0.0, 0.0, -1.0, 0.0], [0.0, 2.0, 0.0, 0.0, 0.0]])


def probability(logit: float) -> float:
    return torch.sigmoid(torch.tensor(logit)).item()


def test_faithfulness_on_paper() -> None:
    model, pixels = counting(WORTH)
    heats = {"true": WORTH, "false": -WORTH, "half": (WORTH == 2).float()}
    got = faithfulness(model, pixels, heats, 0, share=0.1)
    assert {(one.removed, one.patches, one.draws) for one in got.values()} == {(1, 10, 10)}
    assert [one.before for one in got.values()] == [pytest.approx(probability(5))] * 3
    afters = {name: one.after for name, one in got.items()}
    assert afters == pytest.approx(
        {"true": probability(1), "false": probability(6), "half": probability(3)}, abs=1e-6
    )
    assert len({(one.random_mean, one.random_std) for one in got.values()}) == 1
    one = got["true"]
    assert probability(1) < one.random_mean < probability(6) and one.random_std > 0
    again = faithfulness(model, pixels, {"true": WORTH}, 0, share=0.1)
    assert again["true"] == one  # the same draws, whatever else is tested
    other = faithfulness(model, pixels, {"true": WORTH}, 0, share=0.1, seed=1, draws=200)["true"]
    exact = [probability(5 - value) for value in WORTH.flatten().tolist()]
    mean = sum(exact) / 10
    assert other.random_mean == pytest.approx(mean, abs=0.01)
    std = (sum((value - mean) ** 2 for value in exact) / 10) ** 0.5
    assert other.random_std == pytest.approx(std, abs=0.01)


def test_probabilities_are_of_the_target_at_the_temperature() -> None:
    model, pixels = counting(WORTH)
    got = faithfulness(model, pixels, {"": WORTH}, 1, share=0.1, temperature=2.5)[""]
    assert got.before == pytest.approx(1 - probability(2), abs=1e-6)
    curve = deletion_curve(model, pixels, {"": WORTH}, 1, temperature=2.5)[""]
    assert curve.probabilities[0] == pytest.approx(1 - probability(2), abs=1e-6)


def test_spared_patches_are_never_removed() -> None:
    model, pixels = counting(WORTH)
    got = faithfulness(model, pixels, {"": WORTH}, 0, share=0.1, spared=[0], draws=50)[""]
    assert got.patches == 9 and got.after == pytest.approx(probability(3))
    assert got.random_mean > probability(3)  # no draw took the best patch
    gone = deletion_curve(model, pixels, {"": WORTH}, 0, spared={0, 6}, steps=8)[""]
    assert gone.shares == tuple(step / 8 for step in range(9))
    assert gone.probabilities[-1] == pytest.approx(probability(6), abs=1e-6)
    shown = insertion_curve(model, pixels, {"": WORTH}, 0, spared=[0], steps=9)[""]
    assert shown.probabilities[0] == pytest.approx(probability(4))


def test_curves_on_paper() -> None:
    model, pixels = counting(WORTH)
    heats = {"true": WORTH, "false": -WORTH}
    gone = deletion_curve(model, pixels, heats, 0, steps=10)["true"]
    logits = [5.0, 1, -1, -1, -1, -1, -1, -1, -1, -1, 0]
    assert gone.shares == pytest.approx([step / 10 for step in range(11)])
    expected = [probability(logit) for logit in logits]
    assert gone.probabilities == pytest.approx(expected, abs=1e-6)
    area = sum((a + b) / 20 for a, b in zip(expected, expected[1:], strict=False))
    assert gone.area == pytest.approx(area)
    shown = insertion_curve(model, pixels, heats, 0, steps=10)
    backwards = insertion_curve(model, pixels, {"": -WORTH}, 0, steps=10)[""]
    assert shown["false"] == backwards  # alone or in company
    assert shown["true"].probabilities[:3] == pytest.approx(
        [probability(logit) for logit in (0, 4, 6)]
    )
    assert shown["true"].area > shown["false"].area
    assert deletion_curve(model, pixels, heats, 0, steps=3)["true"].shares == (0, 0.3, 0.7, 1)


def test_equal_values_fall_in_an_order_of_chance() -> None:
    model, pixels = counting(WORTH)
    flat = {"": torch.zeros(2, 5)}
    curves = {
        deletion_curve(model, pixels, flat, 0, seed=seed)[""].probabilities for seed in range(8)
    }
    assert len(curves) > 3
    one, again = (deletion_curve(model, pixels, flat, 0, seed=2) for _ in range(2))
    assert one == again


def test_questions_that_make_no_sense() -> None:
    model, image = tiny(), photos()
    heats = {"": torch.zeros(2, 3)}
    with pytest.raises(ValueError, match="5 values, the photo 6"):
        faithfulness(model, image, {"": torch.zeros(5)}, 0)
    with pytest.raises(ValueError, match="one photo"):
        faithfulness(model, photos(2), heats, 0)
    for share, draws in ((0.0, 10), (1.0, 10), (0.2, 1)):
        with pytest.raises(ValueError, match="share must be"):
            faithfulness(model, image, heats, 0, share=share, draws=draws)
    for bad, steps in (({}, 5), (heats, 0)):
        with pytest.raises(ValueError, match="a map and a step"):
            insertion_curve(model, image, bad, 0, steps=steps)
    with pytest.raises(ValueError, match="from 0 to 5"):
        faithfulness(model, image, heats, 0, spared=[17])
