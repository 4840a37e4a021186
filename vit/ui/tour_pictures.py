"""The picture beside each stop of the tour: of the photo, of vectors, of what a curve does."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from html import escape
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from vit import tour_answer, tour_block, tour_photo
from vit.guide import Choice, Guided, token_name
from vit.images import Preprocess, open_photo
from vit.names import dish_name
from vit.patches import similarity
from vit.tour import Stop
from vit.ui.classify import bar_html
from vit.ui.examples import EXAMPLES, examples, shows
from vit.ui.files import data_url
from vit.ui.grid import scale_html, signed, stage
from vit.ui.more import photos as real_photos
from vit.ui.patch_words import bars_html

MOST = 5  # dishes in a list
SMALL = 112  # pixels of a photo in the batch


def stage_html(this: Guided, at: Choice, stop: Stop) -> str:
    """The photo with its patches, to choose one; coloured where the stop has a number for each."""
    if "patch" not in stop.controls:
        return ""
    heat = HEATS.get(stop.key)
    where = token_name(this, this.walk.prefix + at.patch)
    inside = this.inside
    label = f"Your photo in {inside.grid[0]} × {inside.grid[1]} patches; {where} is chosen."
    keys = "Patches of your photo. The arrow keys choose another."
    values, caption, unit = heat(this, at) if heat else (None, "Click a patch to choose it.", "")
    picture = stage(
        inside.photo.size,
        inside.box,
        inside.grid,
        label,
        chosen=at.patch,
        heat=values,
        unit=unit,
        keys=keys,
    )
    scale = "" if values is None else scale_html(values, at.patch)
    return f"{picture}<p>{scale}{escape(caption)}</p>"


Heat = tuple[Tensor, str, str]


def _feature(this: Guided, at: Choice) -> Heat:
    return this.walk.features[at.number].flatten(), f"Number {at.number} of every token.", ""


def _near(this: Guided, at: Choice) -> Heat:
    places = this.walk.positions[len(this.walk.positions) - this.walk.patches :]
    return (
        similarity(places, at.patch),
        "How alike the position embeddings are to that of the framed place (cosine).",
        "",
    )


def _scores(this: Guided, at: Choice) -> Heat:
    values = tour_block.scores_of(this, at)[this.walk.prefix :]
    return values, f"Scores s of {token_name(this, at.asks(this))} with every patch.", ""


def _weights(this: Guided, at: Choice) -> Heat:
    values = 100 * tour_block.weights_of(this, at)
    prefix = values[: this.walk.prefix].sum().item()
    said = f"Per cent of {token_name(this, at.asks(this))}'s attention on every patch; "
    front = "the class token" if this.walk.prefix == 1 else "class token and registers"
    return values[this.walk.prefix :], f"{said}{prefix:.1f} % lie on {front}.", " %"


def _own_weights(this: Guided, at: Choice) -> Heat:
    return _weights(this, replace(at, softness=1.0))


HEATS: dict[str, Callable[[Guided, Choice], Heat]] = {
    "flatten": _feature,
    "positions": _near,
    "scores": _scores,
    "softmax": _weights,
    "weighted": _own_weights,
}


def picture_html(this: Guided, at: Choice, stop: Stop) -> str:
    """What else there is to see at a stop."""
    draw = PICTURES.get(stop.key)
    return f'<div class="tour-picture">{draw(this, at)}</div>' if draw else ""


def _batch(this: Guided, at: Choice) -> str:
    view = this.inside.view.copy()
    view.thumbnail((SMALL, SMALL))
    classes = this.inside.card.classes
    cards = [_card(data_url(view, "JPEG", quality=80), "your photo")]
    for path in company()[: at.batch - 1]:
        dish = path.stem if path.parent == EXAMPLES else path.parent.name
        label = next((n for n, c in enumerate(classes) if shows(dish, c)), None)
        name = dish_name(dish) if label is None else f"{label}: {this.inside.card.labels[label]}"
        cards.append(_card(_seen(path, this.inside.preprocess), name))
    return (
        f'<div class="batch" role="img" aria-label="A batch of {len(cards)} photos">'
        f"{''.join(cards)}</div><p>Under each photo its label: the number of its class, where this "
        "model has one for it.</p>"
    )


def company() -> list[Path]:
    """Other photos for the batch, well mixed: those of the course where they are, and ours."""
    found = [*real_photos(), *examples()]
    mixed = torch.randperm(len(found), generator=torch.Generator().manual_seed(1))
    return [found[index] for index in mixed.tolist()]


def _card(url: str, name: str) -> str:
    return f'<figure><img src="{url}" alt=""><figcaption>{escape(name)}</figcaption></figure>'


@lru_cache(maxsize=128)
def _seen(path: Path, preprocess: Preprocess) -> str:
    view = preprocess.view(open_photo(path, at_least=2 * min(preprocess.size)).image)
    view.thumbnail((SMALL, SMALL))
    return data_url(view, "JPEG", quality=80)


def _crop(this: Guided, at: Choice) -> str:
    H, W = this.inside.preprocess.size
    return (
        f'<figure class="view"><img src="{data_url(this.inside.view, "JPEG", quality=88)}" '
        f'alt="What the model sees of your photo"><figcaption>What the model sees, {W} × {H} '
        "pixels</figcaption></figure>"
    )


def _cut_out(this: Guided, at: Choice) -> Image.Image:
    row, column = divmod(at.patch, this.walk.grid[1])
    height, width = this.inside.patch_size
    left, top = column * width, row * height
    return this.inside.view.crop((left, top, left + width, top + height))


def _patch(this: Guided, at: Choice) -> str:
    patch = _cut_out(this, at)
    channels = [
        (patch, "the patch"),
        *(
            (patch.getchannel(n), name)
            for n, name in enumerate(("its reds", "its greens", "its blues"))
        ),
    ]
    pixels = "".join(_pixels(picture, name) for picture, name in channels)
    return (
        f'<div class="pixel-row">{pixels}</div>{bars_html(this.walk.pieces[at.patch])}'
        f"<p>The vector x, a line for each of its {this.walk.pieces.shape[1]:,} numbers.</p>"
    )


def _pixels(picture: Image.Image, name: str) -> str:
    return (
        f'<figure><img class="pixels" src="{data_url(picture)}" alt="{escape(name)}" '
        f'style="aspect-ratio:{picture.width}/{picture.height}"><figcaption>{escape(name)}'
        "</figcaption></figure>"
    )


def _products(this: Guided, at: Choice) -> str:
    W, b = tour_photo.linear_map(this)
    filter_, piece = W[at.number], this.walk.pieces[at.patch]
    parts = filter_ * piece
    if not this.walk.pictured:
        return (
            f"{bars_html(parts)}<p>The {len(parts):,} products; their sum and b is the number.</p>"
        )
    shape = (3, *this.inside.patch_size)
    figures = (
        _pixels(_cut_out(this, at), "patch x"),
        _pixels(_around_grey(filter_.view(shape)), f"filter {at.number}"),
        _pixels(_around_grey(parts.view(shape).sum(0).expand(shape)), "products, colours added"),
    )
    total = parts.sum().item()
    return (
        f'<div class="pixel-row three">{"".join(figures)}</div>'
        f"<p>Grey is 0, bright above, dark below. All products together: {signed(total)}; with b: "
        f"{signed(total + b[at.number].item())}.</p>"
    )


def _around_grey(values: Tensor) -> Image.Image:
    """(3, h, w), any range, as a picture in which 0 is grey."""
    largest = values.abs().max().clamp(min=1e-9)
    levels = ((0.5 + values / (2 * largest)) * 255).round().to(torch.uint8)
    return Image.fromarray(levels.permute(1, 2, 0).numpy())


def _class_tokens(this: Guided, at: Choice) -> str:
    return (
        f"{_rows(at.batch, this.walk.prefix, own=False)}<p>Ours: one class token for all photos."
        f"</p>{_rows(at.batch, 1, own=True)}<p>Sized by the batch: a token for every place in it."
        "</p>"
    )


def _rows(batch: int, prefix: int, own: bool) -> str:
    """A row of squares for every photo: class token, registers, some patches."""
    shown, patches, side, gap = min(batch, 8), 9, 24, 5
    width = (prefix + patches) * (side + gap)
    parts = []
    for row in range(shown):
        for column in range(prefix + patches):
            kind = "patch" if column >= prefix else "register" if column else f"class{row * own}"
            parts.append(
                f'<rect class="{kind}" x="{column * (side + gap)}" y="{row * (side + gap)}" '
                f'width="{side}" height="{side}" rx="4"/>'
            )
    said = f"The tokens of {batch} photos; the class token " + (
        "is another one in every row" if own else "is the same one in every row"
    )
    height = shown * (side + gap)
    return (
        f'<svg class="token-rows" viewBox="0 0 {width} {height}" role="img" aria-label="{said}">'
        f"{''.join(parts)}</svg>"
    )


def _vectors(*pairs: tuple[str, Tensor]) -> str:
    return "".join(
        f'<figure class="vector">{bars_html(values)}<figcaption>{escape(name)}: {len(values):,} '
        f"numbers, {signed(values.min().item())} to {signed(values.max().item())}</figcaption>"
        "</figure>"
        for name, values in pairs
    )


def _norm(this: Guided, at: Choice) -> str:
    way, token = this.block(at.block), at.asks(this)
    return _vectors(("before", way.entering[token]), ("after", way.normed[token]))


def _qkv(this: Guided, at: Choice) -> str:
    way, token = this.block(at.block), at.asks(this)
    return _vectors(
        ("query", way.q[at.head, token]),
        ("key", way.k[at.head, token]),
        ("value", way.v[at.head, token]),
    )


def _sum(this: Guided, at: Choice) -> str:
    way, token = this.block(at.block), at.asks(this)
    return _vectors(
        ("its own value v", way.v[at.head, token]),
        ("what it gets", way.mixed[at.head, token]),
    )


def _heads(this: Guided, at: Choice) -> str:
    parts = tour_block.parts_of_heads(this, at)
    largest = parts.abs().max().clamp(min=1e-9)
    rows = "".join(
        f'<li><span>head {head + 1}</span><span class="both"><i class="'
        f'{"below" if value < 0 else "above"}" style="width:{50 * abs(value) / largest:.2f}%"></i>'
        f"</span><b>{signed(value)}</b></li>"
        for head, value in enumerate(parts.tolist())
    )
    return (
        f'<ul class="parts" aria-label="What each head adds">{rows}</ul>'
        f"<p>What each head adds to number {at.number}.</p>"
    )


def _gelu(this: Guided, at: Choice) -> str:
    way, token = this.block(at.block), at.asks(this)
    value = way.hidden[token, at.neuron].item()
    reach = max(3.0, math.ceil(abs(value)))
    xs = torch.linspace(-reach, reach, 121)
    ys = torch.nn.functional.gelu(xs)
    scale = 150 / reach
    path = " ".join(f"{scale * x:.1f},{-scale * y:.1f}" for x, y in zip(xs, ys, strict=True))
    y = way.active[token, at.neuron].item()
    return (
        f'<svg class="curve" viewBox="-160 -165 320 190" role="img" aria-label="The curve of GELU; '
        f'h is {signed(value)}, GELU of h is {signed(y)}">'
        '<path class="axis" d="M-155 0H155M0 -155V20"/>'
        f'<polyline points="{path}"/><circle cx="{scale * value:.1f}" cy="{-scale * y:.1f}" '
        f'r="5.5"/><text x="-152" y="-140">GELU({signed(value)}) = {signed(y)}</text></svg>'
        f"{_vectors(('all hidden numbers after GELU', way.active[token]))}"
    )


def _residual(this: Guided, at: Choice) -> str:
    way, token = this.block(at.block), at.asks(this)
    return _vectors(
        ("enters", way.entering[token]),
        ("attention adds", way.attended[token]),
        ("the MLP adds", way.thought[token]),
        ("leaves", way.leaving[token]),
    )


def _blocks(this: Guided, at: Choice) -> str:
    if not this.inside.card.trained_head:
        return _vectors(("the class token at the end", this.walk.encoded[0]))
    shares = (tour_answer.after_each_block(this) / this.inside.card.temperature).softmax(1)
    kept = shares[-1].topk(min(MOST, shares.shape[1])).indices.tolist()
    rows = []
    for block, row in enumerate(shares):
        best = int(row.argmax())
        bars = "".join(
            f'<i class="part{place}" style="width:{100 * row[index]:.2f}%"></i>'
            for place, index in enumerate(kept)
        )
        here = ' class="here"' if block == at.block else ""
        rows.append(
            f'<li{here}><span>{block + 1}</span><span class="stack">{bars}</span>'
            f"<b>{escape(this.dishes[best])}</b></li>"
        )
    key = "".join(
        f'<li><i class="part{place}"></i>{escape(this.dishes[index])}</li>'
        for place, index in enumerate(kept)
    )
    return (
        f'<ul class="key">{key}</ul><ol class="parts stacks" aria-label="Answer after every '
        f'block">{"".join(rows)}</ol><p>What the head would say after each block.</p>'
        + _vectors(
            (f"the class token after block {at.block + 1}", this.walk.tokens[at.block + 1, 0])
        )
    )


def _logit(this: Guided, at: Choice) -> str:
    dish = this.predicted if at.dish is None else at.dish
    row = this.model.head.weight[dish].detach().float().cpu()
    return _vectors(
        ("what the head reads", this.walk.pooled),
        (f"the weights of {this.dishes[dish]}", row),
        ("their products, whose sum is the logit", row * this.walk.pooled),
    )


def _answer(this: Guided, at: Choice) -> str:
    if not this.inside.card.trained_head:
        return ""
    shares = tour_answer.shares_of(this, at)
    best = shares.topk(min(MOST, len(shares)))
    bars = "".join(
        bar_html(this.dishes[index], share)
        for share, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )
    return f'<ol class="dishes" aria-label="Likeliest first">{bars}</ol>'


PICTURES: dict[str, Callable[[Guided, Choice], str]] = {
    "photos": _batch,
    "crop": _crop,
    "patches": _patch,
    "convolution": _products,
    "class": _class_tokens,
    "norm": _norm,
    "queries": _qkv,
    "weighted": _sum,
    "heads": _heads,
    "mlp": _gelu,
    "residual": _residual,
    "blocks": _blocks,
    "logits": _logit,
    "probabilities": _answer,
}
