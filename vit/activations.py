"""What frozen blocks made of every photo, kept for all epochs: in memory, or in a file."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

ACTIVATIONS = "activations.npy"  # its name in a run's folder


class Activations:
    """`rows` tensors of one shape and dtype, written once in order, then read at random.

    Up to `limit` bytes lie in memory. More go to `path`, a NumPy file that takes its name only when
    it is whole, and is mapped: then the system keeps as much of it in memory as there is room for.
    Where several processes share the file, the one that `writes` makes it, and the others `open`
    it when it is there. Raises OSError, in one sentence, when the disk has no room.
    """

    def __init__(self, path: Path, rows: int, limit: int, writes: bool = True) -> None:
        self.path, self.rows, self.limit, self.writes = path, rows, limit, writes
        self.in_file = False
        self._array: np.ndarray | None = None
        self._file: IO[bytes] | None = None
        self._done = 0

    def reopen(self) -> bool:
        """Use the file of an earlier try when it is whole; whether it was."""
        if not self.path.exists():
            return False
        self.open()
        if self._array is not None and len(self._array) == self.rows:
            return True
        self.delete()
        return False

    def append(self, values: Tensor) -> None:
        """Add the next rows (n, …), float32."""
        added = values.numpy()
        if not self._done:
            self._begin(added)
        if self._file is not None:
            self._file.write(added.tobytes())
        elif not self.in_file:
            assert self._array is not None
            self._array[self._done : self._done + len(added)] = added
        self._done += len(added)

    def finish(self) -> None:
        """All rows are there: give the file its name."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
            os.replace(self._temporary, self.path)

    def open(self) -> None:
        """Map the file, once it is whole."""
        self.in_file = True
        self._array = np.load(self.path, mmap_mode="r")

    def __getitem__(self, rows: Sequence[int] | np.ndarray) -> Tensor:
        """A copy of these rows (n, …)."""
        assert self._array is not None
        return torch.from_numpy(np.asarray(self._array[np.asarray(rows)]))

    def delete(self) -> None:
        """Give back the memory and the disk."""
        self._array = None
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.writes:
            self._temporary.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    @property
    def _temporary(self) -> Path:
        return self.path.with_name(f".{self.path.name}.tmp")

    def _begin(self, first: np.ndarray) -> None:
        shape = (self.rows, *first.shape[1:])
        size = first[0].nbytes * self.rows
        self.in_file = size > self.limit
        if not self.in_file:
            self._array = np.empty(shape, first.dtype)
        elif self.writes:
            free = shutil.disk_usage(self.path.parent).free
            if free < size:
                raise OSError(
                    f"What the frozen blocks make of these photos takes {size / 1e9:.1f} GB, but "
                    f"the disk of {self.path.parent} has {free / 1e9:.1f} GB left; free some, use "
                    f"fewer photos or --views, or choose mode all."
                )
            # Written, not mapped: a disk that fills up is then an error instead of a crash.
            self._file = open(self._temporary, "wb")  # noqa: SIM115
            header = npy.header_data_from_array_1_0(np.empty((0, *shape[1:]), first.dtype))
            npy.write_array_header_2_0(self._file, {**header, "shape": shape})
