"""The data set of the learnpytorch course: photos of pizza, steak and sushi, all or nothing.

Everything happens in a temporary folder beside the final one. What appears under the final name
was counted first, so an interruption at any moment leaves nothing half-written there.
"""

import os
import re
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from vit.fetch import DownloadError, Progress, stream
from vit.home import home

COURSE = "https://github.com/mrdbourke/pytorch-deep-learning/raw/main/data"
CLASSES = ("pizza", "steak", "sushi")
VARIANTS = {  # name of folder and zip, photos to train with, photos to test with
    "10_percent": ("pizza_steak_sushi", 225, 75),
    "20_percent": ("pizza_steak_sushi_20_percent", 450, 150),
}
MAX_BYTES = 300 * 2**20  # of the zip, and of what is in it; the larger zip has about 30 MB

_PHOTO = re.compile(rf"(train|test)/({'|'.join(CLASSES)})/\w[\w.-]*\.jpe?g", re.ASCII)


def download_pizza_steak_sushi(
    folder: str | os.PathLike[str] | None = None,
    variant: Literal["10_percent", "20_percent"] = "10_percent",
    progress: Progress | None = None,
    base: str = COURSE,
) -> Path:
    """Fetch the course's photos into `folder` and return the data set, ready for `open_data`.

    The data set is `folder`/pizza_steak_sushi (225 photos to train with, 75 to test) or, as
    "20_percent", `folder`/pizza_steak_sushi_20_percent (450 and 150), with class folders in
    train/ and test/. `folder` is `home()/data` unless given. Where the complete data set is
    already, nothing happens. `progress(done, total)` gets bytes; total is None when the server
    does not tell. A broken connection is taken up again where it broke. `base` is the address
    of the folder that holds the zips.

    Raises DownloadError (an OSError) and leaves nothing half-done; ValueError for a wrong variant.
    """
    if variant not in VARIANTS:
        raise ValueError(f"The variants are {' and '.join(VARIANTS)}, not {variant!r}.")
    name, *wanted = VARIANTS[variant]
    parent = Path(folder).expanduser() if folder is not None else home() / "data"
    target = parent / name
    if _is_ready(target, wanted):
        return target
    url = f"{base.rstrip('/')}/{name}.zip"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=parent) as work:
            packed, unpacked = Path(work, "photos.zip"), Path(work, name)
            with packed.open("wb") as file:
                stream(url, file, "a zip of the course's photos", MAX_BYTES, progress)
            _unpack(packed, unpacked, url, wanted)
            _put_in_place(unpacked, target, wanted)
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"The photos cannot be written to {parent} ({error.strerror or error}); "
            "make room there or choose another folder."
        ) from error
    return target


def _is_ready(target: Path, wanted: list[int]) -> bool:
    """Whether the complete data set is there; DownloadError when something else is."""
    if not os.path.lexists(target):
        return False
    if not target.is_dir():
        raise DownloadError(f"{target} is in the way; remove it or choose another folder.")
    names = [path.relative_to(target).as_posix() for path in target.glob("*/*/*")]
    if not _lacking(names, wanted):
        return True
    if any(target.iterdir()):
        raise DownloadError(
            f"{target} is not the complete data set ({_lacking(names, wanted)}); "
            "remove it, then download again."
        )
    return False


def _lacking(names: Iterable[str], wanted: list[int]) -> str:
    """How '/'-separated names of photos differ from the wanted counts; "" when they do not."""
    found = Counter(match.groups() for name in names if (match := _PHOTO.fullmatch(name)))
    counts = [sum(found[split, dish] for dish in CLASSES) for split in ("train", "test")]
    if counts != wanted:
        return (
            f"{counts[0]} training and {counts[1]} test photos instead of {wanted[0]} and "
            f"{wanted[1]}"
        )
    missing = [f"{s}/{dish}" for s in ("train", "test") for dish in CLASSES if not found[s, dish]]
    return f"no photo in {', '.join(missing)}" if missing else ""


def _unpack(packed: Path, folder: Path, url: str, wanted: list[int]) -> None:
    """Unpack the photos, known by their full names, so that no entry can lie outside `folder`."""
    try:
        with zipfile.ZipFile(packed) as archive:
            photos = {i.filename: i for i in archive.infolist() if _PHOTO.fullmatch(i.filename)}
            if lacking := _lacking(photos, wanted):
                raise DownloadError(f"{url} does not hold the expected photos: {lacking}.")
            if sum(info.file_size for info in photos.values()) > MAX_BYTES:
                raise DownloadError(f"{url} is far too large to be the course's photos.")
            for name, info in photos.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(info))  # checks its CRC
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{url} did not arrive as a whole zip; try again.") from error


def _put_in_place(unpacked: Path, target: Path, wanted: list[int]) -> None:
    try:
        if target.exists():  # empty, or `_is_ready` would have objected
            target.rmdir()
        os.replace(unpacked, target)
    except OSError:
        if not _is_ready(target, wanted):  # else another process was faster, with the same photos
            raise
