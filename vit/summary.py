"""A model in numbers: torchinfo's table, and the ledger of shapes from photo to logits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torchinfo import ModelStatistics, summary

from vit.hybrid import HybridEmbed
from vit.model import Block, ViT, ViTConfig


@dataclass(frozen=True)
class Entry:
    """A step of the way from photo to logits: its name, what happens, and the shape it leaves."""

    name: str
    what: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """A row of torchinfo's table. depth: how deep it lies in the model, the model itself at 0.
    trainable: None where it has no parameters."""

    depth: int
    name: str
    kind: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    parameters: int
    trainable: bool | None


def _statistics(config: ViTConfig, batch: int, head_only: bool) -> ModelStatistics:
    """The model is built without memory for its weights, so that the largest preset takes no
    longer."""
    with torch.device("meta"):
        model = ViT(config)
    if head_only:
        model.requires_grad_(False)
        model.head.requires_grad_(True)
    return summary(
        model,
        input_size=(batch, 3, *config.image_size),
        col_names=("input_size", "output_size", "num_params", "trainable"),
        row_settings=("var_names",),
        depth=4,
        device="meta",
        verbose=0,
    )


@lru_cache(maxsize=16)
def layers(config: ViTConfig, batch: int = 1, head_only: bool = False) -> tuple[Layer, ...]:
    """The rows of `table`, in order; `head_only` freezes all but the head."""
    rows = _statistics(config, batch, head_only).summary_list
    trainable = {"True": True, "Partial": True, "False": False}
    return tuple(
        Layer(
            row.depth,
            row.var_name,
            row.class_name,
            tuple(row.input_size),
            tuple(row.output_size),
            row.num_params,
            trainable.get(row.trainable),
        )
        for row in rows
    )


def table(config: ViTConfig, batch: int = 1) -> str:
    """torchinfo's table of a model: input, output, parameters and what is trainable, by layer."""
    statistics = _statistics(config, batch, head_only=False)
    # torchinfo counts a linear layer's multiplications once, not once a token: ours instead.
    lines = [line for line in str(statistics).splitlines() if "mult-adds" not in line]
    lines.insert(-1, f"Multiply-adds a photo (million): {multiply_adds(config) / 1e6:,.0f}")
    return "\n".join(lines)


def multiply_adds(config: ViTConfig) -> int:
    """Multiplications, each with an addition, in one photo's forward.

    With N tokens and width D, a block costs 4 N D² (queries, keys, values and their mixing),
    2 N² D (scores and weighted sums) and 2 N D times the MLP's width. A filter costs its size for
    each number that it makes.
    """
    patches = config.grid[0] * config.grid[1]
    N, D = patches + config.num_prefix_tokens, config.width
    block = 4 * N * D * D + 2 * N * N * D + 2 * N * D * config.mlp_width
    pooled = (config.class_tokens + config.patch_mean) * D
    representation = config.representation or 0
    head = pooled * representation + (representation or pooled) * config.classes
    return _embedding_adds(config) + config.depth * block + head


def _embedding_adds(config: ViTConfig) -> int:
    if config.stem is None:
        return config.image_size[0] * config.image_size[1] * 3 * config.width
    adds: list[int] = []

    def count(conv: nn.Conv2d, _: object, made: Tensor) -> None:
        adds.append(made.shape[-2:].numel() * conv.weight.numel())

    with torch.device("meta"):
        embed = HybridEmbed(config.stem, config.patch_size, config.width)
        for conv in embed.modules():
            if isinstance(conv, nn.Conv2d):
                conv.register_forward_hook(count)
        embed(torch.empty(1, 3, *config.image_size))
    return sum(adds)


def prefix_names(config: ViTConfig) -> str:
    """What stands in front of the patches: "class token", "class token and 4 registers"."""
    names = ["class token", "distillation token"][: config.class_tokens]
    if config.registers:
        names.append("1 register" if config.registers == 1 else f"{config.registers} registers")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def ledger(config: ViTConfig, size: tuple[int, int] | None = None) -> tuple[Entry, ...]:
    """The shapes of one photo on its way through a model, first to last, without the batch.

    `size` is the photo's (height, width), the model's own for None. Shapes are read from a run of
    the model itself on tensors that hold no values.
    """
    with torch.device("meta"):
        model = ViT(config).eval()
        photo = torch.empty(1, 3, *(size or config.image_size))
    embedded = model.patch_embed(photo).flatten(2).mT  # (1, h * w, D)
    tokens = model.embed(photo)
    block = model.blocks[0]
    assert isinstance(block, Block)
    normed = block.norm1(tokens)
    D, K, heads = config.width, config.class_tokens, config.heads
    encoded = model.encode(tokens)
    scaled = ", each branch scaled by learned numbers" if config.layer_scale else ""
    pooled = "the class token alone" if K == 1 else "the class and the distillation token together"
    if config.patch_mean:
        pooled = "the class token and the mean of the patches"
    steps: list[tuple[str, str, Sequence[int]]] = [
        ("photo", "red, green, blue; rows and columns of pixels", photo.shape[1:]),
        *_cut(model, photo),
        ("patch embedding", "one linear map for all patches", embedded.shape[1:]),
        (
            "tokens",
            f"with the {prefix_names(config)} in front, and positions added",
            tokens.shape[1:],
        ),
        (
            "queries, keys, values",
            f"in each block: {heads} heads, each {D // heads} wide",
            (3, heads, tokens.shape[1], D // heads),
        ),
        (
            "attention",
            "in each block and head: every token asks every token",
            (heads, tokens.shape[1], tokens.shape[1]),
        ),
        ("heads joined", "and mixed by a linear map", block.attn(normed).shape[1:]),
        ("MLP, hidden", "every token by itself", block.mlp.fc1(normed).shape[1:]),
        ("after a block", f"the same shape, {config.depth} times{scaled}", block(tokens).shape[1:]),
        ("encoded", "after the last LayerNorm", encoded.shape[1:]),
        ("pooled", pooled, ((K + config.patch_mean) * D,)),
    ]
    if config.representation is not None:
        steps.append(("representation", "a linear map and tanh", model.pool(encoded).shape[1:]))
    steps.append(("logits", "one number for each class", model.classify(encoded).shape[1:]))
    return tuple(Entry(name, what, tuple(shape)) for name, what, shape in steps)


def _cut(model: ViT, photo: Tensor) -> Iterator[tuple[str, str, Sequence[int]]]:
    """From the photo to its patches: in a hybrid by way of a map."""
    channels, what, (height, width) = 3, "pixels", model.config.patch_size
    if isinstance(embed := model.patch_embed, HybridEmbed):
        stages = model.config.stem or ()
        made = "made by the root of a ResNet"
        if stages:
            made = f"made by a ResNet of {sum(stages)} blocks in {len(stages)} stages"
        feature_map = embed.backbone(photo)
        channels, height, width = embed.proj.weight.shape[1:]
        what = "places of the map" if height * width > 1 else "place of the map"
        yield "feature map", made, feature_map.shape[1:]
    rows, columns = model.patch_embed(photo).shape[2:]
    cut = f"cut into {rows} × {columns} patches of {height} × {width} {what}"
    yield "patches", cut, (rows * columns, channels * height * width)


def ledger_text(config: ViTConfig) -> str:
    """The ledger as aligned lines."""
    rows = [
        (entry.name, " × ".join(f"{n:,}" for n in entry.shape), entry.what)
        for entry in ledger(config)
    ]
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    return "\n".join(f"{name:<{first}}  {shape:>{second}}  {what}" for name, shape, what in rows)
