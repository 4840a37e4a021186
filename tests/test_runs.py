"""Runs as processes: started, queued, stopped, killed and found again; who may do what."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vit import checkpoint
from vit.history import told
from vit.limits import limits
from vit.recipe import Recipe
from vit.reports import Warned, report_from_json, report_to_json
from vit.runfolder import PROCESS, Run, Visitor, is_alive, kill
from vit.runs import Runs, count_photos
from vit.runstate import HISTORY, RunError

ROOT = Path(__file__).resolve().parents[1]
ANN, BEN = Visitor("ann's key"), Visitor("ben's key")


@pytest.fixture
def runs(vit_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SPACE_ID", raising=False)
    monkeypatch.setenv("VIT_RUN_THREADS", "1")
    runs = Runs()
    yield runs
    for run in runs.all():
        kill(run.folder)
    wait(lambda: not runs._processes)


def recipe(made: Path, name: str = "pasta", **more: object) -> Recipe:
    start = str(made / "tiny.safetensors")
    told: dict[str, Any] = {"epochs": 10, "batch": 4} | more
    return Recipe(str(made / "data"), start=start, name=name, **told)


def endless(made: Path, name: str = "endless") -> Recipe:
    return recipe(made, name, mode="all", epochs=5000)


def wait(condition: Callable[[], object], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def at_step(runs: Runs, run: Run, step: int) -> Callable[[], bool]:
    def reached() -> bool:
        now = runs.get(run.id)
        assert not now.over, (now.state, now.log)
        return now.told.at >= step

    return reached


def test_a_run_and_its_command_give_the_same(runs: Runs, made: Path, vit_home: Path) -> None:
    """What the page shows as the command, typed in by a person, gives the same counts."""
    wanted = recipe(made)
    run = runs.start(wanted, ANN)
    assert run.state == "running" and run.title == "pasta" and not run.over
    wait(lambda: runs.get(run.id).over)
    run = runs.get(run.id)
    assert run.state == "finished", run.log
    assert run.told.finished and run.told.at == 50 and len(run.told.epochs) == 10
    assert [step for step, _ in run.told.losses] == list(range(1, 51))
    assert run.checkpoint == vit_home / "checkpoints" / "pasta.safetensors"
    assert "checkpoint: " in run.log
    typed = shlex.split(wanted.command())
    assert typed[:2] == ["python", "train.py"]
    other = os.environ | {"VIT_HOME": str(vit_home / "other"), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *typed[1:], "--quiet"], cwd=ROOT, env=other, check=True)
    same = checkpoint.read_card(vit_home / "other" / "checkpoints" / "pasta.safetensors")
    assert run.checkpoint is not None
    card = checkpoint.read_card(run.checkpoint)
    assert dict(same.metrics) == dict(card.metrics) == run.told.finished.metrics
    assert same.training["command"] == card.training["command"]

    with pytest.raises(ValueError, match="already"):
        runs.start(wanted, BEN)
    with pytest.raises(RunError, match="Only who started pasta"):
        runs.rename(run.id, "mine now", BEN)
    with pytest.raises(ValueError, match="cannot be a name"):
        runs.rename(run.id, "../pasta", ANN)
    runs.rename(run.id, " noodles ", ANN)
    run = runs.get(run.id)
    assert run.title == "noodles"
    assert run.checkpoint == vit_home / "checkpoints" / "noodles.safetensors"
    assert not (vit_home / "checkpoints" / "pasta.safetensors").exists()
    with pytest.raises(RunError, match="Only who started noodles"):
        runs.delete(run.id, BEN)
    runs.delete(run.id, ANN)
    assert runs.all() == [] and list((vit_home / "checkpoints").iterdir()) == []


def test_queue_stop_and_who_may(
    runs: Runs, made: Path, vit_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, elsewhere = runs.start(endless(made), ANN), Runs()
    second = elsewhere.start(recipe(made, "second"), BEN)  # another app on the same folder
    third = runs.start(recipe(made, "third"), BEN)
    assert [runs.get(run.id).state for run in (first, second, third)] == [
        "running",
        "waiting",
        "waiting",
    ]
    assert [elsewhere.ahead(run) for run in (second, third)] == [1, 2]
    with pytest.raises(RunError, match="called third is under way"):
        runs.start(recipe(made, "third"), ANN)
    for visitor in (BEN, Visitor(), Visitor("", "wrong")):
        with pytest.raises(RunError, match="Only who started endless"):
            runs.stop(first.id, visitor)
    with pytest.raises(RunError, match="under way"):
        runs.delete(first.id, ANN)
    with pytest.raises(RunError, match="under way"):
        runs.rename(first.id, "other", ANN)
    runs.stop(third.id, BEN)  # it had not begun: nothing is left of it
    with pytest.raises(RunError, match="no longer"):
        runs.get(third.id)
    wait(at_step(runs, first, 3))
    assert runs.get(second.id).state == "waiting"
    monkeypatch.setenv("VIT_OWNER_TOKEN", "let me in")
    runs.stop(first.id, Visitor("", "let me in"))
    assert runs.get(first.id).state in ("stopping", "stopped")
    wait(lambda: runs.get(first.id).over)
    ended = runs.get(first.id)
    assert ended.state == "stopped" and ended.checkpoint, ended.log
    wait(lambda: runs.get(second.id).state == "finished")
    assert [run.title for run in runs.all()] == ["second", "endless"]


def test_a_stop_before_training_has_begun_is_not_lost(runs: Runs, made: Path) -> None:
    run = runs.start(endless(made), ANN)
    runs.stop(run.id, ANN)  # train.py is still loading torch and clears an old stop away
    wait(lambda: runs.get(run.id).over)
    assert runs.get(run.id).state == "stopped"


def test_killed_found_again_and_resumed(runs: Runs, made: Path) -> None:
    run = runs.start(recipe(made, mode="all", epochs=2000, threads=1), ANN)
    wait(at_step(runs, run, 12))
    again = Runs()  # the app was started anew
    assert again.get(run.id).state == "running"
    number = int((run.folder / PROCESS).read_text())
    assert os.getsid(number) == number != os.getsid(0)  # it outlives the app
    assert os.getpriority(os.PRIO_PROCESS, number) > os.getpriority(os.PRIO_PROCESS, 0)
    kill(run.folder)
    wait(lambda: not is_alive(run.folder))
    assert again.get(run.id).state == "interrupted"
    with pytest.raises(RunError, match="Only who started"):
        again.resume(run.id, BEN)
    before = again.get(run.id).told
    again.resume(run.id, ANN)
    wait(at_step(again, run, before.at + 8))
    with pytest.raises(RunError, match="was not interrupted"):
        again.resume(run.id, ANN)
    again.stop(run.id, ANN)
    wait(lambda: again.get(run.id).over)
    ended = again.get(run.id)
    assert ended.state == "stopped" and ended.checkpoint, ended.log
    steps = [step for step, _ in ended.told.losses]
    assert steps == sorted(set(steps)) and len(ended.told.losses) > 8


def test_a_crash_shows_its_log(runs: Runs, made: Path) -> None:
    run = runs.start(replace(recipe(made), start=str(made / "nothing.safetensors")), ANN)
    wait(lambda: runs.get(run.id).state == "crashed")
    run = runs.get(run.id)
    assert run.code == 2 and "nothing.safetensors" in run.log and "Traceback" not in run.log
    assert run.checkpoint is None
    runs.delete(run.id, ANN)
    assert runs.all() == []


def test_limits_are_kept(runs: Runs, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_photos(recipe(made)) == 32
    monkeypatch.setenv("VIT_RUN_PHOTOS", "31")
    with pytest.raises(RunError, match="32 photos are more than the 31"):
        runs.start(recipe(made), ANN)
    monkeypatch.setenv("VIT_RUN_PHOTOS", "32")
    monkeypatch.setenv("VIT_RUNS_GB", "0.000001")
    (runs.folder / "old").mkdir(parents=True)
    (runs.folder / "old" / "state").write_bytes(bytes(2000))
    with pytest.raises(RunError, match="delete some"):
        runs.start(recipe(made), ANN)
    monkeypatch.setenv("VIT_RUNS_GB", "1")
    monkeypatch.setenv("VIT_RUN_MINUTES", "0.001")
    run = runs.start(endless(made), ANN)
    monkeypatch.setenv("VIT_RUNS_WAITING", "1")
    runs.start(recipe(made, "second"), BEN)
    with pytest.raises(RunError, match="1 run waiting already"):
        runs.start(recipe(made, "third"), BEN)
    wait(lambda: runs.get(run.id).over)
    assert runs.get(run.id).state == "stopped"
    assert "0.001 minutes" in runs.get(run.id).request.stop


def test_limits_are_stricter_on_a_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPACE_ID", raising=False)
    here = limits()
    monkeypatch.setenv("SPACE_ID", "someone/food")
    there = limits()
    assert there.minutes < here.minutes and there.photos < here.photos
    assert there.gigabytes < here.gigabytes and there.waiting < here.waiting
    for bad in ("0", "-1", "many", "nan", "inf"):
        monkeypatch.setenv("VIT_RUN_MINUTES", bad)
        with pytest.raises(ValueError, match="VIT_RUN_MINUTES must be a number above 0"):
            limits()


def test_history_is_read_as_it_grows(tmp_path: Path) -> None:
    def step(number: int) -> str:
        values = {"epoch": 0, "loss": 1.0, "rate": 0.1, "photos_per_second": 1.0}
        values |= {"kind": "step", "step": number, "seconds_left": 1.0, "waited": 0.0}
        return json.dumps(values) + "\n"

    log = tmp_path / HISTORY
    assert told(tmp_path).at == 0
    log.write_text(step(1) + step(2) + step(3)[:20])
    assert told(tmp_path).at == 2  # the third is being written
    size = told(tmp_path).bytes
    log.write_text(step(1) + step(2) + step(3) + '{"kind": "of a newer version"}\n')
    assert told(tmp_path).at == 3 and told(tmp_path).bytes > size
    other = tmp_path / "new"
    other.write_text(step(1))
    os.replace(other, log)  # resumed from its first step
    assert told(tmp_path).losses == ((1, 1.0),)
    assert report_from_json(report_to_json(Warned(3, "é"))) == Warned(3, "é")


def test_strange_folders_are_no_runs(runs: Runs, tmp_path: Path) -> None:
    (runs.folder / "empty").mkdir(parents=True)
    (runs.folder / "broken").mkdir()
    (runs.folder / "broken" / "recipe.json").write_text("{")
    (runs.folder / "file").write_text("x")
    assert runs.all() == []
    for name in ("", "..", ".", "../runs", "/etc", "empty", "broken", ".lock"):
        with pytest.raises(RunError):
            runs.get(name)
    assert not is_alive(runs.folder / "empty")


def test_without_locks_the_page_opens_and_says_why_it_starts_nothing(
    runs: Runs, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where there is no fcntl."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    runs.keep()
    with pytest.raises(RunError, match="in a terminal"):
        runs.start(recipe(made), ANN)
    assert runs.all() == []
