"""The dataset doctor: what is in a folder or zip of class folders, and what becomes of every file.

It watches `vit.data.open_data` read the data set exactly as training will, so what it says of a
file is what happens to it; and it looks for what is used although a person should know of it: near
duplicates, tiny and huge photos, animations, unequal classes. It changes and decides nothing.
"""

from __future__ import annotations

import io
import os
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Literal

from vit.data import DataSet, open_data
from vit.duplicates import Signature, groups, near_pairs, signature
from vit.findings import (
    SPLIT_NAMES,
    SPLITS,
    ClassCount,
    Finding,
    Report,
    Split,
    counted,
    listed,
    shown_findings,
)
from vit.folders import DataError, Found, Skipped
from vit.images import PhotoTooLarge, PhotoTooSmall, is_animated, open_photo
from vit.names import dish_name, plain, plain_sentence
from vit.photoset import Reading

TINY = 64  # pixels of the short side; the models see 224, so less is enlarged 3.5 times and more
HUGE = 50e6  # pixels; phones have up to 50 million
FEW = 10  # photos of a class
UNEQUAL = 3  # times that the largest class may be larger than another
MAX_COMPARED = 100_000  # photos among which near duplicates are looked for
SHOWN = 12  # findings of a kind that get thumbnails
SHOWN_FILES = 4  # of one finding
THUMBNAIL = 120  # pixels of the long side
PACE = 0.2  # seconds between two looks at how far the reading is

_ARCHIVE = re.compile(r".*\.(zip|rar|7z|tar|t?gz|bz2|xz)", re.IGNORECASE | re.DOTALL)
_KINDS = (  # how a reason of `vit.folders` or `vit.data` begins, and what kind of finding it is
    ("not a photo", "no photo"),
    ("empty", "empty"),
    ("larger than", "too large"),
    ("a hidden or system file", "hidden"),
    ("a class folder without photos", "empty class"),
    ("in no class folder", "stray"),
    ("not used", "not used"),
    ("a link back", "not used"),
    ("its name is no valid text", "not used"),
    ("one of several files", "not used"),
    ("a copy of the test photo ", "copy of test"),
    ("a copy of the validation photo ", "copy of test"),
    ("a copy of ", "copy"),
    ("the same photo lies in different classes", "contradiction"),
)


@dataclass(frozen=True)
class Examined:
    """How far the doctor is."""

    done: int
    total: int  # 0 while it is not known
    doing: Literal["reading", "comparing"] = "reading"


@dataclass(frozen=True, slots=True)
class _Note:
    """What is kept of a photo that was read; about 600 bytes."""

    kind: str = ""  # of finding, where the photo cannot be used
    digest: str = ""
    signature: Signature | None = None
    size: tuple[int, int] = (0, 0)  # width, height
    animated: bool = False


class _Left(Exception):
    """Nobody waits for the report any more."""


def examine(
    path: str | os.PathLike[str],
    *,
    val_fraction: float = 0.15,
    seed: int = 0,
    most: int | None = None,
) -> Iterator[Examined | Report]:
    """How far it is, several times a second, and last the report on the folder or zip at `path`.

    `val_fraction` and `seed` as in `open_data`, and with its defaults. Every photo is decoded once,
    in threads, and about 600 bytes are kept of each; none of a data set of more than `most`.
    Closing the iterator ends the work. Raises nothing for a data set that cannot be used: the
    report says so.
    """
    try:
        found = Found(path)
        count = sum(len(photos) for classes in found.sets.values() for photos in classes.values())
        if most is not None and count > most:
            raise DataError(
                f"There are {count:,} photos, more than the {most:,} that may be used here; "
                "choose some of every class."
            )
    except (DataError, OSError) as error:
        yield Report(plain(os.path.basename(str(path).rstrip("/"))), _sentence(error), (), ())
        return
    notes: dict[str, _Note] = {}
    skipped: Skipped = []
    total = 0
    left = threading.Event()

    def watch(reading: Reading) -> None:
        if left.is_set():
            raise _Left
        notes[reading.name] = _note(reading)

    def progress(_: int, photos: int) -> None:
        nonlocal total
        total = photos

    pool = ThreadPoolExecutor(1)
    try:
        yield Examined(0, 0)
        reading = pool.submit(
            open_data,
            found,
            val_fraction=val_fraction,
            seed=seed,
            progress=progress,
            watch=watch,
            skipped=skipped,
        )
        while wait([reading], PACE).not_done:
            yield Examined(len(notes), total)
        try:
            data, problem = reading.result(), ""
        except (DataError, OSError) as error:
            data, problem = None, _sentence(error)
    finally:
        left.set()
        pool.shutdown(wait=False)
    findings = list(_left_out(skipped, notes))
    if data is None:
        counts = _counts_of_folders(found, skipped)
    else:
        if not len(data.val):
            problem = "There are no validation photos; give each class two photos or more."
        counts = _counts(data)
        findings += _about_classes(counts)
        places = _places(data)
        findings += _about_photos(places, notes)
        for step in _alike(places, notes):
            if isinstance(step, list):
                findings += step
            else:
                yield step
    kinds = shown_findings(findings)
    yield Report(
        data=plain(found.name),
        problem=problem,
        classes=counts,
        findings=tuple(finding for members in kinds.values() for finding in members),
        fingerprint=data.fingerprint if data else "",
        drawn="val" not in found.sets,
        thumbnails=_thumbnails(found, kinds.values(), notes),
    )


def report_on(path: str | os.PathLike[str]) -> Report:
    """The report of `examine` alone."""
    *_, report = examine(path)
    assert isinstance(report, Report)
    return report


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return (
            f"The data set cannot be read ({error.strerror or error}); check the disk and rights."
        )
    return plain_sentence(str(error))


# --- One photo --------------------------------------------------------------------------------


def _note(reading: Reading) -> _Note:
    if reading.photo is None:
        kind = "truncated" if ends_early(reading.content) else "unreadable"
        if isinstance(reading.error, PhotoTooLarge):
            kind = "too large"
        elif isinstance(reading.error, PhotoTooSmall):
            kind = "too small"
        return _Note(kind)
    return _Note(
        digest=reading.digest,
        signature=signature(reading.photo.image),
        size=reading.photo.size,
        animated=is_animated(reading.content),
    )


def ends_early(content: bytes) -> bool:
    """Whether a photo's file lacks its end, by what its format says of its length."""
    if content.startswith(b"\xff\xd8"):  # JPEG ends in a mark, which a few bytes may follow
        return b"\xff\xd9" not in content[-1024:]
    if content.startswith(b"\x89PNG"):
        return b"IEND" not in content[-64:]
    if content.startswith(b"GIF8"):
        return not content.rstrip(b"\0").endswith(b";")
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return len(content) < 8 + int.from_bytes(content[4:8], "little")
    if content[4:8] == b"ftyp":  # AVIF and HEIC: boxes, each with its length
        place = 0
        while 0 <= place < len(content):
            length = int.from_bytes(content[place : place + 4], "big")
            if length < 8:  # 0: to the end; 1: a 64-bit length follows
                return False
            place += length
        return place > len(content)
    return False


# --- What is left out -------------------------------------------------------------------------


def _left_out(skipped: Skipped, notes: dict[str, _Note]) -> Iterator[Finding]:
    contradictions: dict[str, list[str]] = {}
    for name, why in skipped:
        start, kind = next(
            ((start, kind) for start, kind in _KINDS if why.startswith(start)), ("", "unreadable")
        )
        if kind == "contradiction":
            contradictions.setdefault(why, []).append(name)
            continue
        files = (name,)
        if name in notes and notes[name].kind:
            kind = notes[name].kind
        elif kind in ("copy", "copy of test"):
            files = (name, why.removeprefix(start))
        elif kind == "no photo" and _ARCHIVE.fullmatch(name):
            kind = "packed"
        yield Finding(kind, files, f"Left out: {plain_sentence(_without_name(why, files))}.")
    for names in contradictions.values():
        files = tuple(names)
        yield Finding(
            "contradiction", files, "All are left out: nobody can say which class is right."
        )


def _without_name(why: str, files: Sequence[str]) -> str:
    """The reason; the other file is named beside it."""
    if len(files) == 1:
        return why
    return "a copy" if why == f"a copy of {files[1]}" else why.removesuffix(f" {files[1]}")


# --- What is used -----------------------------------------------------------------------------

Places = dict[str, tuple[Split, str]]  # photo → its set and class


def _places(data: DataSet) -> Places:
    sets = {"train": data.train, "val": data.val, "test": data.test}
    return {
        sample.name: (split, data.classes[sample.label])
        for split in SPLITS
        if (photos := sets[split]) is not None
        for sample in photos.samples
    }


def _counts(data: DataSet) -> tuple[ClassCount, ...]:
    counts = Counter(_places(data).values())
    return tuple(
        ClassCount(name, *(counts[split, name] for split in SPLITS)) for name in data.classes
    )


def _counts_of_folders(found: Found, skipped: Skipped) -> tuple[ClassCount, ...]:
    """The same of a data set that cannot be trained on; photos may not have been read."""
    gone = {name for name, _ in skipped}
    counts: Counter[tuple[str, str]] = Counter()
    for split, classes in found.sets.items():
        for name, photos in classes.items():
            key = ("train" if split == "all" else split, name)
            counts[key] += sum(photo not in gone for photo in photos)
    names = sorted({name for _, name in counts})
    return tuple(ClassCount(name, *(counts[split, name] for split in SPLITS)) for name in names)


def _about_classes(counts: Sequence[ClassCount]) -> Iterator[Finding]:
    largest = max(counts, key=lambda c: c.learning)
    most = plain(dish_name(largest.name), 40)
    for count in counts:
        photos = counted(count.learning, "photo")
        if count.learning < FEW:
            yield Finding(
                "few photos",
                (count.name,),
                f"It has {photos} to learn from and to choose by. All are used, but what it "
                f"learns hangs on each; {FEW} are a beginning.",
            )
        if count.learning * UNEQUAL < largest.learning:
            yield Finding(
                "imbalance",
                (count.name,),
                f"It has {photos}, {most} has {largest.learning:,}. All are used and each counts "
                f"the same, so the model leans towards {most}.",
            )
    alike: dict[str, list[str]] = {}
    for count in counts:
        key = unicodedata.normalize("NFKD", dish_name(count.name)).casefold()
        alike.setdefault("".join(c for c in key if c.isalnum()) or count.name, []).append(
            count.name
        )
    for names in alike.values():
        if len(names) > 1:
            yield Finding("similar names", tuple(names), "They are taught as different dishes.")


def _about_photos(places: Places, notes: dict[str, _Note]) -> Iterator[Finding]:
    for name in places:
        note = notes[name]
        width, height = note.size
        pixels = f"{width:,} × {height:,} pixels"
        if min(note.size) < TINY:
            yield Finding("tiny", (name,), f"Used, enlarged: it has {pixels} and looks blurred.")
        if width * height > HUGE:
            yield Finding("huge", (name,), f"Used, made smaller: it has {pixels} and reads slowly.")
        if note.animated:
            yield Finding("animated", (name,), "Used: its first picture stands for it.")


def _alike(places: Places, notes: dict[str, _Note]) -> Iterator[Examined | list[Finding]]:
    """How far it is, and last the findings about near duplicates among the photos that are used."""
    compared: list[str] = []
    signatures: list[Signature] = []
    for name in places:
        if (mark := notes[name].signature) and len(compared) < MAX_COMPARED:
            compared.append(name)
            signatures.append(mark)
    findings = []
    if len(places) > len(compared):
        text = f"Near duplicates were looked for among {len(compared):,} of {len(places):,} photos."
        findings.append(Finding("not compared", (), text))
    for step in near_pairs(signatures):
        if isinstance(step, int):
            yield Examined(step, len(signatures), "comparing")
        else:
            for group in groups(step):
                findings.append(_group([compared[i] for i in group], places, notes))
    yield findings


def _group(names: list[str], places: Places, notes: dict[str, _Note]) -> Finding:
    splits = sorted({places[name][0] for name in names}, key=SPLITS.index)
    classes = sorted({places[name][1] for name in names})
    same = len({notes[name].digest for name in names}) == 1
    these = "The same file" if same else "They look the same"
    sets = listed([SPLIT_NAMES[split] for split in splits])
    if len(classes) > 1:
        kind = "alike across classes"
        where = f" in {listed([plain(dish_name(name), 40) for name in classes])}"
        result = "all are used, so at least one is taught or counted wrongly"
    elif len(splits) > 1:
        kind = "alike across sets"
        where = f" among the {sets} photos"
        result = "all are used, so the count flatters the model"
    else:
        kind = "alike"
        where = f" among the {sets} photos" if splits != ["train"] else ""
        result = "all are used, so this picture counts more than others"
    return Finding(kind, tuple(names), f"{these}{where}: {result}.")


# --- Thumbnails -------------------------------------------------------------------------------


def _thumbnails(
    found: Found, kinds: Iterable[Sequence[Finding]], notes: dict[str, _Note]
) -> dict[str, bytes]:
    """JPEGs of the first files of the first findings of every kind, as far as they can be read."""
    made: dict[str, bytes] = {}
    for members in kinds:
        for finding in members[:SHOWN]:
            for name in finding.files[:SHOWN_FILES]:
                if name in made or name not in notes or notes[name].kind:
                    continue
                try:
                    picture = open_photo(found.place.read(name), at_least=THUMBNAIL).image
                    picture.thumbnail((THUMBNAIL, THUMBNAIL))
                    data = io.BytesIO()
                    picture.save(data, "JPEG", quality=75)
                except Exception:  # it may have gone meanwhile, and a report is due all the same
                    continue
                made[name] = data.getvalue()
    return made
