"""Downloads that many visitors may ask for and follow, each done once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from vit.fetch import Progress
from vit.speed import TimeLeft
from vit.ui.words import Html, going_html

LOOK = 0.25  # seconds between two looks at the download


def progress_html(done: int, total: int | None, clock: TimeLeft) -> Html:
    size = f"{done / 1e6:.1f} of {total / 1e6:.1f} MB" if total else f"{done / 1e6:.1f} MB"
    return going_html(f"{size} downloaded", done / total if total else None, clock)


class _Stopped(Exception):
    pass


class _Run:
    """A download in a thread of its own, for all who wait; it ends when nobody does."""

    def __init__(self, work: Callable[[Progress], object]) -> None:
        self.work = work
        self.done: int = 0
        self.total: int | None = None
        self.followers = 0
        self.ended = threading.Event()
        self.error: Exception | None = None

    def start(self) -> None:
        threading.Thread(target=self._download, daemon=True).start()

    def _download(self) -> None:
        try:
            self.work(self._progress)
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()

    def _progress(self, done: int, total: int | None) -> None:
        self.done, self.total = done, total
        if not self.followers:
            raise _Stopped


class SharedDownload:
    """One download, at most once at a time, however many visitors ask. `work` does it, telling its
    progress."""

    def __init__(self, work: Callable[[Progress], object]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._run: _Run | None = None

    def follow(self) -> Iterator[tuple[int, int | None]]:
        """(bytes done, bytes in all or None) until the download has ended; raises what it raised.
        Closing this iterator is one visitor's Stop."""
        with self._lock:
            run = self._run
            started = run is None or run.ended.is_set() or not run.followers
            if run is None or started:
                run = self._run = _Run(self._work)
            run.followers += 1
        if started:
            run.start()
        try:
            while not run.ended.wait(LOOK):
                yield run.done, run.total
        finally:
            with self._lock:
                run.followers -= 1
        if run.error:
            raise run.error
