"""What a person asks of the model beyond a look, as HTML: heads off, block by block; and the files
to download."""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from html import escape
from typing import Protocol

import numpy as np
from torch import Tensor

from vit import captions
from vit.looking import Look, Question
from vit.readings import after_each_block, heat_of, without
from vit.summary import prefix_names
from vit.ui.files import keep_file
from vit.ui.seen import drawn_photo
from vit.ui.words import kind, kinds, percent
from vit.wall import scale_top

MOST = 5  # dishes in a list


class Colouring(Protocol):
    """How a map is coloured; opacity in per cent."""

    @property
    def colours(self) -> str: ...
    @property
    def opacity(self) -> float: ...
    @property
    def smooth(self) -> bool: ...


def heads_off_html(look: Look, off: Collection[tuple[int, int]]) -> str:
    """The likeliest dishes before and after these heads fall silent; nothing for no head."""
    if not off:
        return ""
    before, after = look.probabilities, without(look, off)
    names = ", ".join(f"L{layer + 1} H{head + 1}" for layer, head in sorted(off))
    title = f"Without {names}" if len(off) <= 6 else f"Without {len(off)} heads"
    best = int(after.argmax())
    says = "it still says" if best == int(before.argmax()) else "it would say"
    answer = f"<b>{escape(look.card.labels[best])}</b>, {percent(after[best].item())}"
    table = before_after_html(look, before, after)
    return f'<div role="status"><p>{title} {says} {answer}:</p>{table}</div>'


def before_after_html(look: Look, before: Tensor, after: Tensor) -> str:
    best = before.topk(min(MOST, len(before))).indices.tolist()
    best += [index for index in [int(after.argmax())] if index not in best]
    rows = "".join(
        f"<tr><th scope=row>{escape(look.card.labels[index])}</th>"
        f'<td><span class="pair"><i style="width: {100 * before[index]:.1f}%"></i>'
        f'<i style="width: {100 * after[index]:.1f}%"></i></span></td>'
        f"<td>{percent(before[index].item())} → {percent(after[index].item())}</td></tr>"
        for index in best
    )
    return (
        '<table class="moved"><caption class="unseen">Before and after</caption>'
        f"{columns('30%', '8.5em')}{rows}</table>"
    )


def columns(first: str, last: str) -> str:
    """Widths of a table's three columns; the middle one takes what is left."""
    return f'<colgroup><col style="width: {first}"><col><col style="width: {last}"></colgroup>'


def blocks_html(look: Look) -> str:
    """A stacked bar for every block: what the head would have said after it."""
    shares = after_each_block(look)  # (depth, C)
    kept = shares[-1].topk(min(MOST, shares.shape[1])).indices.tolist()
    rows = []
    for block, row in enumerate(shares):
        best = int(row.argmax())
        parts = "".join(
            f'<i class="part{place}" style="width: {100 * row[index]:.2f}%" '
            f'title="{escape(look.card.labels[index])} {percent(row[index].item())}">'
            "</i>"
            for place, index in enumerate(kept)
        )
        said = f"{look.card.labels[best]} {percent(row[best].item())}"
        rows.append(
            f'<tr><th scope="row">{block + 1}</th><td><span class="stack">{parts}</span></td>'
            f"<td>{escape(said)}</td></tr>"
        )
    key = "".join(
        f'<li><i class="part{place}"></i>{escape(look.card.labels[index])}</li>'
        for place, index in enumerate(kept)
    )
    others = f" What is left of a bar is all other {kinds(look.card)}."
    rest = others if len(kept) < shares.shape[1] else ""
    return (
        '<p class="note">The class token after every block, read by the last norm and the head as '
        f"if the model ended there.{rest}</p>"
        f'<ul class="key">{key}</ul><table class="blocks">{columns("2.2em", "9.5em")}'
        '<thead class="unseen"><tr><th>Block</th>'
        f"<th>Shares</th><th>Likeliest {kind(look.card)}</th></tr></thead>{''.join(rows)}</table>"
    )


def picture_file(look: Look, question: Question, colouring: Colouring) -> str:
    """Path of the shown map on the photo, as PNG."""
    picture = drawn_photo(
        look, question, colouring.colours, colouring.opacity / 100, bool(colouring.smooth)
    )
    data = io.BytesIO()
    picture.save(data, "PNG")
    return keep_file(data.getvalue(), "attention.png")


def numbers_file(look: Look, question: Question, colouring: Colouring) -> str:
    """Path of an .npz that opens with numpy alone: every map, the logits, and the shown map."""
    heat = heat_of(look, question)
    readme = {
        "maps": "layers, heads, asking token, token looked at; each row sums to one",
        "logits": "classes, as the model gives them, before the temperature",
        "shown": "rows, columns of patches: " + captions.drawn(look, question),
        "classes": "names, in the order of the logits",
        "box": "left, top, right, bottom of what the model saw, in pixels of the upright photo",
        "sinks": "patches that take far more than their share, by rows from 0",
        "tokens": f"the {prefix_names(look.card.config)}, then "
        f"{look.grid[0]} rows of {look.grid[1]} patches",
        "checkpoint": look.name,
        "top of the colours": scale_top(heat),
    }
    data = io.BytesIO()
    np.savez(
        data,
        maps=look.maps.numpy(),
        logits=look.logits.numpy(),
        shown=heat.numpy(),
        classes=np.array(look.card.classes),
        box=np.array(look.original_box),
        sinks=np.array(look.sinks.patches, dtype=np.int64),
        README=np.array(json.dumps(readme, indent=1, ensure_ascii=False)),
    )
    return keep_file(data.getvalue(), "attention.npz")
