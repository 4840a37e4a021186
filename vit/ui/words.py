"""Numbers and troubles in words, the same way on every tab."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from html import escape
from typing import NewType

import gradio as gr

from vit.card import Card
from vit.metrics import Count
from vit.reports import duration
from vit.speed import TimeLeft

Html = NewType("Html", str)  # markup in which all text is escaped

INFO = '<span class="info" aria-hidden="true">i</span>'  # more behind a click

log = logging.getLogger("vit")

_FULL = "The disk of this page is full, so nothing was kept; try again later."
_READ_ONLY = (
    "This page may not write to its disk, so nothing was kept; whoever runs it must make the "
    "folder VIT_HOME writable."
)
DISK = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
}


def percent(share: float) -> str:
    """A probability for people: "94 %", and never a rounded 0 or 100."""
    if share < 0.01:
        return "< 1 %"
    if share >= 0.995:
        return "> 99 %"
    return f"{100 * share:.0f} %"


def interval(count: Count) -> str:
    """Of a rate, 95 %: "71 to 74 %", of which the sign stands on no line of its own."""
    low, high = count.interval
    return f"{100 * low:.0f} to {100 * high:.0f}\N{NO-BREAK SPACE}%"


def going_html(said: str, share: float | None = None, clock: TimeLeft | None = None) -> Html:
    """A bar, what is going on (text), and when it can be told how long still; `share`, from 0 to 1,
    is done, None while that is not known."""
    value = "" if share is None else f' value="{share:.3f}"'
    left = clock.seconds(share) if clock and share is not None else None
    rest = "" if left is None else f" · about {duration(max(1, left))} left"
    return Html(f'<p role="status"><progress{value}></progress> {escape(said)}{rest}</p>')


def within(number: int | None, low: int, high: int, otherwise: int) -> int:
    """A number typed into a field, brought into its range; `otherwise` for an empty field.

    Limits on the field itself would make Gradio put its own words over all that depends on it.
    """
    return otherwise if number is None else max(low, min(number, high))


def kinds(card: Card) -> str:
    """What a model tells apart: dishes, unless others taught it."""
    return "classes" if "imported_from" in card.training else "dishes"


def kind(card: Card) -> str:
    """One of them."""
    return {"classes": "class", "dishes": "dish"}[kinds(card)]


def listed(names: Sequence[str]) -> str:
    """ "Pizza, Steak and Sushi"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def trouble(error: Exception) -> str:
    """The one sentence a person reads when `error` stopped us.

    The package's own errors (`PhotoError`, `CheckpointError`, `UntrainedHead`, ...) are written for
    people. Anything else is a fault of ours: it goes to the log.
    """
    if isinstance(error, gr.Error):
        return str(error.message)  # its own str() puts quotation marks around it
    if type(error).__module__.startswith("vit."):
        return str(error)
    if isinstance(error, OSError) and error.errno in DISK:
        log.error("%s", error)
        return DISK[error.errno]
    log.error("unexpected", exc_info=error)
    return "Something unexpected went wrong; try again, and if it stays, look in the app's log."


def trouble_html(said: Exception | str) -> Html:
    text = said if isinstance(said, str) else trouble(said)
    return Html(f'<p class="trouble" role="alert">{escape(text)}</p>')


def notice(error: Exception) -> gr.Error:
    """The same sentence in a corner of the page, for handlers that have no place of their own for
    it. Gradio takes the text of its notices for HTML."""
    return gr.Error(escape(trouble(error), quote=False), print_exception=False)


def api_error(error: Exception) -> gr.Error:
    """The same sentence for a caller of the API."""
    return gr.Error(trouble(error), print_exception=False)
