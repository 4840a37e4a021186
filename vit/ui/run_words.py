"""A run in words and HTML: where it stands, what it found, what to do about it, and the table."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from html import escape

from vit.reports import duration, number
from vit.runfolder import Run, State, Visitor
from vit.ui.words import interval

STATES: dict[State, str] = {
    "waiting": "waiting",
    "running": "learning",
    "stopping": "stopping",
    "finished": "finished",
    "stopped": "stopped",
    "failed": "failed",
    "crashed": "failed",
    "interrupted": "interrupted",
}


def status_html(run: Run, visitor: Visitor, ahead: int) -> str:
    """Where a run stands; its log for those alone who may look at it."""
    title = f"<h3>{escape(run.title)} {badge(run.state)}</h3>"
    return f'<div class="run-status" role="status">{title}{_standing(run, visitor, ahead)}</div>'


def badge(state: State) -> str:
    return f'<span class="state {state}">{STATES[state]}</span>'


def _standing(run: Run, visitor: Visitor, ahead: int) -> str:
    told = run.told
    match run.state:
        case "waiting":
            before = "It is the next." if ahead == 0 else f"{number(ahead, 'run')} before it."
            return _p(
                f"In the queue, number {ahead + 1}. {before} It begins by itself, also when this "
                "page is closed."
            )
        case "running" | "stopping":
            return _progress(run)
        case "finished" | "stopped":
            why = run.request.stop or "by hand"
            how = f"Stopped {why}; the best weights are kept." if run.state == "stopped" else ""
            if run.state == "stopped" and told.finished and not told.finished.path:
                how = f"Stopped {why}, before there was anything to keep."
            return _p(how) + _found(run) + _warnings(run)
        case "failed":
            kept = told.finished is not None and told.finished.path
            return _warnings(run) + (_found(run) if kept else _p("Nothing was kept."))
        case "interrupted":
            where = f"step {told.at}" if told.at else "the beginning"
            text = (
                "Its process ended without a word, as when it is killed or the machine goes down. "
                f"Nothing saved is lost: it can go on, from about {where}."
            )
            return _p(text) + _log(run, visitor)
    return _p("It ended with an error, which its last lines tell:") + _log(run, visitor)


def _progress(run: Run) -> str:
    told, step = run.told, run.told.step
    stopping = run.state == "stopping"
    if told.started is None:
        waited = max(0, time.time() - run.request.began) if run.request.began else 0
        said = "Reading the photos" if waited > 3 else "Starting"
        said = "Stopping as soon as it has started" if stopping else said
        return f"<progress></progress>{_p(f'{said} … {waited:.0f} s')}"
    if step is None:
        if told.prepared is None:
            return f"<progress></progress>{_p('The first step is under way …')}"
        done, total, left = told.prepared.done, told.prepared.total, told.prepared.seconds_left
        rest = "" if left is None else f" · {duration(left)} left"
        return (
            f'<progress value="{done}" max="{total}"></progress>'
            + _p(f"The model looks at every photo once: {done:,} of {total:,}{rest}")
            + _warnings(run)
        )
    epoch = min(step.epoch + 1, told.started.epochs)
    parts = [
        f"step {step.step:,} of {told.started.steps:,}",
        f"epoch {epoch} of {told.started.epochs}",
        f"{step.photos_per_second:,.0f} photos a second",
        f"learning rate {step.rate:.1e}",
        f"{duration(step.seconds_left)} left",
    ]
    if stopping:
        parts[-1] = "stopping at the next batch"
    elif step.step == told.started.steps:
        parts[-1] = "counting on the test photos"
    return (
        f'<progress value="{step.step}" max="{told.started.steps}"></progress>'
        f"{_p(' · '.join(parts))}{_warnings(run)}"
    )


def _found(run: Run) -> str:
    ended = run.told.finished
    if ended is None or not ended.path:
        return ""
    lines = [
        f"<li><strong>{count.correct:,} of {count.total:,}</strong> {escape(kind(name))} right "
        f"({interval(count)})</li>"
        for name, count in sorted(ended.metrics.items(), key=lambda each: each[0] == "validation")
        if count.total
    ]
    took = f"in {duration(ended.seconds)}"
    if run.checkpoint:
        took += f"; {run.title} is among the models above"
    return f'<ul class="found">{"".join(lines)}</ul>{_p(took)}'


def kind(name: str) -> str:
    return f"{name} photos" if name in ("test", "validation") else f"photos of {name}"


def _warnings(run: Run) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in run.told.warnings[-5:])
    return f'<ul class="warnings">{items}</ul>' if items else ""


def _log(run: Run, visitor: Visitor) -> str:
    if not visitor.may_look(run):
        return ""
    lines = run.log or "It printed nothing."
    return f'<pre class="log" tabindex="0">{escape(lines)}</pre>'


def _p(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


# --- the table --------------------------------------------------------------------------------

HEADS = ("compare", "run", "state", "right", "learnt", "from", "photos", "when", "took")


def table_html(
    runs: Sequence[Run], visitor: Visitor, opened: str | None, chosen: Collection[str]
) -> str:
    """Every run, the latest first; a click on a name opens it, boxes choose what to compare."""
    if not runs:
        return '<p class="note">No run yet. What you start above will be listed here.</p>'
    heads = "".join(f'<th scope="col">{name}</th>' for name in HEADS)
    rows = "".join(_row(run, visitor, run.id == opened, run.id in chosen) for run in runs)
    return f'<table class="runs"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _row(run: Run, visitor: Visitor, opened: bool, chosen: bool) -> str:
    title, id = escape(run.title), escape(run.id)
    own = ' <span class="own">yours</span>' if visitor.started(run) else ""
    can = bool(run.told.losses or run.told.epochs)
    box = (
        f'<input type="checkbox" data-compare="{id}" aria-label="Compare {title}"'
        f"{' checked' if chosen else ''}{'' if can else ' disabled'}>"
    )
    cells = [
        box,
        f'<button type="button" data-run="{id}" aria-pressed="{"true" if opened else "false"}">'
        f"{title}</button>{own}",
        badge(run.state),
        right(run),
        escape(_way(run)),
        escape(run.recipe.start),
        f"{run.told.started.train:,}" if run.told.started else "",
        time.strftime("%d %b %H:%M", time.localtime(run.request.asked)),
        duration(run.told.finished.seconds) if run.told.finished else "",
    ]
    filled = "".join(
        f'<td data-head="{head}">{cell}</td>' for head, cell in zip(HEADS, cells, strict=True)
    )
    return f"<tr{' class=opened' if opened else ''}>{filled}</tr>"


def right(run: Run) -> str:
    """The count on the test photos, or else on the validation photos, with its interval."""
    ended, best = run.told.finished, run.told.best
    metrics = dict(ended.metrics) if ended else {"validation": best.val} if best else {}
    counts = {name: count for name, count in metrics.items() if count.total}
    if not counts:
        return ""
    name = next((name for name in counts if name != "validation"), "validation")
    count = counts[name]
    return (
        f"<b>{count.correct:,}/{count.total:,}</b> <small>{escape(name)}, {interval(count)}</small>"
    )


def _way(run: Run) -> str:
    names = {"head": "head", "last": "last blocks", "all": "everything", "scratch": "everything"}
    way = names.get(run.recipe.way, run.recipe.way)
    started = run.told.started  # only then is it known how many epochs suit the photos
    return f"{way}, {number(started.epochs, 'epoch')}" if started else way
