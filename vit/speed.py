"""How fast a run is, how long it will still take, and how much of its time it waits for photos."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

_MEMORY = 0.95  # what a step counts for is multiplied by this at every later step


class TimeLeft:
    """A clock for whatever tells how far it has come.

    It starts when it is made, with this share done; with None, when it is first asked.
    """

    def __init__(self, share: float | None = 0.0) -> None:
        self._began, self._first = time.perf_counter(), share

    def seconds(self, share: float) -> float | None:
        """How long the rest will take when this share is done, from 0 to 1; None when that cannot
        be told yet, in the first second, and when nothing is left."""
        if self._first is None:
            self._began, self._first = time.perf_counter(), share
        passed, gone = time.perf_counter() - self._began, share - self._first
        return passed / gone * (1 - share) if passed >= 1 and gone > 0 and share < 1 else None


class Speed:
    """A clock for the training loop that looks back over about the last twenty steps.

    `costs` tells what a photo of each epoch costs relative to the others, in any unit.
    """

    def __init__(self, costs: Sequence[float], steps_per_epoch: int) -> None:
        self._costs, self._per_epoch = costs, steps_per_epoch
        self._steps = self._photos = self._seconds = self._waiting = 0.0
        self._mark = 0.0
        self._validation = 0.0  # seconds for one unit of cost

    def timed(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches; what passes until each is there counts as waiting."""
        self._mark = time.perf_counter()
        source = iter(batches)
        while True:
            asked = time.perf_counter()
            try:
                batch = next(source)
            except StopIteration:
                return
            self._waiting = _MEMORY * self._waiting + time.perf_counter() - asked
            yield batch

    def did_batch(self, photos: int) -> None:
        now = time.perf_counter()
        self._steps = _MEMORY * self._steps + 1
        self._photos = _MEMORY * self._photos + photos
        self._seconds = _MEMORY * self._seconds + now - self._mark
        self._mark = now

    def did_validation(self, epoch: int, seconds: float) -> None:
        self._validation = seconds / self._costs[epoch]

    def report(self, epoch: int, step: int) -> tuple[float, float, float]:
        """After `step` steps in all: photos a second, seconds left, share of time waited."""
        seconds = max(self._seconds, 1e-9)
        here = (epoch + 1) * self._per_epoch - step
        later = sum(self._costs[epoch + 1 :]) / self._costs[epoch] * self._per_epoch
        left = (here + later) * seconds / self._steps + self._validation * sum(self._costs[epoch:])
        return self._photos / seconds, left, min(1.0, self._waiting / seconds)
