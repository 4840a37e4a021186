"""`python train.py` as a person or the app calls it: exit codes, one-line errors, kills, Ctrl-C."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import same, weights

import train
from vit import checkpoint
from vit.recipe import Recipe
from vit.runstate import HISTORY, STATE, STOP

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def own_home(vit_home) -> None:
    """Nothing is written into the folder of whoever runs the tests."""


def words(made: Path, *more: str) -> list[str]:
    start = ["--from", str(made / "tiny.safetensors"), "--threads", "1"]
    return [str(made / "data"), *start, "--batch", "4", "--epochs", "10", *more]


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def history(folder: Path) -> list[dict]:
    """Every whole line of a log that may be written to at this moment."""
    if not (folder / HISTORY).exists():
        return []
    lines = (folder / HISTORY).read_text("utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def steps(folder: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in history(folder) if line["kind"] == "step"}


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while max(steps(folder), default=0) < step:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.005)


def test_a_run_from_start_to_checkpoint(made, tmp_path, vit_home, capsys):
    folder = tmp_path / "run"
    assert train.main(words(made, "--name", "pasta", "--run", str(folder))) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"run: {folder}\n2 classes, 20 training, 4 validation, 8 test photos")
    kept = vit_home / "checkpoints" / "pasta.safetensors"
    assert said.endswith(f"checkpoint: {kept}\n")
    assert same(weights(kept), weights(folder / "pasta.safetensors"))
    kinds = [line["kind"] for line in history(folder)]
    assert kinds[:2] == ["started", "prepared"] and kinds[-1] == "finished"
    assert kinds.count("step") == 50 and kinds.count("epoch") == 10


def test_the_recorded_command_repeats_the_run(made, tmp_path, monkeypatch, vit_home):
    monkeypatch.chdir(made)  # relative paths are recorded as given
    given = ["data", "--from", "./tiny.safetensors", "--mode", "all", "--threads", "1"]
    given += ["--epochs", "2", "--seed", "3", "--rate", "3e-3", "--name", "two words"]
    assert train.main([*given, "--run", str(tmp_path / "a"), "--quiet"]) == 0
    first = checkpoint.read_card(tmp_path / "a" / "two words.safetensors")
    command = shlex.split(first.training["command"])
    assert command[:3] == ["python", "train.py", "data"]
    assert (
        train.main([*command[2:], "--run", str(tmp_path / "b"), "--quiet"]) == 2
    )  # the name is taken
    assert train.main([*command[2:], "--run", str(tmp_path / "b"), "--replace"]) == 0
    again = checkpoint.read_card(tmp_path / "b" / "two words.safetensors")
    assert again.metrics == first.metrics
    assert again.training["command"] == first.training["command"]
    assert steps(tmp_path / "b") == steps(tmp_path / "a")


@pytest.mark.parametrize("mode", [["all"], ["last", "--blocks", "1", "--memory", "0"], ["head"]])
def test_a_kill_loses_nothing(made, tmp_path, mode):
    """The state is saved after every step, so that a kill is likely to meet it half written."""
    given = words(made, "--mode", *mode, "--epochs", "40", "--rate", "1e-3", "--mixup", "0.2")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train.main([*given, "--run", str(whole), "--quiet"]) == 0
    process = started(*given, "--run", str(killed), "--save-every", "0", "--replace")
    wait_for_step(killed, 12, process)
    process.kill()
    process.communicate()
    assert max(steps(killed)) < 200, "it was killed too late to mean anything"
    resume = ["--resume", str(killed), "--quiet"]
    assert train.main(resume) == 0
    assert [line["step"] for line in history(killed) if line["kind"] == "step"] == list(
        range(1, 201)
    )
    assert steps(killed) == steps(whole)
    name = "my-dishes.safetensors"
    assert same(weights(killed / name), weights(whole / name))
    assert {path.name for path in killed.iterdir()} == {path.name for path in whole.iterdir()}


def test_control_c_keeps_the_best_and_is_a_success(made, tmp_path, vit_home):
    folder = tmp_path / "run"
    process = started(*words(made, "--mode", "all", "--epochs", "2000", "--run", str(folder)))
    wait_for_step(folder, 7, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("\n")) == (0, 1)
    assert err.startswith("stopping")
    assert "stopped after" in out and "checkpoint:" in out
    assert history(folder)[-1]["outcome"] == "stopped"
    assert (vit_home / "checkpoints" / "my-dishes.safetensors").is_file()


def test_a_bad_option_ends_the_program_without_a_traceback(made):
    process = started(str(made / "data"), "--from", "nowhere")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "no checkpoint named 'nowhere'" in err
    assert err.count("\n") == 1 and "Traceback" not in out + err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "Give a folder or zip"),
        (["--speed"], "unrecognized arguments: --speed; see python train.py --help"),
        (["data", "--epochs", "many"], "invalid int value"),
        (["data", "--mode", "last", "--from", "tiny.safetensors", "--blocks", "3"], "from 1 to 2,"),
        (["data", "--blocks", "3"], "Mode head does nothing with blocks"),
        (["data", "--epochs", "0"], "epochs must be at least 1"),
        (["data", "--mode", "most"], "mode must be one of head, last, all"),
        (["data", "--from", "Ti/16", "--mode", "head"], "From scratch"),
        (["data", "--from", "Ti/16", "--image-size", "100"], "image_size must be a multiple of 16"),
        (["data", "--from", "nowhere"], "no checkpoint named 'nowhere'"),
        (["nowhere", "--from", "tiny.safetensors"], "nowhere does not exist"),
        (["data", "--from", "tiny.safetensors", "--run", "tiny.safetensors/x"], "tiny.safetensors"),
        (["data", "--from", "tiny.safetensors", "--test", "more"], "NAME=FOLDER"),
        (["--resume", "data"], "holds no run"),
        (["--resume", "nowhere"], "holds no run"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(made, monkeypatch, capsys, options, says):
    monkeypatch.chdir(made)
    try:
        code = train.main(options)
    except SystemExit as stop:  # argparse leaves like this
        code = stop.code
    said = capsys.readouterr().err
    assert code == 2 and says in said and said.count("\n") == 1


def test_a_run_that_fails_has_exit_code_1(made, tmp_path, capsys):
    wild = words(made, "--mode", "all", "--rate", "1e30", "--clip", "1e30", "--warmup", "0")
    assert train.main([*wild, "--run", str(tmp_path / "run")]) == 1
    assert "failed after" in capsys.readouterr().out


def test_a_folder_with_a_run_is_not_used_for_another(made, tmp_path, capsys):
    given = words(made, "--epochs", "1", "--run", str(tmp_path / "run"), "--quiet")
    assert train.main(given) == 0
    assert train.main(given) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert train.main(["--resume", str(tmp_path / "run"), "--rate", "1"]) == 2
    assert "keeps its settings" in capsys.readouterr().err
    (tmp_path / "run" / STATE).write_bytes(b"half")
    assert train.main(["--resume", str(tmp_path / "run")]) == 2
    assert "damaged" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_ends_the_run_in_one_sentence(
    made, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "my run"

    def full(path: Path, mode: str, encoding: str):
        if len(history(folder)) >= 9:
            raise OSError(28, "No space left on device")
        return open(path, mode, encoding=encoding)

    given = words(made, "--run", str(folder), "--quiet", "--save-every", "0")
    monkeypatch.setattr(train, "open", full, raising=False)
    assert train.main(given) == 2
    said = capsys.readouterr().err
    assert "cannot be written (No space left on device)" in said and said.count("\n") == 1
    monkeypatch.undo()
    assert f"--resume {shlex.quote(str(folder))}" in said
    assert train.main(["--resume", str(folder), "--quiet"]) == 0
    assert len(steps(folder)) == 50


def test_a_state_that_cannot_be_written_ends_the_run_in_one_sentence(
    made, tmp_path, capsys, monkeypatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "run" / STATE))

    monkeypatch.setattr("vit.checkpoint.os.replace", full)
    assert train.main(words(made, "--run", str(tmp_path / "run"), "--quiet")) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said and said.count("\n") == 1


def test_memory_that_runs_out_is_one_sentence(made, tmp_path, capsys, monkeypatch):
    def too_much(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 10 GB")

    monkeypatch.setattr("vit.tasks.HeadAlone.forward", too_much)
    assert train.main(words(made, "--run", str(tmp_path / "run"), "--quiet")) == 2
    assert "--batch" in capsys.readouterr().err


def test_the_stop_file_of_an_earlier_try_does_not_count(made, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / STOP).touch()
    given = words(made, "--epochs", "1", "--run", str(tmp_path / "run"), "--quiet")
    assert train.main(given) == 0
    assert history(tmp_path / "run")[-1]["outcome"] == "finished"


def test_signals_are_handled_as_before_after_a_run(made, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    train.main(words(made, "--epochs", "1", "--run", str(tmp_path / "run"), "--quiet"))
    assert signal.getsignal(signal.SIGINT) is before


def test_help_names_every_setting(capsys):
    with pytest.raises(SystemExit) as stop:
        train.main(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert "--layer-decay" in said and "--no-flip" in said and "--save-every" in said
    assert all(f"--{name}" in said for name in ("from", "val-fraction", "min-area"))
    assert Recipe("x").command() == "python train.py x"
