"""Models taught on the same photos, side by side: read from `vit/checkpoints/comparison.json`.

{"title": …, "note": …, "why": [paragraph, …], "guess": n, "rows": [{"name": …, "what": …,
  "parameters": n, "command": …, "right": {photos: [{"correct": n, "total": n}, …], …},
  "curve": [{"epoch": 1, "train": loss, "validation": loss}, …]}, …]}

`right` holds, for each set of photos, a count for each repetition of the command with another seed,
the command's own first; `guess` is the share that a guess gets right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vit.metrics import Count

FILE = Path(__file__).parent / "checkpoints" / "comparison.json"


class ComparisonError(ValueError):
    """The file does not hold what it should; the text says what."""


@dataclass(frozen=True)
class Rival:
    """One of the models. right: by the name of the photos, a count for each seed. curve: (epoch,
    training loss, validation loss) for every epoch of the first; may be empty."""

    name: str
    what: str
    parameters: int
    command: str
    right: Mapping[str, tuple[Count, ...]]
    curve: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Comparison:
    """guess: the share, 0 to 1, that a guess gets right. why: what it teaches, in paragraphs."""

    title: str
    note: str
    why: tuple[str, ...]
    guess: float
    rows: tuple[Rival, ...]


def read_comparison(path: Path = FILE) -> Comparison | None:
    """What the file holds; None where there is none. Raises ComparisonError."""
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text("utf-8"))
        return Comparison(
            title=str(values["title"]),
            note=str(values["note"]),
            why=tuple(str(each) for each in values["why"]),
            guess=float(values["guess"]),
            rows=tuple(_rival(row) for row in values["rows"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ComparisonError(
            f"{path.name} cannot be shown ({type(error).__name__}: {error}); see vit/compared.py "
            "for its form."
        ) from error


def _rival(row: Mapping[str, Any]) -> Rival:
    right = {
        str(photos): tuple(Count.from_json(each) for each in counts)
        for photos, counts in row["right"].items()
    }
    if not right or not all(right.values()):
        raise ValueError(f"{row['name']} has no count")
    return Rival(
        name=str(row["name"]),
        what=str(row["what"]),
        parameters=int(row["parameters"]),
        command=str(row["command"]),
        right=right,
        curve=tuple(
            (float(each["epoch"]), float(each["train"]), float(each["validation"]))
            for each in row["curve"]
        ),
    )
