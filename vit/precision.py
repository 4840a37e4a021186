"""The number format of a model's arithmetic: float32, or bfloat16 where that is quick."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch

from vit.model import ViT

Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

_FAST = ("avx512_bf16", "amx_bf16", "bf16")  # as torch calls them; the last is Arm's


def has_bfloat16(capabilities: Mapping[str, Any] | None = None) -> bool:
    """Whether this machine multiplies in bfloat16: a GPU, or a processor with these `capabilities`
    (its own for None). Others imitate it, several times slower than float32."""
    if capabilities is None:
        if torch.cuda.is_available():
            return True
        capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in _FAST)


def check_precision(name: str) -> Precision:
    """`name` when it is a precision that this machine is quick in; ValueError, in one sentence,
    otherwise."""
    if name not in PRECISIONS:
        raise ValueError(f"The precision must be {' or '.join(PRECISIONS)}, not {name!r}.")
    if name == "bfloat16" and not has_bfloat16():
        raise ValueError(
            "This processor has no bfloat16 arithmetic and would be slower with it; use float32."
        )
    return name


def in_precision(model: ViT, precision: Precision) -> ViT:
    """`model` itself, its weights now of this type, which its photos must have too."""
    return model.to(getattr(torch, precision))
