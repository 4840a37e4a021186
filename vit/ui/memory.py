"""Memory that answers have left free, given back to the system.

The C library keeps what was freed in small pieces for later. Under many visitors the pieces lie
scattered, and the process grows for hours though nothing is kept.
"""

from __future__ import annotations

import ctypes
import threading
import time

PAUSE = 30  # seconds


def give_back() -> bool:
    """Whether this system's C library (glibc) could be told to."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True


def keep_giving_back() -> None:
    """Every half minute, in a thread, for as long as the app runs."""

    def look() -> None:
        while give_back():
            time.sleep(PAUSE)

    threading.Thread(target=look, daemon=True).start()
