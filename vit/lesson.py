"""What a stop of the guided tour is made of, as plain values: words, equations, shapes, numbers and
the lines of our code that do it. The page draws them; the command line prints them as Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from torch import Tensor

ROOT = Path(__file__).parents[1]
SHOWN = 3  # products of a long sum that are written out
WHOLE = 12  # lines of a piece of code that is shown whole
NEAR = 2  # lines before and after those meant, of a longer one


@dataclass(frozen=True)
class Table:
    """Numbers of the model with a line above each column. `last` marks the last row as their sum or
    result."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    last: bool = False


@dataclass(frozen=True)
class Excerpt:
    """A piece of our source, read from the file: each line, and whether it is the one meant."""

    where: str
    lines: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        return "\n".join(line for line, _ in self.lines)


@dataclass(frozen=True)
class Lesson:
    """One stop. words: paragraphs, in which `backticks` mark code, and names that somebody else
    chose are `quoted`. equations: in LaTeX. shapes: of a tensor, by name. aside: a mistake that is
    often made, and what is right, as paragraphs."""

    words: tuple[str, ...]
    equations: tuple[str, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    tables: tuple[Table, ...]
    code: tuple[Excerpt, ...]
    aside: tuple[str, ...] = field(default=())


def excerpt(piece: Callable | type, *anchors: str) -> Excerpt:
    """The source of a function or class without its docstring; lines that hold one of the `anchors`
    are those meant. Raises ValueError for an anchor that is no longer there."""
    source = textwrap.dedent(inspect.getsource(piece))
    if piece.__doc__ and (found := _docstring(source)):
        source = source.replace(found, "", 1)
    if gone := [anchor for anchor in anchors if anchor not in source]:
        raise ValueError(f"{piece.__qualname__} no longer says {gone[0]!r}; name what does.")
    lines = [
        (line, any(anchor in line for anchor in anchors)) for line in source.rstrip().split("\n")
    ]
    file = Path(inspect.getsourcefile(piece) or "").resolve()
    return Excerpt(
        f"{file.relative_to(ROOT).as_posix()}, {piece.__qualname__}",
        tuple(_few([line for line in lines if line[0].strip()])),
    )


def _few(lines: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """A short piece whole; of a long one the first line, and those near the ones meant."""
    if len(lines) <= WHOLE:
        return lines
    meant = [place for place, (_, marked) in enumerate(lines) if marked]
    few: list[tuple[str, bool]] = []
    for place, line in enumerate(lines):
        if place == 0 or any(abs(place - other) <= NEAR for other in meant):
            few.append(line)
        elif few[-1][0].strip() != "…":
            few.append((f"{' ' * (len(line[0]) - len(line[0].lstrip()))}…", False))
    return few


def _docstring(source: str) -> str:
    """The first text in three quotation marks, with the rest of its lines."""
    start = source.find('"""')
    end = source.find('"""', start + 3)
    if min(start, end) < 0:
        return ""
    return source[source.rfind("\n", 0, start) + 1 : source.find("\n", end) + 1]


def decimal(value: float, digits: int = 3) -> str:
    """With a true minus sign, and never a minus nought."""
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def products(one: Tensor, other: Tensor) -> str:
    """ "0.120 × −0.300 + … 63 more": a scalar product of two vectors (n,), written out in part."""
    count = len(one)
    (first, *rest) = zip(one[:SHOWN].tolist(), other[:SHOWN].tolist(), strict=True)
    said = f"{decimal(first[0])} × {_bracketed(first[1])}"
    said += "".join(f" + {_bracketed(a)} × {_bracketed(b)}" for a, b in rest)
    return said + (f" + … {count - SHOWN:,} more" if count > SHOWN else "")


def added(*values: float) -> str:
    """ "0.120 + (−0.300)"."""
    return " + ".join([decimal(values[0]), *(_bracketed(value) for value in values[1:])])


def _bracketed(value: float) -> str:
    text = decimal(value)
    return f"({text})" if text.startswith("−") else text


def some(values: Sequence[float] | Tensor, count: int = 6) -> str:
    """The first numbers of a vector."""
    listed = values.tolist() if isinstance(values, Tensor) else list(values)
    rest = f", … {len(listed) - count:,} more" if len(listed) > count else ""
    return ", ".join(decimal(value) for value in listed[:count]) + rest


def small(value: float) -> str:
    """A difference, to see that it is only rounding: "0" or "2.4e-07"."""
    return "0" if value == 0 else f"{value:.1e}"


def markdown(number: str, title: str, lesson: Lesson) -> str:
    """One stop as Markdown; equations in LaTeX between dollar signs."""
    parts = [f"## {number}. {title}", *map(_safe, lesson.words)]
    parts += [f"$$\n{equation}\n$$" for equation in lesson.equations]
    shapes = [f"- {name}: {' × '.join(f'{n:,}' for n in sizes)}" for name, sizes in lesson.shapes]
    parts += ["\n".join(shapes)] if shapes else []
    for table in lesson.tables:
        rows = [table.head, ("---",) * len(table.head), *table.rows]
        cells = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
        parts += [markdown_text(table.caption), "\n".join(cells)]
    parts += ["\n".join(["> " + _safe(line) + "\n>" for line in lesson.aside])] * bool(lesson.aside)
    parts += [f"`{piece.where}`\n\n```python\n{piece.text}\n```" for piece in lesson.code]
    return "\n\n".join(parts)


def quoted(name: str) -> str:
    """A name that somebody else chose, for the middle of our words: it marks no code."""
    return name.replace("`", "'")


def markdown_text(text: str) -> str:
    """Text as Markdown that shows it as it is: names of classes are anybody's."""
    return re.sub(r"([\\`*_\[\]!#|~$])", r"\\\1", escape(text, quote=False))


def _safe(text: str) -> str:
    """The same, with our `code` in it."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if place % 2 else markdown_text(part) for place, part in enumerate(parts))


def _cell(text: str) -> str:
    return markdown_text(" ".join(text.split()))
