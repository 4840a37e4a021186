"""From scratch, pretrained, hybrid: the same photos, counted and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from vit.compared import Comparison, Rival
from vit.metrics import Count
from vit.ui.header import millions
from vit.ui.words import interval


def compared_html(comparison: Comparison) -> str:
    rows = "".join(_row(rival, comparison.guess) for rival in comparison.rows)
    curves = "".join(_curve(rival, _top(comparison)) for rival in comparison.rows if rival.curve)
    why = "".join(f"<p>{escape(each)}</p>" for each in comparison.why)
    return (
        f'<div class="rivals"><h3>{escape(comparison.title)}</h3><p>{escape(comparison.note)}</p>'
        f"<ul>{rows}</ul>{f'<h3>Why</h3>{why}' if why else ''}"
        f"{f'<h3>Losses</h3><div class=curves>{curves}</div>' if curves else ''}</div>"
    )


def _row(rival: Rival, guess: float) -> str:
    counts = "".join(_counts(photos, right, guess) for photos, right in rival.right.items())
    return (
        f"<li><h4>{escape(rival.name)}</h4><p>{escape(rival.what)} "
        f"{millions(rival.parameters)} parameters.</p>{counts}"
        f"<details><summary>command</summary><code>{escape(rival.command)}</code></details></li>"
    )


def _counts(photos: str, right: Sequence[Count], guess: float) -> str:
    first, low, high = right[0], *right[0].interval
    others = ", ".join(f"{each.correct:,}" for each in right[1:])
    said = f"{100 * first.rate:.0f} per cent; a guess gets {100 * guess:.0f}"
    return (
        f"<p><b>{first.correct:,}/{first.total:,}</b> {escape(photos)} right ({interval(first)})"
        f"{f' · with other seeds {others}' if others else ''}</p>"
        f'<span class="interval" role="img" aria-label="{said}">'
        f'<i style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></i>'
        f'<b style="left:{100 * first.rate:.1f}%"></b>'
        f'<u style="left:{100 * guess:.1f}%" title="a guess"></u></span>'
    )


def _top(comparison: Comparison) -> float:
    """The same scale for all curves, a little above the highest."""
    losses = [max(each[1:]) for rival in comparison.rows for each in rival.curve]
    return 1.1 * max(losses, default=0.0) or 1.0


def _curve(rival: Rival, top: float) -> str:
    first, last = rival.curve[0][0], rival.curve[-1][0]
    width = (last - first) or 1.0

    def line(which: int, kind: str) -> str:
        points = " ".join(
            f"{100 * (each[0] - first) / width:.2f},{50 - 50 * each[which] / top:.2f}"
            for each in rival.curve
        )
        return f'<polyline class="{kind}" points="{points}"/>'

    ends = rival.curve[-1]
    return (
        '<figure><div class="plot">'
        f'<svg viewBox="0 0 100 50" preserveAspectRatio="none" role="img" '
        f'aria-label="Losses of {escape(rival.name)}">{line(1, "train")}{line(2, "validation")}'
        f"</svg><i>{top:.1f}</i><i>0</i><i>epoch {first:g}</i><i>{last:g}</i></div>"
        f"<figcaption><b>{escape(rival.name)}</b>: loss at the end "
        f'<span class="train">training {ends[1]:.2f}</span>, '
        f'<span class="validation">validation {ends[2]:.2f}</span></figcaption></figure>'
    )
