"""Checkpoints and files of weights made to do harm: refused with the reason, in bounded time and
memory; nothing in them is run, and the list of models survives a folder full of them.

`VIT_SEED=n python -m pytest tests/test_bad_checkpoints.py` repeats a failure, or looks for others.
"""

import json
import os
import pickle
import random
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bad_photos import cut, double, flip, insert, leave_out, odd_number
from safetensors.torch import save
from serving import save_small

from vit.card import Card, CheckpointError
from vit.checkpoint import available, load, read_card
from vit.images import Preprocess
from vit.model import ViT, ViTConfig
from vit.pretrained import read_weights
from vit.ui.header import facts_html

SEED = int(os.environ.get("VIT_SEED", "8"))
SECONDS = 3.0  # of the processor, for one file
CONFIG = ViTConfig((16, 16), (8, 8), width=8, depth=1, heads=1, mlp_width=8, classes=2)
CARD = Card(CONFIG, Preprocess(size=(16, 16)), ("pizza", "sushi"))


def whole() -> bytes:
    torch.manual_seed(0)
    return save(ViT(CONFIG).state_dict(), {"vit": json.dumps(CARD.to_json())})


def parted(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and weights of a .safetensors file."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: dict[str, Any] | str, body: bytes) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + body


def with_card(**changes: object) -> bytes:
    header, body = parted(whole())
    header["__metadata__"]["vit"] = json.dumps(CARD.to_json() | changes)
    return joined(header, body)


def refusal(path: Path, read: Callable[[Path], object]) -> str:
    """The sentence, on one line, within the time; "" when the file was read."""
    started, said = time.process_time(), ""
    try:
        read(path)
    except CheckpointError as error:
        said = str(error)
        assert "\n" not in said and len(said) < 700, said
    assert time.process_time() - started < SECONDS
    return said


# --- Headers that lie -------------------------------------------------------------------------


def lying(chance: random.Random) -> tuple[str, bytes]:
    """What was done, and a file whose header says something else than it holds."""
    header, body = parted(whole())
    name = chance.choice([name for name in header if name != "__metadata__"])
    entry = header[name]
    odd = chance.choice((-1, 0, 2**31, 2**63 - 1, 2**64, 10**30, 0.5, "1", None, [], True))
    what = chance.choice(
        ("shape", "offsets", "dtype", "swap", "same place", "twice", "gone", "length", "bytes")
    )
    if what == "shape":
        entry["shape"] = chance.choice(([odd], [2**32, 2**32], [1] * 1000, [0], entry["shape"] * 2))
    elif what == "offsets":
        entry["data_offsets"] = chance.choice(([odd, odd], [entry["data_offsets"][0], odd], [0]))
    elif what == "dtype":
        entry["dtype"] = chance.choice(("F64", "I8", "BOOL", "F8_E4M3", "XYZ", 3, "f32"))
    elif what == "swap":
        start, end = entry["data_offsets"]
        entry["data_offsets"] = [end, start]
    elif what == "same place":
        other = chance.choice([each for each in header if each not in ("__metadata__", name)])
        entry["data_offsets"] = header[other]["data_offsets"]
    elif what == "twice":
        text = json.dumps(header)
        return what, joined(text[:-1] + f", {json.dumps(name)}: {json.dumps(entry)}}}", body)
    elif what == "gone":
        del header[name]
    data = joined(header, body)
    if what == "length":
        length = chance.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(data), len(data) - 9))
        return what, struct.pack("<Q", length) + data[8:]
    if what == "bytes":
        change = chance.choice((flip, cut, leave_out, double, insert, odd_number))
        return change.__name__, change(data, chance)
    return f"{what} of {name}", data


def test_headers_that_lie_are_refused(tmp_path: Path) -> None:
    path, chance = tmp_path / "a.safetensors", random.Random(SEED)
    refused = 0
    for number in range(150):
        done, data = lying(chance)
        path.write_bytes(data)
        try:
            said = refusal(path, load)
            refusal(path, read_card)
            refusal(path, read_weights)
        except BaseException as error:
            error.add_note(f"VIT_SEED={SEED}, input {number}: {done}")
            raise
        assert not said or "a.safetensors" in said
        refused += bool(said)
    assert 120 < refused < 150  # a flipped bit of a weight is another weight


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


TRILLION = CONFIG.to_json() | {"width": 16384, "mlp_width": 131072, "depth": 512, "heads": 1}
METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "a trillion parameters": ({"model": TRILLION}, "does not fit"),
    "negative": ({"model": CONFIG.to_json() | {"depth": -1}}, "depth must be"),
    "no width": ({"model": CONFIG.to_json() | {"width": 0}}, "width must be"),
    "ten million classes": (
        {"model": CONFIG.to_json() | {"classes": 10**7}, "classes": ["a"] * 200_000},
        "classes must be",
    ),
    "another count": ({"classes": [str(number) for number in range(1000)]}, "2 outputs but 1000"),
    "long names": ({"classes": ["x" * 10_000, "b"]}, "longer than 200 characters"),
    "line breaks": ({"classes": ["two\nlines", "b"]}, "cannot be seen"),
    "turned names": ({"classes": ["gnp.\u202eazzip", "b"]}, "cannot be seen"),
    "half signs": ({"classes": ["\ud800", "b"]}, "utf-8"),
    "half signs elsewhere": ({"training": {"notes": ["\udfff"]}}, "utf-8"),
    "empty names": ({"classes": [" ", "b"]}, "is empty"),
    "cold": ({"temperature": 0}, "temperature"),
    "freezing": ({"temperature": 1e-300}, "temperature"),
    "hot": ({"temperature": 1e300}, "temperature"),
    "no temperature": ({"temperature": float("nan")}, "temperature"),
    "no crop": ({"preprocess": CARD.preprocess.to_json() | {"crop": 0}}, "crop must be"),
    "tiny crop": ({"preprocess": CARD.preprocess.to_json() | {"crop": 1e-300}}, "crop must be"),
    "no deviation": ({"preprocess": CARD.preprocess.to_json() | {"std": [0, 1, 1]}}, "std must be"),
    "tiny deviation": (
        {"preprocess": CARD.preprocess.to_json() | {"std": [1e-300, 1, 1]}},
        "std must be",
    ),
    "endless mean": (
        {"preprocess": CARD.preprocess.to_json() | {"mean": [float("inf"), 0, 0]}},
        "mean must be",
    ),
    "a picture of a gigapixel": (
        {"preprocess": CARD.preprocess.to_json() | {"size": [16384, 16384]}},
        "pixels in",
    ),
    "a million patches": (
        {
            "model": CONFIG.to_json() | {"patch_size": [1, 1]},
            "preprocess": CARD.preprocess.to_json() | {"size": [1024, 1024]},
        },
        "patches",
    ),
    "nested": ({"training": {"a": deep(100_000)}}, "nested too deeply"),
    "counts": ({"metrics": {"test": {"correct": 10**30, "total": 10**30}}}, "whole number"),
}


@pytest.mark.parametrize("kind", METADATA)
def test_hostile_metadata_is_refused_with_its_reason(kind: str, tmp_path: Path) -> None:
    changes, reason = METADATA[kind]
    path = tmp_path / "a.safetensors"
    if kind == "nested":  # Python cannot write what it is to refuse
        text = json.dumps(CARD.to_json() | {"training": {"a": 0}})
        text = text.replace('{"a": 0}', '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
        header, body = parted(whole())
        header["__metadata__"]["vit"] = text
        path.write_bytes(joined(header, body))
    else:
        path.write_bytes(with_card(**changes))
    assert reason in refusal(path, load)


# What a training record may hold is its writer's business, so none of it is an error.
RECORDS: dict[str, Any] = {
    "seconds": {"seconds": "soon"},
    "endless": {"seconds": float("inf"), "command": float("nan")},
    "other shapes": {"notes": {"a": 1}, "counts": [1, 2], "photos": "all", "versions": [[[]]]},
    "counts": {"counts": {"test": {"top5": {"correct": 3, "total": 2}, "confused": [1]}}},
    "pairs": {"counts": {"t": {"top5": {"correct": 1, "total": 2}, "confused": [["a", None, {}]]}}},
    "deep": {"command": deep(400)},
    "long": {"command": "x" * 1_000_000, "url": ["y" * 10_000] * 100},
    "numbers": {"imported_from": 5, "start": {"a": None}, "checked": True},
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_any_training_record_can_be_shown(record: dict, vit_home: Path) -> None:
    path = vit_home / "checkpoints" / "odd.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(with_card(training=record, title="t" * 100_000, licence="l" * 100_000))
    shown = facts_html("odd")
    assert "2</strong> " in shown and "title" in shown and len(shown) < 20_000


# --- All of them in one folder ----------------------------------------------------------------


def test_the_list_survives_a_folder_of_them(vit_home: Path) -> None:
    folder, chance = vit_home / "checkpoints", random.Random(SEED)
    save_small(folder / "good.safetensors")
    for number in range(60):
        (folder / f"lie {number:02}.safetensors").write_bytes(lying(chance)[1][:-1])
    for number, (changes, _) in enumerate(METADATA.values()):
        if "a" not in changes.get("training", {}):
            (folder / f"odd {number:02}.safetensors").write_bytes(with_card(**changes))
    header, body = parted(whole())
    header["__metadata__"]["more"] = "x" * 20_000_000
    (folder / "header of 20 MB.safetensors").write_bytes(joined(header, body))
    (folder / "pickle.safetensors").write_bytes(pickle.dumps({"a": 1}))
    (folder / "text.safetensors").write_text("two eggs\n" * 1000)
    (folder / "folder.safetensors").mkdir()
    (folder / "circle.safetensors").symlink_to(folder / "circle.safetensors")
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.safetensors")
    problems: list[str] = []
    started = time.process_time()
    own = {entry.name for entry in available(problems) if not entry.bundled}
    assert time.process_time() - started < SECONDS
    fits_not = {f"odd {number:02}" for number, kind in enumerate(METADATA) if "trillion" in kind}
    assert own == {"good"} | fits_not  # the list reads headers, and this one is sound in itself
    assert len(problems) > 80 and not any("\n" in problem for problem in problems)
    assert any("its header has 20 MB" in problem for problem in problems)


# --- Weights of others ------------------------------------------------------------------------


class Trap:
    """Unpickling it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.mark,)


def damaged_files(folder: Path) -> dict[str, bytes]:
    """A torch file of either format and an .npz, all sound."""
    state = {name: value.clone() for name, value in ViT(CONFIG).state_dict().items()}
    torch.save(state, folder / "new.pth")
    torch.save(state, folder / "old.pth", _use_new_zipfile_serialization=False)
    np.savez_compressed(folder / "a.npz", **{k: v.numpy() for k, v in state.items()})  # pyright: ignore[reportArgumentType]
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_damaged_weights_are_refused_or_read(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    files, chance = damaged_files(tmp_path / "whole"), random.Random(SEED)
    changes = (flip, flip, cut, leave_out, double, insert, odd_number)
    refused = 0
    for number in range(150):
        name = chance.choice(sorted(files))
        change = chance.choice(changes)
        path = tmp_path / name
        path.write_bytes(change(files[name], chance))
        try:
            refused += bool(refusal(path, read_weights))
        except BaseException as error:
            error.add_note(f"VIT_SEED={SEED}, input {number}: {name}, {change.__name__}")
            raise
    assert refused > 100


@pytest.mark.parametrize("kind", ["repeated", "packed", "packed npz", "endless npz"])
def test_weights_that_unpack_to_far_more_are_refused(kind: str, tmp_path: Path) -> None:
    """Files of some kilobytes that ask for gigabytes."""
    path = tmp_path / "a.pth"
    state = ViT(CONFIG).state_dict()
    if kind == "repeated":
        for name, value in state.items():
            if name.startswith("blocks.0.mlp"):
                state[name] = torch.zeros(1).expand(2**30 // len(value), *value.shape)
        torch.save(state, path)
    elif kind == "packed":
        torch.save(state | {"more": torch.zeros(2**22)}, tmp_path / "b.pth")
        with zipfile.ZipFile(tmp_path / "b.pth") as old, zipfile.ZipFile(path, "w", 8) as new:
            for info in old.infolist():
                new.writestr(info.filename, old.read(info))
    elif kind == "packed npz":
        with open(path, "wb") as file:
            np.savez_compressed(file, a=np.zeros(2**22))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            shape = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
            header = shape.ljust(117).encode() + b"\n"
            archive.writestr("a.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
    assert path.stat().st_size < 200_000
    assert "a.pth" in refusal(path, read_weights)


@pytest.mark.parametrize("how", ["torch", "old torch", "npz", "bare", "in a list"])
def test_nothing_in_a_file_is_run(how: str, tmp_path: Path, vit_home: Path) -> None:
    mark, path = tmp_path / "it ran", vit_home / "checkpoints" / "a.safetensors"
    path.parent.mkdir(parents=True)
    held = {"cls_token": torch.zeros(1, 1, 8), "trap": Trap(mark)}
    if how == "npz":
        with open(path, "wb") as file:
            np.savez(file, a=np.array([Trap(mark)], dtype=object))
    elif how == "bare":
        path.write_bytes(pickle.dumps(held))
    else:
        inside = [held] if how == "in a list" else held
        torch.save(inside, path, _use_new_zipfile_serialization=how != "old torch")
    for read in (load, read_card, read_weights):
        assert refusal(path, read)
    problems: list[str] = []
    assert all(entry.bundled for entry in available(problems)) and len(problems) == 1
    assert not mark.exists()
