"""Collect photos class by class in the page: name a class; drop, choose or snap photos of it."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import wraps
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.events import Dependency
from gradio.utils import get_upload_folder

from vit.collect import MAX_CLASS_NAME, MAX_PHOTO_MB, CollectError, Visitor, balance, is_key
from vit.findings import counted
from vit.images import PhotoError
from vit.names import dish_name, plain
from vit.ui.page import CLICKS, QUIET, Queue, sent_with
from vit.ui.words import trouble, trouble_html

EACH = 48  # photos shown at once
TOLD = 5  # photos that could not be kept, named one by one
ADD_JS = Path(__file__).with_name("collecting.js").read_text("utf-8")
ADD_JS = ADD_JS.replace("LARGEST", str(MAX_PHOTO_MB))
CLICK_JS = """
element.addEventListener("click", ({ target }) => {
  const button = target.closest("button[data-do]");
  if (button) trigger("click", { what: button.dataset.do, which: button.dataset.which });
});
"""
ADD_HTML = """
<div class="adder">
  <input type="file" accept="image/*,.heic,.heif,.avif" multiple hidden>
  <div class="drop">
    <button type="button" class="choose">Choose photos</button>
    <button type="button" class="open">Open the camera</button>
    <span>or drop them here</span>
  </div>
  <div class="camera" hidden>
    <video playsinline muted aria-label="What the camera sees"></video>
    <div><button type="button" class="snap">Take a photo</button>
    <button type="button" class="close">Close the camera</button></div>
  </div>
  <p class="sent" role="status"></p>
</div>
"""

# One drawing after another, for each shows what is there when it begins.
BOARD_QUEUE = Queue(concurrency_id="board", concurrency_limit=1)

Handler = Callable[..., tuple]


class Told:
    """What one page says above the classes: the outcome of the last action, or of all batches of
    the last sending. Changed in place, for batches are kept several at a time."""

    lock = threading.Lock()

    def __init__(self) -> None:
        self.sentence = ""  # HTML
        self.sending = 0  # the last one heard of; the page counts them
        self.known: list[str] = []  # for every photo that was there already, its class
        self.troubles: list[str] = []

    def say(self, sentence: str = "") -> None:
        with self.lock:
            self.sentence, self.known, self.troubles = sentence, [], []

    def kept(self, sending: int, known: list[str], troubles: list[str]) -> bool:
        """One batch more; whether it is the first that is heard of its sending."""
        with self.lock:
            first = sending > self.sending
            if first:
                self.sending, self.sentence, self.known, self.troubles = sending, "", [], []
            if known or troubles:
                self.sentence = ""
            self.known += known
            self.troubles += troubles
        return first

    def html(self) -> str:
        with self.lock:
            known, troubles = list(self.known), list(self.troubles)
        if troubles:
            items = "".join(f"<li>{escape(text)}</li>" for text in troubles[:TOLD])
            if len(troubles) > TOLD:
                items += f"<li>… and {counted(len(troubles) - TOLD, 'more photo')}.</li>"
            return f'<div class="trouble" role="alert">Not kept:<ul>{items}</ul></div>'
        if known:
            were = "photo was" if len(known) == 1 else "photos were"
            dish = escape(plain(dish_name(known[-1]), 40))
            return f'<p role="status">{len(known):,} {were} in {dish} already.</p>'
        return self.sentence


class Board:
    """The parts that show the collection. Actions only change it, or what of it is shown, and each
    is followed by `draw`; so answers that come late show nothing old."""

    def __init__(self, key: gr.BrowserState) -> None:
        self.key = key
        self.changes: list[Dependency] = []  # events after which photos or classes are others
        self.active = gr.State("")  # the class that is shown
        self.shown = gr.State(0)  # the first photo that is shown, counted from the newest
        self.drawn = gr.State("")  # the class that was drawn last
        self.told = gr.State(Told())
        with gr.Row(elem_id="collect-new"):
            self.name = gr.Textbox(
                label="New class",
                placeholder="such as Pad thai",
                max_length=MAX_CLASS_NAME,
                min_width=180,
                elem_id="collect-name",
            )
            self.create = gr.Button("Add class", scale=0, min_width=120)
        self.said = gr.HTML(visible=False, elem_id="collect-said")
        self.classes = gr.HTML(classes_html({}, ""), js_on_load=CLICK_JS, elem_id="collect-classes")
        with gr.Column(visible=False, elem_id="collect-class") as self.part:
            self.adder = gr.HTML(ADD_HTML, js_on_load=ADD_JS, elem_id="collect-add")
            self.photos = gr.HTML(js_on_load=CLICK_JS, elem_id="collect-photos")
            with (
                gr.Accordion("Rename or remove this class", open=False, elem_id="collect-change"),
                gr.Row(),
            ):
                self.new_name = gr.Textbox(
                    label="Its name", max_length=MAX_CLASS_NAME, min_width=180
                )
                self.rename = gr.Button("Rename", scale=0, min_width=100)
                self.remove = gr.Button("Remove", variant="stop", scale=0, min_width=200)

    def draws(self, event: Dependency) -> Dependency:
        """The board is drawn after this event."""
        event.then(
            draw,
            [self.key, self.active, self.shown, self.drawn, self.told],
            [
                self.active,
                self.shown,
                self.drawn,
                self.said,
                self.classes,
                self.part,
                self.photos,
                self.new_name,
                self.remove,
            ],
            trigger_mode="always_last",
            **QUIET,
            **BOARD_QUEUE,
        )
        return event

    def changed(self, handler: Callable, inputs: Any, outputs: Sequence) -> None:
        """Call `handler` after whatever changed the photos or classes."""
        for event in self.changes:
            event.success(handler, inputs, outputs, **QUIET)


def collecting(key: gr.BrowserState) -> Board:
    """Draw it, for the visitor whose browser holds `key`."""
    board = Board(key)
    view, told = [board.active, board.shown], board.told

    # All but sending in the order of the clicks: what a visitor removes is what they saw.
    def does(events: list, handler: Handler, inputs: list, outputs: list) -> Dependency:
        return board.draws(gr.on(events, handler, [*inputs, told], outputs, **QUIET, **CLICKS))

    named, renamed = [key, board.name], [key, board.active, board.new_name]
    board.changes = [
        does([board.create.click, board.name.submit], create, named, [*view, board.name]),
        board.draws(
            board.adder.submit(
                add,
                [key, told],
                board.shown,
                trigger_mode="multiple",
                concurrency_limit=4,
                **QUIET,
            )
        ),
        does([board.rename.click, board.new_name.submit], rename, renamed, view),
        does([board.remove.click], remove, [key, board.active], view),
        does([board.photos.click], clicked, [key, board.active], view),
    ]
    does([board.classes.click], clicked, [key, board.active], view)
    return board


def draw(key: str | None, active: str, shown: int, drawn: str, told: Told) -> tuple:
    """Everything, as it is now, and what has just been said."""
    said = told.html()
    telling = gr.update(value=said, visible=bool(said))
    if not is_key(key):  # before the visitor's first action
        return *(gr.skip(),) * 3, telling, *(gr.skip(),) * 5
    visitor = Visitor(key or "")
    classes = visitor.classes()
    now = active if active in classes else next(iter(classes), "")
    photos = classes.get(now, [])
    first = shown if now == active and 0 <= shown < len(photos) else 0
    name = plain(dish_name(now), 40)
    remove = f"Remove with {counted(len(photos), 'photo')}" if photos else "Remove"
    return (
        gr.skip() if now == active else now,  # else another choice may be on its way
        gr.skip() if first == shown else first,
        now,
        telling,
        classes_html(classes, now),
        gr.update(visible=bool(now)),
        photos_html(visitor, name, photos, first),
        gr.skip() if now == drawn else now,  # a new name may be half typed
        remove,
    )


def explained(outputs: int) -> Callable[[Handler], Handler]:
    """For a handler of so many outputs that comes with the page's `Told`: what it raises is said
    above the classes, and everything else stays as it is."""

    def wrap(handler: Handler) -> Handler:
        @wraps(handler)
        def wrapped(*values: Any) -> tuple:
            told: Told = values[-1]
            try:
                answer = handler(*values)
                told.say()
                return answer
            except Exception as error:
                told.say(trouble_html(error))
                return (gr.skip(),) * outputs

        return wrapped

    return wrap


# --- What a visitor does ----------------------------------------------------------------------


@explained(outputs=3)
def create(key: str | None, name: str, told: Told) -> tuple:
    return Visitor(key or "").create(name), 0, ""


def add(sent: gr.EventData, key: str | None, told: Told) -> int | dict:
    """A batch of photos that the browser has sent, as [{path, name}, …], `into` a class. The first
    batch of a sending shows the newest photos."""
    into, sending = str(sent_with(sent, "into")), sent_with(sent, "sending")
    known, troubles = [], []
    try:
        visitor = Visitor(key or "")
        for path, name in sent_files(sent_with(sent, "files")):
            try:
                known += [into] * visitor.add(into, path, name).known
            except (CollectError, PhotoError) as error:
                troubles.append(trouble(error))
            except OSError:
                troubles.append(f"{plain(name, 60)} did not arrive; send it again.")
    except Exception as error:
        troubles.append(trouble(error))
    first = told.kept(sending if isinstance(sending, int) else 0, known, troubles)
    return 0 if first else gr.skip()


@explained(outputs=2)
def rename(key: str | None, active: str, name: str, told: Told) -> tuple:
    return Visitor(key or "").rename(active, name), gr.skip()


@explained(outputs=2)
def remove(key: str | None, active: str, told: Told) -> tuple:
    Visitor(key or "").remove(active)
    return "", 0


@explained(outputs=2)
def clicked(click: gr.EventData, key: str | None, active: str, told: Told) -> tuple:
    """A class, a photo to delete, or more photos to see."""
    which = str(click.which)
    if click.what == "class":
        return which, 0
    if click.what == "from":
        return gr.skip(), int(which) if which.isdecimal() else 0
    if click.what == "delete":
        Visitor(key or "").delete(active, which)
    return gr.skip(), gr.skip()


def sent_files(files: object) -> list[tuple[str, str]]:
    """(path, name) of files that this page's visitors sent; no path of anything else."""
    uploads = Path(get_upload_folder()).resolve()
    found = []
    for file in files if isinstance(files, list) else []:
        path, name = (str(file.get(key) or "") for key in ("path", "name"))
        place = Path(path).resolve()
        # Uploads lie two folders deep, under a digest; what the page made itself lies elsewhere.
        if place.parent.parent != uploads or len(place.parent.name) != 64 or not place.is_file():
            raise CollectError("The photos did not arrive; send them again.")
        found.append((str(place), name or place.name))
    return found


# --- What is shown ----------------------------------------------------------------------------


def classes_html(classes: dict[str, list[Path]], active: str) -> str:
    """A button for every class, with its number of photos, and which class needs more."""
    if not classes:
        return (
            '<p class="empty">No class yet. Name the first dish above, then add photos of it; '
            "two dishes with ten photos each are a beginning.</p>"
        )
    counts = {name: len(photos) for name, photos in classes.items()}
    most = max(1, *counts.values())
    buttons = "".join(
        f'<button type="button" data-do="class" data-which="{escape(name)}" '
        f'aria-pressed="{str(name == active).lower()}"><span>{escape(plain(dish_name(name), 40))}'
        f'</span> <b>{count:,}</b><i style="width:{100 * count / most:.0f}%"></i></button>'
        for name, count in counts.items()
    )
    return (
        f'<div class="classes" role="group" aria-label="Classes">{buttons}</div>'
        f'<p class="balance">{escape(balance(counts))}</p>'
    )


def photos_html(visitor: Visitor, name: str, photos: Sequence[Path], shown: int) -> str:
    """A page of thumbnails, each with a button that deletes its photo."""
    if not photos:
        return f'<p class="empty">No photos of {escape(name)} yet.</p>'
    items = []
    for number, path in enumerate(photos[shown : shown + EACH], shown + 1):
        try:
            picture = b64encode(visitor.thumbnail(path)).decode()
        except (OSError, PhotoError):
            continue
        label = escape(f"Delete photo {number} of {name}")
        items.append(
            f'<li><img src="data:image/jpeg;base64,{picture}" alt="Photo {number} of '
            f'{escape(name)}"><button type="button" data-do="delete" '
            f'data-which="{escape(path.name)}" aria-label="{label}" title="{label}">×</button></li>'
        )
    pages = ""
    if len(photos) > EACH:
        last = min(shown + EACH, len(photos))
        newer, older = shown - EACH, shown + EACH
        pages = (
            f'<p class="pages"><button type="button" data-do="from" data-which="{max(0, newer)}"'
            f"{' disabled' * (shown == 0)}>newer</button> {shown + 1:,} to {last:,} of "
            f'{len(photos):,} <button type="button" data-do="from" data-which="{older}"'
            f"{' disabled' * (last == len(photos))}>older</button></p>"
        )
    return f'<ul class="collected">{"".join(items)}</ul>{pages}'
