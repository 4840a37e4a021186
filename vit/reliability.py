"""Is a model as right as it is sure? The picture of a calibration."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vit.metrics import Calibration

LIGHT = {"ink": "#2c2723", "quiet": "#776c62", "grid": "#e7dfd4", "mark": "#d9480f"}
DARK = {"ink": "#f4efe8", "quiet": "#a2968a", "grid": "#433c36", "mark": "#f0702c"}


def reliability_plot(before: Calibration, after: Calibration, dark: bool = False) -> Figure:
    """How often answers are right against how sure they are: on the diagonal is honest.

    A point is a bin of answers that are about equally sure, at their mean, with the 95 % Wilson
    interval of the share that is right; the bars below are how many answers a bin has. Without a
    background, for a `dark` page or a light one.
    """
    colours = DARK if dark else LIGHT
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(4, 1))
    for column, (name, found) in enumerate((("before", before), ("after", after))):
        _points(axes[0, column], found, colours)
        _bars(axes[1, column], found, colours)
        axes[0, column].set_title(
            f"{name}: off by {100 * found.ece:.1f} % on average", color=colours["ink"], fontsize=10
        )
        axes[1, column].set_xlabel("how sure")
    axes[0, 0].set_ylabel("share that is right")
    axes[1, 0].set_ylabel("answers")
    for place in axes.flat:
        place.patch.set_alpha(0)
        place.tick_params(colors=colours["quiet"], labelsize=8, length=0)
        place.xaxis.label.set(color=colours["quiet"], fontsize=9)
        place.yaxis.label.set(color=colours["quiet"], fontsize=9)
        place.spines[:].set_visible(False)
    return figure


def _points(place: Axes, found: Calibration, colours: dict[str, str]) -> None:
    filled = [i for i, count in enumerate(found.count) if count]
    counts = [found.counts[i] for i in filled]
    rates = [count.rate for count in counts]
    low, high = zip(*(count.interval for count in counts), strict=True)
    place.grid(color=colours["grid"], linewidth=0.8)
    place.plot([0, 1], [0, 1], color=colours["quiet"], linewidth=1)
    place.errorbar(
        [found.confidence[i] for i in filled],
        rates,
        yerr=(
            [max(0.0, rate - end) for rate, end in zip(rates, low, strict=True)],
            [max(0.0, end - rate) for rate, end in zip(rates, high, strict=True)],
        ),
        fmt="o",
        markersize=4,
        color=colours["mark"],
        elinewidth=1.2,
    )
    shares = [tick / 4 for tick in range(5)]
    place.set(xlim=(0, 1), ylim=(0, 1.02), yticks=shares)
    place.set_yticklabels([f"{100 * share:.0f} %" for share in shares])


def _bars(place: Axes, found: Calibration, colours: dict[str, str]) -> None:
    bins = len(found.count)
    left = [i / bins for i in range(bins)]
    place.bar(left, found.count, 0.9 / bins, align="edge", color=colours["quiet"])
    shares = [tick / 4 for tick in range(5)]
    place.set(xticks=shares)
    place.set_xticklabels([f"{100 * share:.0f} %" for share in shares])
    place.set_yticks([0, max(found.count)])


def in_words(before: Calibration, after: Calibration) -> str:
    """What the picture shows, for those who do not see it."""
    said = [f"Off by {100 * before.ece:.1f} % before, by {100 * after.ece:.1f} % after."]
    for sure, count in zip(after.confidence, after.counts, strict=True):
        if count.total:
            said.append(f"{100 * sure:.0f} % sure: {count.correct} of {count.total} right.")
    return "How often answers are right against how sure they are. " + " ".join(said)
