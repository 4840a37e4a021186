"""The header: product name, checkpoint picker, and what the chosen file says about itself."""

from __future__ import annotations

import math
import os
from html import escape
from typing import Any

import gradio as gr
from safetensors import safe_open

from vit.card import CheckpointError
from vit.checkpoint import Entry, available
from vit.classifier import Classifier
from vit.metrics import Count
from vit.names import dish_name, plain
from vit.precision import Precision, check_precision
from vit.ui.calibration import calibration_html
from vit.ui.page import QUIET, follow
from vit.ui.published import published_models
from vit.ui.words import INFO, interval, kinds

LONGEST = 1000  # characters of a value that is shown
DEEPEST = 4  # objects inside objects that are shown
FIRST = 12  # dishes that are shown at once
LOOK = 5.0  # seconds between two looks for new models
NONE_YET = (
    "No trained model is here yet: teach one with python train.py PHOTOS, then reload this page."
)


def header(demo: gr.Blocks) -> gr.Dropdown:
    """Draw the header; the picker's value is a checkpoint's name, or None while there is none."""
    with gr.Row(elem_id="header"):
        gr.HTML("<h1>Food <b>ViT</b></h1>", elem_id="name")
        picker = gr.Dropdown(
            label="Model", show_label=False, container=False, elem_id="checkpoint", min_width=150
        )
        facts = gr.HTML(elem_id="facts")
        more = gr.Button("More models", size="sm", elem_id="more-models", scale=0, min_width=110)
    published_models(more, picker)
    # Listed at every page load, so that a model taught meanwhile is there after a reload.
    demo.load(listing, outputs=[picker, facts], **QUIET)
    follow([picker.change], facts_html, picker, facts, **QUIET)
    listed = gr.State()
    gr.Timer(LOOK).tick(relisting, [picker, listed], [picker, listed], queue=False, **QUIET)
    return picker


def all_names() -> list[str]:
    """What the picker lists: the files' own names, for two may have the same title."""
    return [entry.name for entry in available()]


def relisting(chosen: str | None, listed: list[str] | None) -> tuple[dict, list[str] | dict]:
    """The picker of a page that has been open for a while: what was taught meanwhile is there, and
    the choice stays, unless that model is gone. At the first look, `listing` may be on its way."""
    names = all_names()
    if names == listed:
        return gr.skip(), gr.skip()
    if chosen in names or (chosen is None and listed is None):
        return gr.update(choices=names), names
    return gr.update(choices=names, value=names[0] if names else None), names


def find(name: str | None) -> Entry:
    """The listed checkpoint called `name`, the first one for no name. Never a path: visitors choose
    among what is listed and reach no other file."""
    entries = available()
    if not entries:
        raise CheckpointError(NONE_YET)
    if not name:
        return entries[0]
    for entry in entries:
        if entry.name == name:
            return entry
    names = ", ".join(entry.name for entry in entries)
    raise CheckpointError(f"There is no checkpoint of that name; choose one of: {names}.")


def loaded(name: str | None) -> Classifier:
    """The listed checkpoint of that name, ready to answer. What looks inside a model, the other
    tabs, loads it in float32 whatever the precision of answers is."""
    return Classifier.load(find(name).path, answer_precision())


def answer_precision() -> Precision:
    """$VIT_PRECISION, or float32; ValueError for what this machine is not quick in."""
    return check_precision(os.environ.get("VIT_PRECISION", "").strip() or "float32")


def listing(request: gr.Request | None = None) -> tuple[dict, str]:
    """The picker with all that is there now, and the facts of the model that the page's address
    names, or else of the first, a bundled one."""
    names = all_names()
    if not names:
        return gr.update(choices=[], value=None), facts_html(None)
    asked = str(request.query_params.get("model", "")).strip().casefold() if request else ""
    chosen = next((name for name in names if name.casefold() == asked), names[0])
    return gr.update(choices=names, value=chosen), facts_html(chosen)


def facts_html(name: str | None) -> str:
    try:
        entry = find(name)
    except CheckpointError as error:
        return f'<p role="alert">{escape(str(error))}</p>'
    return (
        f'<details class="why"><summary title="Where this model comes from">{line(entry)} '
        f"{INFO}</summary>{details(entry)}</details>"
    )


def line(entry: Entry) -> str:
    """What one glance should give, such as "3 dishes · 5.5 M parameters · 149/150 test photos right
    (96 to 100 %)"; the count is that of the largest set of test photos, or else of validation
    photos: those that chose the weights, and sets whose name ends in _val."""
    card = entry.card
    parts = [f"<strong>{len(card.classes):,}</strong> {kinds(card)}"]
    parts.append(f"<strong>{millions(parameters(entry))}</strong> parameters")
    if not card.trained_head:
        parts = ["knows no dishes yet", parts[1]]
    counts = {name: count for name, count in card.metrics.items() if count.total}
    tests = {n: c for n, c in counts.items() if n != "validation" and not n.endswith("_val")}
    if counts:
        kind = "test" if tests else "validation"
        best = max((tests or counts).values(), key=lambda count: count.total)
        parts.append(
            f"<strong>{best.correct:,}/{best.total:,}</strong> {kind} photos right "
            f'<span class="whole">({interval(best)})</span>'
        )
    return " · ".join(parts)


def details(entry: Entry) -> str:
    """Everything else in the file's header, behind ⓘ."""
    card, training = entry.card, entry.card.training
    config = card.config
    patch = "×".join(str(side) for side in config.patch_size)
    size = "×".join(str(side) for side in card.preprocess.size)
    rows = {
        f"right on {name}": f"{count.correct:,} of {count.total:,} ({interval(count)})"
        for name, count in card.metrics.items()
    }
    recorded = training.get("counts")
    for name, more in recorded.items() if isinstance(recorded, dict) else ():
        rows |= _more_counts(name, more)
    dishes = card.labels if card.trained_head else ()
    threshold = card.unsure_below
    rows |= {
        kinds(card): ", ".join(dishes[:FIRST]),
        "model": f"Vision Transformer: {config.depth} blocks of {config.heads} heads, "
        f"width {config.width}, patches of {patch} pixels"
        + ("" if config.stem is None else ", behind a ResNet"),
        "sees": f"{size} pixels, the middle {card.preprocess.crop:.0%} of the photo's short side",
        "imported from": _text(training.get("url") or training.get("imported_from")),
        "about the import": _text(training.get("notes")),
        "its file was checked": _text(training.get("checked")),
        "started from": _text(training.get("start")),
        "command": _text(training.get("command")),
        "photos": _text(training.get("photos")),
        "fingerprint of the photos": _text(training.get("data")),
        "taught in": _seconds(training.get("seconds")),
        "title": _text(card.title) if card.title != entry.name else "",
        "versions": _text(training.get("versions")),
        "temperature": f"{card.temperature:.2f}",
        "unsure below": "never" if threshold is None else f"{100 * threshold:.0f} %",
        "licence": _text(card.licence),
        "attribution": _text(card.attribution),
        "file": f"{entry.path.name}, {entry.path.stat().st_size / 1e6:.1f} MB",
    }
    values = {plain(name, 80): escape(text) for name, text in rows.items() if text}
    if rest := dishes[FIRST:]:
        values[kinds(card)] += (
            f" <details><summary>… and {len(rest):,} more</summary>"
            f"{escape(', '.join(rest))}</details>"
        )
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{text}</dd>" for name, text in values.items())
    if honest := calibration_html(card):
        listed += f'<dt>as right as sure?</dt><dd class="wide">{honest}</dd>'
    return f"<dl>{listed}</dl>"


def _more_counts(name: str, more: Any) -> dict[str, str]:
    """What `evaluate` recorded beside the count of right answers; nothing for anything else."""
    try:
        top5 = Count.from_json(more["top5"])
        pairs = [f"{dish_name(a)} taken for {dish_name(b)} ({n})" for a, b, n in more["confused"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    found = f"{top5.correct:,} of {top5.total:,} ({interval(top5)})"
    return {f"among five on {name}": found, f"most confused on {name}": ", ".join(pairs)}


def parameters(entry: Entry) -> int:
    """Counted from the shapes in the file's header; no weights are read."""
    with safe_open(entry.path, framework="pt") as file:
        names = list(file.keys())
        return sum(math.prod(file.get_slice(name).get_shape()) for name in names)


def millions(count: int) -> str:
    """5526339 as "5.5 M", 85806346 as "86 M", and small numbers in full."""
    if count < 1e5:
        return f"{count:,}"
    return f"{count / 1e6:.1f} M" if count < 1e7 else f"{count / 1e6:.0f} M"


def _seconds(value: object) -> str:
    return f"{value:,.0f} s" if isinstance(value, int | float) and 0 <= value < 1e9 else ""


def _text(value: object) -> str:
    """One line for a value of the training record, whose shape is the trainer's business."""
    return plain(_joined(value, DEEPEST), LONGEST)


def _joined(value: object, depth: int) -> str:
    if isinstance(value, dict | list | tuple) and not depth:
        return "…"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_joined(each, depth - 1)}" for key, each in value.items() if each)
    if isinstance(value, list | tuple):
        return " ".join(_joined(each, depth - 1) for each in value)
    return "" if value is None else str(value)
