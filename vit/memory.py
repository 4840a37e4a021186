"""What the C library (glibc) does with memory that was freed: keep it for the next answer, and give
it back to the system now and then."""

from __future__ import annotations

import ctypes
import threading
import time
from functools import cache

PAUSE = 30  # seconds
# of glibc's malloc.h; the first may not be more than this on 64 bits
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 32 << 20), (-1, 128 << 20)


@cache
def keep_freed() -> bool:
    """Have this process keep up to 128 MB of what it frees; whether the C library could be told.

    By itself glibc returns the layers' buffers to the system and asks for them again, page by page,
    within every forward: eight photos of 224 pixels through ViT-Ti/16 then take up to 1.6 times as
    long.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(*_MMAP_THRESHOLD) and mallopt(*_TRIM_THRESHOLD))


def give_back() -> bool:
    """Whether this system's C library (glibc) could be told to."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True


def keep_giving_back() -> None:
    """Every half minute, in a thread, for as long as the app runs.

    Under many visitors freed pieces lie scattered, and the process would grow for hours though
    nothing is kept.
    """

    def look() -> None:
        while give_back():
            time.sleep(PAUSE)

    threading.Thread(target=look, daemon=True).start()
