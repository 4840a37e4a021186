"""What a `Look` tells: maps without running the model again, and answers for which it must run.

Picking a map is indexing. Relevance for a dish not asked for before runs the model forwards and
backwards; the test of a map, the prediction after each block and heads switched off, forwards.
Layers and heads are counted from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vit.attention import attentions, class_relevance, own_view
from vit.classifier import Classifier, UntrainedHead
from vit.explain import predictions_after_each_block, without_heads
from vit.faithfulness import (
    STEPS,
    Curve,
    Faithfulness,
    How,
    deletion_curve,
    faithfulness,
    insertion_curve,
)
from vit.looking import METHODS, Look, LookError, Question, looks, pixels_of
from vit.lru import Store
from vit.maps import looked_at_by, looks_at, mean_distance, rollout, set_aside, speaks_for
from vit.model import ViT

MAX_DERIVED = 64 * 2**20  # bytes of relevance, rollout and distances
DRAWS = 10  # of random patches, in the test of a map
CURVE_DRAWS = 4  # of random orders beside a curve, each as much work as the curve
FORWARDS = 2 * (STEPS + 1)  # of two curves with what is beside them


def heat_of(look: Look, question: Question) -> Tensor:
    """The map (h, w), float32, that `question` asks for.

    Raises LookError for a layer, head, patch or class that is not there, UntrainedHead for
    relevance of a model that knows no dishes.
    """
    check(look, question)
    method, by = question.method, question.by
    token = 0 if question.token is None else look.prefix + question.token
    pick = looked_at_by if by else looks_at
    if method == "relevance":
        relevance = relevance_of(look, question.aim(look))
        if question.token is None and not by:
            config = look.card.config
            heat = speaks_for(
                relevance, config.class_tokens, look.prefix, look.grid, config.patch_mean
            )
        else:
            heat = pick(relevance, token, look.prefix, look.grid)
    elif method == "rollout":
        heat = pick(rollout_of(look), token, look.prefix, look.grid)
    else:
        heads = pick(look.maps[question.layer], token, look.prefix, look.grid).float()  # (A, h, w)
        heat = {"head": lambda: heads[question.head], "mean": lambda: heads.mean(0)}.get(
            method, lambda: heads.amax(0)
        )()
    return set_aside(heat, look.sinks) if question.aside else heat


def check(look: Look, question: Question) -> None:
    patches = look.grid[0] * look.grid[1]
    if question.method not in METHODS:
        raise LookError(f"There is no method {question.method!r}; take {', '.join(METHODS)}.")
    if not 0 <= question.layer < look.depth:
        raise LookError(f"There is no layer {question.layer + 1}; the last is {look.depth}.")
    if not 0 <= question.head < look.heads:
        raise LookError(f"There is no head {question.head + 1}; the last is {look.heads}.")
    if question.token is not None and not 0 <= question.token < patches:
        raise LookError(f"There is no patch {question.token}; they are 0 to {patches - 1}.")
    if question.target is not None and not 0 <= question.target < len(look.logits):
        raise LookError(f"There is no dish {question.target}; there are {len(look.logits)}.")


def relevance_of(look: Look, target: int) -> Tensor:
    """(N, N), float32: relevance for one class. Runs the model, once for a class."""
    needs_dishes(look)

    def make() -> Tensor:
        classifier = Classifier.load(look.path)
        return class_relevance(classifier.model, pixels_of(look, classifier), target)[1][0].cpu()

    return _derived.get((look.key, "relevance", target), make)


def rollout_of(look: Look) -> Tensor:
    """(N, N), float32."""

    def make() -> Tensor:
        means = torch.stack([layer.float().mean(0) for layer in look.maps])
        return rollout(means[:, None, None])[0]

    return _derived.get((look.key, "rollout"), make)


def distance_of(look: Look) -> Tensor:
    """(layers, heads): how far patches look on average, in pixels of the model's picture."""

    def make() -> Tensor:
        patch_size = look.card.config.patch_size
        return torch.stack(
            [
                mean_distance(layer.float(), look.prefix, look.grid, patch_size)
                for layer in look.maps
            ]
        )

    return _derived.get((look.key, "distance"), make)


def needs_dishes(look: Look) -> None:
    if not look.card.trained_head:
        raise UntrainedHead(
            f"{look.name} knows no dishes yet, so there is no answer to explain; look at its heads "
            "or the rollout, or fine-tune it first."
        )


def tested(
    look: Look,
    heats: Mapping[str, Tensor],
    target: int,
    step: Callable[[], None] = lambda: None,
) -> dict[str, Faithfulness]:
    """Each map (h, w), by name, against chance; runs the model. The sinks are hidden by none: the
    model leans on them whatever they show, and a map that only rates them high would seem true.

    `step` is called before every layer of two forwards, of one row and of `rows_of_test(heats)`;
    what it raises ends the test.
    """
    needs_dishes(look)
    classifier, model = _paced(look, step)
    return faithfulness(
        model,
        pixels_of(look, classifier),
        heats,
        target,
        spared=look.sinks.patches,
        draws=DRAWS,
        temperature=look.card.temperature,
    )


@dataclass(frozen=True)
class Curves:
    """Of a map and of orders of chance, one for each draw."""

    deletion: Curve
    insertion: Curve
    chance_deletion: tuple[Curve, ...]
    chance_insertion: tuple[Curve, ...]


def curves_of(
    look: Look, heat: Tensor, target: int, step: Callable[[], None] = lambda: None
) -> Curves:
    """How the probability of a class moves as patches go, or come, in the order of a map (h, w);
    runs the model. The sinks stay throughout, as in `tested`.

    `step` is called before every layer of `FORWARDS` forwards; what it raises ends it.
    """
    needs_dishes(look)
    classifier, model = _paced(look, step)
    random = torch.Generator().manual_seed(0)
    chance = {f"{draw}": torch.rand(look.grid, generator=random) for draw in range(CURVE_DRAWS)}
    pixels, heats = pixels_of(look, classifier), {"map": heat} | chance
    how = How(spared=look.sinks.patches, temperature=look.card.temperature)
    gone = deletion_curve(model, pixels, heats, target, **how)
    shown = insertion_curve(model, pixels, heats, target, **how)
    return Curves(
        gone["map"],
        shown["map"],
        tuple(gone[name] for name in chance),
        tuple(shown[name] for name in chance),
    )


def rows_of_test(heats: Collection) -> int:
    """How many rows the larger forward of a test has."""
    return len(heats) + DRAWS


def _paced(look: Look, step: Callable[[], None]) -> tuple[Classifier, ViT]:
    """The classifier, and a view of its model that calls `step` before every layer."""
    classifier = Classifier.load(look.path)
    model = own_view(classifier.model)
    for _, attn in attentions(model):
        attn.core = _Paced(attn.core, step)
    return classifier, model


class _Paced(nn.Module):
    def __init__(self, core: nn.Module, step: Callable[[], None]) -> None:
        super().__init__()
        self.core, self.step = core, step

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.step()
        return self.core(q, k, v)


def after_each_block(look: Look) -> Tensor:
    """Calibrated probabilities (depth, C) if the model ended there; runs the model once."""
    needs_dishes(look)
    classifier = Classifier.load(look.path)
    answers = predictions_after_each_block(classifier.model, pixels_of(look, classifier))
    return (answers[:, 0].float().cpu() / look.card.temperature).softmax(1)


def without(look: Look, heads: Collection[tuple[int, int]]) -> Tensor:
    """Calibrated probabilities (C,) with these (layer, head) switched off; runs the model once."""
    needs_dishes(look)
    classifier = Classifier.load(look.path)
    silent = without_heads(classifier.model, heads)
    with torch.no_grad():
        logits = silent(pixels_of(look, classifier))[0].float().cpu()
    return (logits / look.card.temperature).softmax(0)


_derived: Store[Tensor] = Store(256, MAX_DERIVED, lambda tensor: tensor.nbytes, looks)
