"""The calculator in the Model tab: what a Vision Transformer of any size costs."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import NamedTuple

import gradio as gr

from vit.calculator import MEANING, Cost, Symbols, attention_memory, multiply_adds, parameters
from vit.model import PRESETS, ViTConfig
from vit.summary import prefix_names
from vit.ui.page import QUIET
from vit.ui.words import trouble_html

THIS = "the chosen model"
PLAIN = {name: config for name, config in PRESETS.items() if config.stem is None}
HYBRID = (
    "The chosen model has a ResNet in front, which is not counted here: these are the costs of the "
    "same transformer on patches of pixels."
)


class Sizes(NamedTuple):
    """The values of the sliders, in their order."""

    image: int
    patch: int
    width: int
    depth: int
    heads: int
    mlp: int
    classes: int

    @classmethod
    def of(cls, config: ViTConfig) -> Sizes:
        """A square of the first sides stands for rectangles."""
        return cls(
            config.image_size[0],
            config.patch_size[0],
            config.width,
            config.depth,
            config.heads,
            config.mlp_width,
            config.classes,
        )

    def config(self, like: ViTConfig) -> tuple[ViTConfig, str]:
        """The model of these sizes, the rest `like`, and what had to be changed: the picture is
        brought to the nearest multiple of the patch. Raises ValueError."""
        sizes = Sizes(*(int(value or 0) for value in self))
        patch = max(1, sizes.patch)
        image = max(1, round(sizes.image / patch)) * patch
        said = (
            f"{sizes.image} pixels are not filled by patches of {patch}; counted with {image}."
            if image != sizes.image
            else ""
        )
        config = replace(
            like,
            image_size=(image, image),
            patch_size=(patch, patch),
            width=sizes.width,
            depth=sizes.depth,
            heads=sizes.heads,
            mlp_width=sizes.mlp,
            classes=sizes.classes,
        )
        return config, said


RANGES = {
    "image": ("Picture, pixels a side", 32, 640, 16),
    "patch": ("Patch, pixels a side", 4, 64, 2),
    "width": ("Width D", 48, 1664, 16),
    "depth": ("Blocks L", 1, 48, 1),
    "heads": ("Heads A", 1, 24, 1),
    "mlp": ("MLP width M", 64, 8192, 64),
    "classes": ("Classes C", 2, 21843, 1),
}


class Calculator:
    def __init__(self) -> None:
        with gr.Row(elem_id="calculator-row"):
            with gr.Column(elem_id="calculator-sizes", min_width=240):
                self.start = gr.Dropdown([THIS, *PLAIN], value=THIS, label="Begin with")
                self.sliders = [
                    gr.Slider(
                        low,
                        high,
                        value=low,
                        step=step,
                        label=label,
                        buttons=[],
                        elem_id=f"size-{name}",
                    )
                    for name, (label, low, high, step) in RANGES.items()
                ]
            self.result = gr.HTML(elem_id="calculated")
        # what a slider cannot say: registers, a representation layer
        self.like = gr.State(PRESETS["Ti/16"])
        self.chosen = gr.State(PRESETS["Ti/16"])
        gr.on(
            [slider.input for slider in self.sliders],
            result,
            [self.like, *self.sliders],
            self.result,
            trigger_mode="always_last",
            queue=False,
            **QUIET,
        )
        self.start.input(
            begin,
            [self.start, self.chosen],
            [self.like, *self.sliders, self.result],
            **QUIET,
        )
        self.outputs = [self.start, self.chosen, self.like, *self.sliders, self.result]

    def open(self, config: ViTConfig) -> dict:
        """Another checkpoint: begin with its sizes."""
        values = begin(THIS, config)
        parts = [self.like, *self.sliders, self.result]
        return {self.start: THIS, self.chosen: config} | dict(zip(parts, values, strict=True))


def begin(name: str, chosen: ViTConfig) -> tuple:
    """The sizes of a preset or of the chosen model, and what they cost."""
    config = chosen if name == THIS else PLAIN.get(name, chosen)
    said = HYBRID if config.stem is not None else ""
    config = replace(config, stem=None)
    sizes = Sizes.of(config)
    updates = []
    for (_, low, high, _), value in zip(RANGES.values(), sizes, strict=True):
        updates.append(gr.update(value=value, minimum=min(low, value), maximum=max(high, value)))
    return config, *updates, costs_html(config, said)


def result(like: ViTConfig, *sizes: int) -> str:
    try:
        config, said = Sizes(*sizes).config(like)
    except ValueError as error:
        return trouble_html(str(error))
    return costs_html(config, said)


def costs_html(config: ViTConfig, said: str = "") -> str:
    """Three sums, each with its parts, formulas and the numbers put in."""
    s = Symbols.of(config)
    learned, work, memory = parameters(config), multiply_adds(config), attention_memory(config)
    flops = 2 * work.total
    bits = [
        (short(learned.total), "parameters", f"{short_bytes(4 * learned.total)} in float32"),
        (short(work.total), "multiply-adds a photo", f"{short(flops)} FLOPs"),
        (short_bytes(memory.total), "of attention a photo", f"{s.L} blocks, {s.A} heads"),
    ]
    tiles = "".join(
        f"<li><b>{value}</b><span>{escape(name)}</span><small>{escape(more)}</small></li>"
        for value, name, more in bits
    )
    letters = ", ".join(
        f"{letter} = {getattr(s, letter):,} {escape(name)}" for letter, name in MEANING.items()
    )
    note = f'<p class="note" role="status">{escape(said)}</p>' if said else ""
    return (
        f'<ul class="tiles">{tiles}</ul>{note}'
        f'<p class="letters">{letters}. N counts the patches and, in front of them, '
        f"{prefix_names(config)}.</p>"
        f"{_cost_html(learned)}{_cost_html(work)}"
        "<p>A FLOP is a multiplication or an addition, so there are two to a multiply-add. Biases, "
        "LayerNorm, softmax and GELU cost next to nothing and are left out, as is usual. Twice the "
        "picture's side is four times the patches: four times the linear maps, and sixteen times "
        "the attention.</p>"
        f"{_cost_html(memory, short_bytes)}"
        "<p>That is when the weights of all blocks are kept, as training with attention written "
        "out does, or the tab Attention. A fused attention never writes them out.</p>"
    )


def _cost_html(cost: Cost, how=None) -> str:
    most = max(line.value for line in cost.lines)
    rows = "".join(
        f'<tr><th scope="row">{escape(line.name)}</th><td>{escape(line.formula)}</td>'
        f"<td>{escape(line.numbers)}</td><td>{line.value:,}"
        f'<i style="width:{100 * line.value / most:.1f}%"></i></td></tr>'
        for line in cost.lines
    )
    total = f"{cost.total:,}" if how is None else f"{cost.total:,} = {how(cost.total)}"
    return (
        f'<table class="costs"><caption>{escape(cost.name)}: {total}</caption>'
        '<thead class="unseen"><tr><th>part</th><th>formula</th><th>numbers put in</th>'
        f"<th>{escape(cost.unit)}</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def short(count: float) -> str:
    """5526339 as "5.53 million"."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return (
                f"{count / size:.3g} {name}"
                if count < 999.5 * size
                else f"{count / size:,.0f} {name}"
            )
    return f"{count:,.0f}"


def short_bytes(count: float) -> str:
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return (
                f"{count / size:.3g} {name}"
                if count < 999.5 * size
                else f"{count / size:,.0f} {name}"
            )
    return f"{count:,.0f} bytes"
