"""Named tensors out of a file of weights, whatever library wrote it.

`.safetensors`, torch's own format and NumPy's `.npz` are told apart by what is in the file, never
by its name, and no code in it is run: torch files are read with `weights_only=True`, `.npz` files
with `allow_pickle=False`.
"""

import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from vit.card import CheckpointError

MAX_BYTES = 16 * 2**30  # of what an .npz unpacks to; the largest Vision Transformers take 8
MAX_RATIO = 20  # of that to the file; weights hardly shrink
SMALL = 2**20  # bytes that a file may always unpack to
_TORCH_STARTS = (b"PK\x03\x04", b"\x80")  # a zip, as torch.save writes, or a bare pickle


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in the file, by the names they have there.

    What training programs wrap a state dict in ("state_dict", "model", `module.`) is taken off.
    Raises CheckpointError for a file that is none of the three kinds, is damaged, holds Python
    objects, or holds numbers that are no weights.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(9)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}; check the path.") from None
    try:
        if not looks_like_torch(start):
            loaded = load_file(path)
        elif _is_npz(path):
            loaded = _read_npz(path)
        else:
            if zipfile.is_zipfile(path):
                _check_unpacked(path, 2)  # torch packs without making smaller
            with open(path, "rb") as file:  # by name, torch would go by the ending
                loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # what a damaged pickle raises can be anything
        reason = str(error).split("\n")[0].split(". ")[0].rstrip(".") or type(error).__name__
        raise CheckpointError(
            f"{path.name} is neither a whole .safetensors file nor a torch file or .npz of plain "
            f"tensors ({reason[:150]}); save the model's state dict as .safetensors and import "
            f"that."
        ) from None
    for wrapper in ("state_dict", "model"):
        if isinstance(loaded, dict) and isinstance(loaded.get(wrapper), dict):
            loaded = loaded[wrapper]
    if not isinstance(loaded, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in loaded.items()
    ):
        raise CheckpointError(f"{path.name} holds no state dict; save model.state_dict().")
    if not all(v.is_floating_point() and v.layout is torch.strided for v in loaded.values()):
        raise CheckpointError(f"{path.name} holds whole or sparse numbers, as no ViT does.")
    # A tensor may repeat one number as often as it likes.
    if (total := sum(v.nbytes for v in loaded.values())) > _most(path, MAX_RATIO):
        raise CheckpointError(
            f"{path.name} holds weights of {total / 1e9:,.1f} GB, far more than its own size, so "
            f"it is refused; save the model's state dict as .safetensors."
        )
    if loaded and all(name.startswith("module.") for name in loaded):
        return {name.removeprefix("module."): value for name, value in loaded.items()}
    return dict(loaded)


def looks_like_torch(start: bytes) -> bool:
    """Whether a file that starts so (9 bytes) is one of torch.save, or another zip.

    A safetensors file may start with the same bytes, since they are the length of its header; but
    the header itself starts with a brace.
    """
    return start.startswith(_TORCH_STARTS) and start[8:9] != b"{"


def _is_npz(path: Path) -> bool:
    """Whether a zip holds arrays, and none of the pickles that a torch file has."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return bool(names) and all(name.endswith(".npy") for name in names)


def _read_npz(path: Path) -> dict[str, Tensor]:
    _check_unpacked(path, MAX_RATIO)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: _tensor(arrays[name]) for name in arrays.files}


def _check_unpacked(path: Path, ratio: int) -> None:
    with zipfile.ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > _most(path, ratio):
        raise ValueError(f"it unpacks to {size / 1e9:,.1f} GB")


def _most(path: Path, ratio: int) -> int:
    """Bytes that what is in the file may take."""
    return min(MAX_BYTES, SMALL + ratio * path.stat().st_size)


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:  # how NumPy stores bfloat16
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
