"""What breaks under a running app or run: kills, disks that are full or read-only, clocks, hands in
its folders, and browsers that go. Nothing finished is lost, nothing half-written is listed, and it
is said what happened."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from serving import ROOT, Server, jpeg, save_unsure, serving
from session import API, Refused, Session, bring, teach
from small import same, tiny_start, weights
from test_strangers import dishes
from test_train_command import steps

import train
from vit import checkpoint
from vit.collect import Visitor as Collector
from vit.collect import clean_up, new_key
from vit.finetune import finetune
from vit.recipe import Recipe
from vit.runfolder import PROCESS, REQUEST, Visitor, kill
from vit.runs import Runs
from vit.runstate import BEST, HISTORY, STATE, STOP, RunError, write_json

pytest_plugins = ["serving"]

KILLS = 20
ANN = Visitor("ann's key")


def wait(condition: Callable[[], object], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def nothing_half_written_is_listed(home: Path) -> None:
    """Everything that has a name is whole."""
    problems: list[str] = []
    checkpoint.available(problems)
    assert not [text for text in problems if str(home) in text], problems
    for path in home.rglob("*.safetensors"):
        if not path.name.startswith("."):
            weights(path) if path.name != STATE else path.read_bytes()
    for path in home.rglob("*.json"):
        json.loads(path.read_text("utf-8"))


# --- Kills --------------------------------------------------------------------------------------

FORKS = """
import json, os, signal, sys, time
import torch, vit.finetune, train

for line in sys.stdin:
    words, log, steps, seconds = json.loads(line)
    child = os.fork()
    if not child:
        os._exit(train.main(words))
    code = None
    while steps is not None and code is None:
        time.sleep(0.001)
        if os.path.exists(log) and open(log).read().count('"kind": "step"') >= steps:
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
            break
        code = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr, flush=True)
"""


class Forks:
    """`train.py` as processes of its own, forked off one that has torch loaded."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", FORKS],
            cwd=ROOT,
            env=os.environ | {"VIT_HOME": str(home), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, words: list[str], folder: Path, steps: int | None = None, seconds: float = 0
    ) -> int:
        """The exit code of `train.py` with these words; it is killed so many seconds after its log
        in `folder` has told of so many steps."""
        assert self.process.stdin and self.process.stderr
        told = [words, str(folder / HISTORY), steps, seconds]
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        lines = [self.process.stderr.readline()]
        while lines[-1] and not lines[-1].strip().lstrip("-").isdigit():
            lines.append(self.process.stderr.readline())
        assert len(lines) == 1, lines
        return int(lines[0])

    def close(self) -> None:
        assert self.process.stdin and self.process.stderr
        self.process.stdin.close()
        self.process.wait()
        self.process.stderr.close()


@pytest.fixture
def forks(vit_home: Path) -> Iterator[Forks]:
    forks = Forks(vit_home)
    yield forks
    forks.close()


def test_a_run_killed_twenty_times_ends_as_if_nothing_had_happened(
    made: Path, tmp_path: Path, vit_home: Path, forks: Forks
) -> None:
    words = [str(made / "data"), "--from", str(made / "tiny.safetensors"), "--threads", "1"]
    words += ["--batch", "4", "--epochs", "50", "--mode", "all", "--rate", "1e-3", "--quiet"]
    whole, killed, moments = tmp_path / "whole", tmp_path / "killed", random.Random(8)
    assert forks.run([*words, "--name", "whole", "--run", str(whole)], whole) == 0
    begin = [*words, "--name", "killed", "--run", str(killed), "--save-every", "0"]
    go_on = ["--resume", str(killed), "--save-every", "0", "--quiet"]
    for _ in range(KILLS):
        there = (killed / "recipe.json").exists()
        saved = (killed / STATE).exists()
        # now and then before its first step, else after some, in whatever it does then
        step = len(steps(killed)) + moments.choice((0, 1, 4, 8, 14))
        after = moments.uniform(0, 0.03)
        assert forks.run(go_on if there else begin, killed, step, after) == -signal.SIGKILL
        nothing_half_written_is_listed(tmp_path)
        assert (killed / BEST).exists() or not saved, "what was finished is lost"
        assert not (vit_home / "checkpoints" / "killed.safetensors").exists()
    assert 20 < max(steps(killed)) < 250, "the kills came at the wrong time"
    assert forks.run(go_on, killed) == 0
    assert steps(killed) == steps(whole) and len(steps(whole)) == 250
    kept = [vit_home / "checkpoints" / f"{name}.safetensors" for name in ("whole", "killed")]
    assert same(weights(kept[0]), weights(kept[1]))
    assert not [path for path in killed.iterdir() if path.name.startswith(".")]


def test_of_two_apps_on_one_home_one_is_killed_while_a_run_trains(tmp_path: Path) -> None:
    home, keys = tmp_path / "home", (new_key(), new_key())
    tiny_start(home / "checkpoints" / "tiny.safetensors")
    starts = [serving(tmp_path / name, home) for name in "ab"]
    for start in starts:
        start.server.log.parent.mkdir()
        start.environment |= {"VIT_RUN_THREADS": "1"}
    runs = Runs(home / "runs")
    try:
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(lambda start: start.__enter__(), starts)
        with Session(one.url) as first, Session(other.url) as second:
            teach(first, keys[0], dishes(), "first", epochs="5000")
            teach(second, keys[1], dishes(), "second", epochs="20")
        wait(lambda: next(r for r in runs.all() if r.title == "first").told.at > 3)
        states = {run.title: run.state for run in runs.all()}
        assert states == {"first": "running", "second": "waiting"}
        starts[0].process.kill()
        starts[0].process.wait()
        trained = next(run for run in runs.all() if run.title == "first")
        wait(lambda: runs.get(trained.id).told.at > trained.told.at + 3)  # it outlives its app
        with Session(other.url) as again:  # whose it is finds it in the other app
            again.values[again.browser_key()] = keys[0]
            assert "first" in json.dumps(again.run(again.named("find")))
            again.run(again.on("Stop and keep the best", "click"))
        wait(lambda: all(run.over for run in runs.all()))
        assert {r.title: r.state for r in runs.all()} == {"first": "stopped", "second": "finished"}
        nothing_half_written_is_listed(home)
        names = {path.stem for path in (home / "checkpoints").iterdir()}
        assert names == {"tiny", "first", "second"}
    finally:
        for run in runs.all():
            kill(run.folder)
        for start in starts:
            start.__exit__()
    for start in starts:
        assert "Traceback" not in start.server.log.read_text()


# --- Disks --------------------------------------------------------------------------------------


@contextmanager
def disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own at `folder`, as large as that."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.geteuid():
        pytest.skip("needs root, to mount a disk that can be full")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        if os.environ.get("CI") == "true":
            pytest.fail(f"root on CI must be able to mount: {done.stderr}")
        pytest.skip(f"cannot mount a disk that can be full: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave not a byte free; the file that takes it all."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return ballast


def test_a_disk_that_fills_up_while_a_run_trains(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with disk(tmp_path / "disk", 8) as place:
        monkeypatch.setenv("VIT_HOME", str(place / "home"))
        folder = place / "run"
        words = [str(made / "data"), "--from", str(made / "tiny.safetensors"), "--threads", "1"]
        words += ["--batch", "4", "--epochs", "2000", "--mode", "all", "--quiet"]

        def once(step: int, act: Callable[[], object]) -> threading.Thread:
            def look() -> None:
                wait(lambda: max(steps(folder), default=0) >= step)
                act()

            thread = threading.Thread(target=look)
            thread.start()
            return thread

        full = once(12, lambda: fill(place))
        assert train.main([*words, "--run", str(folder), "--save-every", "0"]) == 2
        full.join()
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "No space left on device" in said
        assert not [path for path in folder.iterdir() if path.suffix == ".tmp"]
        nothing_half_written_is_listed(place)
        before = max(steps(folder))
        (place / "ballast").unlink()
        stopped = once(before + 5, (folder / STOP).touch)
        assert train.main(["--resume", str(folder), "--quiet"]) == 0
        stopped.join()
        nothing_half_written_is_listed(place)
        assert checkpoint.named("my-dishes")


def test_a_full_disk_for_uploads_and_a_home_that_is_read_only(tmp_path: Path) -> None:
    with disk(tmp_path / "home", 8) as home, disk(tmp_path / "uploads", 2) as uploads:
        save_unsure(home)
        (home / "data" / "visitors").mkdir(parents=True)
        subprocess.run(["mount", "-o", "remount,ro", str(home)], check=True)
        with serving(tmp_path, home) as server, Session(server.url) as page:
            page.run(page.named("clean_up"))  # as when the page opens
            photo = page.upload(("a.jpg", jpeg()))[0]
            answer = page.call(page.named("classify"), [photo, 5, None, "sure-of-nothing"])
            assert answer[0]["labels"]
            bring(page, new_key(), dishes())
            assert "may not write to its disk, so nothing was kept" in page.heard
            # more than the disk of the temporary files holds
            sent = [("files", ("large.jpg", bytes(3_000_000)))]
            refused = page.http.post(f"{API}/upload", files=sent)
            assert refused.status_code == 507 and "disk of this page is full" in refused.text
            assert not [path for path in uploads.iterdir() if path.is_file()]
            photo = page.upload(("b.jpg", jpeg(colour="green")))[0]
            assert page.call(page.named("classify"), [photo, 5, None, "sure-of-nothing"])
            fill(uploads)  # for what the page makes itself
            with pytest.raises(Refused, match="full"):
                page.upload(("c.jpg", jpeg(colour="blue")))
            page.values[page.component("photo")] = photo
            said = json.dumps(page.run(page.named("answer")))
            assert "The disk of this page is full" in said
        assert "Traceback" not in server.log.read_text()


# --- Clocks and hands -----------------------------------------------------------------------------


@pytest.fixture
def runs(vit_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.delenv("SPACE_ID", raising=False)
    monkeypatch.setenv("VIT_RUN_THREADS", "1")
    runs = Runs()
    yield runs
    for run in runs.all():
        kill(run.folder)
    wait(lambda: not runs._processes)


def endless(made: Path, name: str, epochs: int = 5000) -> Recipe:
    start = str(made / "tiny.safetensors")
    return Recipe(str(made / "data"), start=start, name=name, mode="all", epochs=epochs, batch=4)


def test_a_clock_that_was_set_back_and_a_folder_deleted_under_the_app(
    runs: Runs, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = runs.start(endless(made, "first"), ANN)
    second = runs.start(endless(made, "second", epochs=2), ANN)
    wait(lambda: runs.get(first.id).told.at > 3)
    # the run began tomorrow, and has its limit all the same
    request = json.loads((first.folder / REQUEST).read_text())
    write_json(first.folder / REQUEST, request | {"began": time.time() + 1e5})
    wait(lambda: runs.get(first.id).request.began < time.time() + 1)
    process = int((first.folder / PROCESS).read_text())
    wait(lambda: deleted(first.folder))
    with pytest.raises(RunError, match="there no longer; reload the page"):
        runs.get(first.id)
    wait(lambda: not alive(process))  # what nobody can follow or stop does not go on for hours
    wait(lambda: runs.get(second.id).state == "finished")
    assert [run.title for run in runs.all()] == ["second"]


def deleted(folder: Path) -> bool:
    """Whether it is gone; what writes into it meanwhile may be in the way of the first tries."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_wishes_and_folders_of_the_future(made: Path, vit_home: Path, tmp_path: Path) -> None:
    day = 24 * 3600
    (tmp_path / STOP).touch()
    os.utime(tmp_path / STOP, (time.time() + day, time.time() + day))
    reports = list(finetune(endless(made, "run", epochs=1), tmp_path))
    assert getattr(reports[-1], "outcome") == "finished"  # noqa: B009

    one, now = Collector(new_key()), time.time()
    one.create("soup")
    mark = one.folder.parent / ".cleaned"
    mark.touch()
    for path in (mark, one.folder / "used", one.folder):
        os.utime(path, (now + 1000 * day, now + 1000 * day))
    clean_up(now)
    assert one.classes() == {"soup": []} and abs(mark.stat().st_mtime - now) < 1
    clean_up(now + 31 * day)
    assert not one.folder.exists()


# --- Browsers that go -----------------------------------------------------------------------------


def test_a_browser_that_goes_in_the_middle(server: Server) -> None:
    host, port = httpx.URL(server.url).host, httpx.URL(server.url).port
    uploads = server.log.parent / "uploads"

    def half(request: str, body: bytes = b"", read: int = 0) -> None:
        with socket.create_connection((host, port)) as wire:
            wire.sendall(request.replace("\n", "\r\n").encode() + body)
            if read:
                assert wire.recv(read)

    with Session(server.url) as page:
        # of an upload
        part = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n'
        head = f"POST /{API}/upload HTTP/1.1\nHost: x\nContent-Length: 900000\n"
        for _ in range(5):
            half(f"{head}Content-Type: multipart/form-data; boundary=b\n\n", part + bytes(300_000))
        wait(lambda: not [path for path in uploads.iterdir() if path.is_file()], 20)
        # of a long answer
        photo = page.upload(("a.jpg", jpeg()))[0]
        slow = [photo, "", "relevance", None, 1, None, True, None, ""]
        for number in range(3):
            page.hash = f"gone{number}"
            page.join(page.named("explain"), slow)
            half(f"GET /{API}/queue/data?session_hash={page.hash} HTTP/1.1\nHost: x\n\n", read=20)
        # of a download
        large = page.upload(("large.jpg", os.urandom(1_500_000)))[0]["path"]
        half(f"GET /{API}/file={large} HTTP/1.1\nHost: x\n\n", read=1000)
        page.hash = "stays"
        began = time.monotonic()
        answer = page.call(page.named("classify"), [photo, 5, None, "sure-of-nothing"])
        assert answer[0]["labels"] and time.monotonic() - began < 60
    assert "ClientDisconnect" not in server.log.read_text()
