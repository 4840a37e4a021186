"""One process at a time in a run's folder, and a wish to stop that holds."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import photos, run, tiny_start
from test_train_command import ROOT, history, started, wait_for_step

import train
from vit.finetune import finetune
from vit.recipe import Recipe
from vit.reports import Finished, Started, Step
from vit.runlock import LOCK, in_use, locked
from vit.runstate import STOP, RunError

HOLD = """
import sys, time
from pathlib import Path
from vit.runlock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    photos(folder / "data" / "train", 12)
    tiny_start(folder / "tiny.safetensors")
    return folder


@pytest.fixture
def recipe(made: Path) -> Recipe:
    return Recipe(
        str(made / "data"), start=str(made / "tiny.safetensors"), mode="head", epochs=2, batch=8
    )


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that holds the lock of `tmp_path / "run"`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_refused_and_told_of_the_first(holder, tmp_path):
    folder = tmp_path / "run"
    assert in_use(folder)
    with (
        pytest.raises(RunError, match=rf"Another process \({holder.pid}\) trains in"),
        locked(folder),
    ):
        pass
    assert in_use(folder), "whoever was refused took nothing away"


def test_the_lock_of_a_killed_process_does_not_block(holder, tmp_path):
    folder = tmp_path / "run"
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (folder / LOCK).exists() and not in_use(folder)
    with locked(folder):
        assert in_use(folder)
    assert not in_use(folder) and not (folder / LOCK).exists()


def test_a_folder_in_which_nothing_was_written_goes_again(tmp_path):
    with locked(tmp_path / "a" / "b"):
        assert in_use(tmp_path / "a" / "b")
    assert not (tmp_path / "a" / "b").exists()
    with locked(tmp_path / "a"):
        (tmp_path / "a" / "x").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["x"]
    assert not in_use(tmp_path / "nowhere")


def test_a_disk_without_locks_is_trained_on(tmp_path, monkeypatch):
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with locked(tmp_path), locked(tmp_path):
        assert not in_use(tmp_path)


def test_two_runs_at_once_are_refused_and_one_after_the_other_are_not(recipe, tmp_path):
    first = finetune(recipe, tmp_path)
    assert isinstance(next(first), Started)
    with pytest.raises(RunError, match="Another process"):
        next(finetune(recipe, tmp_path))
    assert isinstance(list(first)[-1], Finished)
    assert isinstance(run(recipe, tmp_path)[-1], Finished)
    half = finetune(recipe, tmp_path)
    next(half)
    half.close()
    assert not in_use(tmp_path)


def test_a_second_train_command_is_one_sentence(made, tmp_path, capsys, vit_home):
    folder = tmp_path / "run"
    given = [str(made / "data"), "--from", str(made / "tiny.safetensors"), "--threads", "1"]
    first = started(*given, "--mode", "all", "--epochs", "100000", "--run", str(folder))
    wait_for_step(folder, 2, first)
    before = len(history(folder))
    assert train.main(["--resume", str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"Another process ({first.pid}) trains in {folder}" in said and said.count("\n") == 1
    assert first.poll() is None and not (folder / STOP).exists()
    assert len(history(folder)) >= before
    first.kill()
    first.communicate()


# --- Stops ------------------------------------------------------------------------------------


def test_a_stop_made_before_the_first_step_holds(recipe, tmp_path):
    began = time.time()
    tmp_path.joinpath(STOP).touch()
    os.utime(tmp_path / STOP, (began + 1, began + 1))
    reports = list(finetune(recipe, tmp_path, since=began))
    assert not any(isinstance(report, Step) for report in reports)
    assert getattr(reports[-1], "outcome") == "stopped"  # noqa: B009


def test_the_stop_of_an_earlier_try_does_not_hold(recipe, tmp_path):
    tmp_path.joinpath(STOP).touch()
    os.utime(tmp_path / STOP, (time.time() - 60, time.time() - 60))
    reports = run(recipe, tmp_path)
    assert getattr(reports[-1], "outcome") == "finished"  # noqa: B009
