"""The guided tour: one photo through one model, stop by stop, with the model's own numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vit import tour_answer, tour_block, tour_photo
from vit.guide import Choice, Guided
from vit.lesson import Lesson, markdown, markdown_text


@dataclass(frozen=True)
class Stop:
    """key: its name in links. part: of the way it lies in. controls: the fields of `Choice` that
    change what is shown here. per_head: `number` counts those of a head, not those of a token."""

    key: str
    title: str
    part: str
    lesson: Callable[[Guided, Choice], Lesson]
    controls: tuple[str, ...]
    per_head: bool = False


IN, BLOCK, OUT = "from photo to tokens", "inside a block", "to the answer"
WHO = ("block", "patch_asks", "patch")
STOPS = (
    Stop("photos", "Photos and labels", IN, tour_photo.photos, ("batch",)),
    Stop("crop", "Resize and crop", IN, tour_photo.crop, ("patch",)),
    Stop("patches", "Cut into patches", IN, tour_photo.patches, ("patch",)),
    Stop("convolution", "One linear map", IN, tour_photo.convolution, ("patch", "number")),
    Stop("flatten", "A list of tokens", IN, tour_photo.flatten, ("patch", "number")),
    Stop("class", "The class token", IN, tour_photo.class_token, ("batch",)),
    Stop("positions", "Positions", IN, tour_photo.positions, ("patch", "number")),
    Stop("norm", "LayerNorm", BLOCK, tour_block.norm, (*WHO, "number")),
    Stop("queries", "Query, key, value", BLOCK, tour_block.queries, (*WHO, "head", "number"), True),
    Stop("scores", "q · k, scaled", BLOCK, tour_block.scores, (*WHO, "head")),
    Stop("softmax", "Softmax", BLOCK, tour_block.softmax, (*WHO, "head", "softness")),
    Stop("weighted", "Weighted sum", BLOCK, tour_block.weighted, (*WHO, "head", "number"), True),
    Stop("heads", "Heads joined", BLOCK, tour_block.heads, (*WHO, "number")),
    Stop("mlp", "MLP with GELU", BLOCK, tour_block.mlp, (*WHO, "neuron")),
    Stop("residual", "Residuals", BLOCK, tour_block.residual, (*WHO, "number")),
    Stop("blocks", "Block after block", OUT, tour_answer.blocks, ("block",)),
    Stop("logits", "Class token to logits", OUT, tour_answer.logits, ("dish",)),
    Stop("probabilities", "Logits to answer", OUT, tour_answer.probabilities, ("temperature",)),
)


def stop(key: str) -> Stop:
    """The stop of this name, or the first for any other."""
    return next((each for each in STOPS if each.key == key), STOPS[0])


def as_markdown(this: Guided, at: Choice) -> str:
    """The whole tour as Markdown."""
    parts = [f"# One photo through {markdown_text(this.inside.name)}"]
    for number, each in enumerate(STOPS, 1):
        parts.append(markdown(str(number), each.title, each.lesson(this, at)))
    return "\n\n".join(parts) + "\n"
