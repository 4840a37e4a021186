"""What a map shows, in words for people; layers and heads are counted from 1 here."""

from collections.abc import Sequence

from torch import Tensor

from vit.faithfulness import Faithfulness
from vit.looking import Look, Question
from vit.maps import Sinks


def drawn(look: Look, question: Question) -> str:
    """One or two sentences that say exactly what the map is."""
    asks = token_name(look, question.token)
    if question.by:
        flow = f"how much each patch looks at {asks}"
    else:
        flow = f"how much {asks} looks at each patch"
    layer, A = question.layer + 1, look.heads
    if question.method == "relevance":
        dish = look.card.labels[question.aim(look)]
        if question.by:
            what = f"how much {asks} went into each patch, where that speaks for {dish}"
        elif question.token is not None:
            what = f"how much each patch went into {asks}, where that speaks for {dish}"
        else:
            what = f"how much each patch speaks for {dish}"
        said = (
            f"Relevance: {what}. Attention times its gradient towards {dish}, the positive part, "
            f"through all {look.depth} layers."
        )
    elif question.method == "rollout":
        said = (
            f"Rollout: {flow} when attention is followed through all {look.depth} layers, the mean "
            "of the heads in each."
        )
    elif question.method == "head":
        said = f"Layer {layer}, head {question.head + 1}, one of {A}: {flow}."
    elif question.method == "mean":
        said = f"Layer {layer}, the mean of its {A} heads: {flow}."
    else:
        said = f"Layer {layer}, the largest of its {A} heads for every patch: {flow}."
    return said + (_set_aside(look.sinks) if question.aside else "")


def _set_aside(sinks: Sinks) -> str:
    if not sinks.patches:
        return ""
    count = len(sinks.patches)
    which = "The sink is" if count == 1 else f"The {count} sinks are"
    return f" {which} set aside: drawn as zero, and the rest shared out anew to make 100 %."


def token_name(look: Look, token: int | None) -> str:
    return "the class token" if token is None else patch_name(look.grid, token)


def patch_name(grid: tuple[int, int], patch: int) -> str:
    row, column = divmod(patch, grid[1])
    return f"the patch in row {row + 1}, column {column + 1}"


def scale(heat: Tensor, top: float) -> str:
    """What the last colour stands for."""
    largest = heat.max().item()
    if largest <= 0:
        return "It is zero everywhere"
    if largest <= top:
        return f"Brightest: {number(largest)}, the maximum"
    return f"Brightest: {number(top)} and above (true maximum {number(largest)})"


def number(value: float) -> str:
    """0.0123 as "0.012": two digits that count."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def sinks_found(look: Look) -> str:
    """ "4 corner patches take 29 % of what the class token gives to patches in layers 9 to 12; …"""
    sinks = look.sinks
    first, last = sinks.layers[0] + 1, sinks.layers[-1] + 1
    layers = f"layers {first} to {last}" if last > first else f"layer {first}"
    if not sinks.patches:
        return f"No patch takes far more than its share of the attention in {layers}."
    count, corners = len(sinks.patches), _corners(look.grid)
    if set(sinks.patches) <= corners:
        which = "1 corner patch takes" if count == 1 else f"{count} corner patches take"
    elif count > 3:
        which = f"{count} patches take"
    else:
        named = [patch_name(look.grid, patch) for patch in sinks.patches]
        which = _listed(named) + (" takes" if count == 1 else " take")
        which = which[0].upper() + which[1:]
    return (
        f"{which} {share(sinks.share)} of what the class token gives to patches in {layers}; an "
        f"even share would be {share(sinks.even)}. Such sinks hold attention whatever they show."
    )


def _corners(grid: tuple[int, int]) -> set[int]:
    rows, columns = grid
    last = (rows - 1) * columns
    return {0, columns - 1, last, last + columns - 1}


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def share(value: float) -> str:
    """A share that may be small: "29 %", "0.5 %"."""
    return f"{100 * value:.0f} %" if value >= 0.01 or value == 0 else f"{100 * value:.1g} %"


def faithful(dish: str, found: Faithfulness) -> str:
    """ "Hide its top 20 %: 94 → 41 %. Hide a random 20 %: 94 → 90 % (± 2)." """
    hidden = f"{100 * found.removed / found.patches:.0f} %"
    before, after, chance = (
        f"{100 * value:.0f}" for value in (found.before, found.after, found.random_mean)
    )
    spread = f"{100 * found.random_std:.{0 if found.random_std >= 0.01 else 1}f}"
    return (
        f"{dish}: hide its top {hidden}, {before} → {after} %; "
        f"hide random {hidden}, {before} → {chance} % (±{spread})"
    )


def verdict(found: Faithfulness) -> str:
    """Whether to believe the map, by two standard deviations of chance."""
    spread = max(2 * found.random_std, 0.01)
    if found.after < found.random_mean - spread:
        return "What it marks matters more to the model than chance."
    if found.after > found.random_mean + spread:
        return "What it marks matters less to the model than chance: do not believe it here."
    return "What it marks matters no more to the model than chance."
