"""What a run has said so far, read from its folder as it grows; nothing is read twice."""

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vit.lru import Store
from vit.reports import (
    Epoch,
    Finished,
    Prepared,
    Started,
    Step,
    Warned,
    report_from_json,
)
from vit.runstate import HISTORY

POINTS = 1000  # steps of a run that are kept for its curve
LINES = 15  # of the log that are shown


@dataclass(frozen=True)
class Told:
    """All that a run has told up to now.

    losses: (step, training loss) of at most `POINTS` steps, evenly spread. epochs: all.
    bytes: how much of the log file this is.
    """

    started: Started | None = None
    prepared: Prepared | None = None
    step: Step | None = None
    finished: Finished | None = None
    losses: tuple[tuple[int, float], ...] = ()
    epochs: tuple[Epoch, ...] = ()
    warnings: tuple[str, ...] = ()
    bytes: int = 0

    @property
    def at(self) -> int:
        """The last step that was told of."""
        last = max((epoch.step for epoch in self.epochs), default=0)
        return max(last, self.step.step if self.step else 0)

    @property
    def best(self) -> Epoch | None:
        """The epoch whose weights are kept."""
        return next((epoch for epoch in reversed(self.epochs) if epoch.best), None)


def told(folder: Path) -> Told:
    """What the run in `folder` has told; reads what was added since the last call alone."""
    reader = _readers.get(folder, lambda: _Reader(folder / HISTORY))
    return reader.read()


def last_lines(log: Path, lines: int = LINES) -> str:
    """The end of what a program printed; "" when there is nothing."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 200 * lines))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.strip().splitlines()[-lines:])


class _Reader:
    """Follows one file. A run that is resumed writes its log anew: then reading starts over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._begin(0)

    def _begin(self, file: int) -> None:
        self.file, self.now = file, Told()
        self.every = 1
        self.losses: list[tuple[int, float]] = []
        self.epochs: list[Epoch] = []

    def read(self) -> Told:
        with self._lock:
            try:
                with open(self.path, "rb") as file:
                    status = os.fstat(file.fileno())
                    if status.st_ino != self.file or status.st_size < self.now.bytes:
                        self._begin(status.st_ino)
                    if status.st_size > self.now.bytes:
                        file.seek(self.now.bytes)
                        self._take(file.read())
            except FileNotFoundError:
                self._begin(0)
            return self.now

    def _add(self, step: int, loss: float) -> None:
        if step % self.every == 0:
            self.losses.append((step, loss))
        if len(self.losses) > POINTS:
            self.every *= 2
            self.losses = [(at, value) for at, value in self.losses if at % self.every == 0]

    def _take(self, added: bytes) -> None:
        whole = added[: added.rfind(b"\n") + 1]  # the last line may be under way
        seen: dict[str, Any] = {}
        warnings = list(self.now.warnings)
        for line in whole.splitlines():
            try:
                report = report_from_json(json.loads(line))
            except ValueError:  # half a line, where a run was killed; or of a newer version
                continue
            match report:
                case Step():
                    self._add(report.step, report.loss)
                case Epoch():
                    self.epochs.append(report)
                case Warned():
                    warnings.append(report.text)
            seen[type(report).__name__.lower()] = report
        old = self.now
        self.now = Told(
            started=seen.get("started", old.started),
            prepared=seen.get("prepared", old.prepared),
            step=seen.get("step", old.step),
            finished=seen.get("finished", old.finished),
            losses=tuple(self.losses),
            epochs=tuple(self.epochs),
            warnings=tuple(warnings),
            bytes=old.bytes + len(whole),
        )


_readers: Store[_Reader] = Store(200, 200, lambda reader: 1)
