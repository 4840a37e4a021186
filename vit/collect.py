"""Photos that a visitor of the page brings: collected class by class, or sent as a zip.

Everything of one visitor lies in one folder, `$VIT_HOME/data/visitors/…`, whose name follows from
a random key that only the visitor's browser holds; so nobody comes to another one's photos by
guessing or by reading a path. In it:

    collection/CLASS/…   the photos, each named after its file and its content: their pixels alone,
                         upright, as JPEG; when and where a phone took them is not kept
    sets/…               the collection as it was when it was chosen for training (hard links, no
                         copies), so that it may go on changing while a run reads them
    zips/…               zips as they were sent
    thumbs/…             small copies to look at
    used                 its time is that of the last use

What is written gets its name only when it is whole, and what is deleted loses it first, so that a
kill at any moment leaves nothing half-done. Folders that nobody used for `$VIT_KEEP_DAYS` go.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import secrets
import shutil
import threading
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from vit.doctor import FEW
from vit.findings import counted
from vit.home import home
from vit.images import PhotoError, open_photo
from vit.names import dish_name, plain
from vit.settings import amount, count

MAX_CLASSES = 200
MAX_CLASS_NAME = 60  # characters
MAX_PHOTO_MB = 50  # of one photo
ENOUGH = 1024  # pixels that the short side of a kept photo has at least, where it had them
KEPT_SETS = 10  # chosen states of a collection; older ones go
RESERVE = 500_000_000  # bytes of the disk that visitors' photos never take
THUMBNAIL = 160  # pixels of the short side
HOUR = 3600  # seconds

# Held from counting photos to adding one, so that several at once do not pass a bound together.
_counting = threading.Lock()

_KEY = re.compile(r"[0-9a-f]{32}")
_UNUSABLE = set('/\\:*?"<>|')
_RESERVED = {"con", "prn", "aux", "nul"} | {f"{p}{n}" for p in ("com", "lpt") for n in range(1, 10)}
_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}


class CollectError(ValueError):
    """What cannot be kept: one sentence that says why and what to do."""


@dataclass(frozen=True)
class Limits:
    """Of one visitor."""

    photos: int  # $VIT_COLLECT_PHOTOS
    megabytes: int  # $VIT_COLLECT_MB: photos and zips together
    zip_megabytes: int  # $VIT_ZIP_MB: of one zip
    days: float  # $VIT_KEEP_DAYS: after so many without a use everything of the visitor goes


def limits() -> Limits:
    """From the environment; the defaults are lower on a Space. ValueError names a bad variable."""
    return Limits(
        count("VIT_COLLECT_PHOTOS"),
        count("VIT_COLLECT_MB"),
        count("VIT_ZIP_MB"),
        amount("VIT_KEEP_DAYS"),
    )


def new_key() -> str:
    """What a visitor's browser keeps, to find the photos again."""
    return secrets.token_hex(16)


def is_key(value: object) -> bool:
    return isinstance(value, str) and bool(_KEY.fullmatch(value))


@dataclass(frozen=True)
class Added:
    """Where a photo lies, and whether the class had it already."""

    path: Path
    known: bool


class Visitor:
    """The photos of the visitor whose browser holds `key`; CollectError when it is no key.

    Nothing is created before the first photo, class or zip. Safe for several pages and threads.
    """

    def __init__(self, key: str) -> None:
        if not is_key(key):
            raise CollectError("This page has lost its place; reload it.")
        name = hashlib.sha256(f"visitor {key}".encode()).hexdigest()[:24]
        self.folder = _visitors() / name
        self.collection = self.folder / "collection"

    # --- classes

    def classes(self) -> dict[str, list[Path]]:
        """Class → its photos, the newest first; classes in the order of their names."""
        found = {}
        for folder in sorted(_folders(self.collection), key=lambda path: path.name.casefold()):
            photos = [(_time(path), path) for path in _files(folder)]
            found[folder.name] = [path for _, path in sorted(photos, reverse=True)]
        return found

    def create(self, name: str) -> str:
        """A new class; its name as it is kept. CollectError when it cannot be a name, or is one."""
        name = self._free_name(name)
        if len(self.classes()) >= MAX_CLASSES:
            raise CollectError(f"There are {MAX_CLASSES} classes already; remove one first.")
        self._use()
        (self.collection / name).mkdir(parents=True, exist_ok=True)
        return name

    def rename(self, old: str, new: str) -> str:
        """The class `old` gets the name `new`; the name as it is kept."""
        folder = self._class(old)
        new = self._free_name(new, besides=old)
        self._use()
        if new != old:
            folder.rename(self.collection / new)
        return new

    def remove(self, name: str) -> None:
        """The class goes, with its photos."""
        folder = self._class(name)
        self._use()
        self._drop(folder)

    # --- photos

    def add(self, class_name: str, source: str | os.PathLike[str], name: str = "") -> Added:
        """Keep the pixels of the photo at `source`, which the visitor calls `name`, in a class.

        It is read by the one photo loader: PhotoError for what cannot be used. A large photo is
        kept smaller, its short side still of `ENOUGH` pixels.
        """
        folder = self._class(class_name)
        called = plain(Path(name or os.fspath(source)).name or "The photo", 60)
        size = os.path.getsize(source)
        if size > MAX_PHOTO_MB * 2**20:
            raise CollectError(f"{called} is larger than {MAX_PHOTO_MB} MB; make it smaller.")
        try:
            picture = open_photo(Path(source).read_bytes(), at_least=ENOUGH).image
        except PhotoError as error:
            raise PhotoError(f"{called}: {error}") from error
        content = _pixels_alone(picture)
        digest = hashlib.sha256(content).hexdigest()[:12]
        picture.thumbnail((2 * THUMBNAIL, THUMBNAIL))
        with _counting:
            for path in _files(folder):
                if path.stem.endswith(f"-{digest}"):
                    return Added(path, known=True)
            self._check_room(len(content))
            most = limits().photos
            if sum(map(len, self.classes().values())) >= most:
                text = f"There are {most:,} photos already, the most here; delete some."
                raise CollectError(text)
            self._use()
            with self._whole(self.folder / "thumbs" / f"{digest}.jpg") as unfinished:
                picture.save(unfinished, "JPEG", quality=80)
            path = folder / f"{_file_stem(name or os.fspath(source))}-{digest}.jpg"
            with self._whole(path) as unfinished:
                unfinished.write_bytes(content)
        return Added(path, known=False)

    def thumbnail(self, photo: Path) -> bytes:
        """A small JPEG of a collected photo; PhotoError when the photo has gone."""
        path = self.folder / "thumbs" / f"{photo.stem[-12:]}.jpg"
        with suppress(OSError):
            return path.read_bytes()
        picture = open_photo(photo, at_least=THUMBNAIL).image
        picture.thumbnail((2 * THUMBNAIL, THUMBNAIL))
        with self._whole(path) as unfinished:
            picture.save(unfinished, "JPEG", quality=80)
        return path.read_bytes()

    def delete(self, class_name: str, photo: str) -> None:
        """The photo whose file is called `photo` goes; nothing happens when it has gone."""
        folder = self._class(class_name)
        self._use()
        for path in _files(folder):
            if path.name == photo:
                path.unlink(missing_ok=True)

    # --- what can be trained on

    def choose(self) -> Path:
        """The collection as it is now, as a folder of class folders that nothing changes any more.

        The same collection gives the same folder. CollectError when there is nothing to learn.
        """
        classes = {name: photos for name, photos in self.classes().items() if photos}
        if not classes:
            raise CollectError("There are no photos yet; name a class and add photos to it.")
        if len(classes) < 2:
            (only,) = classes
            raise CollectError(
                f"There are photos of {plain(dish_name(only), 40)} alone; "
                "add another class, for a model learns to tell classes apart."
            )
        self._use()
        target = self._set(classes)
        if not target.is_dir():
            with self._whole(target) as unfinished:
                for name, photos in classes.items():
                    (unfinished / name).mkdir(parents=True)
                    for path in photos:
                        _link(path, unfinished / name / path.name)
        os.utime(target)
        for old in sorted(_folders(target.parent), key=_time, reverse=True)[KEPT_SETS:]:
            self._drop(old)
        return target

    def is_chosen(self, path: Path) -> bool:
        """Whether the collection is as it was when `choose` gave this path."""
        return path == self._set(self.classes())

    def _set(self, classes: Mapping[str, list[Path]]) -> Path:
        lines = sorted(f"{name}/{path.name}" for name, ps in classes.items() for path in ps)
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
        return self.folder / "sets" / f"collected-{digest}"

    def keep_zip(self, source: str | os.PathLike[str], name: str) -> Path:
        """A copy of the zip at `source`, which the visitor calls `name`. Where room lacks, older
        zips of the visitor's go first."""
        size = os.path.getsize(source)
        called = plain(Path(name).name or "The zip", 60)
        most = limits().zip_megabytes
        if size > most * 1e6:
            raise CollectError(
                f"{called} has {size / 1e6:,.0f} MB, more than {most:,}; make its photos smaller, "
                "1,000 pixels do."
            )
        self._use()
        zips = self.folder / "zips"
        for old in sorted(_folders(zips), key=_time):
            with suppress(CollectError):
                self._check_room(size)
                break
            self._drop(old)
        self._check_room(size)
        digest = hashlib.sha256()
        with self._whole(None) as unfinished:
            with open(source, "rb") as one, open(unfinished, "wb") as other:
                while piece := one.read(2**20):
                    digest.update(piece)
                    other.write(piece)
            path = zips / digest.hexdigest()[:12] / f"{_file_stem(name)}.zip"
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(unfinished, path)
        return path

    def last_zip(self) -> Path | None:
        """The zip that the visitor sent last, as long as it is kept."""
        for folder in sorted(_folders(self.folder / "zips"), key=_time, reverse=True):
            return next(iter(_files(folder)), None)
        return None

    # --- inside

    def _class(self, name: str) -> Path:
        """The folder of a class that is there; never a path elsewhere."""
        for folder in _folders(self.collection):
            if folder.name == name:
                return folder
        raise CollectError("That class is not there any more; choose another.")

    def _free_name(self, name: str, besides: str = "") -> str:
        name = class_name(name)
        for other in self.classes():
            if other != besides and _alike(other) == _alike(name):
                raise CollectError(f"There is a class {other} already; choose another name.")
        return name

    def _check_room(self, size: int) -> None:
        most = limits().megabytes
        used = sum({s.st_ino: s.st_size for s in _statuses(self.folder)}.values())
        if used + size > most * 1e6:
            raise CollectError(
                f"There is no room: your photos take {used / 1e6:,.0f} of {most:,} MB; "
                "delete some, or send smaller ones."
            )
        place = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        if shutil.disk_usage(place).free < size + RESERVE:
            raise CollectError("The disk of this page is full; try again later.")

    def _use(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "used").touch()

    @contextmanager
    def _whole(self, target: Path | None) -> Iterator[Path]:
        """A path to write to; it becomes `target` when all went well and is gone when not."""
        unfinished = self.folder / f".unfinished-{secrets.token_hex(8)}"
        try:
            yield unfinished
            if target is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(unfinished, target)
        except OSError:
            if target is None or not target.is_dir():  # else another page made the same set
                raise
        finally:
            _delete(unfinished)

    def _drop(self, folder: Path) -> None:
        gone = self.folder / f".unfinished-{secrets.token_hex(8)}"
        with suppress(FileNotFoundError):
            folder.rename(gone)
            _delete(gone)


def class_name(text: str) -> str:
    """What a person typed, as the name of a class and its folder; CollectError when it is none."""
    name = " ".join(unicodedata.normalize("NFC", str(text)).split()).rstrip(". ")
    if not name:
        raise CollectError("Give the class a name, such as Pad thai.")
    if len(name) > MAX_CLASS_NAME:
        raise CollectError(f"A name has {MAX_CLASS_NAME} characters at most; choose a shorter one.")
    if not name.isprintable() or set(name) & _UNUSABLE or name.startswith("."):
        raise CollectError('A name has none of / \\ : * ? " < > | and no dot in front.')
    if name.split(".")[0].casefold() in _RESERVED or name.casefold() in _SPLITS:
        raise CollectError(f"{name} means something else to computers; choose another name.")
    return name


def wanted(counts: Mapping[str, int]) -> dict[str, int]:
    """How many photos each class lacks, for those that lack some: up to `FEW`, and to half of what
    the largest class has."""
    goal = max(FEW, math.ceil(max(counts.values(), default=0) / 2))
    return {name: goal - count for name, count in counts.items() if count < goal}


def balance(counts: Mapping[str, int]) -> str:
    """One sentence on which class needs more photos."""
    if len(counts) < 2:
        return "Two classes are the least that can be told apart."
    lacking = sorted(wanted(counts).items(), key=lambda item: -item[1])
    if not lacking:
        return "The classes are balanced."
    named = [f"{number} more of {plain(dish_name(name), 40)}" for name, number in lacking[:6]]
    more = f" and {counted(len(lacking) - 6, 'other class', 'other classes')}" * (len(lacking) > 6)
    return f"More photos would help: {', '.join(named)}{more}."


def clean_up(now: float | None = None) -> None:
    """Delete the folders of visitors who have not come for `$VIT_KEEP_DAYS`, and what a kill left
    unfinished. Does its work at most once an hour."""
    now = time.time() if now is None else now
    place = _visitors()
    mark = place / ".cleaned"
    if not place.is_dir() or 0 <= now - _time(mark) < HOUR:
        return
    try:
        mark.touch()
        os.utime(mark, (now, now))
    except OSError:  # a disk that may only be read
        return
    oldest = now - limits().days * 24 * HOUR
    for folder in [path for path in place.iterdir() if path.is_dir()]:
        if folder.name.startswith(".gone-"):
            _delete(folder)
        elif re.fullmatch(r"[0-9a-f]{24}", folder.name):
            used = max(_time(folder / "used"), _time(folder))
            if used > now + HOUR:  # the clock has been set back since
                for path in (folder / "used", folder):
                    with suppress(OSError):
                        os.utime(path, (now, now))
            if used < oldest:
                gone = place / f".gone-{secrets.token_hex(8)}"
                with suppress(OSError):
                    folder.rename(gone)
                    _delete(gone)
                continue
            for left in folder.glob(".unfinished-*"):
                if now - _time(left) > HOUR:
                    _delete(left)


def _visitors() -> Path:
    return home() / "data" / "visitors"


def _alike(name: str) -> str:
    return dish_name(unicodedata.normalize("NFKC", name)).casefold()


def _file_stem(name: str) -> str:
    stem = re.sub(r"[^\w-]+", "_", Path(name.replace("\\", "/")).stem)
    return stem[:40].strip("_-") or "photo"


def _pixels_alone(picture: Image.Image) -> bytes:
    """A JPEG without EXIF, colour profile or comment."""
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=95, subsampling=0)
    return data.getvalue()


def _files(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in _scan(folder) if entry.is_file(follow_symlinks=False)]


def _folders(folder: Path) -> list[Path]:
    return [Path(entry.path) for entry in _scan(folder) if entry.is_dir(follow_symlinks=False)]


def _scan(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    for top, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(top, name))


def _time(path: Path) -> float:
    """When it was last changed, in seconds; 0 when it has gone."""
    try:
        return path.stat().st_mtime_ns / 1e9
    except OSError:
        return 0.0


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a disk without hard links
        shutil.copyfile(source, target)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
