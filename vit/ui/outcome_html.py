"""What a run got right and wrong as HTML: a sentence, the confusion, dish by dish, the photos.

Everything to press carries numbers in `data-` attributes, which `results.js` sends as they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image

from vit.heat import paint
from vit.images import Photo
from vit.metrics import Count
from vit.names import dish_names
from vit.outcome import Answer, Answers, OutcomeError
from vit.ui.files import data_url
from vit.ui.grid import scale_url
from vit.ui.many import short
from vit.ui.seen import jpeg_url
from vit.ui.words import interval, percent

FEW = 12  # dishes whose confusion is a table with a number in every cell
PAIRS = 12  # most confused pairs that are listed
FIRST = 12  # dishes shown at once, the worst first
AT_ONCE = 12  # photos
THUMBNAIL = 240  # pixels
STRONGEST = 60  # per cent of colour in a cell, so that its number stays readable


def verdict_html(answers: Answers) -> str:
    """The count in a sentence, on which photos, and a word where the model has given up."""
    count, total = answers.count, len(answers.answers)
    photos = f"{total:,} photo{'s' * (total != 1)}"
    if answers.name == "validation":
        where = (
            f"On the {photos} kept for validation. They also chose which weights were kept, so "
            "this flatters the model a little."
        )
    else:
        called = "" if answers.name == "test" else f" of the set {answers.name}"
        where = f"On the {photos}{called} kept for the test: none was trained on or chosen by."
    said = set(np.flatnonzero(answers.confusion.sum(0)).tolist())
    given_up = ""
    if len(said) == 1 and answers.confusion.sum(1).astype(bool).sum() > 1:
        dish = _names(answers)[said.pop()]
        given_up = (
            f'<p class="trouble">It answers {escape(dish)} for every photo: it has not learnt to '
            "tell the dishes apart. Train longer, or change the rate.</p>"
        )
    return (
        f'<p class="verdict" role="status"><strong>{count.correct:,} of {total:,} right</strong> '
        f"({escape(interval(count))})</p><p class='note'>{escape(where)}</p>{given_up}"
    )


def confusion_html(answers: Answers) -> str:
    """Every kind of right and wrong answer to press: a table where there are few dishes, else the
    most confused pairs and a picture."""
    few = len(answers.classes) <= FEW
    inside = _table(answers) if few else _pairs(answers) + _picture(answers)
    return f"<h3>What was taken for what</h3>{inside}"


def _table(answers: Answers) -> str:
    names = [escape(name) for name in _names(answers)]
    longest = max(map(len, _names(answers)))
    turned = " ".join(
        kind
        for kind, wide in (("turned", 52), ("turned-narrow", 32))
        if longest * len(names) > wide
    )
    heads = "".join(f'<th scope="col" title="{name}"><span>{name}</span></th>' for name in names)
    rows, first = [], True
    for actual, row in enumerate(answers.confusion.tolist()):
        cells = []
        for predicted, count in enumerate(row):
            cells.append(_cell(names, actual, predicted, count, sum(row), first))
            first = first and not count
        name = names[actual]
        rows.append(
            f'<tr><th scope="row" title="{name}"><span>{name}</span></th>{"".join(cells)}</tr>'
        )
    return (
        f'<table class="confusion {turned}" style="--dishes: {len(names)}">'
        "<caption>Rows: what it is. Columns: what the model said. Press a number to see its "
        "photos.</caption>"
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _cell(names: list[str], actual: int, predicted: int, count: int, row: int, first: bool) -> str:
    if not count:
        return '<td><span class="none">·</span></td>'
    right = actual == predicted
    photos = f"{count:,} photo{'s' * (count != 1)}"
    said = (
        f"{names[actual]} recognised: {photos}"
        if right
        else f"{names[actual]} taken for {names[predicted]}: {photos}"
    )
    # Mistakes are few: the root makes one in a hundred visible.
    colour = STRONGEST * (count / row if right else math.sqrt(count / row))
    return (
        f'<td><button type="button" class="ask {"right" if right else "wrong"}" '
        f'data-actual="{actual}" data-predicted="{predicted}" aria-pressed="false" '
        f'tabindex="{0 if first else -1}" aria-label="{said}" title="{said}" '
        f'style="--colour: {colour:.0f}%">{count}</button></td>'
    )


def _pairs(answers: Answers) -> str:
    names = [escape(name) for name in _names(answers)]
    pairs = answers.confused()
    if not pairs:
        return "<p>Nothing was taken for anything else.</p>"
    items = "".join(
        f'<li><button type="button" class="ask" data-actual="{actual}" '
        f'data-predicted="{predicted}" aria-pressed="false"><b>{count}&nbsp;×</b> '
        f"{names[actual]} <span>taken for</span> {names[predicted]}</button></li>"
        for actual, predicted, count in pairs[:PAIRS]
    )
    more = f" of {len(pairs):,}" if len(pairs) > PAIRS else ""
    return (
        f'<p class="note">The most confused pairs{more}; press one to see its photos.</p>'
        f'<ol class="pairs">{items}</ol>'
    )


def _picture(answers: Answers) -> str:
    """All cells as one picture, a pixel each; the script finds the cell under the pointer."""
    table = answers.confusion
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    picture = paint(np.sqrt(shares).astype(np.float32), 1.0)
    cells = [[int(a), int(p), int(table[a, p])] for a, p in zip(*table.nonzero(), strict=True)]
    names = escape(json.dumps(_names(answers), ensure_ascii=False))
    said = f"Confusion of {len(table)} dishes: arrow keys go from one to the next, Enter shows it"
    return (
        f'<div class="all-cells" tabindex="0" role="group" aria-label="{said}" '
        f'data-names="{names}" data-cells="{escape(json.dumps(cells))}">'
        f'<img src="{data_url(picture)}" alt=""><i hidden></i></div>'
        '<p class="readout" role="status">Rows: what it is. Columns: what the model said. '
        "The bright line is what was recognised; press any other spot to see those photos.</p>"
        f'<p class="scale">none <img src="{scale_url("inferno")}" alt="from dark to bright"> '
        "all photos of the dish</p>"
    )


def dishes_html(answers: Answers) -> str:
    """Recall as bars with intervals, and precision in words; the worst first where not all fit."""
    counted = [i for i, recall in enumerate(answers.recalls) if recall.total]
    order = sorted(counted, key=lambda i: answers.recalls[i].rate)
    many = len(order) > FIRST
    rows = [_dish(answers, i) for i in (order if many else counted)]
    rest = (
        f"<details><summary>{len(rows) - FIRST} more</summary>"
        f'<ul class="recall">{"".join(rows[FIRST:])}</ul></details>'
        if many
        else ""
    )
    return (
        f"<h3>Dish by dish{', the worst first' if many else ''}</h3>"
        '<p class="note">Bar: how many of its photos were recognised. Thin line: where that share '
        "may truly lie (95 %).</p>"
        f'<ul class="recall">{"".join(rows[:FIRST])}</ul>{rest}'
    )


def _dish(answers: Answers, number: int) -> str:
    recall, precision = answers.recalls[number], answers.precisions[number]
    name = escape(_names(answers)[number])
    low, high = recall.interval
    times = "once" if precision.total == 1 else f"{precision.total:,} times"
    said = (
        "The model never said it." if not precision.total else f"Said {times}, {_right(precision)}."
    )
    label = f"{name}: {recall.correct} of {recall.total} recognised, {interval(recall)}. {said}"
    return (
        f'<li><button type="button" class="ask" data-dish="{number}" aria-pressed="false" '
        f'aria-label="{label}"><span class="dish">{name}</span>'
        f'<span class="bar"><i style="width: {100 * recall.rate:.1f}%"></i>'
        f'<u style="left: {100 * low:.1f}%; width: {100 * (high - low):.1f}%"></u></span>'
        f'<span class="share">{recall.correct:,} of {recall.total:,}</span>'
        f"<small>{said}</small></button></li>"
    )


def _right(count: Count) -> str:
    if count.correct == count.total:
        return "rightly" if count.total == 1 else "always rightly"
    return "never rightly" if not count.correct else f"{count.correct:,} of them rightly"


def photos_html(
    answers: Answers,
    title: str,
    places: Sequence[int],
    shown: Sequence[Photo | OutcomeError],
    more: int,
) -> str:
    """The photos at these places of `answers` as buttons, captions under them; `more` are left."""
    if not places:
        return f'<h3>{escape(title)}</h3><p class="note">There are none.</p>'
    items = "".join(
        _photo(answers, place, photo) for place, photo in zip(places, shown, strict=True)
    )
    next_ones = f"{AT_ONCE} more of {more:,}" if more > AT_ONCE else f"the other {more}"
    left = f'<button type="button" class="ask more" data-more="1">Show {next_ones}</button>'
    return (
        f'<h3>{escape(title)}</h3><p class="note">Press a photo to see where the model looked, '
        f'before and after.</p><ul class="answers">{items}</ul>{left if more else ""}'
    )


def _photo(answers: Answers, place: int, photo: Photo | OutcomeError) -> str:
    answer = answers.answers[place]
    file = answer.photo.name
    said = said_of(answers, answer)
    name = file.rpartition("/")[2]
    caption = escape(said).replace(" %", "&nbsp;%")
    foot = f'<span>{caption}</span><small title="{escape(file)}">{escape(short(name))}</small>'
    if isinstance(photo, OutcomeError):
        return f'<li><p class="gone">{escape(str(photo))}</p>{foot}</li>'
    return (
        f'<li><button type="button" class="ask" data-photo="{place}" aria-pressed="false" '
        f'aria-label="{escape(f"{name}: {said}. See where the model looked.")}">'
        f'<img src="{jpeg_url(small(photo))}" alt=""></button>{foot}</li>'
    )


def said_of(answers: Answers, answer: Answer) -> str:
    """ "Pizza, 94 %" or "Steak taken for Pizza, 94 %"."""
    names = _names(answers)
    said = f"{names[answer.predicted]}, {percent(answer.probability)}"
    return said if answer.right else f"{names[answer.actual]} taken for {said}"


def small(photo: Photo) -> Image.Image:
    picture = photo.image.copy()
    picture.thumbnail((2 * THUMBNAIL, THUMBNAIL))
    return picture


def _names(answers: Answers) -> list[str]:
    return list(dish_names(answers.classes))
