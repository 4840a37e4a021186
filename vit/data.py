"""A folder or zip of class folders as a checked, reproducible data set.

Read with the product's own photo loader, by the rules of `vit.folders` on what is a class. Whatever
is left out is reported with a reason, never in silence.
"""

import hashlib
import os
import random
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image
from torch.utils.data import Dataset

from vit.drawing import photo_grid
from vit.folders import Classes, DataError, Found, Place, Skipped, open_place
from vit.images import Photo, PhotoError, open_photo

_DISH_NAMES = {  # where replacing underscores is not enough
    "creme_brulee": "Crème brûlée",
    "cup_cakes": "Cupcakes",
    "eggs_benedict": "Eggs Benedict",
}

Progress = Callable[[int, int], None]  # (done, total)


def dish_name(folder: str) -> str:
    """A class folder's name as a person writes it: "pad_thai" gives "Pad thai"."""
    if folder in _DISH_NAMES:
        return _DISH_NAMES[folder]
    words = " ".join(folder.replace("_", " ").split())
    return words[:1].upper() + words[1:]


# --- Sets of photos ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A photo of a set: its '/'-separated path inside the data set, and its class number.

    A photo from another place than the data set itself (`extra`, `val`) has that folder's or
    zip's own name in front.
    """

    name: str
    label: int


@dataclass(frozen=True)
class _Row:
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

    def __init__(self, classes: Sequence[str], rows: Iterable[_Row]):
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
        except _READ_ERRORS as error:
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
        except _READ_ERRORS as error:
            raise PhotoError(f"{row.sample.name}: {_damage(error)}.") from error

    def subset(self, indices: Iterable[int]) -> "PhotoSet":
        """The same classes with these photos only, in this order."""
        return PhotoSet(self.classes, (self._rows[index] for index in indices))

    def check(self, progress: Progress | None = None) -> list[tuple[int, str]]:
        """(index, why) of every photo that cannot be read; each is decoded once, in threads."""
        return [
            (i, why)
            for i, (_, why) in enumerate(_examine(self._rows, len(self) * [True], progress))
            if why
        ]


_READ_ERRORS = (
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


def _examine(
    rows: Sequence[_Row],
    decode: Sequence[bool],
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> list[tuple[str, str]]:
    """For every photo the SHA-256 of its bytes, and why it is unusable ("" when it is fine).

    A photo is tried out only where `decode` says so.
    """

    def look(row: _Row, decode: bool) -> tuple[str, str]:
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
        except _READ_ERRORS as error:
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
        except _READ_ERRORS as error:
            gone = isinstance(error, KeyError | FileNotFoundError)
            found.append(DataError("it is gone" if gone else _damage(error)))
    return found


# --- The data set -----------------------------------------------------------------------------


@dataclass(frozen=True)
class DataSet:
    """Photos to learn from, to choose with, and to count at the end; no photo is in two of them.

    skipped: (file or folder, why it was left out). fingerprint: 16 hex digits of the SHA-256
    over which contents are in which set and class; names and order of the files do not matter.
    """

    train: PhotoSet
    val: PhotoSet
    test: PhotoSet | None
    skipped: tuple[tuple[str, str], ...]
    classes: tuple[str, ...]
    fingerprint: str


def open_data(
    path: str | os.PathLike[str] | Found,
    *,
    val_fraction: float = 0.15,
    seed: int = 0,
    val: str | os.PathLike[str] | None = None,
    extra: Sequence[str | os.PathLike[str]] = (),
    check: bool = True,
    progress: Progress | None = None,
    watch: Watch | None = None,
    skipped: Skipped | None = None,
) -> DataSet:
    """Read a folder or zip of class folders, alone or in train/, val/ and test/.

    Validation photos are those of `val` (class folders), else of the data set's own val/, else
    drawn from the training photos: `val_fraction` of every class, at least one where a class has
    two. The draw depends on `seed` and the contents alone. `extra` are more data sets, of the same
    classes or some of them, whose training photos are added; their val/ and test/ are not used.
    Left out of training and reported: copies of a photo, photos found under two classes, and
    copies of any test or validation photo, those of `extra` included. With `check` every photo is
    decoded once, in threads, and unreadable ones are left out and reported.

    `watch` gets every photo as it is read, in those threads; what it raises ends the reading. What
    is left out is also appended to `skipped`, which has it when DataError is raised as well.

    Raises DataError, one sentence that says what to do.
    """
    skipped = [] if skipped is None else skipped
    if not 0 <= val_fraction < 1:
        raise DataError(f"The validation share must be 0 or more and below 1, not {val_fraction}.")
    main = path if isinstance(path, Found) else Found(path)
    skipped += main.skipped
    path = main.shown
    learn = main.sets.get("train") or main.sets["all"]
    classes = tuple(name for name, photos in learn.items() if photos)
    if len(classes) < 2:
        raise DataError(
            f"{path} has photos of one class only ({', '.join(classes)}); "
            "add a folder with photos of at least one other class."
        )
    sets = {"train": _rows(main, learn, classes)}
    for split in ("val", "test"):
        if split not in main.sets:
            continue
        _same_classes(f"{split}/ of {path}", main.sets[split], classes)
        sets[split] = _rows(main, main.sets[split], classes)
    held: dict[str, list[_Row]] = {"val": [], "test": []}  # not used, nor learnt from
    if val is not None:
        found = Found(val)
        photos = _single(found)
        _same_classes(str(val), photos, classes)
        held["val"] += sets.pop("val", [])
        sets["val"] = _rows(found, photos, classes, other=True)
        skipped += _named(found)
    for more in extra:
        found = Found(more)
        photos = found.sets.get("train") or found.sets["all"]
        for name in photos:
            if photos[name] and name not in classes:
                raise DataError(
                    f"{more} has the class {name}, which {path} has not; "
                    "give both the same class folders or leave one of them out."
                )
        sets["train"] += _rows(found, photos, classes, other=True)
        for split, part in held.items():
            part += _rows(found, found.sets.get(split, {}), classes, other=True)
        skipped += _named(found)
    sets |= {f"held {split}": part for split, part in held.items()}
    sets = _read_all(sets, skipped, check, progress, watch)
    _keep_apart(sets, skipped)
    for label, name in enumerate(classes):
        if all(row.sample.label != label for row in sets["train"]):
            raise DataError(
                f"The class {name} of {path} has no training photo left after unreadable, "
                "contradictory and test photos were taken out; add photos to it."
            )
    if "val" not in sets:
        sets["train"], sets["val"] = _draw(sets["train"], val_fraction, seed)
    lines = sorted(
        f"{split} {classes[row.sample.label]} {row.digest}\n"
        for split in ("train", "val", "test")
        for row in sets.get(split, ())
    )
    return DataSet(
        train=PhotoSet(classes, sets["train"]),
        val=PhotoSet(classes, sets["val"]),
        test=PhotoSet(classes, sets["test"]) if "test" in sets else None,
        skipped=tuple(skipped),
        classes=classes,
        fingerprint=hashlib.sha256("".join(lines).encode()).hexdigest()[:16],
    )


def open_photos(
    path: str | os.PathLike[str], *, check: bool = False, skipped: Skipped | None = None
) -> PhotoSet:
    """One set of class folders, such as `…/test`; a path may go on inside a zip: `….zip/test`.

    What is left out is appended to `skipped`; with `check` that includes unreadable photos.
    Raises DataError, also when there are several sets to choose from.
    """
    found = Found(path)
    photos = _single(found)
    classes = tuple(name for name in photos if photos[name])
    result = PhotoSet(classes, _rows(found, photos, classes))
    report = found.skipped
    if check:
        rows = {"all": list(result._rows), "held": []}
        result = PhotoSet(classes, _read_all(rows, report, True, None)["all"])
    if skipped is not None:
        skipped += report
    return result


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

    Knows contents that `open_data`, or `open_photos` with `check`, has read.
    """
    known = {row.digest for other in others for row in other._rows} - {""}
    return [row.sample.name for row in photos._rows if row.digest in known]


_REASONS = {  # how a reason begins, and what many of that kind are called
    "not a photo": "no photos",
    "empty": "empty",
    "larger than": "too large",
    "a hidden or system file": "hidden or system files",
    "a class folder without photos": "class folders without photos",
    "in no class folder": "in no class folder",
    "not used": "beside train/",
    "a link back": "links in a circle",
    "its name is no valid text": "with a name that is no text",
    "one of several files": "of the same name as another",
    "a copy of the test photo": "copies of test photos",
    "a copy of the validation photo": "copies of validation photos",
    "a copy of": "copies of another photo",
    "the same photo lies in different classes": "the same photo in different classes",
}


def left_out(skipped: Iterable[tuple[str, str]]) -> str:
    """How many were left out and why, in a few words: "3 files (empty: 2, unreadable: 1)"."""
    kinds = Counter(
        next((words for start, words in _REASONS.items() if why.startswith(start)), "unreadable")
        for _, why in skipped
    )
    files = "1 file" if kinds.total() == 1 else f"{kinds.total()} files"
    return f"{files} ({', '.join(f'{words}: {count}' for words, count in kinds.most_common())})"


def _single(found: Found) -> Classes:
    if "all" in found.sets:
        return found.sets["all"]
    names = [name for name in ("test", "val", "train") if name in found.sets]
    raise DataError(
        f"{found.shown} holds the sets {', '.join(names)}; name one of them, such as "
        f"{found.shown.rstrip('/')}/{names[0]}."
    )


def _named(found: Found) -> Skipped:
    return [(f"{found.name}/{name}", why) for name, why in found.skipped]


def _rows(found: Found, photos: Classes, classes: Sequence[str], other: bool = False) -> list[_Row]:
    """Photos with their labels, -1 for no known class; `other`: not from the data set itself."""
    labels = {name: label for label, name in enumerate(classes)}
    front = f"{found.name}/" if other else ""
    return [
        _Row(Sample(front + key, labels.get(name, -1)), found.place, key)
        for name, keys in photos.items()
        for key in keys
    ]


def _same_classes(where: str, photos: Classes, classes: Sequence[str]) -> None:
    for name in classes:
        if name not in photos:
            raise DataError(
                f"{where} lacks the class {name}, which the training photos have; "
                "add its folder, or take that class out of the training photos."
            )
    for name in photos:
        if photos[name] and name not in classes:
            raise DataError(
                f"{where} has the class {name}, of which there are no training photos; "
                "add some, or take its folder out."
            )


def _read_all(
    sets: dict[str, list[_Row]],
    skipped: Skipped,
    check: bool,
    progress: Progress | None,
    watch: Watch | None = None,
) -> dict[str, list[_Row]]:
    """The same sets with every photo hashed, without those that cannot be read."""
    flat = [(name, row) for name, rows in sets.items() for row in rows]
    read: dict[str, list[_Row]] = {name: [] for name in sets}
    decode = [check and not name.startswith("held") for name, _ in flat]
    results = _examine([row for _, row in flat], decode, progress, watch)
    for (name, row), (digest, why) in zip(flat, results, strict=True):
        if why:
            skipped.append((row.sample.name, why))
        else:
            read[name].append(replace(row, digest=digest))
    return read


def _keep_apart(sets: dict[str, list[_Row]], skipped: Skipped) -> None:
    """Take out of validation what is in a test set, and out of training what is elsewhere too."""

    def without(rows: list[_Row], others: Iterable[_Row], why: str) -> list[_Row]:
        names = {row.digest: row.sample.name for row in others}
        skipped.extend(
            (row.sample.name, f"{why} {names[row.digest]}") for row in rows if row.digest in names
        )
        return [row for row in rows if row.digest not in names]

    tests = sets.get("test", []) + sets["held test"]
    train = without(sets["train"], tests, "a copy of the test photo")
    if "val" in sets:
        sets["val"] = without(sets["val"], tests, "a copy of the test photo")
    validation = sets.get("val", []) + sets["held val"]
    train = without(train, validation, "a copy of the validation photo")

    alike: dict[str, list[_Row]] = {}
    for row in train:
        alike.setdefault(row.digest, []).append(row)
    sets["train"] = []
    for same in alike.values():
        first, copies = same[0], same[1:]
        if any(row.sample.label != first.sample.label for row in copies):
            names = ", ".join(row.sample.name for row in same)
            skipped.extend(
                (row.sample.name, f"the same photo lies in different classes: {names}")
                for row in same
            )
            continue
        sets["train"].append(first)
        skipped.extend((row.sample.name, f"a copy of {first.sample.name}") for row in copies)


def _draw(rows: list[_Row], fraction: float, seed: int) -> tuple[list[_Row], list[_Row]]:
    """Divide into training and validation, class by class.

    Drawn by a hash of seed and content, so neither names nor order nor platform matter.
    """
    classes: dict[int, list[_Row]] = {}
    for row in rows:
        classes.setdefault(row.sample.label, []).append(row)
    drawn: set[str] = set()
    for members in classes.values():
        count = round(fraction * len(members))
        if fraction > 0:
            count = min(max(count, 1), len(members) - 1)
        order = sorted(
            members, key=lambda row: hashlib.sha256(f"{seed} {row.digest}".encode()).digest()
        )
        drawn.update(row.digest for row in order[:count])
    train = [row for row in rows if row.digest not in drawn]
    return train, [row for row in rows if row.digest in drawn]


# --- A look at the photos ---------------------------------------------------------------------


def sample_figure(photos: PhotoSet, count: int = 25, seed: int = 0) -> Image.Image:
    """A picture of `count` random photos (fewer when there are fewer), each over its dish name.

    PhotoError names a photo that cannot be read; DataError when the set is empty.
    """
    if len(photos) == 0 or count < 1:
        raise DataError("There are no photos to show; choose a set with photos.")
    chosen = random.Random(seed).sample(range(len(photos)), min(count, len(photos)))
    names = [dish_name(photos.classes[photos.samples[i].label]) for i in chosen]
    return photo_grid([photos.photo(i, at_least=256) for i in chosen], names, columns=5)
