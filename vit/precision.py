"""The number format of a model's arithmetic: float32, as quick as it can be without loss, or
bfloat16 where that is quick."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args

import torch

from vit.model import ViT

Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

# how torch multiplies float32 matrices on the processor
PRODUCTS = torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue]
_FINE = 1 + 2**-12  # a float32 that bfloat16 and TF32 round to 1
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


@cache
def quicken_float32() -> bool:
    """Have oneDNN instead of MKL multiply the matrices of this process where that is quicker;
    whether it is so now.

    MKL leaves half of what AVX-512 can do unused on AMD's processors. torch's only switch to oneDNN
    also allows it to round to bfloat16. It has no such kernel without AMX, so results stay as exact
    as they were (their sums are taken in another order); should a product show any rounding, the
    switch is turned back.
    """
    machine = torch.cpu.get_capabilities()
    suits = machine.get("avx512_f") and not machine.get("amx_tile")
    if not (suits and "AMD" in machine.get("cpu_name", "")) or torch.cuda.is_available():
        return False
    before, PRODUCTS.fp32_precision = PRODUCTS.fp32_precision, "bf16"
    if not _is_exact():
        PRODUCTS.fp32_precision = before
        return False
    return True


def _is_exact() -> bool:
    """Whether products of the kinds and sizes that a ViT makes keep what bfloat16 would lose."""
    for rows, inner, columns in ((1, 192, 101), (197, 64, 197), (197, 768, 192), (256, 768, 768)):
        fine, ones = torch.full((rows, inner), _FINE), torch.ones(inner, columns)
        products = fine @ ones, ones.T @ fine.T, torch.bmm(fine[None], ones[None])
        if any((product.double() != inner * _FINE).any() for product in products):
            return False
    return True
