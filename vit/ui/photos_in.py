"""The first step of fine-tuning: photos, brought in one of three ways, and what the doctor says."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import gradio as gr
from gradio.context import Context

from vit.collect import CollectError, Visitor, clean_up, is_key, limits
from vit.doctor import Examined, examine
from vit.findings import Report
from vit.findings_html import STYLE, details_html, lines_html, page_html
from vit.home import home
from vit.limits import limits as run_limits
from vit.names import plain_sentence
from vit.speed import TimeLeft
from vit.ui.collecting import collecting
from vit.ui.downloads import progress_html
from vit.ui.files import keep_file
from vit.ui.more import download_shared
from vit.ui.notices import on_notice, takes_notices
from vit.ui.page import QUIET, Page, Queue
from vit.ui.photo import PhotoFiles
from vit.ui.stop import Stop
from vit.ui.words import Html, going_html, trouble, trouble_html

WAYS = [("a zip", "zip"), ("collect them here", "collect"), ("pizza, steak, sushi", "course")]
ZIP_HINT = (
    "<p>One folder for each dish, named after it, with its photos inside: in the zip itself, in "
    "one folder, or in <code>train</code>, <code>val</code> and <code>test</code>.</p>"
)
COURSE_HINT = (
    "<p>300 real photos, out of the data set Food-101, as the course Learn PyTorch uses them.</p>"
)
DOCTOR_QUEUE = Queue(concurrency_id="doctor", concurrency_limit=2)

Outputs = tuple  # of `Parts.outputs`


class Parts:
    """Where the doctor speaks: how far it is, three lines, details, and the report to keep."""

    def __init__(self) -> None:
        with gr.Row(elem_id="photos-progress"):
            self.status = gr.HTML(visible=False, elem_id="photos-status")
            self.stop = Stop(stopped, scale=0, min_width=80)
        with gr.Column(visible=False, elem_id="photos-report") as self.report:
            self.lines = gr.HTML(elem_id="photos-lines")
            with gr.Accordion("The doctor's report", open=False, elem_id="photos-details"):
                self.details = gr.HTML()
                with gr.Row(elem_id="photos-save"):
                    self.page = gr.DownloadButton("Save the report", size="sm", scale=0)
                    self.json = gr.DownloadButton("Save it as JSON", size="sm", scale=0)

    @property
    def outputs(self) -> list:
        return [self.status, self.report, self.lines, self.details, self.page, self.json]


def photos_in(page: Page) -> gr.State:
    """Draw the step. The value of the State is the path, as str, of a folder or zip that can be
    trained on, or None. Its `change` is heard through the queue."""
    most = limits().zip_megabytes
    chosen = gr.State()
    key = page.visitor
    gr.HTML(f"<style>{STYLE}</style>", elem_classes="hidden-style")
    with gr.Column(elem_id="photos-in"):
        way = gr.Radio(WAYS, value="zip", label="Photos to learn from", elem_id="photos-way")
        with gr.Column(elem_id="photos-zip") as zip_part:
            file = PhotoFiles(
                label=f"A zip of class folders, up to {most:,} MB",
                file_count="single",
                height=140,
                elem_id="photos-file",
            )
            again = gr.Button(visible=False, size="sm", elem_id="photos-again")
            refused = gr.HTML(js_on_load=on_notice("photos-zip"), elem_id="photos-refused")
            gr.HTML(f'<div data-most="{most * 1_000_000}">{ZIP_HINT}</div>', elem_classes="hint")
        with gr.Column(visible=False, elem_id="photos-collect") as collect_part:
            board = collecting(key)
            use = gr.Button("Use these photos", variant="primary", elem_id="photos-use")
        with gr.Column(visible=False, elem_id="photos-course") as course_part:
            course = gr.Button("Use pizza, steak and sushi", variant="primary")
            gr.HTML(COURSE_HINT, elem_classes="hint")
        parts = Parts()

    takes_notices(refused)
    file.change(lambda: "", None, refused, queue=False, **QUIET)
    way.change(
        lambda way: tuple(gr.update(visible=way == name) for _, name in WAYS),
        way,
        [zip_part, collect_part, course_part],
        queue=False,
        **QUIET,
    )
    outputs = [*parts.outputs, chosen]
    for trigger, handler, inputs in (
        (file.upload, take_zip, [key, file]),
        (again.click, take_zip_again, [key]),
        (use.click, take_collection, [key]),
        (course.click, take_course, None),
    ):
        parts.stop.ends(trigger, handler, inputs, outputs, **QUIET, **DOCTOR_QUEUE)
    parts.stop.also(file.clear)
    # Through the queue, so that whoever listens to `chosen` hears of it.
    file.clear(nothing, None, outputs, concurrency_limit=None, **QUIET)
    board.changed(collection_changed, [key, chosen], outputs)
    root = Context.root_block
    assert root is not None  # drawn inside a page
    # A visitor opens the page: the collection, and the last zip, of one who was here before.
    came = root.load(clean_up, None, None, **QUIET)
    board.draws(came)
    came.then(offer, key, [again, way], **QUIET)
    return chosen


# --- Three ways -------------------------------------------------------------------------------


def take_zip(key: str | None, files: list[tuple[str, str]]) -> Iterator[Outputs]:
    """Keep a copy of what was sent, out of the page's temporary files, then examine it."""

    def find() -> Iterator[Html | Path]:
        for name, path in files[:1]:
            yield going_html(f"Keeping {name} …")
            yield Visitor(key or "").keep_zip(path, name)

    yield from _examined(find)


def offer(key: str | None) -> tuple[dict, str | dict]:
    """What this visitor brought before: the button that leads back to their last zip, and else to
    collecting where there is a collection."""
    visitor = Visitor(key or "") if is_key(key) else None
    kept = visitor.last_zip() if visitor else None
    collected = visitor is not None and any(visitor.classes().values())
    button = gr.update(value=f"Use {kept.name} again" if kept else "", visible=kept is not None)
    return button, "collect" if collected and not kept else gr.skip()


def take_zip_again(key: str | None) -> Iterator[Outputs]:
    def find() -> Iterator[Html | Path]:
        kept = Visitor(key or "").last_zip()
        if kept is None:
            raise CollectError("That zip is not kept any more; send it again.")
        yield kept

    yield from _examined(find)


def take_collection(key: str | None) -> Iterator[Outputs]:
    def find() -> Iterator[Html | Path]:
        yield Visitor(key or "").choose()

    yield from _examined(find)


def take_course() -> Iterator[Outputs]:
    """The course's photos: those of the user's folder, else downloaded."""

    def find() -> Iterator[Html | Path]:
        clock = TimeLeft(None)  # another visitor may have begun it
        for done, total in download_shared():
            yield progress_html(done, total, clock)
        yield home() / "data" / "pizza_steak_sushi"

    yield from _examined(find)


def _examined(find: Callable[[], Iterator[Html | Path]]) -> Iterator[Outputs]:
    """The outputs while the photos come and are examined, and with the report. `find` yields what
    it is doing, and last the path."""
    path, clocks = None, defaultdict[str, TimeLeft](TimeLeft)
    try:
        for step in find():
            if isinstance(step, str):
                yield _busy(step)
                continue
            path = step
            for look in examine(step, most=run_limits().photos):
                if isinstance(look, Report):
                    yield _reported(look, step)
                else:
                    yield _busy(examining_html(look, clocks[look.doing]))
    except Exception as error:
        yield _trouble(trouble_html(_named(trouble(error), path)))


def _named(said: str, path: Path | None) -> str:
    """With the photos called by their name: where they are kept is nothing to a visitor."""
    if path is not None:
        for place in (str(path), plain_sentence(str(path))):  # long ones are cut
            said = said.replace(place, path.name)
    return said


def examining_html(look: Examined, clock: TimeLeft) -> Html:
    if not look.total:
        return going_html("Opening the photos …")
    what = {"reading": "Looking at the photos", "comparing": "Looking for near duplicates"}
    said = f"{what[look.doing]}: {look.done:,} of {look.total:,}"
    return going_html(said, look.done / look.total, clock)


# --- What is shown ----------------------------------------------------------------------------


def _busy(said: Html) -> Outputs:
    hidden = gr.update(visible=False)
    return (
        gr.update(value=said, visible=True),
        hidden,
        *(gr.skip(),) * 4,
        None,
    )


def _trouble(said: Html) -> Outputs:
    hidden = gr.update(visible=False)
    return gr.update(value=said, visible=bool(said)), hidden, *(gr.skip(),) * 4, None


def nothing() -> Outputs:
    return _trouble(Html(""))


def stopped() -> Outputs:
    return _trouble(Html('<p role="status">Stopped; choose photos again when you like.</p>'))


def _reported(report: Report, path: Path) -> Outputs:
    name = Path(report.data).stem or "photos"
    report = replace(report, problem=_named(report.problem, path))
    data = json.dumps(report.to_json(), indent=1, ensure_ascii=False).encode()
    return (
        gr.update(value=trouble_html(report.problem), visible=not report.trainable),
        gr.update(visible=True),
        gr.update(value=lines_html(report), visible=report.trainable),
        details_html(report),
        keep_file(page_html(report).encode(), f"{name} report.html"),
        keep_file(data, f"{name} report.json"),
        str(path) if report.trainable else None,
    )


def collection_changed(key: str | None, chosen: str | None) -> Outputs:
    """Another photo or class: what was chosen before is not what is shown any more."""
    if chosen is None or Path(chosen).parent.name != "sets":
        return (gr.skip(),) * 7
    if Visitor(key or "").is_chosen(Path(chosen)):
        return (gr.skip(),) * 7
    said = "The photos changed; press “Use these photos” again."
    return _trouble(Html(f'<p role="status">{said}</p>'))
