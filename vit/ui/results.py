"""What a finished run got right and wrong, to look into and to use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import gradio as gr

from vit import checkpoint
from vit.names import dish_names
from vit.outcome import (
    Answers,
    Outcome,
    OutcomeError,
    counted,
    open_answers,
    publish,
    read_outcome,
    result_file,
)
from vit.speed import TimeLeft
from vit.ui.attention import DRAWING_QUEUE
from vit.ui.before_after import before_after_html
from vit.ui.files import keep_copy
from vit.ui.outcome_html import (
    AT_ONCE,
    THUMBNAIL,
    confusion_html,
    dishes_html,
    photos_html,
    verdict_html,
)
from vit.ui.page import MODEL_QUEUE, QUIET, Page
from vit.ui.stop import Stop
from vit.ui.words import going_html, notice, trouble_html

EMPTY = '<div class="empty"><p>When a run has ended, its result is shown here.</p></div>'
SCRIPT = Path(__file__).with_name("results.js").read_text(encoding="utf-8")

# The file is there; Gradio's own button fetches it.
FETCH = """() => setTimeout(() => {
  const button = document.querySelector("#results-file");
  (button.matches("a, button") ? button : button.querySelector("a, button")).click();
}, 100)"""
TO_CLASSIFY = """() => {
  const way = document.createElement("button");
  way.dataset.opens = "Classify";
  document.body.append(way);
  way.click();
  way.remove();
}"""


class Asked(NamedTuple):
    """Which photos a visitor looks at: a cell of the confusion, all of one dish (`predicted` is
    None), or the mistakes (both are None); and how many of them."""

    actual: int | None = None
    predicted: int | None = None
    most: int = AT_ONCE


def results(page: Page, run: gr.State) -> None:
    """Draw the results of the run whose folder (a path as text, or None) is `run`'s value.

    Whoever sets `run` has made sure that this visitor may see the run's photos.
    """
    Results(page, run)


class Results:
    """Its methods are what happens in the piece; most return new values by component."""

    def __init__(self, page: Page, run: gr.State) -> None:
        self.page = page
        self.asked = gr.State(Asked())
        with gr.Column(elem_id="results"):
            self.status = gr.HTML(EMPTY, elem_id="results-status")
            self.stop = Stop(self._stopped)
            with gr.Column(visible=False) as self.body:
                self.verdict = gr.HTML(elem_id="results-verdict")
                self.sets = gr.Radio(label="Counted on", visible=False, elem_id="results-sets")
                with gr.Row(elem_id="results-buttons"):
                    self.use = gr.Button("Use it in Classify", variant="primary", size="sm")
                    self.save = gr.Button("Download the checkpoint", size="sm")
                    self.file = gr.DownloadButton("file", visible="hidden", elem_id="results-file")
                with gr.Row(elem_id="results-tables"):
                    self.confusion = gr.HTML(js_on_load=SCRIPT, elem_id="results-confusion")
                    self.dishes = gr.HTML(js_on_load=SCRIPT, elem_id="results-dishes")
                self.mistakes = gr.Button(
                    "Back to the most certain mistakes",
                    size="sm",
                    visible=False,
                    elem_id="results-back",
                )
                self.photos = gr.HTML(js_on_load=SCRIPT, elem_id="results-photos")
                self.attention = gr.HTML(js_on_load=SCRIPT, elem_id="results-attention")
        self._connect(run)

    def _connect(self, run: gr.State) -> None:
        quick = {"trigger_mode": "always_last", **QUIET, **DRAWING_QUEUE}
        model = {"trigger_mode": "always_last", **QUIET, **MODEL_QUEUE}
        shown = [self.status, self.body, self.verdict, self.sets, self.save]
        shown += [self.confusion, self.dishes]
        looking = [self.asked, self.photos, self.mistakes, self.attention]
        on = [run, self.sets]
        opened = run.change(self.open, run, [*shown, *looking], **quick)
        counting = self.stop.ends(
            opened.then, self.count, run, [*shown, *looking], **QUIET, **MODEL_QUEUE
        )
        counting.then(self.first_attention, on, self.attention, **model)
        other = self.sets.input(self.other_set, on, [*shown, *looking], **quick)
        other.then(self.first_attention, on, self.attention, **model)
        for part in (self.confusion, self.dishes):
            part.click(self.ask, on, looking[:3], **quick)
        self.mistakes.click(self.ask_mistakes, on, looking[:3], **quick)
        self.photos.click(self.press_photo, [*on, self.asked], looking[:3], **quick)
        self.photos.click(
            self.show_attention,
            on,
            self.attention,
            api_visibility="private",
            show_progress="minimal",
            trigger_mode="always_last",
            **MODEL_QUEUE,
        )
        # A path put into the photo input is taken for a new photo, so Classify answers anew: by the
        # model that is chosen by then.
        self.use.click(self.choose, run, self.page.checkpoint, **QUIET).success(
            lambda chosen: chosen or gr.skip(), self.page.chosen, self.page.photo, **QUIET
        ).success(None, None, None, js=TO_CLASSIFY, **QUIET)
        self.save.click(self.download, run, self.file, **QUIET, **DRAWING_QUEUE).success(
            None, None, None, js=FETCH, **QUIET
        )

    # --- The whole ----------------------------------------------------------------------------

    def open(self, run: str | None) -> dict:
        """Another run, or none: what is known of it, or that it will be counted."""
        nothing = {self.body: gr.update(visible=False)}
        if not run:
            return nothing | {self.status: EMPTY, self.attention: ""}
        try:
            outcome = read_outcome(Path(run))
        except Exception as error:
            return nothing | {self.status: trouble_html(error), self.attention: ""}
        if outcome is None:
            return nothing | {self.status: _counting(0, 0, TimeLeft()), self.attention: ""}
        return self._shown(Path(run), outcome, outcome.best_known)

    def count(self, run: str | None) -> Iterator[dict]:
        """Where the run's folder tells nothing of its photos, the model is asked again."""
        try:
            if not run or read_outcome(Path(run)):
                return
            asked, clock = counted(Path(run)), TimeLeft()
            while True:
                try:
                    done, total = next(asked)
                except StopIteration as end:
                    yield self._shown(Path(run), end.value, end.value.best_known)
                    return
                yield {self.status: _counting(done, total, clock)}
        except Exception as error:
            yield {self.status: trouble_html(error)}

    def _stopped(self) -> dict:
        return {self.status: "<p>Stopped. Choose the run again to count its photos.</p>"}

    def other_set(self, run: str | None, name: str | None) -> dict:
        try:
            folder, outcome = _opened(run)
            return self._shown(folder, outcome, outcome.named(name))
        except Exception as error:
            return {self.status: trouble_html(error)}

    def _shown(self, folder: Path, outcome: Outcome, answers: Answers) -> dict:
        ordered = sorted(outcome.sets, key=lambda each: each.name == "validation")
        names = [(_set_name(each), each.name) for each in ordered]  # the test photos first
        size = result_file(folder).stat().st_size / 1e6
        label = f"Download the checkpoint ({size:.{0 if size >= 9.5 else 1}f} MB)"
        return {
            self.status: "",
            self.body: gr.update(visible=True),
            self.verdict: verdict_html(answers),
            self.sets: gr.update(choices=names, value=answers.name, visible=len(names) > 1),
            self.save: label,
            self.confusion: confusion_html(answers),
            self.dishes: dishes_html(answers),
            self.attention: "",
            **self._photos(answers, Asked()),
        }

    # --- Photos -------------------------------------------------------------------------------

    def ask(self, click: gr.EventData, run: str | None, name: str | None) -> dict:
        """A click on a cell of the confusion or on a dish."""
        dish = getattr(click, "dish", None)
        actual = getattr(click, "actual", None) if dish is None else dish
        return self._ask(run, name, Asked(actual, getattr(click, "predicted", None)))

    def ask_mistakes(self, run: str | None, name: str | None) -> dict:
        return self._ask(run, name, Asked())

    def _ask(self, run: str | None, name: str | None, asked: Asked) -> dict:
        try:
            answers = _opened(run)[1].named(name)
            for number in asked[:2]:
                if number is not None and not _is_place(number, len(answers.classes)):
                    raise OutcomeError("There is no such dish; choose the run again.")
            return self._photos(answers, asked)
        except Exception as error:
            return {self.photos: trouble_html(error)}

    def press_photo(
        self, click: gr.EventData, run: str | None, name: str | None, asked: Asked
    ) -> dict:
        """More photos; a click on one of them is for `show_attention`."""
        if not getattr(click, "more", None):
            return {self.photos: gr.skip()}
        return self._ask(run, name, asked._replace(most=asked.most + AT_ONCE))

    def _photos(self, answers: Answers, asked: Asked) -> dict:
        title, places = _places(answers, asked)
        first = places[: asked.most]
        shown = open_answers(answers, first, THUMBNAIL)
        return {
            self.asked: asked,
            self.photos: photos_html(answers, title, first, shown, len(places) - len(first)),
            self.mistakes: gr.update(visible=asked[:2] != (None, None)),
        }

    # --- Attention ----------------------------------------------------------------------------

    def first_attention(self, run: str | None, name: str | None) -> str:
        """Of the first photo that is shown when a run is opened: the surest mistake, if any."""
        if not run:
            return ""
        try:
            answers = _opened(run)[1].named(name)
            _, places = _places(answers, Asked())
            return before_after_html(Path(run), answers, places[0]) if places else ""
        except Exception as error:
            return trouble_html(error)

    def show_attention(self, click: gr.EventData, run: str | None, name: str | None) -> str | dict:
        """A click on a photo."""
        place = getattr(click, "photo", None)
        if place is None:
            return gr.skip()
        try:
            folder, outcome = _opened(run)
            answers = outcome.named(name)
            if not _is_place(place, len(answers.answers)):
                raise OutcomeError("There is no such photo; choose the run again.")
            return before_after_html(folder, answers, place)
        except Exception as error:
            return trouble_html(error)

    # --- The checkpoint -----------------------------------------------------------------------

    def choose(self, run: str | None) -> dict:
        """The result becomes the page's model."""
        try:
            if not run:
                raise OutcomeError("Choose a run first.")
            name = publish(Path(run))
            names = [entry.name for entry in checkpoint.available()]
        except Exception as error:
            raise notice(error) from error
        return gr.update(choices=names, value=name)

    def download(self, run: str | None) -> str:
        try:
            if not run:
                raise OutcomeError("Choose a run first.")
            return keep_copy(result_file(Path(run)))
        except Exception as error:
            raise notice(error) from error


def _opened(run: str | None) -> tuple[Path, Outcome]:
    if not run or not (outcome := read_outcome(Path(run))):
        raise OutcomeError("This run's photos have not been counted; choose the run again.")
    return Path(run), outcome


def _places(answers: Answers, asked: Asked) -> tuple[str, list[int]]:
    """The title over the photos that are asked for, and their places, in order."""
    names = dish_names(answers.classes)
    actual, predicted = asked.actual, asked.predicted
    if actual is None:
        if mistakes := answers.mistakes():
            return "The most certain mistakes", mistakes
        surest = sorted(range(len(answers.answers)), key=lambda i: answers.answers[i].probability)
        return "No mistakes. The least certain of the right answers", surest
    if predicted is None:
        recall = answers.recalls[actual]
        return f"{names[actual]}: {recall.correct} of {recall.total} recognised", answers.of_class(
            actual
        )
    places = answers.cell(actual, predicted)
    if actual == predicted:
        return f"{names[actual]}, recognised: {len(places)}", places
    return f"{names[actual]} taken for {names[predicted]}: {len(places)}", places


def _set_name(answers: Answers) -> str:
    kind = {"test": "test photos", "validation": "validation photos"}.get(answers.name)
    return f"{len(answers.answers):,} {kind}" if kind else answers.name


def _is_place(value: object, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _counting(done: int, total: int, clock: TimeLeft) -> str:
    said = f"{done:,} of {total:,} photos" if done else "The photos are looked at again …"
    return going_html(said, done / total if total else None, clock)
