"""A store that remembers the values used last, within a bound on their number and their bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

V = TypeVar("V")


class Store(Generic[V]):
    """Values by key, shared by threads.

    At most `entries` values of at most `limit` bytes together, as `size` measures them, are kept;
    the one used longest ago goes first. A value larger than the limit is handed out, not kept.

    A value goes, too, when all have left who asked for it in their name. And a store may hang on
    another, its `owner`: its keys are tuples that begin with a key of the owner's, and what belongs
    to a key goes when that does.
    """

    def __init__(
        self,
        entries: int,
        limit: int,
        size: Callable[[V], int],
        owner: Store | None = None,
    ) -> None:
        self.entries, self.limit, self.size, self.owner = entries, limit, size, owner
        self.bytes = 0
        self._kept: OrderedDict[Hashable, V] = OrderedDict()  # oldest use first
        self._names: dict[Hashable, set[str]] = {}  # who asked, of kept values and those in making
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()
        self._owned: list[Store] = []
        if owner is not None:
            owner._owned.append(self)

    def get(self, key: Hashable, make: Callable[[], V], name: str | None = None) -> V:
        """The value of `key`, made by `make` where it is not kept; made once, however many wait.

        `name` is who asks, to be given to `leave` one day.
        """
        with self._lock:
            if name is not None:
                self._names.setdefault(key, set()).add(name)
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._kept:
                    return self._kept[key]
            try:
                value = make()
                self._keep(key, value, name)
            finally:
                with self._lock:
                    self._making.pop(key, None)
                    if key not in self._kept:
                        self._names.pop(key, None)
        return value

    def leave(self, name: str) -> None:
        """Whoever asked in this name asks no more."""
        with self._lock:
            held = [key for key, names in self._names.items() if name in names]
            for key in held:
                self._names[key].discard(name)
            gone = [key for key in held if not self._names[key]]
            for key in gone:
                self._remove(key)
        self._tell(gone)

    def _keep(self, key: Hashable, value: V, name: str | None) -> None:
        size, gone = self.size(value), list[Hashable]()
        if size > self.limit:
            return
        with self._lock:
            if name is not None and not self._names.get(key):
                return  # everybody left while it was made
            self._kept[key] = value
            self.bytes += size
            while len(self._kept) > self.entries or self.bytes > self.limit:
                gone.append(next(iter(self._kept)))
                self._remove(gone[-1])
        self._tell(gone)
        if self.owner is not None and isinstance(key, tuple) and key[0] not in self.owner:
            self._drop(key[0])  # it went while this was made

    def _remove(self, key: Hashable) -> None:
        self._names.pop(key, None)
        if key in self._kept:
            self.bytes -= self.size(self._kept.pop(key))

    def _tell(self, gone: Iterable[Hashable]) -> None:
        for key in gone:
            for store in self._owned:
                store._drop(key)

    def _drop(self, owner: Hashable) -> None:
        with self._lock:
            belong = [key for key in self._kept if isinstance(key, tuple) and key[0] == owner]
            for key in belong:
                self._remove(key)
        self._tell(belong)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def clear(self) -> None:
        with self._lock:
            gone = list(self._kept)
            for key in gone:
                self._remove(key)
        self._tell(gone)
