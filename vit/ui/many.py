"""Many photos at once: a gallery with captions, and the same as a table to download."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from html import escape

import gradio as gr
from PIL import Image, ImageDraw

from vit.classifier import Prediction
from vit.images import Fit, PhotoError
from vit.names import one_line
from vit.settings import count
from vit.speed import TimeLeft
from vit.ui.files import keep_file
from vit.ui.header import loaded
from vit.ui.notices import on_notice, takes_notices
from vit.ui.page import MODEL_QUEUE, QUIET, Page
from vit.ui.photo import PhotoFiles, keep_jpeg
from vit.ui.stop import Stop
from vit.ui.words import going_html, percent, trouble_html, within

BATCH = 16  # photos between two looks at Stop
THUMBNAIL = 320  # pixels
TOLD = 10  # photos that could not be read, named one by one
LONGEST_NAME = 20  # characters
# What a formula begins with, after OWASP's page on CSV injection; also behind a semicolon, at which
# spreadsheets part cells where a comma marks decimals.
FORMULA = re.compile(r"(^|;)(\s*[=+@＝＋－＠-])")

Answer = Prediction | PhotoError


def too_many(photos: int) -> str | None:
    """A sentence when so many photos are more than one call may bring."""
    limit = count("VIT_MAX_PHOTOS")
    return (
        f"{photos} photos are too many at once; choose up to {limit}." if photos > limit else None
    )


def many_photos(page: Page, fit: gr.Radio, top: gr.Number) -> None:
    most = count("VIT_MAX_PHOTOS")
    with gr.Accordion("Many photos at once", open=False, elem_id="many"):
        files = PhotoFiles(label=f"Up to {most} photos", file_count="multiple", height=160)
        status = gr.HTML(js_on_load=on_notice("many"), elem_id="many-status")
        takes_notices(status)
        stop = Stop(stopped)
        gallery = gr.Gallery(
            label="Photos and their dishes",
            show_label=False,
            visible=False,
            columns=5,
            height="auto",
            object_fit="cover",
            interactive=False,
            buttons=["fullscreen"],
            elem_id="many-gallery",
        )
        table = gr.DownloadButton("Download as a table (CSV)", visible=False, size="sm")
    changes = [files.change, page.checkpoint.change, fit.change, top.change]
    stop.ends(
        partial(gr.on, changes),
        classify_files,
        [files, page.checkpoint, top, fit],
        [status, gallery, table],
        **QUIET,
        **MODEL_QUEUE,
    )


def stopped() -> tuple:
    said = "<p>Stopped; what was done so far is below.</p>"
    return said, gr.skip(), gr.skip()


def classify_files(
    files: Sequence[tuple[str, str]], checkpoint: str | None, top: int | None, fit: Fit
) -> Iterator[tuple]:
    """Status, gallery and table after every batch, each complete for what is done."""
    hidden = gr.update(visible=False)
    problem = too_many(len(files))
    if not files or problem:
        yield trouble_html(problem) if problem else "", hidden, hidden
        return
    yield "<p>Looking at the photos…</p>", hidden, hidden
    started, clock = time.perf_counter(), TimeLeft()
    names = [name for name, _ in files]
    answers: list[Answer] = []
    pictures: list[tuple[str, str]] = []
    try:
        classifier = loaded(checkpoint)
        while len(answers) < len(files):
            paths = [path for _, path in files[len(answers) : len(answers) + BATCH]]
            for answer in classifier.classify_many(paths, top=within(top, 1, 20, 5), fit=fit):
                small = thumbnail(answer)
                pictures.append((keep_jpeg(small), caption(names[len(answers)], answer)))
                answers.append(
                    answer if isinstance(answer, PhotoError) else replace(answer, photo=small)
                )
            done, seconds = len(answers), time.perf_counter() - started
            yield (
                going_html(f"{done} of {len(files)} photos", done / len(files), clock)
                if done < len(files)
                else status_html(answers, seconds, classifier.name),
                gr.update(value=pictures, visible=True),
                gr.update(value=keep_csv(names, answers, classifier.name), visible=True),
            )
    except Exception as error:
        yield trouble_html(error), gr.skip(), gr.skip()


def status_html(answers: Sequence[Answer], seconds: float, checkpoint: str) -> str:
    total = len(answers)
    bad = [str(answer) for answer in answers if isinstance(answer, PhotoError)]
    unsure = sum(isinstance(answer, Prediction) and answer.unsure for answer in answers)
    parts = [f"{total} photo{'s' * (total != 1)} in {seconds:.1f} s by {escape(checkpoint)}"]
    if unsure:
        parts.append(f"{unsure} unsure")
    if bad:
        parts.append(f"{len(bad)} could not be read:")
    told = "".join(f"<li>{escape(why)}</li>" for why in bad[:TOLD])
    if len(bad) > TOLD:
        told += f"<li>… and {len(bad) - TOLD} more; the table says why.</li>"
    return f'<p role="status">{" · ".join(parts)}</p>' + (f"<ul>{told}</ul>" if told else "")


def caption(name: str, answer: Answer) -> str:
    """Two short lines, so that they hide little of the picture: the dish and the file."""
    if isinstance(answer, PhotoError):
        said = "could not be read"
    else:
        said = f"{answer.labels[0]} {percent(answer.probabilities[0])}"
        said = f"unsure, perhaps {said}" if answer.unsure else said
    return f"{said}\n{short(name)}"


def short(name: str) -> str:
    """A file's name on one line, its middle left out when it is long."""
    name = one_line(name)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}…{name[-8:]}"


def thumbnail(answer: Answer) -> Image.Image:
    """The photo made small, or a grey tile with a cross for one that could not be read."""
    if isinstance(answer, Prediction):
        picture = answer.photo.copy()
        picture.thumbnail((2 * THUMBNAIL, THUMBNAIL))
        return picture
    tile = Image.new("RGB", (THUMBNAIL, THUMBNAIL), "#d3c8ba")
    draw = ImageDraw.Draw(tile)
    near, far = THUMBNAIL // 3, 2 * THUMBNAIL // 3
    draw.line([(near, near), (far, far)], fill="#776c62", width=12)
    draw.line([(near, far), (far, near)], fill="#776c62", width=12)
    return tile


def csv_text(names: Sequence[str], answers: Sequence[Answer], checkpoint: str) -> str:
    """One row a photo, in the order given; as many dishes as the longest answer has."""
    most = max((len(a.labels) for a in answers if isinstance(a, Prediction)), default=1)
    head = ["file", "checkpoint", "unsure", "problem"]
    for place in range(1, most + 1):
        head += [f"dish {place}", f"probability {place}"]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    for name, answer in zip(names, answers, strict=False):
        row = [plain_cell(name), plain_cell(checkpoint)]
        if isinstance(answer, PhotoError):
            row += ["", plain_cell(str(answer))]
        else:
            row += ["yes" if answer.unsure else "no", ""]
            for label, share in zip(answer.labels, answer.probabilities, strict=True):
                row += [plain_cell(label), f"{share:.4f}"]
        writer.writerow(row + [""] * (len(head) - len(row)))
    return out.getvalue()


def plain_cell(text: str) -> str:
    """`text` so that a spreadsheet shows it, on one line, and never runs it as a formula."""
    return FORMULA.sub(r"\1'\2", one_line(text))


def keep_csv(names: Sequence[str], answers: Sequence[Answer], checkpoint: str) -> str:
    """Path of the table; the mark at its start lets Excel read it as UTF-8."""
    data = csv_text(names, answers, checkpoint).encode("utf-8-sig")
    return keep_file(data, "dishes.csv")
