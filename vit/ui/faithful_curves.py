"""The deletion and insertion curves of a map beside those of chance, as HTML."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from html import escape

from vit.faithfulness import Curve
from vit.looking import Look, Question
from vit.readings import CURVE_DRAWS, FORWARDS, Curves, curves_of, heat_of
from vit.speed import TimeLeft
from vit.ui.faithful import at_work, progress_html
from vit.ui.words import percent

WIDTH, HEIGHT = 300, 150  # of a plot, in its own units
LEFT, BELOW = 42, 34  # of it, for the numbers


def curves_html(look: Look, question: Question) -> Iterator[str]:
    """HTML: first that it is at work, then the two plots."""
    target, heat = question.aim(look), heat_of(look, question)
    rows = FORWARDS * (1 + CURVE_DRAWS)
    steps, clock = FORWARDS * look.depth, TimeLeft()
    for found in at_work(lambda step: curves_of(look, heat, target, step), lambda n: n / steps):
        if isinstance(found, Curves):
            yield plots_html(look.card.labels[target], found)
        else:
            # half of the patches are there on the average
            seconds = rows / 2 * look.milliseconds / 1000
            yield progress_html(found, rows, seconds, clock)


def plots_html(dish: str, found: Curves) -> str:
    return (
        '<div role="status"><div class="curves">'
        + plot_html(
            f"{dish} as patches go, the brightest first",
            "patches gone",
            found.deletion,
            found.chance_deletion,
            "The sooner it falls, the better the map: a small area is good.",
        )
        + plot_html(
            f"{dish} as patches come, the brightest first",
            "patches shown",
            found.insertion,
            found.chance_insertion,
            "The sooner it rises, the better the map: a large area is good.",
        )
        + '</div><p class="note"><i class="line map"></i>this map <i class="line chance"></i>'
        f"{CURVE_DRAWS} orders of chance. Areas go from 0 to 1; ± is one standard deviation. "
        "Sinks stay where they are throughout.</p></div>"
    )


def plot_html(title: str, along: str, curve: Curve, chance: Sequence[Curve], good: str) -> str:
    areas = [each.area for each in chance]
    said = (
        f"Area {curve.area:.2f}; by chance {statistics.mean(areas):.2f} "
        f"(±{statistics.stdev(areas):.2f})"
    )
    lines = "".join(f'<path class="chance" d="{_path(each)}"/>' for each in chance)
    lines += f'<path class="map" d="{_path(curve)}"/>'
    marks = "".join(
        f'<path class="mark" d="M{LEFT} {_y(share)}h{WIDTH - LEFT}"/>'
        f'<text x="{LEFT - 4}" y="{_y(share) + 4}" text-anchor="end">{100 * share:.0f} %</text>'
        for share in (0, 0.5, 1)
    )
    marks += "".join(
        f'<text x="{_x(share)}" y="{HEIGHT - BELOW + 15}" text-anchor="{anchor}">'
        f"{100 * share:.0f} %</text>"
        for share, anchor in ((0, "start"), (0.5, "middle"), (1, "end"))
    )
    first, last = (percent(share) for share in (curve.probabilities[0], curve.probabilities[-1]))
    return (
        f"<figure><h4>{escape(title)}</h4>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="'
        f'{escape(f"{title}: from {first} to {last}. {said}.")}">{marks}'
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{along}</text>'
        f"{lines}</svg><figcaption><p><strong>{said}</strong></p>"
        f'<p class="note">{good}</p></figcaption></figure>'
    )


def _path(curve: Curve) -> str:
    points = zip(curve.shares, curve.probabilities, strict=True)
    return "M" + "L".join(f"{_x(share):.1f} {_y(probability):.1f}" for share, probability in points)


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - 2)


def _y(probability: float) -> float:
    return 8 + (1 - probability) * (HEIGHT - BELOW - 8)
