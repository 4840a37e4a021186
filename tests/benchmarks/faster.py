"""Ways to answer faster that change the answer: what each gains, and how many photos it costs.

    python -m tests.benchmarks.faster [CHECKPOINT] [--photos FOLDER_OR_ZIP …] [--every 3]
                                      [--batches 1 16] [--rounds 30] [--threads 2] [--only NAME …]
                                      [--cpu]

Against the float32 model of the checkpoint, all in turns:
    bfloat16    every weight and every step in bfloat16 (what `--precision bfloat16` does)
    int8        linear layers in 8 bits, a scale for each output, photos' scale found on the way
    192 pixels  the picture made smaller, position embeddings resized
    merging     Bolya et al. 2023 (ToMe, arXiv:2210.09461): in each block the 8 most alike pairs of
                patches become one
    compiled    torch.compile; needs a C++ compiler, and its first answer takes long
    channels    the picture with its channels last
Photos: every so many of class folders that the checkpoint knows; right first answers of each way.
"""

import argparse
import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks.timing import Ratio, clock, spread, take_turns, versions
from vit.batches import plain_batches
from vit.classifier import DEFAULT, Classifier
from vit.data import open_photos
from vit.model import Block, ViT
from vit.precision import has_bfloat16, in_precision
from vit.top import answer

MERGED = 8  # pairs a block
SMALLER = 192  # pixels
Way = Callable[[Tensor], Tensor]


def bfloat16(model: ViT) -> Way:
    if not has_bfloat16():
        raise SystemExit("This processor has no bfloat16: leave it out with --only.")
    lower = in_precision(copy.deepcopy(model), "bfloat16")
    return lambda images: answer(lower, images.bfloat16()).float()


class Int8(nn.Module):
    """A linear layer in 8 bits; what comes in is rounded by the range of the whole batch."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scales = weight.abs().amax(1).clamp(min=1e-8).double() / 127
        zeros = torch.zeros(len(weight), dtype=torch.long)
        rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(rounded, linear.bias.detach())

    def forward(self, values: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(values, self.packed, False)


def int8(model: ViT) -> Way:
    torch.backends.quantized.engine = "onednn"
    lower = copy.deepcopy(model)
    for block in lower.blocks:
        for part, name in ((block.attn, "qkv"), (block.attn, "proj"), (block.mlp, "fc1"),
                           (block.mlp, "fc2")):  # fmt: skip
            setattr(part, name, Int8(getattr(part, name)))
    return lower


def merging(model: ViT) -> Way:
    def logits(images: Tensor) -> Tensor:
        tokens = model.embed(images)
        sizes = tokens.new_ones(*tokens.shape[:2], 1)
        for block in model.blocks:
            assert isinstance(block, Block)
            tokens, sizes = merged(block, tokens, sizes, model.num_prefix_tokens)
        return model.classify(model.norm(tokens))

    return logits


def merged(block: Block, tokens: Tensor, sizes: Tensor, prefix: int) -> tuple[Tensor, Tensor]:
    """A block that joins patches with like keys between its two branches. sizes (B, N, 1): how many
    patches a token stands for; the larger are looked at the more."""
    attn, (B, N, D) = block.attn, tokens.shape
    qkv = attn.qkv(block.norm1(tokens)).view(B, N, 3, attn.heads, D // attn.heads)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    bias = sizes.log().view(B, 1, 1, N).expand(B, 1, N, N)
    mixed = F.scaled_dot_product_attention(q, k, v, bias)
    tokens = tokens + attn.proj(mixed.transpose(1, 2).reshape(B, N, D))

    keys = F.normalize(k.mean(1)[:, prefix:], dim=-1)
    alike, partner = (keys[:, ::2] @ keys[:, 1::2].mT).max(-1)
    order = alike.argsort(-1, descending=True)
    goes, stays = order[:, :MERGED], order[:, MERGED:].sort(-1).values
    joined = torch.cat([tokens * sizes, sizes], -1)  # sums, and how many
    even, odd = joined[:, prefix::2], joined[:, prefix + 1 :: 2]
    odd = odd.scatter_add(1, wide(partner.gather(1, goes), D), even.gather(1, wide(goes, D)))
    joined = torch.cat([joined[:, :prefix], even.gather(1, wide(stays, D)), odd], 1)
    sizes = joined[..., -1:]
    tokens = joined[..., :-1] / sizes
    return tokens + block.mlp(block.norm2(tokens)), sizes


def wide(rows: Tensor, width: int) -> Tensor:
    return rows[..., None].expand(-1, -1, width + 1)


def compiled(model: ViT) -> Way:
    return torch.compile(copy.deepcopy(model))


def channels(model: ViT) -> Way:
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return lambda images: answer(last, images.to(memory_format=torch.channels_last))


def plain(model: ViT) -> Way:
    return partial(answer, model)


WAYS: dict[str, Callable[[ViT], Way]] = {
    "float32": plain,
    "bfloat16": bfloat16,
    "int8": int8,
    f"{SMALLER} pixels": plain,  # of smaller pictures
    "merging": merging,
    "compiled": compiled,
    "channels": channels,
}


def smaller(name: str) -> bool:
    return name.endswith("pixels")


def timed(classifier: Classifier, names: list[str], batch: int, asked: argparse.Namespace) -> None:
    works: dict[str, Callable[[], object]] = {}
    for name in names:
        size = (SMALLER, SMALLER) if smaller(name) else classifier.card.preprocess.size
        works[name] = partial(WAYS[name](classifier.model), torch.randn(batch, 3, *size))
        works[name]()
        works[name]()
    times = take_turns(works, asked.rounds, clock=clock(asked.cpu))
    for name in names:
        took, ratio = spread(times[name])[0] / batch, Ratio.of(times[name], times["float32"])
        print(f"batch {batch}, {name}: {took:.1f} ms a photo, ratio {ratio}", flush=True)


def counted(classifier: Classifier, names: list[str], place: str, every: int) -> None:
    """Right first answers; the smaller picture is made from the file, as it would be."""
    photos = open_photos(place)
    photos = photos.subset(range(0, len(photos), every))
    card = classifier.card
    known = torch.tensor([card.classes.index(name) for name in photos.classes])
    right = dict.fromkeys(names, 0)
    full = plain_batches(photos, card.preprocess)
    small: Iterator[tuple[Tensor, Tensor]] = plain_batches(
        photos, replace(card.preprocess, size=(SMALLER, SMALLER))
    )
    ways = {name: WAYS[name](classifier.model) for name in names}
    for (images, labels), (less, _) in zip(full, small, strict=True):
        for name, way in ways.items():
            found = way(less if smaller(name) else images).argmax(1)
            right[name] += int((found == known[labels]).sum())
    for name, count in right.items():
        lost = 100 * (right["float32"] - count) / len(photos)
        print(f"{Path(place).name}, {name}: {count} of {len(photos)} right, ", end="")
        print(f"{lost:.2f} points lost", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("checkpoint", nargs="?", default=DEFAULT)
    parser.add_argument("--photos", nargs="*", default=[], help="folders or zips of class folders")
    parser.add_argument("--every", type=int, default=1, help="take one photo of so many")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 16])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="count processor time, for one thread")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # that torch's parts for 8 bits will move
    torch.set_num_threads(asked.threads)
    names = list(dict.fromkeys(["float32", *asked.only]))
    classifier = Classifier.load(asked.checkpoint)
    print(versions("torch"), f"; {asked.threads} threads", sep="")
    with torch.inference_mode():
        for batch in asked.batches:
            timed(classifier, names, batch, asked)
        for place in asked.photos:
            counted(classifier, names, place, asked.every)


if __name__ == "__main__":
    main()
