"""A stop of the tour as HTML: where one is, the words and equations, the numbers and the code."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from functools import lru_cache
from html import escape

from vit.lesson import Excerpt, Lesson, Table
from vit.tour import STOPS, Stop
from vit.ui.mathml import mathml

WHOLE = 12  # letters of a cell that is not broken


def nav_html(stop: Stop) -> str:
    """Every stop as a small button, in its part of the way; pressed is the one that is open."""
    parts: dict[str, list[str]] = {}
    for number, each in enumerate(STOPS, 1):
        here = ' aria-current="step"' if each is stop else ""
        parts.setdefault(each.part, []).append(
            f'<button type="button" data-stop="{each.key}"{here} '
            f'aria-label="{number}: {escape(each.title)}" title="{escape(each.title)}">{number}'
            "</button>"
        )
    groups = "".join(
        f'<div role="group" aria-label="{escape(name)}"><small>{escape(name)}</small>'
        f"<p>{''.join(buttons)}</p></div>"
        for name, buttons in parts.items()
    )
    return f'<nav class="stops" aria-label="Stops of the tour">{groups}</nav>'


def words_html(stop: Stop, lesson: Lesson) -> str:
    """Title, what happens, the equations and the shapes."""
    number = STOPS.index(stop) + 1
    words = "".join(f"<p>{_marked(paragraph)}</p>" for paragraph in lesson.words)
    equations = "".join(f"<li>{mathml(equation)}</li>" for equation in lesson.equations)
    shapes = "".join(
        f"<li><b>{' × '.join(f'{n:,}' for n in sizes)}</b> <span>{escape(name)}</span></li>"
        for name, sizes in lesson.shapes
    )
    return (
        f'<div class="lesson" data-at="{stop.key}"><p class="where">Stop {number} of {len(STOPS)} '
        f"· {escape(stop.part)}</p><h3>{escape(stop.title)}</h3>{words}"
        f'<ul class="equations" aria-label="Equations">{equations}</ul>'
        f'<ul class="shapes" aria-label="Shapes">{shapes}</ul></div>'
    )


def numbers_html(lesson: Lesson) -> str:
    """The model's numbers, what often goes wrong, and our code."""
    tables = "".join(map(table_html, lesson.tables))
    aside = "".join(f"<p>{_marked(paragraph)}</p>" for paragraph in lesson.aside)
    if aside:
        aside = f'<aside class="fault"><h4>A common fault, and what is right</h4>{aside}</aside>'
    code = "".join(map(code_html, lesson.code))
    return f'<div class="lesson">{tables}{aside}{code}</div>'


def table_html(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.head)
    rows = []
    for number, cells in enumerate(table.rows):
        last = ' class="last"' if table.last and number == len(table.rows) - 1 else ""
        rows.append(f"<tr{last}>{''.join(map(_cell, cells))}</tr>")
    return (
        f'<div class="numbers-table"><table><caption>{escape(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    """A number or a name stays in one piece, a sum may go over several lines."""
    whole = ' class="whole"' if len(text) <= WHOLE else ""
    return f"<td{whole}>{escape(text)}</td>"


def code_html(excerpt: Excerpt) -> str:
    text = coloured(excerpt.text).split("\n")
    lines = "".join(
        f"<mark>{line}\n</mark>" if meant else f"<span>{line}\n</span>"
        for line, (_, meant) in zip(text, excerpt.lines, strict=True)
    )
    return (
        f'<figure class="code"><figcaption>{escape(excerpt.where)}</figcaption>'
        f"<pre><code>{lines}</code></pre></figure>"
    )


@lru_cache(maxsize=128)
def coloured(source: str) -> str:
    """Python as HTML with comments, texts and keywords in classes of their own."""
    pieces, lines = [], source.split("\n")
    at = (1, 0)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.replace("…", " ")).readline):
            kind = _kind(token)
            if not kind:
                continue
            pieces += [escape(_between(lines, at, token.start)), f'<i class="{kind}">']
            pieces += [escape(_between(lines, token.start, token.end)), "</i>"]
            at = token.end
    except (tokenize.TokenError, IndentationError):  # a piece that was cut out may end anywhere
        pass
    pieces.append(escape(_between(lines, at, (len(lines), len(lines[-1])))))
    return "".join(pieces)


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.COMMENT:
        return "comment"
    if token.type == tokenize.STRING and token.start[0] == token.end[0]:
        return "text"
    return "keyword" if token.type == tokenize.NAME and keyword.iskeyword(token.string) else ""


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    whole = [lines[start[0] - 1][start[1] :], *lines[start[0] : end[0] - 1]]
    return "\n".join([*whole, lines[end[0] - 1][: end[1]]])


def _marked(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
