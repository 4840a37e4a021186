"""The tour's stops from the photo to the tokens that enter the first block."""

from __future__ import annotations

import torch
from torch import Tensor

from vit.batches import plain_batches
from vit.guide import Choice, Guided, token_name
from vit.images import Preprocess
from vit.lesson import Lesson, Table, added, decimal, excerpt, products, small, some
from vit.model import ViT
from vit.photoset import PhotoSet


def photos(this: Guided, at: Choice) -> Lesson:
    H, W = this.inside.preprocess.size
    B, C = at.batch, len(this.dishes)
    return Lesson(
        words=(
            "A data set for a classifier is a folder for every class, with photos in it. The label "
            "of a photo is the place of its folder in the list of classes: a whole number.",
            "A loader reads photos a few at a time, makes all of them the same size and stacks "
            "them: the first number of the tensor's shape says which photo. For training it draws "
            "them in a new random order every epoch. The photos of a batch do not see each other: "
            "your photo, number 0 here, gets the same answer in any company.",
            "Look at some 25 random photos with their labels before you train on them. A wrong "
            "label or a photo lying on its side is seen at once, and no program tells you of it: "
            "`python -m vit figure PHOTOS`.",
        ),
        equations=(r"X \in \R^{B \times 3 \times H \times W}", r"y \in \{0, \dots, C - 1\}^{B}"),
        shapes=(
            ("one photo", (3, H, W)),
            ("a batch of photos", (B, 3, H, W)),
            ("their labels", (B,)),
        ),
        tables=(
            Table(
                "What such a batch takes",
                ("what", "how", "result"),
                (
                    ("numbers", f"{B} × 3 × {H} × {W}", f"{B * 3 * H * W:,}"),
                    ("memory, 4 bytes each", "", f"{B * 3 * H * W * 4 / 1e6:,.1f} MB"),
                    ("classes C of this model", "", f"{C:,}"),
                ),
            ),
        ),
        code=(
            excerpt(PhotoSet.__getitem__, "label"),
            excerpt(plain_batches, "preprocess.view", "preprocess.batch"),
        ),
    )


def crop(this: Guided, at: Choice) -> Lesson:
    preprocess, (width, height) = this.inside.preprocess, this.inside.photo_size
    H, W = preprocess.size
    left, top, right, bottom = this.inside.original_box
    if preprocess.fit == "crop":
        how = f"the middle {100 * preprocess.crop:.0f} % of the short side"
    else:
        how = "all of it, with borders in the mean colour"
    row, column = _corner(this, at)
    colours = [int(c) for c in this.inside.view.getpixel((column, row))]  # pyright: ignore
    rows = tuple(
        (
            name,
            f"({colour} / 255 − {mean:g}) / {std:g}",
            decimal(this.walk.pixels[channel, row, column].item()),
        )
        for channel, (name, colour, mean, std) in enumerate(
            zip(("red", "green", "blue"), colours, preprocess.mean, preprocess.std, strict=True)
        )
    )
    return Lesson(
        words=(
            f"Your photo has {width:,} × {height:,} pixels. The model was taught with pictures of "
            f"{W} × {H}, so it gets one of that size: {how}, resized in one go "
            f"({preprocess.interpolation}). What lies outside it never sees.",
            "Then every colour, a whole number from 0 to 255, is brought near 0: linear maps and "
            "their training work best there. The mean and the standard deviation belong to the "
            "weights: a model fed with others sees wrong colours and answers nonsense. Ours lie in "
            "the checkpoint's file.",
        ),
        equations=(r"x = \frac{c / 255 - \mu}{\sigma}",),
        shapes=(("photo", (3, height, width)), ("what the model sees", (3, H, W))),
        tables=(
            Table(
                "The first pixel of the chosen patch",
                ("colour c", "put in", "x"),
                rows,
            ),
            Table(
                "What is cut out, in pixels of your photo",
                ("left", "top", "right", "bottom"),
                (tuple(decimal(edge, 1) for edge in (left, top, right, bottom)),),
            ),
        ),
        code=(
            excerpt(Preprocess.box, "scale = min"),
            excerpt(Preprocess.view, "image.resize((columns, rows)"),
            excerpt(Preprocess.batch, "sub_(mean).div_(std)"),
        ),
    )


def patches(this: Guided, at: Choice) -> Lesson:
    (h, w), (P, n) = this.walk.grid, this.walk.pieces.shape
    H, W = this.inside.preprocess.size
    p_h, p_w = this.inside.patch_size
    piece = this.walk.pieces[at.patch]
    words = (
        "A transformer reads a row of vectors, in language one for each word. Here the picture is "
        f"cut into squares that do not overlap, {h} rows of {w}, and each becomes one such vector: "
        "an image is worth so many words.",
        f"A patch of {p_h} × {p_w} pixels in three colours is laid out as a vector x of {n:,} "
        "numbers: all reds row by row, then the greens, then the blues.",
    )
    if not this.walk.pictured:
        words = (
            "This model is a hybrid: convolutions have read the picture first, and made of it a "
            f"smaller picture of {h} rows and {w} columns with many channels. Each of its places "
            f"is taken as a patch: a vector x of {n:,} numbers, which are features of the {p_h} × "
            f"{p_w} pixels there and of their surroundings, no longer colours.",
        )
    return Lesson(
        words=words,
        equations=(
            r"P = \frac{H}{p} \cdot \frac{W}{p}",
            r"x_{p} \in \R^{3 p^2}" if this.walk.pictured else r"x_{p} \in \R^{n}",
        ),
        shapes=(("picture", (3, H, W)), ("patches as vectors", (P, n))),
        tables=(
            Table(
                f"Patch {at.patch} ({token_name(this, this.walk.prefix + at.patch)}) as a vector",
                ("which", "numbers"),
                (
                    ("of 0 to " + f"{n - 1:,}", some(piece)),
                    ("least", decimal(piece.min().item())),
                    ("greatest", decimal(piece.max().item())),
                ),
            ),
            Table(
                "How many patches",
                ("rows", "columns", "P"),
                ((f"{H} / {p_h} = {h}", f"{W} / {p_w} = {w}", f"{h} × {w} = {P}"),),
            ),
        ),
        code=(
            excerpt(ViT._check, "H % patch_height"),
            excerpt(type(this.model.patch_embed), "self.proj("),
        ),
    )


def linear_map(this: Guided) -> tuple[Tensor, Tensor]:
    """The filters of the patch embedding as a matrix (D, n), and its bias (D,), float32, CPU."""
    proj = this.model.patch_embed.proj
    weight = proj.weight.detach().float().cpu().flatten(1)
    bias = proj.bias
    zero = torch.zeros(len(weight))
    return weight, zero if bias is None else bias.detach().float().cpu()


def convolution(this: Guided, at: Choice) -> Lesson:
    W, b = linear_map(this)
    D, n = W.shape
    P = this.walk.patches
    by_matrix = this.walk.pieces @ W.T + b  # (P, D)
    by_convolution = this.walk.features.flatten(1).T
    i, p = at.number, at.patch
    return Lesson(
        words=(
            f"One matrix W maps every patch to a token: {n:,} numbers to {D}. Its row i is a small "
            "picture, a filter; the product with a patch is large where the patch looks like it.",
            "The code has no such matrix. It has a convolution whose stride is as long as its "
            "filters are wide: it meets every patch exactly once and never two at a time, and at "
            "each it multiplies number by number and adds. That is the same sum. The table holds "
            "both, for the patch and the number i that you choose.",
        ),
        equations=(r"e_{p} = W x_{p} + b", r"e_{p,i} = \sum_{j} W_{i,j} x_{p,j} + b_{i}"),
        shapes=(
            ("W, the filters laid out", (D, n)),
            ("patches", (P, n)),
            ("their embeddings", (P, D)),
        ),
        tables=(
            Table(
                f"Number {i} of the embedding of patch {p}",
                ("by", "how", "result"),
                (
                    (
                        "matrix",
                        products(W[i], this.walk.pieces[p]) + f" + b ({decimal(b[i].item())})",
                        decimal(by_matrix[p, i].item(), 5),
                    ),
                    (
                        "convolution",
                        "what the model computed",
                        decimal(by_convolution[p, i].item(), 5),
                    ),
                ),
                last=True,
            ),
            Table(
                f"All {P:,} × {D:,} numbers, both ways",
                ("largest difference", "largest number"),
                (
                    (
                        small((by_matrix - by_convolution).abs().max().item()),
                        decimal(by_convolution.abs().max().item()),
                    ),
                ),
            ),
        ),
        code=(excerpt(type(this.model.patch_embed), "nn.Conv2d", "self.proj("),),
    )


def flatten(this: Guided, at: Choice) -> Lesson:
    (h, w), D, i = this.walk.grid, len(this.walk.features), at.number
    row, column = divmod(at.patch, w)
    before = this.walk.features[i, row, column].item()
    tokens = this.walk.features.flatten(1).T  # (D, h, w) -> (h * w, D)
    return Lesson(
        words=(
            f"The convolution gives a picture with {D} channels. A transformer wants a list of "
            "vectors, so rows and columns become one axis, row by row, and the channels go last: "
            "`flatten(2).transpose(1, 2)`. Not one number changes, only where it is found.",
            "From here on the model does not know what lies beside what. That is why positions are "
            "added soon.",
        ),
        equations=(
            r"p = w \cdot \text{row} + \text{column}",
            r"e_{p,i} = \text{picture}_{i, \text{row}, \text{column}}",
        ),
        shapes=(("picture of features", (D, h, w)), ("tokens", (h * w, D))),
        tables=(
            Table(
                "The same number before and after, places counted from 0",
                ("tensor", "place", "value"),
                (
                    ("picture", f"[{i}, {row}, {column}]", decimal(before, 5)),
                    (
                        "tokens",
                        f"[{w} × {row} + {column}, {i}] = [{at.patch}, {i}]",
                        decimal(tokens[at.patch, i].item(), 5),
                    ),
                ),
            ),
            Table(
                "The token, all of it",
                ("which", "numbers"),
                ((f"patch {at.patch}", some(tokens[at.patch])),),
            ),
        ),
        code=(excerpt(ViT.embed, "flatten(2).transpose(1, 2)"),),
    )


def class_token(this: Guided, at: Choice) -> Lesson:
    config, B = this.inside.card.config, at.batch
    D, P = config.width, this.walk.patches
    token = this.model.cls_token.detach().float().cpu()
    spread = token.expand(B, -1, -1)
    K, registers = this.class_tokens, this.walk.prefix - this.class_tokens
    more = ""
    if K > 1:
        more += (
            " This model has a second one, the distillation token, which was taught to say what "
            "another model says; the answer is read from both."
        )
    if registers:
        more += (
            f" Behind it stand {registers} registers, learned vectors too, but never read: the "
            "blocks write into them what they would otherwise write over unimportant patches."
        )
    wrong = torch.ones(B, K, D)
    return Lesson(
        words=(
            "Which token should give the answer? None of the patches: each began as one place of "
            "the picture. So one more vector is put in front that belongs to no place, learned "
            "like any weight. In every block it can gather from the patches what the answer needs, "
            f"and at the end it alone is read.{more}",
            f"Its shape is (1, {K}, {D}), whatever the batch. `expand` lets every photo of a "
            "batch use it and copies nothing: along the batch its stride is 0.",
        ),
        equations=(r"[ t ; e_{0} ; e_{1} ; \dots ; e_{P-1} ]",),
        shapes=(
            ("class token, the parameter", (1, K, D)),
            (f"for a batch of {B}", (B, K, D)),
            ("with the patches", (B, this.walk.prefix + P, D)),
        ),
        tables=(
            Table(
                f"With batches of {B}",
                ("", "ours", "sized by the batch"),
                (
                    ("numbers to learn", f"{token.numel():,}", f"{wrong.numel():,}"),
                    (
                        "bytes for the batch",
                        f"{spread.untyped_storage().nbytes():,}",
                        f"{wrong.nbytes:,}",
                    ),
                    ("then one photo alone", "works", _joined(wrong, this.walk.features)),
                ),
            ),
            Table("The token itself", ("", "numbers"), (("t", some(token[0, 0])),)),
        ),
        code=(
            excerpt(ViT.__init__, "self.cls_token"),
            excerpt(ViT.embed, "self.cls_token", "torch.cat"),
        ),
        aside=(
            "Code that is passed around writes `nn.Parameter(torch.ones(batch_size, 1, width))`. "
            "Then photo number 3 of a batch has a class token of its own, taught only by photos "
            "that happened to come third; the model has as many tokens to learn as the batch has "
            "places; and it works for that batch size alone. 225 photos in batches of 32 leave a "
            "last batch of one: it fails there, or at the first photo of a visitor. Right is one "
            "token of shape (1, 1, D), expanded in `forward` to the batch that is there.",
            "The same code takes `batch_size` and the width from variables of the notebook, inside "
            "the layer. It works until a cell above is changed, and cannot be built twice with "
            "other sizes. A layer's sizes come in through its `__init__`, here from one config, "
            "and those of the data are read from the tensor: `B, _, *grid = patches.shape`.",
        ),
    )


def _joined(token: Tensor, features: Tensor) -> str:
    """What torch says when a class token sized by the batch meets one photo."""
    one_photo = features.flatten(1).T[None]
    try:
        torch.cat([token, one_photo], dim=1)
    except RuntimeError as error:
        return str(error)
    return "works, for this batch size alone"


def positions(this: Guided, at: Choice) -> Lesson:
    walk, i = this.walk, at.number
    h, w = walk.grid
    flat = walk.features.flatten(1).T
    place = walk.positions[len(walk.positions) - walk.patches + at.patch]
    entering = walk.tokens[0, walk.prefix + at.patch]
    e, position, token = flat[at.patch, i].item(), place[i].item(), entering[i].item()
    return Lesson(
        words=(
            "Attention treats its tokens as a heap: were the patches shuffled, every token would "
            "get the same as before. So each place has a vector of its own, learned with the "
            "weights, and it is added to whatever patch lies there. Nobody told the model how the "
            "places lie; that neighbours have similar vectors, as the picture shows, it learned.",
            f"They were learned for a grid of {this.model.grid[0]} × {this.model.grid[1]}. For "
            "another the class token's is kept and the others, a picture of D channels, are "
            "resized like a photo."
            + (f" Here they were resized to {h} × {w}." if this.model.grid != walk.grid else ""),
        ),
        equations=(r"z_{p} = e_{p} + \text{position}_{p}",),
        shapes=(
            ("position embeddings", tuple(this.model.pos_embed.shape[1:])),
            ("tokens for the first block", tuple(walk.tokens[0].shape)),
        ),
        tables=(
            Table(
                f"Number {i} of {token_name(this, walk.prefix + at.patch)}",
                ("patch", "position", "token"),
                ((decimal(e), decimal(position), f"{added(e, position)} = {decimal(token)}"),),
            ),
            Table(
                "Lengths of these vectors",
                ("patch", "position", "token"),
                (
                    (
                        decimal(flat[at.patch].norm().item()),
                        decimal(place.norm().item()),
                        decimal(entering.norm().item()),
                    ),
                ),
            ),
        ),
        code=(excerpt(ViT.embed, "resize_positions", "+ positions"),),
    )


def _corner(this: Guided, at: Choice) -> tuple[int, int]:
    """Row and column of the first pixel of the chosen patch."""
    row, column = divmod(at.patch, this.walk.grid[1])
    return row * this.inside.patch_size[0], column * this.inside.patch_size[1]
