"""One process at a time trains in a run's folder.

The lock belongs to the operating system and vanishes with the process that holds it, so a killed
run blocks nobody. Where the system or the disk has no such locks, nothing is locked.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vit.runstate import RunError

LOCK = "lock"
_PATIENCE = 1.0  # seconds: somebody who only asks holds the lock for a moment


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, which is made; RunError while another process holds it.

    A folder in which nothing was written meanwhile is taken away again.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = _acquire(folder / LOCK)
    try:
        with suppress(OSError):
            os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink()
        os.close(handle)
        if made:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def in_use(folder: Path) -> bool:
    """Whether a living process trains in `folder`, as far as the system can tell."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try(handle)
    finally:
        os.close(handle)


def _acquire(path: Path) -> int:
    """An open handle on the lock file at `path`, which stays the lock until it is closed."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        held = _try(handle)
        # Its last owner may have removed the file since it was opened: then it is no lock.
        with suppress(FileNotFoundError):
            if held and os.path.samestat(os.fstat(handle), os.stat(path)):
                os.ftruncate(handle, 0)
                return handle
        os.close(handle)
        if time.monotonic() > deadline:
            raise RunError(
                f"Another process{_owner(path)} trains in {path.parent}; wait for its end, stop it "
                f"with a file named stop in there, or name another folder."
            )
        time.sleep(0.05)


def _owner(path: Path) -> str:
    with suppress(OSError, ValueError):
        return f" ({int(path.read_text())})"
    return ""


def _try(handle: int) -> bool:
    """Whether the lock could be had; also True where there are no locks."""
    try:
        import fcntl
    except ImportError:
        return _try_on_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        return True
    return True


def _try_on_windows(handle: int) -> bool:
    import msvcrt

    try:
        # A byte far behind the text, which others may then still read.
        os.lseek(handle, 1 << 20, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
    except PermissionError:
        return False
    except OSError:
        return True
    finally:
        os.lseek(handle, 0, os.SEEK_SET)
    return True
