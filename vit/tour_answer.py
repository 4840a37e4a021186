"""The tour's last stops: all blocks, and from the class token to the answer."""

from __future__ import annotations

import torch
from torch import Tensor

from vit.classifier import Classifier
from vit.guide import Choice, Guided
from vit.lesson import Lesson, Table, decimal, excerpt, products, quoted, small, some
from vit.model import ViT

MOST = 5  # dishes in a table
SOFTMAX = r"p_{c} = \frac{e^{\text{logit}_{c} / T}}{\sum_{m} e^{\text{logit}_{m} / T}}"


def after_each_block(this: Guided) -> Tensor:
    """Logits (depth, C) if the model ended after each block, from the tokens that are kept."""
    model = this.model
    with torch.no_grad():
        tokens = this.walk.tokens[1:].to(model.pos_embed.device)
        return model.classify(model.norm(tokens)).float().cpu()


def blocks(this: Guided, at: Choice) -> Lesson:
    walk, card = this.walk, this.inside.card
    lengths = walk.tokens[:, 0].norm(dim=-1)
    answers = (after_each_block(this) / card.temperature).softmax(1)
    moved = torch.nn.functional.cosine_similarity(walk.tokens[:-1, 0], walk.tokens[1:, 0], dim=-1)
    rows = []
    for number in range(walk.depth):
        best = int(answers[number].argmax())
        said = f"{this.dishes[best]} {100 * answers[number, best]:.0f} %"
        rows.append(
            (
                str(number + 1),
                decimal(lengths[number + 1].item(), 1),
                decimal(moved[number].item(), 2),
                said if card.trained_head else "",
            )
        )
    return Lesson(
        words=(
            f"The same once more, {walk.depth} times in all: blocks of one design, each with its "
            "own weights. What one block writes the next can read. Early heads look around nearby "
            "or everywhere at once, later ones gather what belongs to the answer.",
            "The shape never changes, so one can stop after any block, apply the last norm and the "
            "head, and ask what the answer would be by now (the “logit lens”). The head was taught "
            "to read the last block alone, so take early rows for hints.",
        ),
        equations=(r"z^{l} = \text{block}_{l}(z^{l-1}) \quad l = 1, \dots, L",),
        shapes=(
            ("tokens, before and after every block", tuple(walk.tokens[0].shape)),
            ("blocks", (walk.depth,)),
        ),
        tables=(
            Table(
                "The class token after each block",
                ("block", "length", "cosine to before", "it would say"),
                tuple(rows),
                last=True,
            ),
        ),
        code=(excerpt(ViT.encode, "for block in", "block(tokens)"),),
    )


def logits(this: Guided, at: Choice) -> Lesson:
    walk, config = this.walk, this.inside.card.config
    dish = this.predicted if at.dish is None else at.dish
    head = this.model.head
    row = head.weight[dish].detach().float().cpu()
    bias = head.bias[dish].item()
    N, D = walk.encoded.shape
    best = walk.logits.topk(min(MOST, config.classes)).indices.tolist()
    best += [] if dish in best else [dish]
    by_hand = (row @ walk.pooled).item() + bias
    dressed = (
        " This model has one more layer before it, the “representation layer” of the authors' "
        f"code: a linear map to {config.representation:,} numbers and a tanh."
        if config.representation
        else ""
    )
    read = "class token alone is read; the other"
    if this.class_tokens > 1:
        read = "class and the distillation token are read, side by side; the other"
    reads = (
        f"After a last LayerNorm the {read} {N - this.class_tokens} tokens have done their work."
    )
    return Lesson(
        words=(
            f"{reads}{dressed} Each dish has a row of weights in the head. Its scalar product with "
            "the vector, and a bias, is the dish's logit: any number, the larger the likelier.",
            "A new task needs no new transformer: put a new head on, one row for each of your "
            "dishes, and teach it. That is what “head only” does in the tab Fine-tune.",
        ),
        equations=(r"\text{logit}_{c} = w_{c} \cdot y + b_{c}",),
        shapes=(
            ("encoded tokens", (N, D)),
            ("what the head reads", tuple(walk.pooled.shape)),
            ("logits", tuple(walk.logits.shape)),
        ),
        tables=(
            Table("What the head reads", ("", "numbers"), (("y", some(walk.pooled)),)),
            Table(
                f"The logit of {this.dishes[dish]}",
                ("how", "result"),
                (
                    (
                        products(row, walk.pooled) + f" + b ({decimal(bias)})",
                        decimal(by_hand, 4),
                    ),
                ),
            ),
            Table(
                "Logits",
                ("dish", "logit"),
                tuple((this.dishes[c], decimal(walk.logits[c].item(), 4)) for c in best),
            ),
        ),
        code=(excerpt(ViT.pool, "self.pre_logits("), excerpt(ViT.classify, "self.head")),
    )


def shares_of(this: Guided, at: Choice) -> Tensor:
    """Probabilities (C,) at the temperature that is chosen."""
    return (this.walk.logits / (at.temperature or this.inside.card.temperature)).softmax(0)


def _no_dishes(this: Guided) -> Lesson:
    return Lesson(
        words=(
            f"{this.inside.name} has no trained head: it is a backbone to fine-tune, and knows no "
            "dishes yet. Its logits mean nothing, and so would their shares.",
        ),
        equations=(SOFTMAX,),
        shapes=(("logits", tuple(this.walk.logits.shape)),),
        tables=(),
        code=(excerpt(Classifier._answer, "self.card.temperature"),),
    )


def probabilities(this: Guided, at: Choice) -> Lesson:
    if not this.inside.card.trained_head:
        return _no_dishes(this)
    card, found = this.inside.card, this.walk.logits
    own = card.temperature
    T = at.temperature or own
    shares = shares_of(this, at)
    best = shares.topk(min(MOST, len(shares))).indices.tolist()
    powers = ((found - found.max()) / T).exp()
    rows = [
        (
            this.dishes[c],
            decimal(found[c].item()),
            f"{powers[c].item():.3g}",
            f"{100 * shares[c]:.2f} %",
        )
        for c in best
    ]
    if len(shares) > len(best):
        rest = max(0.0, 1 - shares[best].sum().item())
        rows.append((f"the other {len(shares) - len(best)}", "", "", f"{100 * rest:.2f} %"))
    rows.append(("together", "", f"{powers.sum().item():.3g}", "100.00 %"))
    answer = this.inside.probabilities  # what the page's other tabs go by, from a run of its own
    first = int(answer.argmax())
    mine = (found / own).softmax(0)
    loss = -shares[best[0]].log().item()
    said = "as it came out of the training"
    if own != 1:
        said = (
            "chosen after the training so that of the answers given 80 % about 80 in 100 are true"
        )
    return Lesson(
        words=(
            "A softmax again, now over dishes: logits become shares of one. The temperature T "
            f"belongs to the checkpoint, {own:.3g} here, {said}. Small makes it sure, large makes "
            "it doubt; the order of the dishes stays the same.",
            "Training turns these shares into a loss, −log of the share of the true dish: "
            f"if this is {quoted(this.dishes[best[0]].lower())}, {decimal(loss)} for this photo. "
            "Its gradient runs the whole way back, through every stop of this tour, and moves each "
            "weight a little. That is all there is to learning.",
        ),
        equations=(
            SOFTMAX,
            r"\text{loss} = - \text{log }p_{\text{true}}",
        ),
        shapes=(("logits", tuple(found.shape)), ("probabilities", tuple(shares.shape))),
        tables=(
            Table(
                f"At T = {T:.3g}",
                ("dish", "logit", "e^((logit − greatest) / T)", "share p"),
                tuple(rows),
                last=True,
            ),
            Table(
                "Against the answer that the rest of the page gives, at the checkpoint's own T",
                ("", "here", "there", "largest difference of all"),
                (
                    (
                        this.dishes[first],
                        f"{100 * mine[first]:.2f} %",
                        f"{100 * answer[first]:.2f} %",
                        small((mine - answer).abs().max().item()),
                    ),
                ),
            ),
        ),
        code=(excerpt(Classifier._answer, "self.card.temperature"),),
    )
