"""Is a map faithful? One map, or the ways of looking side by side, each with its test, as HTML."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from html import escape
from typing import TypeVar

from torch import Tensor

from vit import captions
from vit.faithfulness import Faithfulness
from vit.looking import Look, Method, Question
from vit.readings import DRAWS, heat_of, needs_dishes, rows_of_test, tested
from vit.reports import duration
from vit.speed import TimeLeft
from vit.ui.insights import Colouring
from vit.ui.seen import drawn_photo, jpeg_url
from vit.ui.words import going_html
from vit.wall import same_scale

PACE = 0.5  # seconds between two looks at a running test
TITLES: dict[Method, str] = {
    "head": "One head, raw",
    "mean": "Mean of a layer",
    "max": "Strongest head",
    "rollout": "Rollout",
    "relevance": "Relevance",
}


class _Stopped(Exception):
    pass


T = TypeVar("T")


def at_work(
    work: Callable[[Callable[[], None]], T], share: Callable[[int], float]
) -> Iterator[float | T]:
    """How far `work` is, from 0 to 1, now and then; at last what it found. It calls the function
    that it is given at every step, and `share` tells from their number how far it is. Closing this
    iterator ends it at its next step."""
    done, left = 0, threading.Event()

    def step() -> None:
        nonlocal done
        if left.is_set():
            raise _Stopped
        done += 1

    pool = ThreadPoolExecutor(1)
    try:
        yield 0.0
        found = pool.submit(work, step)
        while True:
            try:
                yield found.result(timeout=PACE)
                return
            except TimeoutError:
                yield share(done)
    finally:
        left.set()
        pool.shutdown(wait=False)


def run_test(
    look: Look, heats: dict[str, Tensor], target: int
) -> Iterator[float | dict[str, Faithfulness]]:
    """As `at_work`: the test of these maps."""
    needs_dishes(look)
    rows, depth = rows_of_test(heats), look.depth

    def share(done: int) -> float:
        return (min(done, depth) + rows * max(0, done - depth)) / (depth * (1 + rows))

    return at_work(lambda step: tested(look, heats, target, step), share)


def progress_html(share: float, rows: int, seconds: float, clock: TimeLeft) -> str:
    """What is going on, how far, and for about how long: at first as expected, then as it goes."""
    wait = f", about {duration(seconds)}" if seconds >= 1.5 and not share else ""
    return going_html(f"Hiding patches and asking the model {rows} times{wait} …", share, clock)


def busy_html(look: Look, maps: int, share: float, clock: TimeLeft) -> str:
    rows = 1 + maps + DRAWS
    return progress_html(share, rows, rows * look.milliseconds / 1000, clock)


def faithful_html(look: Look, question: Question) -> Iterator[str]:
    """HTML: first that it is at work, then the figures."""
    target, clock = question.aim(look), TimeLeft()
    for found in run_test(look, {"map": heat_of(look, question)}, target):
        if isinstance(found, dict):
            yield faithful_figures(look, target, found["map"])
        else:
            yield busy_html(look, 1, found, clock)


def _figures(dish: str, found: Faithfulness) -> str:
    return escape(captions.faithful(dish, found)).replace(" %", "&nbsp;%")


def faithful_figures(look: Look, target: int, found: Faithfulness) -> str:
    dish = look.card.labels[target]
    spared = " Sinks are hidden by neither." if look.sinks.patches else ""
    return (
        f'<p role="status"><strong>{_figures(dish, found)}</strong></p>'
        f'<p class="note">{escape(captions.verdict(found))} ± is one standard deviation of '
        f"{found.draws} draws of {found.removed} patches.{spared}</p>"
    )


@dataclass(frozen=True)
class Compared:
    question: Question
    heat: Tensor
    found: Faithfulness | None


def comparison_html(look: Look, question: Question, colouring: Colouring) -> Iterator[str]:
    """The ways of looking for the same asking token side by side, at first without their tests."""
    methods: list[Method] = ["head", "mean", "rollout"]
    if look.card.trained_head:
        methods.append("relevance")
    questions = [replace(question, method=method) for method in methods]
    heats: dict[str, Tensor] = {each.method: heat_of(look, each) for each in questions}
    entries = [Compared(each, heats[each.method], None) for each in questions]
    if not look.card.trained_head:
        yield compared_html(look, question, entries, colouring)
        return
    untested, clock = compared_html(look, question, entries, colouring), TimeLeft()
    for found in run_test(look, heats, question.aim(look)):
        if isinstance(found, dict):
            entries = [replace(entry, found=found[entry.question.method]) for entry in entries]
            yield compared_html(look, question, entries, colouring)
        else:
            yield busy_html(look, len(heats), found, clock) + untested


def compared_html(
    look: Look, question: Question, entries: Sequence[Compared], colouring: Colouring
) -> str:
    shares, top = same_scale([entry.heat for entry in entries])
    dish = look.card.labels[question.aim(look)]
    figures = []
    for entry, heat in zip(entries, shares, strict=True):
        picture = drawn_photo(
            look,
            entry.question,
            colouring.colours,
            colouring.opacity / 100,
            bool(colouring.smooth),
            heat,
            top,
        )
        said = captions.drawn(look, entry.question)
        test = (
            f"<p><strong>{_figures(dish, entry.found)}</strong></p>"
            f'<p class="note">{escape(captions.verdict(entry.found))}</p>'
            if entry.found
            else ""
        )
        figures.append(
            f'<figure><img src="{jpeg_url(picture)}" alt="{escape(said)}" width="{picture.width}" '
            f'height="{picture.height}"><figcaption><h4>{TITLES[entry.question.method]}</h4>'
            f"<p>{escape(said)}</p>"
            f'<p class="note">True maximum: {captions.share(heat.max().item())} of the map.</p>'
            f"{test}</figcaption></figure>"
        )
    scale = (
        "One scale for all: the same colour is the same share of its map's total; brightest is "
        f"{captions.share(top)} and above."
    )
    return f'<p class="note">{scale}</p><div class="compared">{"".join(figures)}</div>'
