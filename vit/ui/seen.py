"""The photo with a map on it, and the wall of heads, as HTML; what a click on them sends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

from PIL import Image
from torch import Tensor

from vit import captions
from vit.heat import mark_patches, overlay
from vit.looking import Look, Question, looks
from vit.lru import Store
from vit.readings import heat_of
from vit.ui.files import data_url
from vit.ui.grid import scale_url
from vit.wall import Cell, Order, scale_top, wall, wall_picture

SINK_FRAME = (255, 255, 255)
TALLEST = 520  # CSS pixels of the photo
NUMBERS: dict[Order, str] = {"entropy": "{:.1f}", "distance": "{:.0f} px", "class": "{:.0%}"}

# A click on the photo sends the patch under it, and the patch under the mouse is framed.
ON_PHOTO = """
const patchAt = (event) => {
  const frame = element.querySelector(".seen .frame");
  if (!frame || !frame.contains(event.target)) return null;
  const [left, top, right, bottom] = frame.dataset.box.split(" ").map(Number);
  const [rows, columns] = frame.dataset.grid.split(" ").map(Number);
  const place = frame.getBoundingClientRect();
  const x = ((event.clientX - place.left) / place.width - left) / (right - left);
  const y = ((event.clientY - place.top) / place.height - top) / (bottom - top);
  if (x < 0 || y < 0 || x >= 1 || y >= 1) return null;
  const row = Math.floor(y * rows), column = Math.floor(x * columns);
  return { frame, row, column,
    left: left + column * (right - left) / columns, width: (right - left) / columns,
    top: top + row * (bottom - top) / rows, height: (bottom - top) / rows };
};
element.addEventListener("click", (event) => {
  const found = patchAt(event);
  if (found) trigger("click", { row: found.row, column: found.column });
});
element.addEventListener("mousemove", (event) => {
  const box = element.querySelector(".seen .under"), found = patchAt(event);
  if (!box) return;
  box.hidden = !found;
  if (!found) return;
  for (const side of ["left", "top", "width", "height"])
    box.style[side] = `${100 * found[side]}%`;
  found.frame.title = `row ${found.row + 1}, column ${found.column + 1}: ask this patch`;
});
element.addEventListener("mouseleave", () => {
  const box = element.querySelector(".seen .under");
  if (box) box.hidden = true;
});
"""

# A click on a head sends it. The arrow keys walk; the focus survives the wall being drawn anew.
ON_WALL = """
let held = null;
const heads = () => [...element.querySelectorAll("button[data-head]")];
const name = (button) => `${button.dataset.layer} ${button.dataset.head}`;
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-head]");
  if (!button) return;
  held = document.activeElement === button ? name(button) : null;
  const { layer, head } = button.dataset;
  document.getElementById("wall").dataset.clicked = `${layer}.${head}`;
  trigger("click", { layer: Number(layer), head: Number(head) });
});
element.addEventListener("focusout", (event) => { if (event.relatedTarget) held = null; });
element.addEventListener("keydown", (event) => {
  const all = heads(), at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const here = all[at].getBoundingClientRect();
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  let next = step ? all[at + step] : null;
  if (down) {
    const order = down > 0 ? all.slice(at + 1) : all.slice(0, at).reverse();
    next = order.find((button) => {
      const there = button.getBoundingClientRect();
      return Math.abs(there.left - here.left) < 4 && Math.abs(there.top - here.top) > 4;
    });
  }
  if (!step && !down) return;
  event.preventDefault();
  if (next) next.focus();
});
watch("value", () => {
  if (held !== null) heads().find((button) => name(button) === held)?.focus();
});
"""


def drawn_photo(
    look: Look,
    question: Question,
    colours: str = "inferno",
    opacity: float = 0.6,
    smooth: bool = True,
    heat: Tensor | None = None,
    top: float | None = None,
) -> Image.Image:
    """The photo with the map on it; sinks in white frames, the asking patch in a blue one."""
    heat = heat_of(look, question) if heat is None else heat
    picture = overlay(
        look.photo,
        heat.numpy(),
        look.box,
        top=scale_top(heat) if top is None else top,
        colours=colours,
        opacity=opacity,
        smooth=smooth,
    )
    picture = mark_patches(picture, look.box, look.grid, look.sinks.patches, SINK_FRAME)
    if question.token is not None:
        picture = mark_patches(picture, look.box, look.grid, [question.token])
    return picture


def photo_html(look: Look, question: Question, colours: str, opacity: float, smooth: bool) -> str:
    """The photo with the map, to click on, and what is drawn in words."""
    heat = heat_of(look, question)
    top = scale_top(heat)
    picture = drawn_photo(look, question, colours, opacity, smooth, heat, top)
    width, height = picture.size
    left, up, right, down = look.box
    box = f"{left / width} {up / height} {right / width} {down / height}"
    said = captions.drawn(look, question)
    frames = [f"white frames: sinks ({len(look.sinks.patches)})"] if look.sinks.patches else []
    if question.token is not None:
        frames.append(f"blue frame: the patch that {'is looked at' if question.by else 'asks'}")
    return (
        f'<figure class="seen"><div class="frame" data-box="{box}" '
        f'data-grid="{look.grid[0]} {look.grid[1]}" style="{_place(picture)}">'
        f'<img src="{jpeg_url(picture)}" width="{width}" height="{height}" decoding="sync" '
        f'alt="{escape(said)}"><i class="under" hidden></i></div>'
        f'<figcaption role="status"><p>{escape(said)}</p>'
        f'<p class="scale">0 <img src="{scale_url(colours)}" alt="from dark to bright"> '
        f"<span>{escape(captions.scale(heat, top))}</span></p>"
        f"{_legend(frames, look)}</figcaption></figure>"
    )


def ahead_html(look: Look) -> str:
    """The photo alone, where the map will lie: so that nothing moves when the map comes."""
    return (
        f'<div class="seen ahead"><div class="photo" style="{_place(look.photo)}">'
        f'<img src="{jpeg_url(look.photo)}" alt="Your photo"></div>'
        '<p role="status">Working out where the model looks…</p></div>'
    )


def _place(picture: Image.Image) -> str:
    """As CSS, what a photo takes up."""
    width, height = picture.size
    return f"aspect-ratio: {width} / {height}; width: min(100%, {TALLEST * width / height:.0f}px)"


def _legend(frames: Sequence[str], look: Look) -> str:
    if min(look.original_box) < -0.5:
        frames = [*frames, "grey: the border that the model sees as well"]
    text = "; ".join(frames)
    return f'<p class="note">{escape(text[:1].upper() + text[1:])}.</p>' if text else ""


def wall_html(
    look: Look,
    question: Question,
    order: Order = "layer",
    colours: str = "inferno",
    off: Collection[tuple[int, int]] = (),
) -> str:
    """Every head as a button with its map; pressed is the one that is shown, crossed one off."""
    cells = wall(look, question, order)
    sprite = _sprite_url(look, question, colours)
    shown = (question.layer, question.head) if question.method == "head" else None
    buttons = [_button(look, cell, order, cell_of(cell) == shown, off) for cell in cells]
    style = f"--heads: {look.heads}; --layers: {look.depth}; --maps: url({sprite})"
    if order == "layer":
        rows = [buttons[i : i + look.heads] for i in range(0, len(buttons), look.heads)]
        inside = "".join(
            f'<div class="layer" role="group" aria-label="Layer {i + 1}"><b>L{i + 1}</b>'
            f"<div>{''.join(row)}</div></div>"
            for i, row in enumerate(rows)
        )
    else:
        inside = "".join(buttons)
    kind = "layers" if order == "layer" else "flat"
    note = _wall_note(look, question, order)
    return f'<div class="wall {kind}" style="{style}">{inside}</div>{note}'


def _sprite_url(look: Look, question: Question, colours: str) -> str:
    """The picture of the wall; the same for whichever head is shown."""
    key = (look.key, question.token, question.by, question.aside, colours)
    return _sprites.get(
        key, lambda: data_url(wall_picture(look, question, colours), compress_level=3)
    )


_sprites: Store[str] = Store(64, 8 * 2**20, len, looks)


def _button(
    look: Look, cell: Cell, order: Order, pressed: bool, off: Collection[tuple[int, int]]
) -> str:
    x = 100 * cell.head / max(1, look.heads - 1)
    y = 100 * cell.layer / max(1, look.depth - 1)
    number = "" if cell.number is None else NUMBERS[order].format(abs(cell.number))
    gone = cell_of(cell) in off
    name = f"Layer {cell.layer + 1}, head {cell.head + 1}"
    said = ", ".join(
        [name]
        + ([number] if number else [])
        + (["much of it on sinks"] if cell.sink else [])
        + (["switched off"] if gone else [])
    )
    label = f"H{cell.head + 1}" if order == "layer" else f"L{cell.layer + 1} H{cell.head + 1}"
    label += ' <em aria-hidden="true">⚠</em>' if cell.sink else ""
    return (
        f'<button type="button" data-layer="{cell.layer}" data-head="{cell.head}" '
        f'aria-pressed="{str(pressed).lower()}" class="{"off" if gone else ""}" '
        f'aria-label="{said}" title="{said}">'
        f'<i style="background-position: {x:.3f}% {y:.3f}%"></i><span>{label}</span>'
        + (f"<small>{number}</small>" if number else "")
        + "</button>"
    )


def _wall_note(look: Look, question: Question, order: Order) -> str:
    asks = captions.token_name(look, question.token)
    flow = f"how much each patch looks at {asks}" if question.by else f"where {asks} looks"
    said = f"Every small picture: {flow}, each on a scale of its own. {_ordered(asks)[order]}"
    if look.sinks.patches:
        said += " ⚠: the sinks take more than four times their share."
    return f'<p class="note">{escape(said)}</p>'


def _ordered(asks: str) -> dict[Order, str]:
    return {
        "layer": "",
        "entropy": f"Numbers: the entropy of where {asks} looks, in nats; the narrowest first.",
        "distance": "Numbers: how far patches look on average, in pixels of the model's picture; "
        "the nearest first.",
        "class": f"Numbers: how much of its attention {asks} gives to the class token; the most "
        "first.",
    }


def cell_of(cell: Cell) -> tuple[int, int]:
    return cell.layer, cell.head


def jpeg_url(picture: Image.Image) -> str:
    return data_url(picture, "JPEG", quality=88)
