"""The model file: whole or refused, listed by its header, never unpickled."""

import json
import os
import pickle
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from vit import checkpoint
from vit.card import Card, CheckpointError
from vit.checkpoint import available, destination, load, named, read_card, resolve, save
from vit.images import Preprocess
from vit.metrics import Count
from vit.model import ViT, ViTConfig

CONFIG = ViTConfig((16, 32), (8, 8), width=8, depth=2, heads=2, mlp_width=12, classes=3)
CARD = Card(
    config=CONFIG,
    preprocess=Preprocess(size=(16, 32), crop=0.875, mean=(0.4, 0.5, 0.6)),
    classes=("pizza", "pho", "crème_brûlée"),
    title="Three dishes",
    training={"command": "train.py x", "seed": 3, "settings": {"rate": 1e-3}},
    metrics={"test": Count(73, 75), "val": Count(0, 0)},
    temperature=1.25,
    unsure_below=0.5,
    licence="Apache-2.0",
    attribution="ourselves",
)


def model_of(config: ViTConfig = CONFIG, seed: int = 0) -> ViT:
    torch.manual_seed(seed)
    model = ViT(config)
    torch.nn.init.normal_(model.head.weight)
    return model.eval()


@pytest.fixture
def model() -> ViT:
    return model_of()


@pytest.fixture
def path(tmp_path: Path, model: ViT) -> Path:
    return save(tmp_path / "dishes.safetensors", model, CARD)


def header_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length])


def write(path: Path, tensors: dict[str, torch.Tensor], values: object) -> Path:
    """A file as someone else may have made it: any JSON, any tensors."""
    text = values if isinstance(values, str) else json.dumps(values)
    save_file(tensors, path, metadata={"vit": text})
    return path


def changed(path: Path, **changes: object) -> Path:
    return write(path, model_of().state_dict(), CARD.to_json() | changes)


def refusal(path: Path, *, listing: bool = True) -> str:
    """The one sentence with which `path` is refused, by `load` and by `read_card`."""
    started = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        load(path)
    text = str(caught.value)
    if listing:
        with pytest.raises(CheckpointError) as again:
            read_card(path)
        assert str(again.value) == text
    assert time.process_time() - started < 2
    assert path.name in text
    assert "\n" not in text and len(text) < 700
    return text


# --- Saved and loaded -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("changes", [{}, {"registers": 2, "representation": 5}])
def test_round_trip(tmp_path: Path, dtype: torch.dtype, changes: dict[str, Any]) -> None:
    config = replace(CONFIG, **changes)
    model, card = model_of(config), replace(CARD, config=config)
    path = save(tmp_path / "new" / "dishes.safetensors", model, card, dtype)
    again, read = load(path)
    assert read == card == read_card(path)
    assert not again.training
    assert again.config == config
    for name, value in again.state_dict().items():
        assert value.dtype == torch.float32 and value.device.type == "cpu"
        assert torch.equal(value, model.state_dict()[name].to(dtype).float()), name
    assert all(weight.requires_grad for weight in again.parameters())
    images = torch.randn(2, 3, 16, 32)
    if dtype == torch.float32:
        assert torch.equal(again(images), model(images))


def test_half_precision_by_default(path: Path) -> None:
    header = header_of(path)
    assert {v["dtype"] for k, v in header.items() if k != "__metadata__"} == {"F16"}
    stored = json.loads(header["__metadata__"]["vit"])
    assert stored["format"] == 1
    assert stored["classes"] == ["pizza", "pho", "crème_brûlée"]
    assert stored["metrics"]["test"] == {"correct": 73, "total": 75}


def test_saving_leaves_the_model_as_it_was(tmp_path: Path, model: ViT) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    save(tmp_path / "a.safetensors", model, CARD)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32


def test_loaded_weights_do_not_follow_the_file(tmp_path: Path, model: ViT) -> None:
    """A file that is overwritten in place must not change a model in use."""
    path = save(tmp_path / "a.safetensors", model, CARD, torch.float32)
    loaded, _ = load(path)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(bytes(size))
    assert torch.equal(loaded.head.weight, model.head.weight)


def test_length_of_the_header_is_not_taken_for_a_pickle(tmp_path: Path, model: ViT) -> None:
    """The first bytes are the header's length, which for some lengths are those of a pickle."""
    path = save(tmp_path / "a.safetensors", model, CARD)
    (plain,) = struct.unpack("<Q", path.read_bytes()[:8])
    for start in (b"\x80\x02", b"\x80\x05", b"\x80\x77"):
        length = 65536 + int.from_bytes(start, "little")
        save(path, model, replace(CARD, title="x" * (len(CARD.title) + length - plain)))
        assert path.read_bytes()[:3] == start + b"\x01"
        assert read_card(path).classes == CARD.classes
        assert torch.equal(load(path)[0].head.weight, model.head.weight.half().float())


def test_card_of_another_model_is_not_saved(tmp_path: Path, model: ViT) -> None:
    with pytest.raises(CheckpointError, match="another model"):
        save(tmp_path / "a.safetensors", model, replace(CARD, config=replace(CONFIG, heads=4)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 70_000.0])
def test_broken_weights_are_not_saved(tmp_path: Path, model: ViT, value: float) -> None:
    """70,000 is more than half precision holds."""
    with torch.no_grad():
        model.norm.weight[3] = value
    with pytest.raises(CheckpointError, match=r"norm\.weight .* not finite in float16"):
        save(tmp_path / "a.safetensors", model, CARD)
    assert not list(tmp_path.iterdir())


def test_endless_card_is_not_saved(tmp_path: Path, model: ViT) -> None:
    with pytest.raises(CheckpointError, match="shorten the training record"):
        save(tmp_path / "a.safetensors", model, replace(CARD, training={"log": "x" * 5_000_000}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"classes": ("pizza", "pho")}, "3 outputs but 2 class names"),
        ({"classes": ("pizza", "pho", "pho")}, "same name"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"unsure_below": 1.5}, "unsure_below"),
        ({"unsure_below": float("nan")}, "unsure_below"),
        ({"preprocess": Preprocess(size=(16, 30))}, "multiple"),
    ],
)
def test_cards_that_cannot_be(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(CheckpointError, match=text):
        replace(CARD, **changes)


# --- Interrupted and at once ------------------------------------------------------------------


@pytest.mark.parametrize("where", ["save_file", "os.replace", "os.fsync", "os.chmod"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), MemoryError()])
def test_interrupted_save_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    before = path.read_bytes()

    def fail(*arguments: object, **named: object) -> None:
        if where == "save_file":  # half of it has been written
            Path(str(arguments[1])).write_bytes(before[:100])
        raise error

    monkeypatch.setattr(f"vit.checkpoint.{where}", fail)
    with pytest.raises(type(error)):
        save(path, model_of(seed=1), CARD)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_full_disk_is_an_oserror(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(OSError, match=r"dishes\.safetensors could not be written: No space"):
        save(path, model_of(), CARD)


def test_a_folder_in_the_way(tmp_path: Path, model: ViT) -> None:
    (tmp_path / "a.safetensors").mkdir()
    with pytest.raises(OSError):
        save(tmp_path / "a.safetensors", model, CARD)
    assert len(list(tmp_path.iterdir())) == 1


def test_saves_at_once_give_one_whole_file(tmp_path: Path) -> None:
    path, models = tmp_path / "a.safetensors", [model_of(seed=seed) for seed in range(4)]
    save(path, models[0], CARD)

    def work(number: int) -> None:
        if number % 2:
            save(path, models[number % 4], replace(CARD, title=str(number % 4)))
        else:
            loaded, card = load(path)  # a reader meanwhile sees one or the other
            writer = models[int(card.title) if card.title.isdigit() else 0]
            assert torch.equal(loaded.head.weight, writer.head.weight.half().float())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert list(tmp_path.iterdir()) == [path]


def test_saved_file_may_be_read_by_others(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o644


# --- Refused ----------------------------------------------------------------------------------


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.mark,)


@pytest.mark.parametrize("kind", ["zip", "legacy", "pickle 0", "pickle 2", "pickle 5"])
def test_pickles_are_refused_and_nothing_runs(tmp_path: Path, kind: str) -> None:
    path, mark = tmp_path / "a.safetensors", tmp_path / "it ran"
    held = {"head.weight": torch.ones(2), "trap": Trap(mark)}
    if kind in ("zip", "legacy"):
        torch.save(held, path, _use_new_zipfile_serialization=kind == "zip")
    else:
        path.write_bytes(pickle.dumps({"trap": Trap(mark)}, protocol=int(kind[-1])))
    text = refusal(path)
    assert not mark.exists()
    if kind == "pickle 0":  # plain text, which could be anything
        assert "not a whole .safetensors file" in text
    else:
        assert "pickle" in text and "python -m vit import a.safetensors" in text


def test_truncated_at_any_length(path: Path) -> None:
    data = path.read_bytes()
    header = 8 + struct.unpack("<Q", data[:8])[0]
    lengths = {*range(0, 12), header - 1, header, header + 1, len(data) - 1}
    lengths |= set(range(12, len(data), 97))
    for length in sorted(lengths):
        path.write_bytes(data[:length])
        assert "not a whole .safetensors file" in refusal(path), length
    path.write_bytes(data + b"\0")
    assert "not a whole .safetensors file" in refusal(path)


def test_flipped_bytes_are_refused_or_read(path: Path) -> None:
    """Wherever the header is damaged, the only answers are a card or a CheckpointError."""
    data = path.read_bytes()
    header = 8 + struct.unpack("<Q", data[:8])[0]
    for place in range(0, header, 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x15]) + data[place + 1 :])
        try:
            load(path)
        except CheckpointError as error:
            assert path.name in str(error)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"PK", b"\x80", b"\xff" * 64, struct.pack("<Q", 2**62) + b"{}", b"hello " * 100],
)
def test_other_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    refusal(path)


def test_no_file_a_folder_a_pipe(tmp_path: Path) -> None:
    assert "no checkpoint file" in refusal(tmp_path / "none.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    assert "is a folder" in refusal(tmp_path / "folder.safetensors")
    os.mkfifo(tmp_path / "pipe.safetensors")  # reading it would never end
    assert "no checkpoint file" in refusal(tmp_path / "pipe.safetensors")


def test_weights_without_our_header(tmp_path: Path, model: ViT) -> None:
    path = tmp_path / "timm.safetensors"
    save_file(model.state_dict(), path)
    assert "python -m vit import timm.safetensors" in refusal(path)
    save_file(model.state_dict(), path, metadata={"format": "pt"})
    assert "python -m vit import timm.safetensors" in refusal(path)


@pytest.mark.parametrize("number", [0, 2, "1", None, [1]])
def test_unknown_format(tmp_path: Path, number: object) -> None:
    text = refusal(changed(tmp_path / "a.safetensors", format=number))
    assert f"format {number!r}" in text and "reads format 1" in text


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("classes", ["pizza", "pho"], "3 outputs but 2 class names"),
        ("classes", ["pizza", "pho", "pho"], "same name"),
        ("classes", ["pizza", "pho", ""], "class names"),
        ("classes", ["pizza", "pho", 3], "class names"),
        ("classes", "abc", "classes must be list"),
        ("title", 3, "title"),
        ("training", [], "training"),
        ("metrics", {"test": {"correct": 80, "total": 75}}, "80 of 75"),
        ("metrics", {"test": {"correct": "73", "total": 75}}, "whole number"),
        ("metrics", {"test": 1}, "whole number"),
        ("temperature", 0, "temperature"),
        ("temperature", -1.0, "temperature"),
        ("temperature", [1], "float"),
        ("unsure_below", 2, "unsure_below"),
        ("licence", None, "licence"),
        ("trained_head", 1, "trained_head"),
        ("preprocess", {}, "Preprocess"),
        ("preprocess", CARD.preprocess.to_json() | {"size": [16, 33]}, "multiple"),
        ("model", [], "model config"),
        ("model", CONFIG.to_json() | {"colour": 1}, "colour is unknown"),
        ("model", CONFIG.to_json() | {"heads": 3}, "multiple of heads"),
        ("model", CONFIG.to_json() | {"width": 10**9}, "width"),
        ("model", CONFIG.to_json() | {"depth": 10**6}, "depth"),
        ("model", CONFIG.to_json() | {"classes": 10**15}, "classes"),
        ("model", CONFIG.to_json() | {"image_size": [2**40, 2**40]}, "image_size"),
        ("model", CONFIG.to_json() | {"registers": [[0] * 10_000] * 10}, "registers"),
    ],
)
def test_bad_fields_are_named(tmp_path: Path, field: str, value: object, text: str) -> None:
    assert text in refusal(changed(tmp_path / "a.safetensors", **{field: value}))


@pytest.mark.parametrize("field", list(CARD.to_json()))
def test_missing_fields_are_named(tmp_path: Path, model: ViT, field: str) -> None:
    values = {name: value for name, value in CARD.to_json().items() if name != field}
    text = refusal(write(tmp_path / "a.safetensors", model.state_dict(), values))
    assert field in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"format": 1, "model": ' + "[" * 900 + "]" * 900 + "}",
        '{"a":' * 100_000,
        '{"format": 1' + "0" * 10_000 + "}",
        '{"format": 1, "x": [' + "[]," * 2_000_000 + "0]}",
        '{"format": "' + "x" * 1_000_000 + '"}',
    ],
    ids=range(10),
)
def test_headers_made_to_hurt(tmp_path: Path, text: str) -> None:
    refusal(write(tmp_path / "a.safetensors", {"a": torch.ones(1)}, text))


def test_numbers_without_end(tmp_path: Path, model: ViT) -> None:
    for number in ("1e999", "NaN", "-Infinity", "9" * 4000):
        text = json.dumps(CARD.to_json()).replace("1.25", number)
        assert "a.safetensors" in refusal(write(tmp_path / "a.safetensors", {}, text))


def test_largest_config_needs_no_memory(tmp_path: Path) -> None:
    """Within the bounds, but terabytes: the shapes are compared before anything is made."""
    huge = ViTConfig((4096, 4096), (1, 1), 16384, 400, 1, 131072, 3)
    card = replace(CARD, config=huge, preprocess=Preprocess(size=(16, 16)))
    path = write(tmp_path / "a.safetensors", model_of().state_dict(), card.to_json())
    started = time.process_time()
    with pytest.raises(CheckpointError, match="missing .*expected"):
        load(path)
    assert time.process_time() - started < 10


def test_tensors_that_do_not_fit(tmp_path: Path, model: ViT) -> None:
    path, state, values = tmp_path / "a.safetensors", dict(model.state_dict()), CARD.to_json()
    less = {name: value for name, value in state.items() if name != "blocks.1.norm1.bias"}
    text = refusal(write(path, less, values), listing=False)
    assert "1 missing (blocks.1.norm1.bias)" in text
    text = refusal(write(path, state | {"head_dist.bias": torch.ones(3)}, values), listing=False)
    assert "1 surplus (head_dist.bias)" in text
    wrong = state | {"head.weight": torch.ones(5, 8), "head.bias": torch.ones(5)}
    text = refusal(write(path, wrong, values), listing=False)
    assert "head.weight is (5, 8), expected (3, 8)" in text
    text = refusal(write(path, {"a": torch.ones(1)}, values), listing=False)
    assert f"{len(state)} missing" in text and "1 surplus (a)" in text
    assert read_card(path) == CARD  # listing looks at the header alone


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers(tmp_path: Path, model: ViT, value: float) -> None:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["blocks.1.mlp.fc2.bias"][0] = value
    path = write(tmp_path / "a.safetensors", state, CARD.to_json())
    assert "blocks.1.mlp.fc2.bias has values that are not finite" in refusal(path, listing=False)
    assert read_card(path) == CARD


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64])
def test_weights_of_another_type(tmp_path: Path, model: ViT, dtype: torch.dtype) -> None:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["norm.bias"] = state["norm.bias"].to(dtype)
    path = write(tmp_path / "a.safetensors", state, CARD.to_json())
    text = refusal(path, listing=False)
    assert "type" in text and "BF16, F16, F32, F64" in text


# --- Names and lists --------------------------------------------------------------------------


@pytest.fixture
def folders(
    tmp_path: Path, vit_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, Path]]:
    """The folder of bundled checkpoints, and the user's."""
    bundled, own = tmp_path / "bundled", vit_home / "checkpoints"
    monkeypatch.setattr(checkpoint, "BUNDLED", bundled)
    for folder in (bundled, own):
        folder.mkdir(parents=True)
    yield bundled, own


def test_names_and_paths(folders: tuple[Path, Path], tmp_path: Path, model: ViT) -> None:
    bundled, own = folders
    first = save(bundled / "dishes.safetensors", model, CARD)
    assert resolve("dishes") == named("dishes") == first
    save(own / "dishes.safetensors", model, CARD)  # by hand: `destination` would refuse the name
    assert resolve("dishes") == named("dishes") == first  # nothing takes a bundled one's place
    assert resolve(first) == resolve(str(first)) == first
    problems: list[str] = []
    assert [entry.path for entry in available(problems)] == [first]
    assert len(problems) == 1 and "rename it" in problems[0]


def test_a_new_checkpoint_takes_no_name_that_is_taken(
    folders: tuple[Path, Path], model: ViT
) -> None:
    bundled, own = folders
    assert destination("mine") == own / "mine.safetensors"
    save(destination("mine"), model, CARD)
    with pytest.raises(CheckpointError, match="already"):
        destination("mine")
    assert destination("mine", replace=True) == own / "mine.safetensors"
    save(bundled / "ours.safetensors", model, CARD)
    for name in ("ours", "../evil", "a/b", ".hidden", ""):
        with pytest.raises(CheckpointError):
            destination(name, replace=True)


def test_list(folders: tuple[Path, Path], model: ViT) -> None:
    bundled, own = folders
    assert available() == []
    save(own / "a.safetensors", model, replace(CARD, title="mine"))
    save(own / "v1.2.safetensors", model, CARD)
    save(bundled / "z.safetensors", model, CARD)
    entries = available()
    assert [(entry.name, entry.bundled) for entry in entries] == [
        ("z", True),
        ("a", False),
        ("v1.2", False),
    ]
    assert entries[1].card.title == "mine"
    assert all(resolve(entry.name) == entry.path for entry in entries)


def test_list_without_folders(vit_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "BUNDLED", vit_home / "none")
    assert available() == []
    assert not vit_home.exists()
    with pytest.raises(CheckpointError, match="named 'x'; there are: none yet"):
        resolve("x")


def test_broken_files_are_reported_not_listed(folders: tuple[Path, Path], model: ViT) -> None:
    _, own = folders
    save(own / "good.safetensors", model, CARD)
    whole = (own / "good.safetensors").read_bytes()
    (own / "short.safetensors").write_bytes(whole[:-1])
    torch.save({}, own / "pickle.safetensors")
    (own / "folder.safetensors").mkdir()
    (own / "gone.safetensors").symlink_to(own / "nowhere")
    changed(own / "later.safetensors", format=9)
    for hidden in (".good.safetensors", ".good.safetensors.x1y2.tmp", "notes.txt"):
        (own / hidden).write_bytes(whole)
    problems: list[str] = []
    assert [entry.name for entry in available(problems)] == ["good"]
    assert len(problems) == 5
    for name in ("short", "pickle", "folder", "gone", "later"):
        assert sum(f"{name}.safetensors" in problem for problem in problems) == 1
    assert [entry.name for entry in available()] == ["good"]


def test_listing_reads_no_weights(
    folders: tuple[Path, Path], model: ViT, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folders[1] / "a.safetensors", model, CARD)
    monkeypatch.setattr(checkpoint, "ViT", None)
    monkeypatch.setattr(torch.UntypedStorage, "__getitem__", None)
    assert len(available()) == 1
    # weights that cannot be used do not matter to the list
    path = folders[1] / "a.safetensors"
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    path.write_bytes(data[:start] + b"\xff" * (len(data) - start))  # NaN everywhere
    assert len(available()) == 1


@pytest.mark.parametrize(
    "name",
    ["../outside", "..", ".", "", "sub/inside", "/etc/passwd", ".hidden", "a\0b", "x" * 5000],
)
def test_names_reach_no_other_file(
    folders: tuple[Path, Path], tmp_path: Path, model: ViT, name: str
) -> None:
    _, own = folders
    save(own.parent / "outside.safetensors", model, CARD)
    save(own / "sub" / "inside.safetensors", model, CARD)
    save(own / ".hidden.safetensors", model, CARD)
    save(own / "good.safetensors", model, CARD)
    with pytest.raises(CheckpointError, match=r"no checkpoint named .*; there are: good\.$"):
        named(name)


def test_names_may_look_odd(folders: tuple[Path, Path], model: ViT) -> None:
    for name in ("pho bò", "v1.2", "a'b\"c", "-x", "x..y"):
        path = save(folders[1] / f"{name}.safetensors", model, CARD)
        assert named(name) == path == resolve(name)


def test_a_path_that_is_not_there(folders: tuple[Path, Path]) -> None:
    for path in ("none.safetensors", "some/where", "x" * 5000 + ".safetensors"):
        with pytest.raises(CheckpointError, match="no checkpoint file .*; check the path"):
            resolve(path)


def test_fingerprint(path: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert checkpoint.fingerprint(empty) == "e3b0c44298fc1c14"  # SHA-256 of nothing
    assert checkpoint.fingerprint(path) != checkpoint.fingerprint(empty)
