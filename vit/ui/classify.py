"""The Classify tab: what dish is on the photo, and what of the photo the model saw."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import gradio as gr

from vit.card import CheckpointError
from vit.checkpoint import available
from vit.classifier import Classifier, Prediction
from vit.images import Fit, PhotoError
from vit.ui.examples import examples, examples_row
from vit.ui.header import find, loaded
from vit.ui.many import many_photos
from vit.ui.more import real_photos
from vit.ui.notices import on_notice, takes_notices
from vit.ui.page import MODEL_QUEUE, QUIET, Page, follow
from vit.ui.photo import IN_PLACE, PhotoInput, is_shown, keep_jpeg, outlined_photo
from vit.ui.words import INFO, kind, kinds, listed, percent, trouble_html, within

# In the browser, so that a choice of the visitor's comes after it or is kept. It follows the model
# only where two differ: whoever compares two models on the whole photo goes on seeing the whole.
FIT_FOR = """(checkpoint, fits) => {
  const controls = document.querySelector("#controls"), fit = fits?.[checkpoint];
  if (!fit || fit === (controls.dataset.taught ?? "crop")) return;
  controls.dataset.taught = fit;
  return fit;
}"""


class Asked(NamedTuple):
    """All that an answer depends on."""

    photo: str | None
    checkpoint: str | None
    top: int
    fit: Fit


def classify_tab(page: Page, tab: gr.Tab) -> None:
    """Draw the tab; it also sets the photo that the other tabs look at."""
    photo, checkpoint, fit = page.photo, page.checkpoint, page.fit
    with gr.Row(elem_id="classify"):
        photo.render()
        result = gr.HTML(empty_html(None), js_on_load=on_notice("photo"), elem_id="result")
        with gr.Row(elem_id="controls"):
            fit.render()
            top = gr.Number(
                5,
                label="Dishes to show",
                precision=0,
                min_width=110,
                elem_id="top",
            )
        examples_row(page, elem_id="examples")
        real_photos(page)
    takes_notices(result)

    fits = gr.JSON(visible=False)
    follow([checkpoint.change], fits_of_all, None, fits, **QUIET)
    gr.on([checkpoint.change, fits.change], None, [checkpoint, fits], fit, js=FIT_FOR, **QUIET)

    answered = gr.State()
    drawn, source = PhotoInput(visible=False), gr.Textbox(visible=False)
    # One listener for everything that an answer depends on: nothing else may write what it writes.
    follow(
        [photo.change, checkpoint.change, top.change, fit.change],
        answer,
        [photo, page.chosen, answered, checkpoint, top, fit],
        [drawn, source, result, page.chosen, answered],
        api_visibility="private",
        show_progress="minimal",
        show_progress_on=result,
        **MODEL_QUEUE,
    ).then(None, [photo, drawn, source], photo, js=IN_PLACE, **QUIET)

    many_photos(page, fit, top)


def fits_of_all() -> dict[str, Fit]:
    """What of a photo each model was taught to see."""
    return {entry.name: entry.card.preprocess.fit for entry in available()}


def answer(
    path: str | None,
    chosen: str | None,
    answered: Asked | None,
    checkpoint: str | None,
    top: int | None,
    fit: Fit,
) -> tuple:
    """The photo with the crop outlined and the path it was drawn from, the result as HTML, the
    chosen path, and what was asked. `path` is that of the photo input: a visitor's photo, a drawing
    of ours for `chosen`, or None when the visitor, or we after a bad photo, emptied it."""
    ours = path is not None and is_shown(path)
    asked = Asked(chosen if ours else path, checkpoint, within(top, 1, 20, 5), fit)
    if asked == answered and (ours or path is None):
        return (gr.skip(),) * 5
    if asked.photo is None:
        return gr.skip(), gr.skip(), empty_html(checkpoint), None, asked
    try:
        classifier = loaded(checkpoint)
        prediction = classifier.classify(asked.photo, top=asked.top, fit=fit)
        picture = keep_jpeg(outlined_photo(asked.photo, prediction))
        return picture, asked.photo, result_html(prediction, classifier), asked.photo, asked
    except PhotoError as error:
        return None, path, trouble_html(error), None, asked._replace(photo=None)
    except Exception as error:
        return gr.skip(), gr.skip(), trouble_html(error), asked.photo, asked


def empty_html(checkpoint: str | None) -> str:
    """What to do, before there is a photo."""
    ways = "Drop, paste or choose a photo, or take one with the camera"
    ways += ", or click one of the examples." if examples() else "."
    knows, asks = "", "Which dish is it?"
    try:
        card = find(checkpoint).card
        asks = f"Which {kind(card)} is it?"
        dishes = card.labels
        if not card.trained_head:
            ways = "This model knows no dishes yet: fine-tune it first, or choose another."
        elif len(dishes) <= 12:
            knows = f"This model knows {listed(dishes)}."
        else:
            many = f"{len(dishes):,} {kinds(card)}"
            knows = f"This model knows {many}, from {dishes[0]} to {dishes[-1]}."
    except CheckpointError as error:
        ways = str(error)
    return f'<div class="empty"><h3>{asks}</h3><p>{escape(ways)}</p><p>{escape(knows)}</p></div>'


def result_html(prediction: Prediction, classifier: Classifier) -> str:
    """Dishes with bars, best first, and the time it took."""
    items = "".join(
        bar_html(label, share)
        for label, share in zip(prediction.labels, prediction.probabilities, strict=True)
    )
    device = "CPU" if classifier.device.type == "cpu" else "GPU"
    unsure = unsure_html(prediction, classifier) if prediction.unsure else ""
    return (
        f'<div role="status">{unsure}'
        f'<ol class="dishes{" greyed" if unsure else ""}" aria-label="Likeliest first">'
        f'{items}</ol><p class="note">{prediction.milliseconds:.0f} ms on {device} · '
        '<button type="button" data-opens="Attention">see where it looked →</button></p></div>'
    )


def bar_html(label: str, share: float) -> str:
    said = escape(percent(share))
    return (
        f'<li><span class="dish">{escape(label)}</span>'
        f'<span class="bar" role="meter" aria-label="{escape(label)}" aria-valuemin="0" '
        f'aria-valuemax="100" aria-valuenow="{100 * share:.1f}" aria-valuetext="{said}">'
        f'<i style="width:{100 * share:.2f}%"></i></span>'
        f'<span class="share">{said}</span></li>'
    )


def unsure_html(prediction: Prediction, classifier: Classifier) -> str:
    card = classifier.card
    below, them = card.unsure_below, kinds(card)
    best, rule = percent(prediction.confidence), ""
    if below:
        gap = below - prediction.confidence  # with as many decimals as tell the two apart
        decimals = 0 if gap >= 0.01 else 1 if gap >= 0.001 else 2
        best = f"{100 * prediction.confidence:.{decimals}f} %" if decimals else best
        rule = f"; this model is sure from {100 * below:.{decimals}f} %"
    counted = isinstance(card.training.get("calibration"), dict)
    how_often = f" How often that is so: {INFO} at the top of the page." if counted else ""
    return (
        f'<p class="unsure">None of my {len(card.classes):,} {them} looks right.</p>'
        f'<details class="why unsure-why"><summary>The best guess, {escape(prediction.labels[0])}, '
        f'reaches only {escape(best)}{escape(rule)}. <span class="whole">Why? {INFO}</span>'
        f"</summary><p>It can only choose among the {them} it was taught, so a photo of anything "
        f"else should end here.{how_often}</p></details>"
    )
