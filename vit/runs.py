"""Training runs as processes of their own: start, queue, stop, find again, rename, delete.

The process of a run is `python train.py …` in a session of its own, which lives on when the page is
closed or the app ends; whatever is known of a run is read from its folder, see `vit.runfolder`.
"""

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vit import checkpoint
from vit.folders import Found
from vit.home import home
from vit.limits import limits
from vit.recipe import Recipe
from vit.reports import number
from vit.runfolder import (
    ACTIVE,
    EXIT,
    LOG,
    PROCESS,
    REQUEST,
    RESUMABLE,
    Request,
    Run,
    Visitor,
    kill,
    read_run,
)
from vit.runstate import RECIPE, STOP, RunError, write_json

LOOK = 0.25  # seconds between two looks at the processes
NICE = 10  # how much a run gives way: the app has nine tenths of a core that both want
SPARE = 2e8  # bytes of the disk that are left alone
MEASURE = 80  # looks between two measurements of the disk
GRACE = 60.0  # seconds for a run over its limits to end by itself
ROOT = Path(__file__).resolve().parents[1]


class Runs:
    """The runs below `folder`, and the processes that this program started there.

    Several programs may use one folder: who starts what is decided under a lock.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._processes: dict[Path, subprocess.Popen] = {}
        self._keeper: threading.Thread | None = None
        self._looks = 0
        self._lock = threading.RLock()

    @property
    def folder(self) -> Path:
        return self._folder or home() / "runs"

    # --- looking ------------------------------------------------------------------------------

    def all(self) -> list[Run]:
        """Every run, the latest first."""
        found = []
        with suppress(FileNotFoundError):
            for folder in sorted(self.folder.iterdir()):
                if not folder.name.startswith("."):
                    with suppress(ValueError, OSError):  # no run, or one that is being deleted
                        found.append(read_run(folder))
        return sorted(found, key=lambda run: (run.request.asked, run.id), reverse=True)

    def get(self, id: str) -> Run:
        """The run in the folder of this name; RunError when there is none. Never a path."""
        if not id or os.path.basename(id) != id or id.startswith("."):
            raise RunError("There is no such run.")
        try:
            return read_run(self.folder / id)
        except (ValueError, OSError):
            raise RunError("This run is there no longer; reload the page.") from None

    def ahead(self, run: Run) -> int:
        """How many runs must end or begin before a waiting one begins."""
        mine = (run.request.asked, run.id)
        first = [r for r in self._brief() if r.state == "waiting"]
        before = [r for r in first if (r.request.asked, r.id) < mine]
        return len(before) + sum(r.state in ACTIVE for r in self._brief())

    def _brief(self) -> list[Run]:
        """Runs that were started in the page and are not over, the first to come first."""
        found = [run for run in self.all() if not run.over]
        return sorted(found, key=lambda run: (run.request.asked, run.id))

    # --- asking -------------------------------------------------------------------------------

    def start(self, recipe: Recipe, visitor: Visitor, photos: int | None = None) -> Run:
        """Put a run into the queue; it begins at once where nothing else is under way.

        ValueError for what cannot be trained, or is more than the limits allow.
        """
        bound = limits()
        count = count_photos(recipe) if photos is None else photos
        if count > bound.photos:
            raise RunError(
                f"{count:,} photos are more than the {bound.photos:,} that one run may use here; "
                "take fewer, or train with python train.py on a machine of yours."
            )
        if not visitor.key:
            raise RunError("This page has lost its place; reload it.")
        checkpoint.destination(recipe.name)
        with self._locked():
            waiting = [run for run in self._brief() if run.state == "waiting"]
            if len(waiting) >= bound.waiting:
                raise RunError(f"{number(len(waiting), 'run')} waiting already; try again later.")
            own = sum(visitor.started(run) for run in self._brief())
            if own >= bound.each and not visitor.is_owner:
                raise RunError(
                    f"You have {number(own, 'run')} waiting or under way, the most for one "
                    "visitor here; wait for an end, or stop one."
                )
            if any(run.recipe.name == recipe.name for run in self._brief()):
                raise RunError(f"A run called {recipe.name} is under way; choose another name.")
            self.folder.mkdir(parents=True, exist_ok=True)
            if problem := disk_problem(self.folder):
                raise RunError(problem)
            stamp = time.strftime("%Y%m%d-%H%M%S")
            folder = self.folder / f"{stamp}-{secrets.token_hex(3)}"
            folder.mkdir(parents=True)
            write_json(folder / RECIPE, recipe.to_json())
            asked = Request(recipe.name, visitor.hash, time.time(), waiting=True)
            write_json(folder / REQUEST, asdict(asked))
        self.advance()
        self.keep()
        return self.get(folder.name)

    def stop(self, id: str, visitor: Visitor) -> None:
        """End a run at its next batch, keeping the best weights; one that waits is taken away."""
        run = self._own(id, visitor, "stop")
        with self._locked():
            run = self.get(id)
            if run.state == "waiting" and not run.request.resume:
                shutil.rmtree(run.folder)
            elif run.state == "waiting":
                self._write(run, waiting=False)
            elif not run.over:
                self._stop(run, "by hand")

    def resume(self, id: str, visitor: Visitor) -> None:
        """Go on with an interrupted run where its saved state is, after those that wait."""
        self._own(id, visitor, "resume")
        with self._locked():
            run = self.get(id)
            if run.state not in RESUMABLE:
                raise RunError(f"{run.title} was not interrupted; start a new run.")
            self._write(run, waiting=True, resume=True, stop="", asked=time.time())
        self.advance()
        self.keep()

    def rename(self, id: str, title: str, visitor: Visitor) -> None:
        """Give a run, and its checkpoint, another name."""
        self._own(id, visitor, "rename")
        with self._locked():
            run = self.get(id)
            if not run.over:
                raise RunError(f"{run.title} is under way; rename it when it has ended.")
            title = title.strip()
            replace(run.recipe, name=title)  # says what a name must be
            if title == run.title:
                return
            old, new = run.checkpoint, checkpoint.destination(title)
            if old is not None:
                os.rename(old, new)
            self._write(run, title=title)

    def delete(self, id: str, visitor: Visitor) -> None:
        """Remove a run and its checkpoint for good."""
        self._own(id, visitor, "delete")
        with self._locked():
            run = self.get(id)
            if run.state in ACTIVE:
                raise RunError(f"{run.title} is under way; stop it first.")
            if (path := run.checkpoint) is not None:
                path.unlink(missing_ok=True)
            hidden = run.folder.with_name(f".deleted-{run.id}")
            os.rename(run.folder, hidden)  # so that nobody meets half of it
            shutil.rmtree(hidden, ignore_errors=True)

    def _own(self, id: str, visitor: Visitor, what: str) -> Run:
        run = self.get(id)
        if not visitor.may_change(run):
            raise RunError(f"Only who started {run.title}, or who runs this app, may {what} it.")
        return run

    # --- processes ----------------------------------------------------------------------------

    def advance(self) -> None:
        """Start what waits, first come first served, as far as there is room."""
        with self._locked():
            runs = self._brief()
            room = limits().at_once - sum(run.state in ACTIVE for run in runs)
            for run in [run for run in runs if run.state == "waiting"][: max(0, room)]:
                self._launch(run)

    def _launch(self, run: Run) -> None:
        folder = run.folder
        arguments = shlex.split(run.recipe.command())[2:]
        arguments = (
            ["--resume", str(folder)] if run.request.resume else [*arguments, "--run", str(folder)]
        )
        for old in (EXIT, STOP):
            (folder / old).unlink(missing_ok=True)
        import fcntl  # here, for the page opens on Windows too

        handle = os.open(folder / PROCESS, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.ftruncate(handle, 0)
            self._write(run, waiting=False, began=time.time())
            with open(folder / LOG, "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-u", str(ROOT / "train.py"), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(handle,),
                    start_new_session=True,
                    env=os.environ | {"OMP_NUM_THREADS": str(limits().threads)},
                )
            os.write(handle, str(process.pid).encode())
        finally:
            os.close(handle)
        with suppress(OSError):  # when memory runs out, Linux ends the run, not the app
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("500")
        with suppress(OSError):  # so that predictions come first
            os.setpriority(
                os.PRIO_PROCESS, process.pid, min(19, NICE + os.getpriority(os.PRIO_PROCESS, 0))
            )
        with self._lock:
            self._processes[folder] = process

    def keep(self) -> None:
        """See to the runs in a thread, for as long as one waits or is under way."""
        with self._lock:
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, daemon=True)
                self._keeper.start()

    def _keep(self) -> None:
        while True:
            with self._lock:
                busy = True
                with suppress(ValueError, OSError):  # a full disk, say; the next look may do
                    busy = self._tend()
                if not busy:
                    self._keeper = None
                    return
            time.sleep(LOOK)

    def _tend(self) -> bool:
        """One look at everything; whether there is anything to wait for."""
        for folder, process in list(self._processes.items()):
            code = process.poll()
            if code is not None:
                del self._processes[folder]
                if folder.is_dir():
                    write_json(folder / EXIT, {"code": code, "process": process.pid})
            elif not folder.is_dir():  # deleted by hand: nobody could follow or stop it
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
        runs = self._brief()
        self._looks += 1
        full = self._looks % MEASURE == 0 and disk_problem(self.folder)
        for run in runs:
            if run.state in ACTIVE and run.request.began:  # else not started in the page
                self._hold_to_limits(run)
                if full and not run.request.stop:
                    self._stop(run, "because the disk, or what runs may take of it, is full")
        if any(run.state == "waiting" for run in runs):
            self.advance()
        return bool(runs or self._processes)

    def _hold_to_limits(self, run: Run) -> None:
        request, minutes, now = run.request, limits().minutes, time.time()
        if request.began > now + GRACE:  # the clock has been set back since
            self._write(run, began=now)
        over = now - request.began - 60 * minutes
        if over > 0 and not request.stop:
            self._stop(run, f"after the {minutes:g} minutes that a run may take here")
        elif over > GRACE:
            kill(run.folder)
        elif request.stop and not (run.folder / STOP).exists():
            (run.folder / STOP).touch()  # train.py clears an old one away as it begins

    def _stop(self, run: Run, why: str) -> None:
        self._write(run, stop=why)
        (run.folder / STOP).touch()

    def _write(self, run: Run, **changes: Any) -> None:
        write_json(run.folder / REQUEST, asdict(replace(run.request, **changes)))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among the threads of this program and all others that use the folder.

        RunError where the system cannot hand a lock on to a process, as Windows."""
        try:
            import fcntl
        except ImportError:
            raise RunError(
                "The page starts and changes runs on Linux and macOS alone; on this system, run "
                "the command that it shows in a terminal."
            ) from None
        with self._lock:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.folder / ".lock", "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield


def count_photos(recipe: Recipe) -> int:
    """How many photos a run would go through; nothing is decoded. DataError for no data set."""
    places: Sequence[str] = [recipe.data, *recipe.extra]
    found = [Found(place).sets for place in places]
    return sum(len(photos) for sets in found for part in sets.values() for photos in part.values())


def disk_problem(runs: Path) -> str:
    """A sentence when runs and checkpoints take more than they may, or the disk is full."""
    bound, used = limits().gigabytes, size_of(runs) + size_of(home() / "checkpoints")
    if used > bound * 1e9:
        return (
            f"Runs and checkpoints take {used / 1e9:.1f} GB of the {bound:g} GB that they may; "
            "delete some first."
        )
    if shutil.disk_usage(runs).free < SPARE:
        return f"The disk is full but for {SPARE / 1e6:.0f} MB; make room, then try again."
    return ""


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total
