"""What the Patches tab says about a patch, about the way to the logits and about what is gone."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from html import escape
from pathlib import Path

from PIL import Image
from torch import Tensor

from vit.checkpoint import version
from vit.classifier import Classifier
from vit.hybrid import ROOT_CHANNELS
from vit.inside import Inside
from vit.model import ViTConfig
from vit.patches import contact_sheet, filters, principal_filters, similarity
from vit.summary import ledger, prefix_names
from vit.ui.files import data_url
from vit.ui.grid import scale_html, signed, stage
from vit.ui.words import INFO, percent

MOST_FILTERS = 192
COMPONENTS = 28
_WITH_NUMBER = "\N{NO-BREAK SPACE}%"  # so that no line begins with it
STAGES = {"embedded": "as it comes in", "encoded": "after the last block"}


def place(patch: int, inside: Inside) -> str:
    """ "row 7, column 4", both counted from 1."""
    row, column = divmod(patch, inside.grid[1])
    return f"row {row + 1}, column {column + 1}"


def is_hybrid(inside: Inside) -> bool:
    return inside.card.config.stem is not None


def vectors(inside: Inside, when: str) -> Tensor:
    return inside.reading.encoded if when == "encoded" else inside.reading.embedded


def grid_html(inside: Inside, patch: int) -> str:
    """The photo to choose a patch on, and what a patch is."""
    (rows, columns), (height, width) = inside.grid, inside.patch_size
    label = f"Your photo in {rows} × {columns} patches; {place(patch, inside)} is chosen."
    keys = "Patches of your photo. The arrow keys choose another."
    cut = f"{rows} × {columns} patches of {height} × {width} pixels"
    if is_hybrid(inside):
        said = (
            f"A ResNet looks at the picture first. What it finds in each of {cut}, and around it, "
            "the model reads as one token."
        )
    else:
        said = f"The model cuts what it sees into {cut} and reads each as one token."
    return (
        f"<h3>Click a patch</h3><p>{said}</p>"
        f"{stage(inside.photo.size, inside.box, inside.grid, label, chosen=patch, keys=keys)}"
    )


def brush_html(inside: Inside, removed: Collection[int], patch: int) -> str:
    label = f"Your photo with {len(removed)} of {inside.reading.patches} patches taken away."
    leak = (
        '<p class="note">Tokens are taken away, not pixels: what the ResNet saw of a patch from '
        "next to it stays with its neighbours.</p>"
    )
    return (leak if is_hybrid(inside) else "") + stage(
        inside.photo.size,
        inside.box,
        inside.grid,
        label,
        kind="brush",
        chosen=patch,
        show_chosen=False,
        removed=removed,
        keys="Patches of your photo. The arrow keys move, the space bar takes a patch away or "
        "gives it back.",
    )


def patch_html(inside: Inside, patch: int, when: str) -> str:
    """Everything about one patch."""
    reading, (height, width) = inside.reading, inside.patch_size
    rows, columns = inside.grid
    row, column = divmod(patch, columns)
    corner = column * width, row * height
    pixels = inside.view.crop((*corner, corner[0] + width, corner[1] + height))
    embedding = vectors(inside, when)[patch]
    alike = similarity(vectors(inside, when), patch)
    near = similarity(reading.positions, patch)
    last = reading.prefix + reading.patches - 1
    front = f"the {prefix_names(inside.card.config)}"
    front += " is 0" if reading.prefix == 1 else f" are 0 to {reading.prefix - 1}"
    what = (
        f"{height} × {width}, and the ResNet has looked beyond them"
        if is_hybrid(inside)
        else f"{height} × {width} in red, green, blue: {3 * height * width:,} numbers"
    )
    name = place(patch, inside)
    return (
        f'<div class="patch"><h3>{name.capitalize()}</h3>'
        f'<p class="note">Patch {patch + 1} of {reading.patches} · token {reading.prefix + patch} '
        f"of 0 to {last} ({front})</p>"
        '<div class="pair">'
        f'<figure><img class="pixels" src="{data_url(pixels)}" alt="The patch, enlarged" '
        f'style="aspect-ratio:{width}/{height}"><figcaption><b>Its pixels</b> '
        f"{what}</figcaption>"
        "</figure>"
        f"<figure>{bars_html(embedding)}<figcaption><b>Its embedding</b> {len(embedding):,} "
        f"numbers, from {signed(embedding.min().item())} to {signed(embedding.max().item())}, "
        f"{STAGES[when]}</figcaption></figure></div>"
        f'<details class="why"><summary>The {len(embedding):,} numbers {INFO}</summary>'
        f'<p class="numbers">{" ".join(signed(value) for value in embedding.tolist())}</p>'
        "</details>"
        '<div class="pair">'
        f"<figure>{heat_html(inside, patch, alike, f'How much each patch is like {name}')}"
        f"<figcaption><b>Looks like</b> {scale_html(alike, patch)} Cosine between embeddings, "
        f"{STAGES[when]}. Most alike: {most_alike(inside, alike, patch)}.</figcaption></figure>"
        f"<figure>{heat_html(inside, patch, near, f'How near each place is to {name}')}"
        f"<figcaption><b>Sits near</b> {scale_html(near, patch)} Cosine between position "
        "embeddings. Nobody told the model what is beside what: it learned it.</figcaption>"
        "</figure></div></div>"
    )


def heat_html(inside: Inside, patch: int, heat: Tensor, label: str) -> str:
    return stage(
        inside.photo.size,
        inside.box,
        inside.grid,
        label,
        chosen=patch,
        heat=heat,
    )


def most_alike(inside: Inside, alike: Tensor, patch: int, count: int = 3) -> str:
    order = [p for p in alike.argsort(descending=True).tolist() if p != patch][:count]
    said = [f"{place(p, inside)} ({signed(alike[p].item())})" for p in order]
    return " · ".join(said) or "there is no other"


def bars_html(values: Tensor) -> str:
    """A bar for each number, up from the middle line for those above 0."""
    largest = max(values.abs().max().item(), 1e-9)
    bars = "".join(
        f"M{n + 0.5} 0V{-value / largest:.3f}" for n, value in enumerate(values.tolist())
    )
    return (
        f'<svg class="bars" viewBox="0 -1.05 {len(values)} 2.1" preserveAspectRatio="none" '
        f'role="img" aria-label="{len(values)} numbers as bars">'
        f'<path class="zero" d="M0 0H{len(values)}"/><path d="{bars}"/></svg>'
    )


@lru_cache(maxsize=16)
def ledger_html(config: ViTConfig, size: tuple[int, int]) -> str:
    """The shapes from photo to logits, each with what happens."""
    items = "".join(
        f"<li><b>{' × '.join(f'{side:,}' for side in entry.shape)}</b>"
        f"<span>{escape(entry.name)}</span><small>{escape(entry.what)}</small></li>"
        for entry in ledger(config, size)
    )
    return (
        "<h3>Shapes on the way from photo to answer</h3>"
        f'<ol class="ledger" aria-label="Shapes from photo to logits">{items}</ol>'
    )


def change_html(
    inside: Inside, before: Tensor, after: Tensor, removed: Collection[int], top: int = 5
) -> str:
    """The likeliest dishes of both answers, as they moved."""
    count, patches = len(removed), inside.reading.patches
    names = inside.card.labels
    best = before.topk(min(top, len(names))).indices.tolist()
    best += [i for i in after.topk(min(top, len(names))).indices.tolist() if i not in best]
    best.sort(key=lambda i: -max(before[i].item(), after[i].item()))
    items = "".join(
        _moved(names[i], before[i].item(), after[i].item(), bool(count)) for i in best[: top + 2]
    )
    first = int(before.argmax())
    if not count:
        said = "Nothing is taken away yet: this is the answer to the whole picture."
    else:
        was, now = percent(before[first].item()), percent(after[first].item())
        said = f"{count} of {patches} patches gone. {names[first]}: {was} before, {now} now."
        if (new := int(after.argmax())) != first:
            said += f" It would now say {names[new]}."
        if count == patches:
            said += " Nothing is left to see: this is what it guesses blindly."
    return (
        f'<p role="status">{escape(said.replace(" %", _WITH_NUMBER))}</p>'
        f'<ol class="dishes moves" aria-label="Likeliest, before and after">{items}</ol>'
    )


def _moved(name: str, before: float, after: float, moved: bool) -> str:
    change = f"{percent(before)} → <b>{percent(after)}</b>" if moved else percent(before)
    return (
        f'<li><span class="dish">{escape(name)}</span><span class="bar two">'
        f'<i class="before" style="width:{100 * before:.2f}%"></i>'
        f'<i style="width:{100 * after:.2f}%"></i></span><span class="share">{change}</span></li>'
    )


def filters_html(checkpoint: Path) -> str:
    return _filters_html(checkpoint, version(checkpoint))


@lru_cache(maxsize=8)
def _filters_html(checkpoint: Path, stamp: object) -> str:
    model = Classifier.load(checkpoint).model
    numbers, pictures = filters(model, MOST_FILTERS)
    components, shares = principal_filters(model, COMPONENTS)
    if model.config.stem is None:
        width, what = model.config.width, "the patch that raises one number of the embedding most"
    else:
        width = ROOT_CHANNELS
        what = "the piece of a picture that raises one channel of the ResNet's first layer most"
    which = f"All {width}" if len(numbers) == width else f"The {len(numbers)} strongest of {width}"
    return (
        '<div class="filters"><figure>'
        f"{_sheet(components, 7, 'Principal components of the filters')}<figcaption>"
        f"<b>What they have in common</b> The {len(components)} main directions (principal "
        "components) in which the filters differ, the strongest first. Together they make up "
        f"{100 * shares.sum():.0f} % of all differences.</figcaption></figure><figure>"
        f"{_sheet(pictures, 16, 'Filters')}<figcaption><b>{which} filters</b> Each is {what}; grey "
        "does nothing. Each is stretched by its own largest weight.</figcaption></figure></div>"
    )


def _sheet(pictures: Tensor, columns: int, label: str) -> str:
    sheet = Image.fromarray(contact_sheet(pictures, columns).numpy())
    return f'<img class="pixels" src="{data_url(sheet)}" alt="{label}">'
