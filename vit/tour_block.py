"""The tour's stops inside one transformer block."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from vit.guide import Choice, Guided, TourError, token_name
from vit.lesson import Lesson, Table, added, decimal, excerpt, products, small, some
from vit.model import MLP, Attention, Block, ScaledDotProduct

MOST = 5  # rows of a table


def block_of(this: Guided, at: Choice) -> Block:
    block = this.model.blocks[at.block]
    if not isinstance(block, Block):
        raise TourError(f"{this.inside.name} has blocks of a kind that the tour does not know.")
    return block


def norm(this: Guided, at: Choice) -> Lesson:
    way, token, i = this.block(at.block), at.asks(this), at.number
    layer = block_of(this, at).norm1
    x = way.entering[token]
    mean, variance = x.mean().item(), x.var(correction=0).item()
    scale, shift = _cpu(layer.weight)[i].item(), _cpu(layer.bias)[i].item()
    N, D = way.entering.shape
    return Lesson(
        words=(
            f"A block begins by bringing every token to one size: its {D} numbers get mean 0 and "
            "variance 1, then each place has its own learned factor γ and summand β. Each token is "
            "treated by itself, so neither the batch nor the other patches matter.",
            "It stands before the attention, not after it (“pre-norm”): the sum that runs through "
            "all blocks stays untouched, and deep models can be trained without tricks. ε keeps "
            "the root away from 0. Ours is the authors' 0.000001; torch's own 0.00001 would move "
            "the logits.",
        ),
        equations=(
            r"y_{i} = \gamma_{i} \frac{x_{i} - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta_{i}",
        ),
        shapes=(("tokens", (N, D)), ("the same, normed", (N, D))),
        tables=(
            Table(
                f"{_name(this, token)} in block {at.block + 1}",
                ("", "", "result"),
                (
                    ("mean μ", f"of its {D} numbers", decimal(mean, 4)),
                    ("variance σ²", "", decimal(variance, 4)),
                    (
                        f"number {i}",
                        f"{decimal(scale)} × ({decimal(x[i].item())} − {decimal(mean)}) / "
                        f"√({decimal(variance)} + ε) + {decimal(shift)}",
                        decimal(way.normed[token, i].item(), 4),
                    ),
                ),
                last=True,
            ),
        ),
        code=(
            excerpt(Block.__init__, "self.norm1"),
            excerpt(type(block_of(this, at)).forward, "self.norm1"),
        ),
    )


def queries(this: Guided, at: Choice) -> Lesson:
    way, token = this.block(at.block), at.asks(this)
    A, N, d = way.q.shape
    D, i = way.entering.shape[1], at.number % d
    qkv = block_of(this, at).attn.qkv
    row = _cpu(qkv.weight)[at.head * d + i]
    bias = 0.0 if qkv.bias is None else _cpu(qkv.bias)[at.head * d + i].item()
    return Lesson(
        words=(
            "Every token makes three vectors of itself. Its query says what it looks for, its key "
            "what it can be found by, its value what it gives to those who find it. All three are "
            "linear maps of the normed token y, learned, the same for every token.",
            f"The three maps are one matrix of {D} × {3 * D}: one large product is faster than "
            f"three. Its result is then cut into {A} heads, each {d} wide. A head is a way of "
            "looking of its own, and costs nothing extra: together they are as wide as one.",
        ),
        equations=(
            r"q = W_{q} y + b_{q}",
            r"k = W_{k} y + b_{k}",
            r"v = W_{v} y + b_{v}",
            r"d = \frac{D}{A}",
        ),
        shapes=(
            ("normed tokens", (N, D)),
            ("after the one product", (N, 3 * D)),
            ("q, k and v, each", (A, N, d)),
        ),
        tables=(
            Table(
                f"{_name(this, token)}, block {at.block + 1}, head {at.head + 1}",
                ("", "numbers"),
                tuple(
                    (name, some(vectors[at.head, token]))
                    for name, vectors in (("q", way.q), ("k", way.k), ("v", way.v))
                ),
            ),
            Table(
                f"Number {i} of its query",
                ("how", "result"),
                (
                    (
                        products(row, way.normed[token]) + f" + b ({decimal(bias)})",
                        decimal(way.q[at.head, token, i].item(), 4),
                    ),
                ),
            ),
        ),
        code=(excerpt(Attention.forward, "self.qkv(tokens)", "unbind"),),
    )


def scores_of(this: Guided, at: Choice) -> Tensor:
    """What the asking token's query says to every key, divided by √d: (N,)."""
    way = this.block(at.block)
    q, k = way.q[at.head, at.asks(this)], way.k[at.head]
    return k @ q * len(q) ** -0.5


def scores(this: Guided, at: Choice) -> Lesson:
    way, asks, asked = this.block(at.block), at.asks(this), at.asked(this)
    q, k = way.q[at.head, asks], way.k[at.head, asked]
    A, N, d = way.q.shape
    product = (q @ k).item()
    found = scores_of(this, at)
    return Lesson(
        words=(
            f"How much should {token_name(this, asks)} take from {token_name(this, asked)}? As "
            "much as its query fits the other's key: the scalar product of the two. It is large "
            "where they point the same way. Every token asks every token, itself too, so a head "
            f"has {N} × {N} scores: one matrix product.",
            f"A sum of {d} products grows with d, about as √d for numbers of size 1. Divided by "
            f"√{d} = {d**0.5:.4g} the scores keep their size whatever the width, and the softmax "
            "that follows does not become a choice of one at the start of training.",
        ),
        equations=(r"s = \frac{q \cdot k}{\sqrt{d}}", r"S = \frac{Q K^{\top}}{\sqrt{d}}"),
        shapes=(("Q and K, each head", (N, d)), ("scores, all heads", (A, N, N))),
        tables=(
            Table(
                f"{_name(this, asks)} asks {token_name(this, asked)}: block {at.block + 1}, head "
                f"{at.head + 1}",
                ("", "how", "result"),
                (
                    ("q", some(q, 4), ""),
                    ("k", some(k, 4), ""),
                    ("q · k", products(q, k), decimal(product, 4)),
                    ("s", f"{decimal(product)} / {d**0.5:.4g}", decimal(found[asked].item(), 4)),
                ),
                last=True,
            ),
            Table(
                f"All {N} scores of {token_name(this, asks)}",
                ("least", "greatest", "from"),
                (
                    (
                        decimal(found.min().item()),
                        decimal(found.max().item()),
                        token_name(this, int(found.argmax())),
                    ),
                ),
            ),
        ),
        code=(
            excerpt(Attention.forward, "self.core(q, k, v)"),
            excerpt(ScaledDotProduct, "scaled_dot_product_attention"),
        ),
    )


def weights_of(this: Guided, at: Choice) -> Tensor:
    """The asking token's attention (N,), its scores softened as chosen; 1 is the model's own."""
    return (scores_of(this, at) / at.softness).softmax(0)


def softmax(this: Guided, at: Choice) -> Lesson:
    asks, found, weights = at.asks(this), scores_of(this, at), weights_of(this, at)
    A, N = this.block(at.block).q.shape[:2]
    powers = ((found - found.max()) / at.softness).exp()
    best = weights.topk(min(MOST, N)).indices.tolist()
    rest = 1 - weights[best].sum().item()
    gap = "s − greatest" if at.softness == 1 else "(s − greatest)"
    divided = "" if at.softness == 1 else f" / {at.softness:g}"
    rows = [
        (
            token_name(this, j),
            decimal(found[j].item()),
            decimal(powers[j].item()),
            f"{100 * weights[j]:.2f} %",
        )
        for j in best
    ]
    if N > MOST:
        rows.append((f"the other {N - len(best)}", "", "", f"{100 * max(rest, 0):.2f} %"))
    rows.append(("together", "", decimal(powers.sum().item()), "100.00 %"))
    said = (
        "The model divides by nothing more: 1. Make it smaller, and the head attends to its "
        "favourite alone; larger, and to all alike."
    )
    if at.softness != 1:
        said = (
            f"You divide the scores by {at.softness:g} before it. Under 1 the head attends more "
            "and more to its favourite alone, over 1 to all alike. The model's own is 1."
        )
    return Lesson(
        words=(
            f"Scores become shares. The power of e makes each of the {N} numbers positive and the "
            "large ones much larger; divided by their sum they add up to one. These are the "
            "attention weights that the tab Attention shows.",
            said + " The greatest score is taken off all of them first, which changes no share "
            "and keeps the powers from overflowing.",
        ),
        equations=(r"a_{j} = \frac{e^{s_{j} / \tau}}{\sum_{m} e^{s_{m} / \tau}}", r"\tau = 1"),
        shapes=(("scores", (A, N, N)), ("weights, each row sums to 1", (A, N, N))),
        tables=(
            Table(
                f"{_name(this, asks)} attends to: block {at.block + 1}, head {at.head + 1}",
                ("token", "score s", f"e^({gap}{divided})", "share a"),
                tuple(rows),
                last=True,
            ),
        ),
        code=(excerpt(ScaledDotProduct, "scaled_dot_product_attention"),),
    )


def weighted(this: Guided, at: Choice) -> Lesson:
    way, asks = this.block(at.block), at.asks(this)
    A, N, d = way.v.shape
    i = at.number % d
    weights = weights_of(this, replace(at, softness=1.0))
    values = way.v[at.head, :, i]
    parts = weights * values
    best = weights.topk(min(MOST, N)).indices.tolist()
    rows = [
        (
            token_name(this, j),
            products(weights[j : j + 1], values[j : j + 1]),
            decimal(parts[j].item(), 4),
        )
        for j in best
    ]
    if N > MOST:
        rest = parts.sum().item() - parts[best].sum().item()
        rows.append((f"the other {N - len(best)}", "", decimal(rest, 4)))
    rows.append(("sum", "", decimal(parts.sum().item(), 4)))
    whole = weights @ way.v[at.head]
    return Lesson(
        words=(
            "Now the token gets what it asked for: the values of all tokens, each as much as its "
            "share. That is a mean with weights, so the result lies between the values. This is "
            "the only place in the whole model where tokens learn of each other.",
            f"The sum holds for each of the {d} numbers of the head. The table works one of them "
            "out and sets it beside what the model itself computed.",
        ),
        equations=(r"o = \sum_{j} a_{j} v_{j}", r"O = A V"),
        shapes=(("weights", (A, N, N)), ("values", (A, N, d)), ("result", (A, N, d))),
        tables=(
            Table(
                f"Number {i} of what {token_name(this, asks)} gets: block {at.block + 1}, head "
                f"{at.head + 1}",
                ("from", "a × v", "part"),
                tuple(rows),
                last=True,
            ),
            Table(
                "Against the model",
                ("the model's own number", f"largest difference of all {d}"),
                (
                    (
                        decimal(way.mixed[at.head, asks, i].item(), 4),
                        small((whole - way.mixed[at.head, asks]).abs().max().item()),
                    ),
                ),
            ),
        ),
        code=(
            excerpt(Attention.forward, "self.core(q, k, v)"),
            excerpt(ScaledDotProduct, "scaled_dot_product_attention"),
        ),
    )


def parts_of_heads(this: Guided, at: Choice) -> Tensor:
    """What every head adds to number `at.number` of the asking token: (A,), without the bias."""
    way = this.block(at.block)
    row = _cpu(block_of(this, at).attn.proj.weight)[at.number]
    return (row.view(len(way.q), -1) * way.mixed[:, at.asks(this)]).sum(1)


def heads(this: Guided, at: Choice) -> Lesson:
    way, asks, i = this.block(at.block), at.asks(this), at.number
    A, N, d = way.v.shape
    D = way.entering.shape[1]
    parts = parts_of_heads(this, at)
    proj = block_of(this, at).attn.proj
    bias = 0.0 if proj.bias is None else _cpu(proj.bias)[i].item()
    row = _cpu(proj.weight)[i].view(A, d)
    rows = [
        (f"head {a + 1}", products(row[a], way.mixed[a, asks]), decimal(parts[a].item(), 4))
        for a in range(A)
    ]
    rows += [
        ("bias", "", decimal(bias, 4)),
        ("sum", "", decimal(way.projected[asks, i].item(), 4)),
    ]
    return Lesson(
        words=(
            f"The {A} heads lie side by side, {A} × {d} = {D} numbers again, and one more linear "
            "map mixes them: until here no head knew of another. It decides what of each head's "
            "findings goes where in the token.",
            "Seen the other way round it is a sum with one summand for each head, so one can tell "
            "how much each contributed. The tab Attention can switch heads off.",
        ),
        equations=(r"u = W_{o} [ o^{1} ; o^{2} ; \dots ; o^{A} ] + b_{o}",),
        shapes=(
            ("heads", (A, N, d)),
            ("side by side", (N, D)),
            ("mixed", (N, D)),
        ),
        tables=(
            Table(
                f"Number {i} of what attention gives to {token_name(this, asks)} in block "
                f"{at.block + 1}",
                ("from", "how", "part"),
                tuple(rows),
                last=True,
            ),
        ),
        code=(excerpt(Attention.forward, "self.proj("),),
    )


def mlp(this: Guided, at: Choice) -> Lesson:
    way, token, m = this.block(at.block), at.asks(this), at.neuron
    N, M = way.hidden.shape
    D = way.entering.shape[1]
    layer = block_of(this, at).mlp
    row, bias = _cpu(layer.fc1.weight)[m], _cpu(layer.fc1.bias)[m].item()
    h = way.hidden[token, m]
    lit = int((way.active[token] > 0).sum())
    below = torch.special.ndtr(h).item()
    best = way.active[token].topk(min(MOST, M)).indices.tolist()
    return Lesson(
        words=(
            f"After its talk with the others each token thinks by itself: a linear map to {M:,} "
            f"numbers, a bend, and a linear map back to {D}. Without the bend two linear maps "
            "would be one. Most of a block's weights lie here.",
            "The bend is GELU: h times Φ(h), the share of a normal distribution that lies below "
            "h. Large numbers pass, negative ones are nearly silenced, and there is no corner. A "
            "hidden number is a question to the token; here "
            f"{lit:,} of {M:,} came out above 0.",
        ),
        equations=(
            r"u = W_{2} \text{GELU}(W_{1} y + b_{1}) + b_{2}",
            r"\text{GELU}(h) = h \cdot \Phi(h)",
        ),
        shapes=(("normed tokens", (N, D)), ("hidden", (N, M)), ("result", (N, D))),
        tables=(
            Table(
                f"Hidden number {m} of {token_name(this, token)}, block {at.block + 1}",
                ("", "how", "result"),
                (
                    (
                        "h",
                        products(row, way.middle_normed[token]) + f" + b ({decimal(bias)})",
                        decimal(h.item(), 4),
                    ),
                    (
                        "GELU(h)",
                        f"{decimal(h.item())} × {decimal(below)}",
                        decimal(way.active[token, m].item(), 4),
                    ),
                ),
                last=True,
            ),
            Table(
                "The loudest for this token",
                ("hidden number", "h", "GELU(h)"),
                tuple(
                    (
                        f"{j}",
                        decimal(way.hidden[token, j].item()),
                        decimal(way.active[token, j].item()),
                    )
                    for j in best
                ),
            ),
        ),
        code=(excerpt(MLP, "self.act(self.fc1(tokens))", "nn.GELU()"),),
    )


def residual(this: Guided, at: Choice) -> Lesson:
    way, token, i = this.block(at.block), at.asks(this), at.number
    N, D = way.entering.shape
    x, u, m = (float(v[token, i]) for v in (way.entering, way.attended, way.middle))
    t, z = float(way.thought[token, i]), float(way.leaving[token, i])
    lengths = [
        decimal(vectors[token].norm().item(), 2)
        for vectors in (way.entering, way.attended, way.middle, way.thought, way.leaving)
    ]
    scaled = this.inside.card.config.layer_scale
    return Lesson(
        words=(
            "Neither attention nor MLP replaces the token: what they find is added to it. The "
            "token is a notebook that is passed on, and each block writes a little into it.",
            "Because of the sums a gradient finds its way back through all blocks undamped, and a "
            "block with nothing to say may add nearly nothing. Compare the lengths below."
            + (
                " In this model a learned factor for every number (LayerScale) makes both "
                "summands smaller first."
                if scaled
                else ""
            ),
        ),
        equations=(
            r"x \leftarrow x + \text{attention}(\text{norm}_{1}(x))",
            r"x \leftarrow x + \text{MLP}(\text{norm}_{2}(x))",
        ),
        shapes=(("a block takes", (N, D)), ("and gives", (N, D))),
        tables=(
            Table(
                f"Number {i} of {token_name(this, token)} in block {at.block + 1}",
                ("", "sum", "result"),
                (
                    ("with attention", added(x, u), decimal(m)),
                    ("with the MLP", added(m, t), decimal(z)),
                ),
                last=True,
            ),
            Table(
                "Lengths of the whole vectors",
                ("enters", "attention adds", "then", "MLP adds", "leaves"),
                (tuple(lengths),),
            ),
        ),
        code=(
            excerpt(
                type(block_of(this, at)).forward, "self.attn(self.norm1", "self.mlp(self.norm2"
            ),
        ),
    )


def _name(this: Guided, token: int) -> str:
    name = token_name(this, token)
    return name[:1].upper() + name[1:]


def _cpu(weight: nn.Parameter | Tensor) -> Tensor:
    return weight.detach().float().cpu()
