"""Photos with class numbers in a fixed order, read when they are asked for."""

import hashlib
import os
import random
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch.utils.data import Dataset

from vit.folders import DataError, Place, open_place
from vit.images import Photo, PhotoError, open_photo

Progress = Callable[[int, int], None]  # (done, total)


@dataclass(frozen=True)
class Sample:
    """A photo of a set: its '/'-separated path inside the data set, and its class number.

    A photo from another place than the data set itself (`extra`, `val`) has that folder's or
    zip's own name in front.
    """

    name: str
    label: int


@dataclass(frozen=True)
class Row:
    """A sample with the way to its bytes."""

    sample: Sample
    place: Place
    key: str
    digest: str = ""  # SHA-256 of the bytes, once they have been read


@dataclass(frozen=True)
class Kept:
    """Where a photo lies, to be found again later: see `PhotoSet.kept` and `kept_photos`.

    place: the folder or zip, absolute; key: the '/'-separated name in it. front: what the photo's
    name in its set has in front of that. digest: the start of its SHA-256, or empty.
    """

    place: str
    front: str
    key: str
    digest: str

    @property
    def name(self) -> str:
        return self.front + self.key


class PhotoSet(Dataset[tuple[Image.Image, int]]):
    """Photos with class numbers, in a fixed order; a torch Dataset of (RGB image, label).

    Nothing is decoded before it is asked for. Safe with threads, `fork` and pickling.
    """

    def __init__(self, classes: Sequence[str], rows: Iterable[Row]):
        self.classes = tuple(classes)
        self._rows = tuple(rows)
        self.samples = tuple(row.sample for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return self.photo(index), self.samples[index].label

    @property
    def targets(self) -> list[int]:
        """The class number of every photo."""
        return [sample.label for sample in self.samples]

    def read(self, index: int) -> Path | bytes:
        """What `open_photo` takes: the path of a photo, or its bytes when it lies in a zip.

        PhotoError names the photo when the zip is damaged at that place.
        """
        row = self._rows[index]
        try:
            return row.place.source(row.key)
        except READ_ERRORS as error:
            raise PhotoError(f"{row.sample.name}: {_damage(error)}.") from error

    def kept(self, index: int) -> Kept:
        """Where a photo lies."""
        row = self._rows[index]
        front = row.sample.name.removesuffix(row.key)
        return Kept(os.path.abspath(row.place.path), front, row.key, row.digest[:16])

    def photo(self, index: int, at_least: int | None = None) -> Image.Image:
        """The upright RGB photo; `at_least` as in `open_photo`. PhotoError names the photo."""
        row = self._rows[index]
        try:
            # Bytes also from a folder: the loader's messages then leave the name to us.
            return open_photo(row.place.read(row.key), at_least).image
        except PhotoError as error:
            raise PhotoError(f"{row.sample.name}: {error}") from error
        except READ_ERRORS as error:
            raise PhotoError(f"{row.sample.name}: {_damage(error)}.") from error

    def subset(self, indices: Iterable[int]) -> "PhotoSet":
        """The same classes with these photos only, in this order."""
        return PhotoSet(self.classes, (self._rows[index] for index in indices))

    def check(self, progress: Progress | None = None) -> list[tuple[int, str]]:
        """(index, why) of every photo that cannot be read; each is decoded once, in threads."""
        return [
            (i, why)
            for i, (_, why) in enumerate(read_all(self._rows, len(self) * [True], progress))
            if why
        ]


READ_ERRORS = (
    OSError,
    KeyError,  # the zip was changed meanwhile
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
)


@dataclass(frozen=True)
class Reading:
    """A photo as it has just been read, for whoever watches; `error` says why it cannot be used."""

    name: str  # as `Sample.name`
    content: bytes  # of its file, as far as that could be read
    photo: Photo | None  # perhaps reduced, its short side 64 pixels or longer; None with an error
    digest: str  # SHA-256 of the content in hex digits; "" with an error
    error: Exception | None


Watch = Callable[[Reading], None]


def _damage(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"It cannot be read ({error.strerror})"
    return "It is damaged inside the zip; pack the zip again"


def read_all(
    rows: Sequence[Row],
    decode: Sequence[bool],
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> list[tuple[str, str]]:
    """For every photo the SHA-256 of its bytes, and why it is unusable ("" when it is fine).

    A photo is tried out only where `decode` says so.
    """

    def look(row: Row, decode: bool) -> tuple[str, str]:
        content, photo, digest, why = b"", None, "", ""
        problem: Exception | None = None
        try:
            content = row.place.read(row.key)
            if decode:
                # Small JPEGs decode fast, and the whole file is still gone through.
                photo = open_photo(content, at_least=64)
            digest = hashlib.sha256(content).hexdigest()
        except PhotoError as error:
            problem, why = error, str(error).rstrip(".")
        except READ_ERRORS as error:
            problem, why = error, _damage(error)
        if watch:
            watch(Reading(row.sample.name, content, photo, digest, problem))
        return digest, why

    if progress:
        progress(0, len(rows))
    step = 256  # photos a task: one task a photo would cost more than a small photo itself
    jobs = list(zip(rows, decode, strict=True))
    parts = [jobs[start : start + step] for start in range(0, len(jobs), step)]
    results: list[tuple[str, str]] = []
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for part in pool.map(lambda jobs: [look(*job) for job in jobs], parts):
            results.extend(part)
            if progress:
                progress(len(results), len(rows))
    return results


def kept_photos(wanted: Sequence[Kept]) -> list[bytes | Exception]:
    """The files of these photos as they are now, or why one cannot be read.

    Every folder or zip is opened once, not gone through.
    """
    places: dict[str, Place | DataError] = {}
    found: list[bytes | Exception] = []
    for kept in wanted:
        if kept.place not in places:
            try:
                places[kept.place], _ = open_place(kept.place)
            except (DataError, OSError) as error:
                places[kept.place] = DataError(str(error).rstrip("."))
        place = places[kept.place]
        try:
            found.append(place if isinstance(place, DataError) else place.read(kept.key))
        except READ_ERRORS as error:
            gone = isinstance(error, KeyError | FileNotFoundError)
            found.append(DataError("it is gone" if gone else _damage(error)))
    return found


def few_of_each(photos: PhotoSet, count: int, seed: int) -> PhotoSet:
    """At most `count` photos of every class, drawn by `seed`, in the set's order."""
    kept: list[int] = []
    seen = [0] * len(photos.classes)
    order = list(range(len(photos)))
    random.Random(seed).shuffle(order)
    for index in order:
        label = photos.samples[index].label
        if seen[label] < count:
            seen[label] += 1
            kept.append(index)
    return photos.subset(sorted(kept))


def in_both(photos: PhotoSet, *others: PhotoSet) -> list[str]:
    """Names of those of `photos` whose contents lie in one of the `others` as well.

    Knows contents that `vit.data.open_data`, or `open_photos` with `check`, has read.
    """
    known = {row.digest for other in others for row in other._rows} - {""}
    return [row.sample.name for row in photos._rows if row.digest in known]
