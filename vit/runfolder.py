"""One run as its folder shows it: what was asked, its state, whose it is.

Besides the files of `vit.runstate` the folder of a run started from the page holds

    request.json    what was asked in the page, when, and by whom (a hash)
    log.txt         what the process printed
    process         holds its number, and is locked for as long as it lives
    exit.json       its number and exit code

The lock is the process's own, given to it at its birth, so the system takes it away at its death,
however it dies; no number of a process is ever mistaken for another's.
"""

import errno
import hashlib
import hmac
import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vit import checkpoint
from vit.card import CheckpointError
from vit.history import Told, last_lines, told
from vit.home import home
from vit.recipe import Recipe
from vit.runlock import in_use
from vit.runstate import RECIPE, STOP, RunError, read_recipe
from vit.settings import on_a_space

REQUEST, LOG, PROCESS, EXIT = "request.json", "log.txt", "process", "exit.json"

State = Literal[
    "waiting", "running", "stopping", "finished", "stopped", "failed", "crashed", "interrupted"
]
ACTIVE: tuple[State, ...] = ("running", "stopping")
RESUMABLE: tuple[State, ...] = ("interrupted", "crashed")


@dataclass(frozen=True)
class Request:
    """What the page asked for. `owner` is the hash of a visitor's key; empty for runs that were
    started on the command line."""

    title: str
    owner: str = ""
    asked: float = 0.0  # seconds since 1970
    began: float = 0.0  # of the process that was started last
    waiting: bool = False
    resume: bool = False
    stop: str = ""  # why it is to end; empty when nobody wants that


@dataclass(frozen=True)
class Visitor:
    """Who looks at the page: the key in their browser, and the owner's token if they have it."""

    key: str = ""
    token: str = ""

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.key.encode()).hexdigest() if self.key else ""

    @property
    def is_owner(self) -> bool:
        """Whether they hold the token of whoever runs the app."""
        wanted = os.environ.get("VIT_OWNER_TOKEN", "").strip()
        return bool(wanted) and hmac.compare_digest(self.token.encode(), wanted.encode())

    def started(self, run: "Run") -> bool:
        return bool(self.key) and self.hash == run.request.owner

    def may_change(self, run: "Run") -> bool:
        return self.started(run) or self.is_owner

    def may_look(self, run: "Run") -> bool:
        """At photos and log: of their own runs, and of those of this machine's command line."""
        here = not run.request.owner and not on_a_space()
        return here or self.may_change(run)


@dataclass(frozen=True)
class Run:
    """A run as it was at one look."""

    folder: Path
    recipe: Recipe
    request: Request
    state: State
    told: Told
    code: int | None = None  # of the exit, where known

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def title(self) -> str:
        return self.request.title

    @property
    def over(self) -> bool:
        return self.state not in ("waiting", *ACTIVE)

    @property
    def log(self) -> str:
        """The last lines that the process printed."""
        return last_lines(self.folder / LOG)

    @property
    def checkpoint(self) -> Path | None:
        """The file of this run's result among the user's checkpoints, where it still is."""
        ended = self.told.finished
        if ended is None or not ended.path or not self.over:
            return None
        path = home() / "checkpoints" / f"{self.title}{checkpoint.SUFFIX}"
        own = self.folder / Path(ended.path).name
        with suppress(CheckpointError, OSError):
            if checkpoint.read_card(path) == checkpoint.read_card(own):
                return path
        return None


def read_run(folder: Path) -> Run:
    """The run in `folder` as it is now; RunError when there is none."""
    # The lock first: what is in the folder of a run that is over changes no more.
    alive = is_alive(folder)
    recipe, request = read_recipe(folder), _read_request(folder)
    request = request or Request(recipe.name, asked=(folder / RECIPE).stat().st_mtime)
    history, code = told(folder), _exit_code(folder)
    state = _state(folder, alive, request, history, code)
    return Run(folder, recipe, request, state, history, code)


def is_alive(folder: Path) -> bool:
    """Whether the process of the run in `folder` lives, started from the page or not."""
    if in_use(folder):
        return True
    try:
        import fcntl

        handle = os.open(folder / PROCESS, os.O_RDONLY)
    except (ImportError, OSError):  # Windows, where none is started from the page
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    finally:
        os.close(handle)
    return False


def kill(folder: Path) -> None:
    """End the process of the run in `folder` at once, if it lives."""
    with suppress(OSError, ValueError):
        number = int((folder / PROCESS).read_text())
        if is_alive(folder):
            os.killpg(number, signal.SIGKILL)


def _read_request(folder: Path) -> Request | None:
    try:
        return Request(**json.loads((folder / REQUEST).read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (TypeError, ValueError):
        raise RunError(f"{folder / REQUEST} is damaged; delete the run.") from None


def _exit_code(folder: Path) -> int | None:
    """Of the process that was started last; an earlier one's may be written down late."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        exit = json.loads((folder / EXIT).read_text())
        if exit["process"] == int((folder / PROCESS).read_text()):
            return int(exit["code"])
    return None


def _state(folder: Path, alive: bool, request: Request, history: Told, code: int | None) -> State:
    if alive:
        return "stopping" if request.stop or (folder / STOP).exists() else "running"
    if request.waiting:
        return "waiting"
    if history.finished is not None and code in (0, 1, None):
        outcome = history.finished.outcome
        return (
            "finished" if outcome == "finished" else "stopped" if outcome == "stopped" else "failed"
        )
    return "crashed" if code is not None and code > 0 else "interrupted"
