"""Curves of runs: what the browser has not got yet, for `curves.js` to add to the picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import gradio as gr

from vit.runfolder import Run

DRAW = (Path(__file__).parent / "curves.js").read_text("utf-8")
# What the browser has of the live curves, asked of it before a look; see `added`.
HAS = "window.vitCurves?.has() ?? ''"


def curves(elem_id: str) -> gr.HTML:
    """An empty picture; its value is what `added` or `whole` returns."""
    return gr.HTML(
        "", html_template='<div class="learning"></div>', js_on_load=DRAW, elem_id=elem_id
    )


def added(run: Run, has: object) -> str:
    """The points of a run that a browser lacks. `has` is what it sends: "RUN STEP EPOCHS"."""
    step, epochs = _place(run, has)
    return json.dumps({"runs": [_points(run, step, epochs)], "live": True})


def whole(runs: Sequence[Run]) -> str:
    """Every point of some runs, to be drawn over one another."""
    return json.dumps({"runs": [_points(run, 0, 0) for run in runs], "live": False})


def _place(run: Run, has: object) -> tuple[int, int]:
    """(last step, number of epochs) that a browser has; zeros when it has none of this very run, or
    more than there is, as when a run was resumed from an earlier step."""
    parts = has.split() if isinstance(has, str) else []
    if len(parts) != 3 or parts[0] != run.id or not all(p.isdecimal() for p in parts[1:]):
        return 0, 0
    step, epochs = int(parts[1]), int(parts[2])
    return (step, epochs) if step <= run.told.at and epochs <= len(run.told.epochs) else (0, 0)


def _points(run: Run, step: int, epochs: int) -> dict:
    told = run.told
    return {
        "id": run.id,
        "title": run.title,
        "steps": told.started.steps if told.started else 0,
        "from": [step, epochs],
        "losses": [[at, round(loss, 5)] for at, loss in told.losses if at > step],
        "epochs": [
            [
                e.step,
                round(e.train_loss, 5),
                round(e.val_loss, 5),
                e.val.correct,
                e.val.total,
                *([e.train.correct, e.train.total] if e.train and e.train.total else []),
            ]
            for e in told.epochs[epochs:]
        ],
    }
