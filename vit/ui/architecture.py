"""The chosen model as a picture and as a table."""

from __future__ import annotations

from functools import lru_cache
from html import escape

from vit.card import Card
from vit.model import ViTConfig
from vit.summary import Layer, layers, prefix_names, table
from vit.ui.words import INFO, kind

WIDE, BOX, GAP = 360, 44, 26  # of the picture, in its own units: pixels on a phone
TRAINED = [("every weight", False), ("the head alone", True)]

# A click on a part of the picture sends the stop of the tour that explains it.
ON_PICTURE = """
const send = (event) => {
  const part = event.target.closest("[data-stop]");
  if (part) trigger("click", { stop: part.dataset.stop });
};
element.addEventListener("click", send);
element.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  send(event);
});
"""


def picture_html(card: Card) -> str:
    """From photo to dishes, top to bottom; every part leads to its stop of the tour."""
    config, (H, W) = card.config, card.preprocess.size
    h, w = H // config.patch_size[0], W // config.patch_size[1]
    D, A, K, P = config.width, config.heads, config.class_tokens, h * w
    stem, alone = config.stem is not None, " alone" if K == 1 else "s"
    N = P + config.num_prefix_tokens
    p_h, p_w = config.patch_size
    top = [
        _box("Photo", f"resized, cropped: 3 × {H} × {W}", "crop"),
        *([_box("ResNet", "convolutions: a map of features", "patches")] if stem else []),
        _box("Patches", f"{h} × {w} of {p_h} × {p_w} pixels", "patches"),
        _box("Linear map", f"a convolution: {P} × {D}", "convolution"),
        _box("Tokens in front, positions", f"{prefix_names(config)}: {N} × {D}", "class"),
    ]
    block = [
        _box("LayerNorm", "", "norm", small=True),
        _box(
            f"Attention, {A} head{'s' * (A > 1)}", f"each {D // A} wide: {A} × {N} × {N}", "softmax"
        ),
        _box("LayerNorm", "", "norm", small=True),
        _box("MLP with GELU", f"{D} → {config.mlp_width:,} → {D}", "mlp"),
    ]
    rest = [
        _box(f"LayerNorm, class token{alone}", f"{K * D} numbers", "logits"),
        *(
            [_box("Representation layer", f"{K * D} → {config.representation}, tanh", "logits")]
            if config.representation
            else []
        ),
        _box("Head", f"a linear map to {config.classes:,} logits", "logits"),
        _box("Softmax", f"a probability for every {kind(card)}", "probabilities"),
    ]
    drawn, y = _column(top, 4)
    frame_top = y + 4
    inner, y = _column(block, frame_top + 34, inset=34)
    sums = _sums(frame_top + 34, block)
    frame = (
        f'<rect class="frame" x="8" y="{frame_top}" width="{WIDE - 16}" height="{y - frame_top}" '
        f'rx="14"/><text class="times" x="24" y="{frame_top + 22}">{config.depth} × '
        "this block</text>"
    )
    last, end = _column(rest, y + GAP)
    arrow = _arrow(y, y + GAP) + _arrow(frame_top - 2, frame_top + 34)
    said = f"Architecture: patches of {p_h} × {p_w}, {config.depth} blocks of {A} heads, width {D}"
    return (
        f'<svg class="architecture" viewBox="0 0 {WIDE} {end - GAP + 4}" role="group" '
        f'aria-label="{escape(said)}">{drawn}{frame}{inner}{sums}{arrow}{_without_last_arrow(last)}</svg>'
    )


Box = tuple[str, str, str, bool]


def _box(name: str, what: str, stop: str, small: bool = False) -> Box:
    return name, what, stop, small


def _column(boxes: list[Box], top: float, inset: float = 8) -> tuple[str, float]:
    """Boxes below one another with arrows between, and where the next would begin."""
    parts, y = [], top
    for name, what, stop, small in boxes:
        height = 26 if small else BOX
        second = f'<text class="what" x="{WIDE / 2}" y="{y + 34}">{escape(what)}</text>'
        parts.append(
            f'<g class="box" data-stop="{stop}" role="button" tabindex="0" '
            f'aria-label="{escape(name)}: show it in the tour"><rect x="{inset}" y="{y}" '
            f'width="{WIDE - 2 * inset}" height="{height}" rx="8"/>'
            f'<text x="{WIDE / 2}" y="{y + 17}">{escape(name)}</text>{"" if small else second}</g>'
        )
        parts.append(_arrow(y + height, y + height + GAP))
        y += height + GAP
    return "".join(parts), y


def _without_last_arrow(column: str) -> str:
    return column[: column.rindex("<path")]


def _arrow(top: float, bottom: float) -> str:
    x = WIDE / 2
    return (
        f'<path class="arrow" d="M{x} {top + 3}V{bottom - 4}M{x - 4} {bottom - 9}L{x} {bottom - 4}'
        f'L{x + 4} {bottom - 9}"/>'
    )


def _sums(top: float, block: list[Box]) -> str:
    """The two ways round attention and MLP, each ending in a plus."""
    heights = [(26 if small else BOX) + GAP for *_, small in block]
    parts, y = [], top
    for first, second in ((0, 1), (2, 3)):
        start, end = y - 9, y + heights[first] + heights[second] - GAP / 2
        x = 20
        parts.append(f'<path class="round" d="M{WIDE / 2} {start}H{x}V{end}H{WIDE / 2 - 9}"/>')
        parts.append(
            f'<circle class="plus" cx="{WIDE / 2}" cy="{end}" r="8"/>'
            f'<path class="arrow" d="M{WIDE / 2 - 4} {end}h8m-4 -4v8"/>'
        )
        y += heights[first] + heights[second]
    return "".join(parts)


@lru_cache(maxsize=32)
def table_html(config: ViTConfig, head_only: bool) -> str:
    """torchinfo's rows; blocks after the first, which are alike, behind a click."""
    rows = _few(layers(config, head_only=head_only))
    parts = [_row(row) for row in rows]
    trained = rows[0].parameters
    if head_only:
        trained = sum(row.parameters for row in rows if row.depth == 1 and row.name == "head")
    total = rows[0].parameters
    return (
        f'<p class="total"><b>{total:,}</b> parameters, <b>{trained:,}</b> of them trained</p>'
        '<table class="layers"><thead><tr><th scope="col">layer</th><th scope="col">input</th>'
        '<th scope="col">output</th><th scope="col">parameters</th><th scope="col">trained</th>'
        f"</tr></thead><tbody>{''.join(parts)}</tbody></table>"
        "<p>The blocks after the first are built alike, so only their sums are listed. Class "
        "token and positions belong to the model itself, not to a layer.</p>"
        f'<details class="why"><summary>As torchinfo prints it, every layer {INFO}</summary>'
        f'<pre class="torchinfo" tabindex="0">{escape(table(config))}</pre></details>'
    )


def _few(rows: tuple[Layer, ...]) -> list[Layer]:
    """Without what does nothing in a model that answers; of the blocks the first with its insides,
    the others alone."""
    few, later = [], False
    for row in rows:
        if row.kind == "Block":
            later = row.name != "0"
        elif row.depth <= 1:
            later = False
        idle = row.kind in ("Dropout", "Identity") or row.name == "drop"
        if not idle and (row.kind == "Block" or not later):
            few.append(row)
    return few


def _row(row: Layer) -> str:
    name = row.name if row.depth else "the model"
    before, after = (" × ".join(f"{n:,}" for n in sizes[1:]) for sizes in (row.input, row.output))
    trained = {True: "yes", False: "no", None: "–"}[row.trainable]
    return (
        f'<tr style="--deep:{row.depth}"><th scope="row">{escape(name)} '
        f"<small>{escape(row.kind)}</small></th>"
        f'<td data-name="input">{before or "–"}</td><td data-name="output">{after or "–"}</td>'
        f'<td data-name="parameters">{f"{row.parameters:,}" if row.parameters else "–"}</td>'
        f'<td data-name="trained">{trained}</td></tr>'
    )
