"""Our model file: one `.safetensors` whose header says everything needed to use the weights.

The header's metadata holds, as JSON under the key `vit`, the format number, the model config, the
preprocessing, the class names, the training record and the counts. Nothing is ever unpickled.
"""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from vit.card import Card, CheckpointError
from vit.home import home
from vit.model import ViT, ViTConfig
from vit.weightfile import looks_like_torch

BUNDLED = Path(__file__).parent / "checkpoints"
SUFFIX = ".safetensors"
MAX_HEADER = 4 * 2**20  # characters of our JSON; 21,843 class names take an eighth of it
MAX_FILE_HEADER = 16 * 2**20  # bytes of all of it: our JSON, and names and shapes of the weights
ATTEMPTS = 10  # to read a file that is replaced meanwhile
_KINDS = frozenset({"F16", "BF16", "F32", "F64"})  # safetensors' names of what weights may be


@dataclass(frozen=True)
class Entry:
    """A checkpoint on disk, known by its header alone."""

    name: str
    path: Path
    card: Card
    bundled: bool


def save(
    path: str | os.PathLike[str], model: ViT, card: Card, dtype: torch.dtype = torch.float16
) -> Path:
    """Write model and card to `path`, whole or not at all.

    Weights are stored as `dtype` (half precision by default: half the size, same answers).
    Raises CheckpointError when the card belongs to another model or a weight is not finite, and
    OSError when the disk refuses.
    """
    path = Path(path)
    if model.config != card.config:
        raise CheckpointError(
            f"The card of {path.name} describes another model than the one saved."
        )
    tensors = {name: value.detach().to("cpu", dtype) for name, value in model.state_dict().items()}
    if broken := not_finite(tensors):
        raise CheckpointError(
            f"{path.name} was not saved: {broken} has values that are not finite in "
            f"{str(dtype).removeprefix('torch.')}."
        )
    header = json.dumps(card.to_json(), allow_nan=False)
    if len(header) > MAX_HEADER:
        raise CheckpointError(
            f"{path.name} was not saved: its card takes {len(header):,} characters, of at most "
            f"{MAX_HEADER:,}; shorten the training record."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_safetensors(path, tensors, {"vit": header})
    return path


def write_safetensors(
    path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]
) -> None:
    """Write to a temporary name beside `path`, force it to disk, then rename: never half a file.
    The folder must be there."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    try:
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, temporary, metadata=dict(metadata))
        os.chmod(temporary, 0o644)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, SafetensorError):  # how the library reports a full disk
            raise OSError(f"{path.name} could not be written: {error}.") from None
        raise


def read_card(path: str | os.PathLike[str]) -> Card:
    """The card in the header of `path`; no weights are read."""
    path = Path(path)
    with _opened(path) as file:
        return _card(path, file.metadata())


def load(path: str | os.PathLike[str]) -> tuple[ViT, Card]:
    """The model (float32, evaluation mode, on the CPU) and card stored at `path`.

    Raises CheckpointError, naming the file, what was expected and what was found, for anything
    that is not a whole checkpoint of ours.
    """
    path = Path(path)
    # The library opens a file twice, for its header and its weights. When another took its place
    # in between, they do not belong together.
    for attempt in range(ATTEMPTS):
        time.sleep(0.05 * attempt)  # ever longer: whoever writes gets done
        before = version(path)
        try:
            result = _load(path)
        except CheckpointError:
            if version(path) == before:
                raise
        else:
            if version(path) == before:
                return result
    raise CheckpointError(f"{path.name} is being written over and over; try again later.")


def version(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written to; None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load(path: Path) -> tuple[ViT, Card]:
    with _opened(path) as file:
        card = _card(path, file.metadata())
        model = empty(card.config)
        expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        found = {name: tuple(part.get_shape()) for name, part in slices.items()}
        if problem := compare_shapes(expected, found):
            raise CheckpointError(f"{path.name} does not fit the model its header names: {problem}")
        kinds = {part.get_dtype() for part in slices.values()} - _KINDS
        if kinds:
            raise CheckpointError(
                f"{path.name} holds weights of type {', '.join(sorted(kinds))}; they must be one "
                f"of {', '.join(sorted(_KINDS))}."
            )
        # Copied, because the library gives views of the file, which may be overwritten later.
        state = {name: file.get_tensor(name).to(torch.float32, copy=True) for name in expected}
    if broken := not_finite(state):
        raise CheckpointError(
            f"{path.name} is damaged: {broken} has values that are not finite; use another copy."
        )
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval(), card


def is_ours(path: Path) -> bool:
    """Whether `path` is a checkpoint of ours, sound or not, rather than weights of others."""
    try:
        with safe_open(path, framework="pt") as file:
            return "vit" in (file.metadata() or {})
    except (SafetensorError, ValueError, OverflowError, OSError):
        return False


def empty(config: ViTConfig) -> ViT:
    """A model whose weights have shapes but no memory, to be given them with `assign=True`."""
    with torch.device("meta"):
        return ViT(config)


def not_finite(tensors: Mapping[str, torch.Tensor]) -> str:
    """The name of the first tensor that holds NaN or an infinity; empty when none does."""
    return next((n for n, value in tensors.items() if not torch.isfinite(value).all()), "")


def compare_shapes(expected: Mapping[str, tuple], found: Mapping[str, tuple]) -> str:
    """What is missing, surplus or ill-shaped in `found`, as one sentence; empty when nothing is."""
    problems = []
    for what, names in (("missing", expected.keys() - found), ("surplus", found.keys() - expected)):
        if names:
            listed = ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")
            problems.append(f"{len(names)} {what} ({listed})")
    for name in sorted(expected.keys() & found):
        if expected[name] != found[name]:
            problems.append(f"{name} is {found[name]}, expected {expected[name]}")
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return f"{'; '.join(problems[:5])}{more}." if problems else ""


def resolve(name_or_path: str | os.PathLike[str]) -> Path:
    """The file of a checkpoint given by its name (`pizza-steak-sushi`) or its path.

    What holds a folder, or ends in `.safetensors`, is a path; see `named` for names.
    """
    text = os.fspath(name_or_path)
    if os.path.basename(text) == text and not text.endswith(SUFFIX):
        return named(text)
    if not _is_file(Path(text)):
        raise CheckpointError(f"There is no checkpoint file {text}; check the path.")
    return Path(text)


def named(name: str) -> Path:
    """The file of the checkpoint of this name, a bundled one before a user's; never a path."""
    if os.path.basename(name) == name and not name.startswith("."):
        for folder in (BUNDLED, home() / "checkpoints"):
            if _is_file(folder / f"{name}{SUFFIX}"):
                return folder / f"{name}{SUFFIX}"
    names = ", ".join(entry.name for entry in available()) or "none yet"
    raise CheckpointError(f"There is no checkpoint named {name[:80]!r}; there are: {names}.")


def destination(name: str, replace: bool = False) -> Path:
    """Where a new checkpoint of this name goes; CheckpointError when the name is taken."""
    path = home() / "checkpoints" / f"{name}{SUFFIX}"
    if os.path.basename(name) != name or name.startswith(".") or not name:
        raise CheckpointError(f"{name!r} is no name for a file; leave out folders and dots.")
    if _is_file(BUNDLED / path.name):
        raise CheckpointError(f"{name} is the name of a bundled model; choose another name.")
    if not replace and _is_file(path):
        raise CheckpointError(
            f"There is a model called {name} already; choose another name, or on the command line "
            "add --replace."
        )
    return path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long, or a folder that may not be looked into
        return False


def available(problems: list[str] | None = None) -> list[Entry]:
    """Every readable checkpoint, bundled ones first, by name; headers only are read.

    Broken files are left out; what is wrong with them is appended to `problems`.
    """
    found: dict[str, Entry] = {}
    for folder, bundled in ((BUNDLED, True), (home() / "checkpoints", False)):
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if path.name.startswith("."):
                continue
            if path.stem in found:
                if problems is not None:
                    problems.append(f"{path} has the name of a bundled checkpoint; rename it.")
                continue
            try:
                found[path.stem] = Entry(path.stem, path, _card_of(path, version(path)), bundled)
            except (CheckpointError, OSError) as error:
                if problems is not None:
                    problems.append(str(error))
    return sorted(found.values(), key=lambda entry: (not entry.bundled, entry.name))


@lru_cache(maxsize=256)
def _card_of(path: Path, written: object) -> Card:
    """The card of a file as it was written then: every page asks for all of them, again and again.
    A file that cannot be read is read anew each time."""
    return read_card(path)


def fingerprint(path: str | os.PathLike[str]) -> str:
    """The first 16 hexadecimal digits of the file's SHA-256."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _card(path: Path, metadata: Mapping[str, str] | None) -> Card:
    if not metadata or "vit" not in metadata:
        raise CheckpointError(
            f"{path.name} holds weights but not our header; "
            f"convert it with: python -m vit import {path.name}"
        )
    text = metadata["vit"]
    try:
        if len(text) > MAX_HEADER:
            raise CheckpointError(f"its header takes {len(text):,} characters")
        values = json.loads(text)
        if not isinstance(values, dict):
            raise CheckpointError("its header is not an object")
        json.dumps(values, ensure_ascii=False).encode()  # half a sign could not be shown anywhere
        return Card.from_json(values)
    except RecursionError:
        reason = "its header is nested too deeply"
    except ValueError as error:  # also JSON that is broken, or that holds an endless number
        reason = str(error)
    reason = reason if len(reason) <= 300 else f"{reason[:300]}…"
    raise CheckpointError(f"{path.name} cannot be used: {reason.rstrip('.')}.")


def _opened(path: Path) -> Any:
    """`safe_open` with errors that name the file and the way out."""
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder; give the .safetensors file in it.")
    if not _is_file(path):  # a pipe might never end
        raise CheckpointError(f"There is no checkpoint file {path}; check the path.")
    start = b""
    try:
        with open(path, "rb") as file:
            start = file.read(9)
        length = int.from_bytes(start[:8], "little")
        if start[8:] == b"{" and MAX_FILE_HEADER < length < path.stat().st_size:
            raise ValueError(f"its header has {length / 1e6:,.0f} MB")
        return safe_open(path, framework="pt")
    except (SafetensorError, ValueError, OverflowError) as error:
        reason = str(error)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            f"{path.name} cannot be opened ({reason}); check that you may read it."
        ) from None
    if looks_like_torch(start):
        raise CheckpointError(
            f"{path.name} is a Python pickle, which can run code when opened, so it is refused; "
            f"if you trust where it comes from, convert its weights with: "
            f"python -m vit import {path.name}"
        )
    raise CheckpointError(
        f"{path.name} is not a whole .safetensors file ({reason}); copy or download it again."
    )
