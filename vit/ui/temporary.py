"""The folder of temporary files: what visitors send, and what is made for them to fetch. Bounded.

Gradio deletes what it has handed out after a day. What it knows nothing of (files of an app that
was killed, uploads that broke off) and how much there is in all is seen to here.
"""

from __future__ import annotations

import getpass
import os
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from vit.settings import count

DAY = 24 * 3600  # seconds that a file is kept at most
YOUNG = 120  # seconds in which no file goes: somebody may be waiting for it
BROKEN_OFF = 600  # seconds without a byte after which an upload is given up
PAUSE = 60  # seconds between two looks


def own_folder() -> Path:
    """One folder for all apps of this user, and for nothing else, since old files in it go."""
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    return Path(tempfile.gettempdir()) / f"food-vit-{user}"


def most_bytes() -> float:
    """Of all temporary files: $VIT_TEMP_MB, and room for two of the largest zips at least."""
    return 1e6 * max(count("VIT_TEMP_MB"), 2 * count("VIT_ZIP_MB"))


class Temporary:
    """The temporary files below `folder`, bounded by `most_bytes`.

    `known` are sets of paths that Gradio keeps: a file that goes is forgotten there too.
    """

    def __init__(self, folder: Path, known: Iterable[set[str]] = ()) -> None:
        self.folder, self.known = folder, known
        self._total = 0  # bytes at the last look, and of all uploads since
        self._promised = 0  # of uploads under way
        self._lock = threading.Lock()

    def keep_bounded(self) -> None:
        """Look every minute, in a thread, for as long as the app runs."""

        def look() -> None:
            while True:
                with suppress(OSError, ValueError), self._lock:
                    self._total = self.sweep()
                time.sleep(PAUSE)

        threading.Thread(target=look, daemon=True).start()

    def reserve(self, size: int) -> bool:
        """Whether there is room for an upload of so many bytes, which is then kept free for it
        until `release`; the oldest files make room where they must."""
        with self._lock:
            wanted = self._promised + size
            if self._total + wanted > most_bytes():
                self._total = self.sweep(room=wanted)
            if self._total + wanted > most_bytes():
                return False
            self._promised += size
            return True

    def release(self, size: int) -> None:
        """The upload has ended; until the next look its bytes count as if all had come."""
        with self._lock:
            self._promised -= size
            self._total += size

    def sweep(self, room: int = 0, now: float | None = None) -> int:
        """Delete what is too old or has broken off, and the oldest while `room` more bytes would
        not fit. Gives the bytes that are left."""
        now = time.time() if now is None else now
        files = sorted(self._files(now))
        total, gone = sum(size for _, size, _ in files), set[str]()
        for time_, size, path in files:
            age = now - time_
            broken_off = path.parent == self.folder and age > BROKEN_OFF
            crowded = total + room > most_bytes() and age > YOUNG
            if age > DAY or broken_off or crowded:
                with suppress(OSError):
                    path.unlink()
                    total -= size
                    gone.add(str(path))
        for known in self.known:
            known.difference_update(gone)
        self._remove_empty(now)
        return total

    def _files(self, now: float) -> Iterable[tuple[float, int, Path]]:
        """(time of the last use, bytes, path) of all."""
        for place, _, names in os.walk(self.folder):
            for name in names:
                path = Path(place, name)
                with suppress(OSError):
                    status = path.lstat()
                    if status.st_nlink > 1:  # with a file of the user's: no bytes more
                        yield min(now, os.lstat(place).st_mtime), 0, path
                        continue
                    if status.st_mtime > now + DAY:  # the clock has been set back since
                        os.utime(path, (now, now), follow_symlinks=False)
                    yield min(now, status.st_mtime), status.st_size, path

    def _remove_empty(self, now: float) -> None:
        for place, folders, names in os.walk(self.folder, topdown=False):
            if not folders and not names and place != str(self.folder):
                with suppress(OSError):  # somebody has just put a file there
                    if now - os.lstat(place).st_mtime > BROKEN_OFF:
                        os.rmdir(place)
