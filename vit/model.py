"""The Vision Transformer of Dosovitskiy et al. 2021 (arXiv:2010.11929), to be read top to bottom.

Shape legend, used in every comment below
    B  photos in a batch            H, W  height and width of the picture in pixels
    h, w  rows and columns of the patch grid      N  tokens: prefix tokens + h * w patches
    D  width of a token             A  attention heads, each D / A wide
    C  classes                      K  class tokens: one, or two in DeiT's distilled models

Parameters carry timm's names (`patch_embed.proj`, `cls_token`, `pos_embed`, `blocks.N.attn.qkv`,
`head`), so that published weights load with `strict=True`.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit.hybrid import STAGE_CHANNELS, HybridEmbed, pixels_per_step

LAYER_NORM_EPS = 1e-6  # the authors' value; torch's own 1e-5 shifts the logits


@dataclass(frozen=True)
class ViTConfig:
    """Everything that decides the shapes of a Vision Transformer.

    `image_size` and `patch_size` are (height, width) in pixels. `representation` is the width of
    the optional tanh layer before the head (the authors' `pre_logits`). `registers` counts extra
    learned tokens that belong to no patch (Darcet et al. 2024). `dropout` acts in training only.
    Raises ValueError, naming the field, when the values cannot make a model.

    Four fields are for relatives of the plain model. `stem` makes a hybrid: the blocks in each
    stage of the ResNet that reads the picture first, () for its root alone (`vit.hybrid`).
    `class_tokens` is 2 for DeiT's distilled models, the second being the distillation token; the
    head then reads both side by side, and two heads averaged are such a head (`vit.relatives`).
    `layer_scale` is for DINOv2: every branch is scaled by learned numbers before it is added.
    `patch_mean` is for its classifiers: the head also reads the mean of the patches' tokens.
    """

    image_size: tuple[int, int] = (224, 224)
    patch_size: tuple[int, int] = (16, 16)
    width: int = 192
    depth: int = 12
    heads: int = 3
    mlp_width: int = 768
    classes: int = 1000
    representation: int | None = None
    registers: int = 0
    stem: tuple[int, ...] | None = None
    class_tokens: int = 1
    layer_scale: bool = False
    patch_mean: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size"):
            value = getattr(self, name)
            pair = isinstance(value, tuple) and len(value) == 2
            if not (pair and all(_is_count(side, 1, 16384) for side in value)):
                raise ValueError(
                    f"{name} must be two whole numbers from 1 to 16,384, height and width, "
                    f"got {value!r}."
                )
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            left_out = name == "representation" and value is None
            if not (left_out or _is_count(value, least, most)):
                raise ValueError(
                    f"{name} must be a whole number from {least} to {most:,}, got {value!r}."
                )
        for name in ("layer_scale", "patch_mean"):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {value!r}.")
        number = isinstance(self.dropout, int | float) and not isinstance(self.dropout, bool)
        if not (number and 0 <= self.dropout < 1):
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout!r}.")
        if self.width % self.heads:
            raise ValueError(
                f"width must be a multiple of heads, got width {self.width} and {self.heads} heads."
            )
        for side, patch in zip(self.image_size, self.patch_size, strict=True):
            if side % patch:
                raise ValueError(
                    f"image_size must be a multiple of patch_size, got {self.image_size} "
                    f"and {self.patch_size}."
                )
        if self.stem is not None:
            self._check_stem(self.stem)

    def _check_stem(self, stem: tuple[int, ...]) -> None:
        most = len(STAGE_CHANNELS)
        listed = isinstance(stem, tuple) and len(stem) <= most
        if not (listed and all(_is_count(blocks, 1, 512) for blocks in stem)):
            raise ValueError(
                f"stem must be up to {most} whole numbers from 1 to 512, the blocks of each stage, "
                f"got {stem!r}."
            )
        step = pixels_per_step(stem)
        if any(side % step for side in self.patch_size):
            raise ValueError(
                f"patch_size must be a multiple of {step} behind a stem of {len(stem)} stages, "
                f"got {self.patch_size}."
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches at the native image size."""
        (height, width), (patch_height, patch_width) = self.image_size, self.patch_size
        return height // patch_height, width // patch_width

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the patches: class tokens first, then registers."""
        return self.class_tokens + self.registers

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The config that `to_json` described; ValueError for unknown, missing or bad fields.

        Only what a plain model lacks may be missing. The rest has no default here: heads, for one,
        leave no trace in the weights' shapes.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"A model config must be an object, got {values!r}.")
        values = {name: values[name] for name in values if name != _FORMER}
        names = {field.name for field in fields(cls)}
        for name in sorted((names - _EXTRAS) - set(values) | set(values) - names):
            raise ValueError(f"{name} is {'unknown' if name in values else 'missing'}.")
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        return cls(**given)


_EXTRAS = frozenset(
    {
        "representation",
        "registers",
        "stem",
        "class_tokens",
        "layer_scale",
        "patch_mean",
        "dropout",
    }
)
_FORMER = "drop_path"  # in older files: how they were trained, which changes no answer
# Far above every published model, and low enough that a damaged file cannot ask for the impossible.
_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "width": (1, 16384),
        "depth": (1, 512),
        "heads": (1, 16384),
        "mlp_width": (1, 131072),
        "classes": (1, 1_000_000),
        "representation": (1, 16384),
        "registers": (0, 1024),
        "class_tokens": (1, 2),
    }
)


def _is_count(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


# Table 1 of the paper; Ti and S are those of DeiT and of "How to train your ViT?", whose names the
# hybrids bear too. R+Ti/16 takes 8 × 8 patches of a map with 4 pixels a step: 32 pixels, not 16.
PRESETS: Mapping[str, ViTConfig] = MappingProxyType(
    {
        "Ti/16": ViTConfig(width=192, depth=12, heads=3, mlp_width=768),
        "S/16": ViTConfig(width=384, depth=12, heads=6, mlp_width=1536),
        "B/16": ViTConfig(width=768, depth=12, heads=12, mlp_width=3072),
        "B/32": ViTConfig(width=768, depth=12, heads=12, mlp_width=3072, patch_size=(32, 32)),
        "L/16": ViTConfig(width=1024, depth=24, heads=16, mlp_width=4096),
        "H/14": ViTConfig(width=1280, depth=32, heads=16, mlp_width=5120, patch_size=(14, 14)),
        "R+Ti/16": ViTConfig(patch_size=(32, 32), stem=()),
        "R26+S/32": ViTConfig(
            width=384, heads=6, mlp_width=1536, patch_size=(32, 32), stem=(2, 2, 2, 2)
        ),
        "R50+B/16": ViTConfig(width=768, heads=12, mlp_width=3072, stem=(3, 4, 9)),
        "R50+L/32": ViTConfig(
            width=1024, depth=24, heads=16, mlp_width=4096, patch_size=(32, 32), stem=(3, 4, 6, 3)
        ),
    }
)


class PatchEmbed(nn.Module):
    """Cut the picture into patches and map each linearly to a token.

    A convolution whose stride is its kernel does both at once.
    """

    def __init__(self, patch_size: tuple[int, int], width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images)  # (B, 3, H, W) -> (B, D, h, w)


class ScaledDotProduct(nn.Module):
    """softmax(q kᵀ / sqrt(D / A)) v: the one place where tokens look at each other.

    It has no parameters. It is a module so that `vit.attention` can watch it, or put an explicit
    one in its place, from outside.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)  # (B, A, N, D / A)


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.core: nn.Module = ScaledDotProduct()
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        B, N, D = tokens.shape
        qkv = self.qkv(tokens).view(B, N, 3, self.heads, D // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, A, N, D / A)
        mixed = self.core(q, k, v)
        return self.proj(mixed.transpose(1, 2).reshape(B, N, D))


class MLP(nn.Module):
    """Two linear layers with a GELU between them, applied to every token by itself."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.drop = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc2(self.drop(self.act(self.fc1(tokens))))


class Block(nn.Module):
    """One transformer block: attention, then MLP, each after a LayerNorm and around a residual."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, eps=LAYER_NORM_EPS)
        self.attn = Attention(config.width, config.heads)
        self.norm2 = nn.LayerNorm(config.width, eps=LAYER_NORM_EPS)
        self.mlp = MLP(config.width, config.mlp_width, config.dropout)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.drop(self.attn(self.norm1(tokens)))
        return tokens + self.drop(self.mlp(self.norm2(tokens)))  # (B, N, D)


class LayerScale(nn.Module):
    """Multiply every number of a token by a learned one (Touvron et al. 2021, arXiv:2103.17239)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), 1e-5))  # a new block does next to nothing

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens * self.gamma


class ScaledBlock(Block):
    """A block with a `LayerScale` at the end of each branch, as in DINOv2."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.ls1, self.ls2 = LayerScale(config.width), LayerScale(config.width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.drop(self.ls1(self.attn(self.norm1(tokens))))
        return tokens + self.drop(self.ls2(self.mlp(self.norm2(tokens))))  # (B, N, D)


class ViT(nn.Module):
    """A Vision Transformer that turns photos into logits.

    `forward` is three public steps, `embed`, `encode` and `classify`. Between them a caller may
    leave tokens out: `model.classify(model.encode(tokens[:, keep]))`.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        D, K, (h, w) = config.width, config.class_tokens, config.grid
        self.patch_embed = (
            PatchEmbed(config.patch_size, D)
            if config.stem is None
            else HybridEmbed(config.stem, config.patch_size, D)
        )
        self.cls_token = nn.Parameter(torch.zeros(1, K, D))  # for a batch of any size
        self.reg_token = (
            nn.Parameter(torch.zeros(1, config.registers, D)) if config.registers else None
        )
        self.pos_embed = nn.Parameter(torch.zeros(1, K + h * w, D))  # class tokens and patches
        self.pos_drop = nn.Dropout(config.dropout)
        block = ScaledBlock if config.layer_scale else Block
        self.blocks = nn.ModuleList(block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(D, eps=LAYER_NORM_EPS)
        read = (K + config.patch_mean) * D  # by the head
        self.pre_logits = nn.Identity()
        if config.representation is not None:
            fc = nn.Linear(read, config.representation)
            self.pre_logits = nn.Sequential(OrderedDict(fc=fc, act=nn.Tanh()))
        self.head = nn.Linear(config.representation or read, config.classes)
        self._initialise()

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, C) of photos (B, 3, H, W), preprocessed as the checkpoint says.

        H and W may be any multiples of the patch size; raises ValueError otherwise.
        """
        return self.classify(self.encode(self.embed(images)))

    def embed(self, images: Tensor) -> Tensor:
        """Photos (B, 3, H, W) to tokens (B, N, D): class tokens, registers, patches by rows."""
        self._check(images)
        patches = self.patch_embed(images)
        B, _, *grid = patches.shape
        patches = patches.flatten(2).transpose(1, 2)  # (B, D, h, w) -> (B, h * w, D)
        K = self.config.class_tokens
        positions = resize_positions(self.pos_embed, self.config.grid, (grid[0], grid[1]), K)
        prefix = [(self.cls_token + positions[:, :K]).expand(B, -1, -1)]
        if self.reg_token is not None:
            prefix.append(self.reg_token.expand(B, -1, -1))
        return self.pos_drop(torch.cat([*prefix, patches + positions[:, K:]], dim=1))

    def encode(self, tokens: Tensor) -> Tensor:
        """Tokens (B, N, D) through every block and the last LayerNorm, for any choice of tokens."""
        for block in self.blocks:
            tokens = block(tokens)
        return self.norm(tokens)

    def pool(self, tokens: Tensor) -> Tensor:
        """What the head sees of the encoded tokens, through `pre_logits`: what
        `read_by_head` gives."""
        return self.pre_logits(read_by_head(tokens, self.config))

    def classify(self, tokens: Tensor) -> Tensor:
        """Logits (B, C) of encoded tokens (B, N, D)."""
        return self.head(self.pool(tokens))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches at the native image size."""
        return self.config.grid

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the patches; `tokens[:, num_prefix_tokens:]` are the patches."""
        return self.config.num_prefix_tokens

    def _check(self, images: Tensor) -> None:
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"Expected photos of shape (B, 3, H, W), got {tuple(images.shape)}.")
        H, W = images.shape[2:]
        patch_height, patch_width = self.config.patch_size
        if not H or not W or H % patch_height or W % patch_width:
            raise ValueError(
                f"The picture is {H}×{W} pixels, which patches of {patch_height}×{patch_width} "
                f"do not fill; resize it to a multiple."
            )

    def _initialise(self) -> None:
        """As in the authors' code: Glorot weights, small positions, a head of zeros."""
        if self.pos_embed.is_meta:  # shapes alone: for numbers that nobody sees, torch would load
            return  # its whole compiler, which takes longer than to read a model
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        fan_in = self.patch_embed.proj.weight[0].numel()
        nn.init.trunc_normal_(self.patch_embed.proj.weight, std=math.sqrt(1 / fan_in))
        nn.init.zeros_(self.patch_embed.proj.bias)  # pyright: ignore[reportArgumentType]
        nn.init.normal_(self.pos_embed, std=0.02)
        if self.reg_token is not None:
            nn.init.normal_(self.reg_token, std=0.02)
        nn.init.zeros_(self.head.weight)


def read_by_head(tokens: Tensor, config: ViTConfig) -> Tensor:
    """Of encoded tokens (B, N, D) the class tokens side by side, (B, K * D), and with `patch_mean`
    the mean of the patches beside them."""
    read = tokens[:, : config.class_tokens].flatten(1)
    if not config.patch_mean:
        return read
    patches = tokens[:, config.num_prefix_tokens :]
    mean = patches.sum(1) / max(1, patches.shape[1])  # all of them may be left out
    return torch.cat([read, mean], dim=1)


def resize_positions(
    positions: Tensor, grid: tuple[int, int], new: tuple[int, int], class_tokens: int = 1
) -> Tensor:
    """Learned position embeddings (1, K + h * w, D) for another patch grid.

    `grid` and `new` are (rows, columns). Those of the K class tokens are kept apart; the others are
    a picture of D channels that is resized to exactly `new`. Equal grids return the input itself.
    Raises ValueError when `positions` does not belong to `grid`.
    """
    (h, w), K = grid, class_tokens
    if positions.shape[1] != K + h * w:
        raise ValueError(
            f"Expected {K} + {h} × {w} = {K + h * w} position embeddings, got {positions.shape[1]}."
        )
    if grid == new:
        return positions
    picture = positions[:, K:].unflatten(1, grid).permute(0, 3, 1, 2)  # (1, D, h, w)
    picture = F.interpolate(picture.float(), size=new, mode="bicubic", antialias=True)
    resized = picture.to(positions.dtype).flatten(2).transpose(1, 2)
    return torch.cat([positions[:, :K], resized], dim=1)
