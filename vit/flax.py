"""The authors' own files: from the names and layouts of Flax to timm's.

Flax stores what is multiplied from the left: linear weights are (in, out), convolutions are
(height, width, in, out), and attention keeps its heads as an axis of their own, (D, A, D / A) for
queries, keys and values and (A, D / A, D) for the output.
"""

import re
from collections.abc import Mapping

from torch import Tensor

from vit.card import CheckpointError
from vit.naming import join_qkv

_BACKBONE = "patch_embed.backbone."
_MARK = "Transformer/encoder_norm/scale"
_NAMES = (  # (in Flax, here), both without kernel, scale or bias
    (r"cls", "cls_token"),
    (r"embedding", "patch_embed.proj"),
    (r"conv_root", _BACKBONE + "stem.conv"),
    (r"gn_root", _BACKBONE + "stem.norm"),
    (r"(?:Transformer/posembed_input/)?pos_embedding", "pos_embed"),
    (r"Transformer/encoderblock_(\d+)/LayerNorm_0", r"blocks.\1.norm1"),
    (r"Transformer/encoderblock_(\d+)/LayerNorm_[12]", r"blocks.\1.norm2"),
    (r"Transformer/encoderblock_(\d+)/MlpBlock_\d/Dense_0", r"blocks.\1.mlp.fc1"),
    (r"Transformer/encoderblock_(\d+)/MlpBlock_\d/Dense_1", r"blocks.\1.mlp.fc2"),
    (r"Transformer/encoderblock_(\d+)/MultiHead\w+/out", r"blocks.\1.attn.proj"),
    (r"Transformer/encoderblock_(\d+)/MultiHead\w+/(query|key|value)", r"blocks.\1.attn.\2"),
    (r"Transformer/encoder_norm", "norm"),
    (r"pre_logits", "pre_logits.fc"),
    (r"head", "head"),
)
_UNIT = re.compile(r"block(\d+)/unit(\d+)/(conv|gn)(\d|_proj)")  # of a hybrid's ResNet
_KIND = {"conv": "conv", "gn": "norm"}
_WEIGHT = {"kernel": ".weight", "scale": ".weight", "bias": ".bias"}


def is_flax(names: Mapping[str, object]) -> bool:
    """Whether these are the names of Google's files."""
    return any(name.endswith(_MARK) for name in names)


def from_flax(arrays: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int | None]:
    """The same weights with timm's names and layouts, and the number of heads, which Flax shows.

    Names that are unknown stay as they are. Raises CheckpointError for an array with other axes
    than its name asks for.
    """
    prefix = next(name.removesuffix(_MARK) for name in arrays if name.endswith(_MARK))
    state: dict[str, Tensor] = {}
    heads = None
    for name, array in arrays.items():
        renamed = _rename(name.removeprefix(prefix))
        if re.search(r"attn\.query\.weight", renamed) and array.ndim == 3:
            heads = array.shape[1]
        try:
            state[renamed] = _layout(renamed, array)
        except (RuntimeError, ValueError, IndexError):
            raise CheckpointError(
                f"{name} has the shape {tuple(array.shape)}, which it has in none of the authors' "
                f"files."
            ) from None
    if not any(name.startswith(f"{_BACKBONE}stages.") for name in state):  # the root alone
        state = {name.replace(f"{_BACKBONE}stem.", _BACKBONE): v for name, v in state.items()}
    return join_qkv(state), heads


def _rename(name: str) -> str:
    stem, _, kind = name.rpartition("/")
    if kind in _WEIGHT and (match := _UNIT.fullmatch(stem)):
        stage, block = int(match[1]) - 1, int(match[2]) - 1
        what = _KIND[match[3]]
        what = f"downsample.{what}" if match[4] == "_proj" else f"{what}{match[4]}"
        return f"{_BACKBONE}stages.{stage}.blocks.{block}.{what}{_WEIGHT[kind]}"
    for pattern, ours in _NAMES:
        if kind in _WEIGHT and (match := re.fullmatch(pattern, stem)):
            return match.expand(ours) + _WEIGHT[kind]
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
    return name


def _layout(name: str, array: Tensor) -> Tensor:
    if re.search(r"attn\.(query|key|value)\.", name):
        return array.flatten(-2).t() if array.ndim == 3 else array.flatten()
    if name.endswith("attn.proj.weight"):
        return array.flatten(0, 1).t()
    if array.ndim == 4 and array.shape[:3] == (1, 1, 1):  # of a GroupNorm
        return array.flatten()
    if name.endswith(".weight") and array.ndim == 4:
        return array.permute(3, 2, 0, 1)
    if name.endswith(".weight") and array.ndim == 2:
        return array.t()
    return array
