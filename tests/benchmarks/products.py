"""Others' work as torch does it by itself, in a process where float32 products are quicker."""

from collections.abc import Callable
from typing import TypeVar

from vit.precision import PRODUCTS, quicken_float32

T = TypeVar("T")


def plainly(work: Callable[[], T]) -> Callable[[], T]:
    """The same work, with float32 matrices multiplied as torch does when nobody tells it how."""
    quicken_float32()

    def plain() -> T:
        ours, PRODUCTS.fp32_precision = PRODUCTS.fp32_precision, "none"
        try:
            return work()
        finally:
            PRODUCTS.fp32_precision = ours

    return plain
