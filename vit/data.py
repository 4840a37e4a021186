"""A folder or zip of class folders as a checked, reproducible data set.

Read with the product's own photo loader, by the rules of `vit.folders` on what is a class. Whatever
is left out is reported with a reason, never in silence.
"""

import hashlib
import os
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from PIL import Image

from vit.drawing import photo_grid
from vit.folders import Classes, DataError, Found, Skipped
from vit.names import dish_name
from vit.photoset import PhotoSet, Progress, Row, Sample, Watch, read_all


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
    held: dict[str, list[Row]] = {"val": [], "test": []}  # not used, nor learnt from
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
    rows, left = _rows(found, photos, classes), found.skipped
    if check:
        rows = _read_all({"all": rows}, left, True, None)["all"]
    if skipped is not None:
        skipped += left
    return PhotoSet(classes, rows)


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


def _rows(found: Found, photos: Classes, classes: Sequence[str], other: bool = False) -> list[Row]:
    """Photos with their labels, -1 for no known class; `other`: not from the data set itself."""
    labels = {name: label for label, name in enumerate(classes)}
    front = f"{found.name}/" if other else ""
    return [
        Row(Sample(front + key, labels.get(name, -1)), found.place, key)
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
    sets: dict[str, list[Row]],
    skipped: Skipped,
    check: bool,
    progress: Progress | None,
    watch: Watch | None = None,
) -> dict[str, list[Row]]:
    """The same sets with every photo hashed, without those that cannot be read."""
    flat = [(name, row) for name, rows in sets.items() for row in rows]
    read: dict[str, list[Row]] = {name: [] for name in sets}
    decode = [check and not name.startswith("held") for name, _ in flat]
    results = read_all([row for _, row in flat], decode, progress, watch)
    for (name, row), (digest, why) in zip(flat, results, strict=True):
        if why:
            skipped.append((row.sample.name, why))
        else:
            read[name].append(replace(row, digest=digest))
    return read


def _keep_apart(sets: dict[str, list[Row]], skipped: Skipped) -> None:
    """Take out of validation what is in a test set, and out of training what is elsewhere too."""

    def without(rows: list[Row], others: Iterable[Row], why: str) -> list[Row]:
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

    alike: dict[str, list[Row]] = {}
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


def _draw(rows: list[Row], fraction: float, seed: int) -> tuple[list[Row], list[Row]]:
    """Divide into training and validation, class by class.

    Drawn by a hash of seed and content, so neither names nor order nor platform matter.
    """
    classes: dict[int, list[Row]] = {}
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
