"""`torchrun` with two processes against one: the same losses, the same result, one who writes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small import photos, tiny_start, weights
from test_train_command import ROOT, history, steps, wait_for_step

import train
from vit import checkpoint
from vit.distributed import World
from vit.runstate import STATE

MODES = {
    # Batches of 3: 20 photos end in one of 2, 19 in one of 1, of which a process gets nothing.
    "all": ["--mode", "all", "--colour", "0.3", "--drop-path", "0.3"],
    "staged": ["--mode", "all", "--image-size", "32:1,48:1:0.5", "--mixup", "0.3"],
    "last": ["--mode", "last", "--blocks", "1", "--views", "3", "--drop-path", "0.3"],
    "spilled": ["--mode", "last", "--blocks", "1", "--memory", "0"],
    "head": ["--mode", "head"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    photos(folder / "data" / "train", 12)
    photos(folder / "data" / "train", 11, ["beans"])
    (folder / "data" / "train" / "beans" / "011.png").unlink()
    photos(folder / "data" / "test", 3)
    tiny_start(folder / "tiny.safetensors")
    tiny_start(folder / "teacher.safetensors", classes=("beans", "tomato"))
    return folder


@pytest.fixture(autouse=True)
def own_home_and_threads(vit_home):
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def words(made: Path, mode: str, folder: Path, *more: str) -> list[str]:
    start = ["--from", str(made / "tiny.safetensors"), "--threads", "1", "--name", folder.name]
    length = ["--batch", "3"] + ([] if mode == "staged" else ["--epochs", "2"])
    taught = ["--teacher", str(made / "teacher.safetensors")] if mode == "staged" else []
    options = [*start, *length, *taught, *MODES[mode], *more]
    return [str(made / "data"), *options, "--folder", str(folder)]


def two(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    return subprocess.Popen(
        [*command, str(ROOT / "train.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_do_what_one_does(made, tmp_path, mode, vit_home):
    one, both = tmp_path / "one", tmp_path / "both"
    assert train.main(words(made, mode, one, "--quiet")) == 0
    process = two(*words(made, mode, both))
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert out.count("finished after") == out.count("checkpoint:") == 1, "only one of them prints"
    assert len(steps(one)) == 2 * 7
    assert steps(both) == pytest.approx(steps(one), abs=1e-4)
    assert [line["kind"] for line in history(both)] == [line["kind"] for line in history(one)]
    epochs = [[line for line in history(f) if line["kind"] == "epoch"] for f in (one, both)]
    for single, shared in zip(*epochs, strict=True):
        assert shared["val"] == single["val"]
        assert shared["val_loss"] == pytest.approx(single["val_loss"], abs=1e-4)
        assert shared["train_loss"] == pytest.approx(single["train_loss"], abs=1e-4)
    first, second = one / "one.safetensors", both / "both.safetensors"
    assert checkpoint.read_card(first).metrics == checkpoint.read_card(second).metrics
    for name, value in weights(first).items():
        torch.testing.assert_close(weights(second)[name], value, atol=2e-3, rtol=2e-3)
    names = {path.name.replace("both", "one") for path in both.iterdir()}
    assert names == {path.name for path in one.iterdir()}


def test_two_processes_go_on_where_two_were_killed_and_stop_when_asked(made, tmp_path):
    one, both = tmp_path / "one", tmp_path / "both"
    long = ["--epochs", "30", "--save-every", "0"]
    assert train.main(words(made, "last", one, *long, "--quiet")) == 0
    process = two(*words(made, "last", both, *long))
    wait_for_step(both, 10, process)
    process.send_signal(signal.SIGTERM)  # torchrun passes it on: a polite stop
    out, err = process.communicate(timeout=240)
    reached = max(steps(both))
    assert 10 <= reached < 30 * 7, "it was stopped too late to mean anything"
    assert history(both)[-1]["outcome"] == "stopped", err
    assert (both / STATE).exists() and "stopped after" in out
    process = two("--resume", str(both))
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0 and f"resumed at step {reached}" in out, err
    assert list(steps(both)) == list(range(1, 30 * 7 + 1))
    assert steps(both) == pytest.approx(steps(one), abs=1e-4)


def test_what_one_process_knows_all_indices_and_rows():
    for count in (1, 2, 5, 6):
        for size in (1, 2, 3):
            shares = [World(rank, size).share(count) for rank in range(size)]
            assert len({len(share) for share in shares}) == 1
            together = [index for row in zip(*shares, strict=True) for index in row]
            assert together[:count] == list(range(count))
    alone = World()
    rows = torch.arange(6).view(3, 2)
    assert alone.gather(rows) is rows and alone.totals(2.5) == [2.5] and alone.agree("x") == "x"
    assert alone.leads and not World(1, 2).leads
