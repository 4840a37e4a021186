"""Other PyTorch libraries' names for the same weights, turned into timm's.

Only names differ between them, and whether queries, keys and values are one matrix or three.
"""

import re
from collections.abc import Mapping

from torch import Tensor, cat

from vit.card import CheckpointError

_LAYER = r"(?:encoder\.layer|layers)\.(\d+)\."  # in files, and in memory since version 5
_HUGGING_FACE = (
    (r"embeddings\.cls_token", "cls_token"),
    (r"embeddings\.distillation_token", "dist_token"),
    (r"embeddings\.register_tokens", "reg_token"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.mask_token", "mask_token"),
    (r"embeddings\.patch_embeddings\.projection\.(.*)", r"patch_embed.proj.\1"),
    (_LAYER + r"(?:layernorm_before|norm1)\.(.*)", r"blocks.\1.norm1.\2"),
    (_LAYER + r"(?:layernorm_after|norm2)\.(.*)", r"blocks.\1.norm2.\2"),
    (_LAYER + r"attention\.(?:attention\.query|q_proj)\.(.*)", r"blocks.\1.attn.query.\2"),
    (_LAYER + r"attention\.(?:attention\.key|k_proj)\.(.*)", r"blocks.\1.attn.key.\2"),
    (_LAYER + r"attention\.(?:attention\.value|v_proj)\.(.*)", r"blocks.\1.attn.value.\2"),
    (_LAYER + r"attention\.(?:output\.dense|o_proj)\.(.*)", r"blocks.\1.attn.proj.\2"),
    (_LAYER + r"(?:intermediate\.dense|mlp\.fc1)\.(.*)", r"blocks.\1.mlp.fc1.\2"),
    (_LAYER + r"(?:output\.dense|mlp\.fc2)\.(.*)", r"blocks.\1.mlp.fc2.\2"),
    (_LAYER + r"mlp\.weights_in\.(.*)", r"blocks.\1.mlp.w12.\2"),
    (_LAYER + r"mlp\.weights_out\.(.*)", r"blocks.\1.mlp.w3.\2"),
    (_LAYER + r"layer_scale([12])\.lambda1", r"blocks.\1.ls\2.gamma"),
    (r"layernorm\.(.*)", r"norm.\1"),
    (r"pooler\.dense\.(.*)", r"pre_logits.fc.\1"),
    (r"(?:cls_)?classifier\.(.*)", r"head.\1"),
    (r"distillation_classifier\.(.*)", r"head_dist.\1"),
)
_ENCODER = r"encoder\.layers\.encoder_layer_(\d+)\."
_TORCHVISION = (
    (r"class_token", "cls_token"),
    (r"conv_proj\.(.*)", r"patch_embed.proj.\1"),
    (r"encoder\.pos_embedding", "pos_embed"),
    (_ENCODER + r"ln_([12])\.(.*)", r"blocks.\1.norm\2.\3"),
    (_ENCODER + r"self_attention\.in_proj_(weight|bias)", r"blocks.\1.attn.qkv.\2"),
    (_ENCODER + r"self_attention\.out_proj\.(.*)", r"blocks.\1.attn.proj.\2"),
    (_ENCODER + r"mlp\.(?:0|linear_1)\.(.*)", r"blocks.\1.mlp.fc1.\2"),
    (_ENCODER + r"mlp\.(?:3|linear_2)\.(.*)", r"blocks.\1.mlp.fc2.\2"),
    (r"encoder\.ln\.(.*)", r"norm.\1"),
    (r"heads\.pre_logits\.(.*)", r"pre_logits.fc.\1"),
    (r"heads\.head\.(.*)", r"head.\1"),
)
_META = ((r"register_tokens", "reg_token"),)  # DINOv2's authors; otherwise timm's names
_BACKBONE = re.compile(
    r"(?:vit|deit|dinov2|dinov2_with_registers)\.(?=embeddings|encoder|lay|pool)"
)
_PARTS = ("query", "key", "value")


def is_hugging_face(names: Mapping[str, object]) -> bool:
    return any(name.endswith("embeddings.patch_embeddings.projection.weight") for name in names)


def is_torchvision(names: Mapping[str, object]) -> bool:
    return "class_token" in names or "conv_proj.weight" in names


def from_hugging_face(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of ViT, DeiT and DINOv2 as transformers saves them; unknown names stay."""
    bare = {_BACKBONE.sub("", name, count=1): value for name, value in state.items()}
    return join_qkv(_renamed(bare, _HUGGING_FACE))


def from_torchvision(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of torchvision's `VisionTransformer`; unknown names stay."""
    return _renamed(state, _TORCHVISION)


def from_meta(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights with timm's names or those of DINOv2's authors; unknown names stay."""
    return _renamed(state, _META)


def join_qkv(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One `attn.qkv` in place of `attn.query`, `.key` and `.value`, where all three are there."""
    joined = dict(state)
    for name in state:
        if not (match := re.fullmatch(r"(.*\.attn\.)query\.(weight|bias)", name)):
            continue
        names = [f"{match[1]}{part}.{match[2]}" for part in _PARTS]
        if len({state[each].shape if each in state else None for each in names}) == 1:
            joined[f"{match[1]}qkv.{match[2]}"] = cat([joined.pop(each) for each in names])
    return joined


def _renamed(state: Mapping[str, Tensor], names: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    renamed: dict[str, Tensor] = {}
    for name, value in state.items():
        if (ours := _rename(name, names)) in renamed:
            raise CheckpointError(f"{name} is there twice under different names, as {ours}.")
        renamed[ours] = value
    return renamed


def _rename(name: str, names: tuple[tuple[str, str], ...]) -> str:
    for pattern, ours in names:
        if match := re.fullmatch(pattern, name):
            return match.expand(ours)
    return name
