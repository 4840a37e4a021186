"""Where the files of a data set lie, in a folder or a zip, and which of its folders are classes.

A class is a folder, as for torchvision's ImageFolder: classes are sorted by name, photos may lie
deeper inside. Understood are class folders on top, the same inside wrapping folders, and train/,
val/ and test/ of class folders. A zip is read in place. Whatever is left out is reported.
"""

import os
import re
import stat
import struct
import threading
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from vit.names import name_fault, plain

PHOTO_NAME = re.compile(
    r".\.(jpe?g|jpe|jfif|mpo|a?png|webp|gif|bmp|dib|tiff?|avif|hei[cf]|j[p2][2kx]|p[bgpn]m|qoi|pcx|sgi)",
    re.IGNORECASE | re.DOTALL,
)  # by its ending, as ImageFolder does; what the file really holds shows when it is read
MAX_FILES = 500_000
MAX_PHOTO_BYTES = 256 * 2**20
MAX_ZIP_BYTES = 20 * 10**9  # unpacked
MAX_ZIP_RATIO = 200  # unpacked to packed; photos hardly shrink, so far more is a trap

_NO_FILES = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_SPLITS = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_SYSTEM_NAMES = {"__macosx", "thumbs.db", "desktop.ini", "ehthumbs.db", "$recycle.bin"}

Skipped = list[tuple[str, str]]  # (file or folder, why)


class DataError(ValueError):
    """A data set that cannot be used: one sentence on what is wrong and what to do."""


class _Folder:
    """Files below a folder; links are followed, but never round in a circle."""

    def __init__(self, path: Path):
        self.path = path

    def entries(self, skipped: Skipped) -> Iterator[tuple[str, int | None]]:
        """Each (name, bytes), '/'-separated; None as bytes marks a folder."""
        yield from self._walk(self.path, "", (), skipped)

    def _walk(
        self, folder: Path, prefix: str, above: tuple[tuple[int, int], ...], skipped: Skipped
    ) -> Iterator[tuple[str, int | None]]:
        try:
            here = folder.stat()
            children = sorted(folder.iterdir())
        except OSError as error:
            skipped.append((prefix or str(folder), f"cannot be read ({error.strerror})"))
            return
        if (here.st_dev, here.st_ino) in above:
            skipped.append((prefix, "a link back to a folder around it"))
            return
        above = (*above, (here.st_dev, here.st_ino))
        for child in children:
            name = prefix + child.name
            if (plain := name.encode(errors="backslashreplace").decode()) != name:
                skipped.append((plain, "its name is no valid text; rename it"))
                continue
            try:
                status = child.stat()
            except OSError as error:
                skipped.append((name, f"cannot be read ({error.strerror})"))
                continue
            if not stat.S_ISDIR(status.st_mode):
                # A pipe or a device would block its reader: size 0 marks it as no photo.
                yield name, status.st_size if stat.S_ISREG(status.st_mode) else 0
                continue
            yield name, None
            if not _is_system(child.name):
                yield from self._walk(child, f"{name}/", above, skipped)

    def source(self, name: str) -> Path:
        return self.path / name

    def read(self, name: str) -> bytes:
        return self.source(name).read_bytes()


class _Zip:
    """Files of a zip, read in place. Each thread and each process opens it for itself."""

    def __init__(self, path: Path):
        self.path = path
        self._open = threading.local()
        try:
            _check_directory(path)
            with zipfile.ZipFile(path) as archive:
                self._names, self._hidden = _safe_names(path, archive.infolist())
                _check_overlaps(path, archive)
        except (DataError, OSError):
            raise
        except Exception as error:  # zipfile raises nearly every kind there is
            raise DataError(
                f"{path.name} is damaged or incomplete; download or pack it again."
            ) from error

    def __getstate__(self) -> dict:
        return {"path": self.path, "_names": self._names, "_hidden": self._hidden}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self._open = threading.local()

    def entries(self, skipped: Skipped) -> Iterator[tuple[str, int | None]]:
        skipped.extend(
            (name, "one of several files of this name in the zip; the last one counts")
            for name in self._hidden
        )
        for name, (_, size) in self._names.items():
            yield name, size

    def source(self, name: str) -> bytes:
        return self.read(name)

    def read(self, name: str) -> bytes:
        # After a fork, parent and child would share one position in the file: hence the pid.
        if getattr(self._open, "pid", None) != os.getpid():
            self._open.archive = zipfile.ZipFile(self.path)
            self._open.pid = os.getpid()
        try:
            return self._open.archive.read(self._names[name][0])
        except (OSError, KeyError, zipfile.BadZipFile):
            raise
        except Exception as error:  # of zipfile, zlib, lzma and struct, for damaged files
            raise zipfile.BadZipFile(str(error)) from error


Place = _Folder | _Zip


def _refusal(path: Path, why: str) -> DataError:
    return DataError(f"{path.name} is refused: {why}; pack the class folders anew.")


def _check_directory(path: Path) -> None:
    """Refuse far too many entries before zipfile makes an object of each.

    Reads the end record of the zip, and its 64-bit form where numbers exceed the short one
    (APPNOTE.TXT 4.3.14 and 4.3.16). What it says of its size is what zipfile reads, so a false
    count cannot slip much through.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2**16 - 200))
        tail = file.read()
    short, long = tail.rfind(b"PK\5\6"), tail.rfind(b"PK\6\6")
    entries, size = struct.unpack_from("<HL", tail, short + 10) if short >= 0 else (0, 0)
    if (entries == 0xFFFF or size == 0xFFFFFFFF) and long >= 0:
        entries, size = struct.unpack_from("<QQ", tail, long + 32)
    if entries > MAX_FILES:
        raise _refusal(path, f"it holds {entries:,} entries, more than {MAX_FILES:,}")
    if size > MAX_FILES * 256:
        raise _refusal(path, f"its directory of {size / 1e6:,.0f} MB is no list of photos")


def _safe_names(
    path: Path, infos: list[zipfile.ZipInfo]
) -> tuple[dict[str, tuple[str, int | None]], list[str]]:
    """Clean name → (name in the zip, bytes or None for a folder), and names of files that another
    one of the same name hides; DataError refuses the zip."""

    if len(infos) > MAX_FILES:
        raise _refusal(path, f"it holds {len(infos):,} entries, more than {MAX_FILES:,}")
    names: dict[str, tuple[str, int | None]] = {}
    hidden: list[str] = []
    unpacked = 0
    for info in infos:
        name = _readable(info).replace("\\", "/")
        shown = ascii(info.filename[:80])
        parts = PurePosixPath(name).parts
        if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in parts:
            raise _refusal(path, f"the entry {shown} points outside it")
        # Whatever system it says it comes from: tools that unpack believe these bits.
        if kind := _NO_FILES.get(stat.S_IFMT(info.external_attr >> 16)):
            raise _refusal(path, f"the entry {shown} is {kind}")
        if info.flag_bits & 0x1:
            raise _refusal(path, "it is locked with a password")
        unpacked += info.file_size
        if clean := "/".join(parts):
            if clean in names and names[clean][1] is not None:
                hidden.append(clean)
            names[clean] = (info.filename, None if name.endswith("/") else info.file_size)
    if unpacked > MAX_ZIP_BYTES:
        raise _refusal(
            path, f"it unpacks to {unpacked / 1e9:,.0f} GB, more than {MAX_ZIP_BYTES / 1e9:.0f} GB"
        )
    if unpacked > max(100e6, MAX_ZIP_RATIO * path.stat().st_size):
        raise _refusal(path, f"it unpacks to more than {MAX_ZIP_RATIO} times its size")
    return names, hidden


def _check_overlaps(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse a zip whose entries share their bytes, which unpacks to far more than it holds.

    Fifield 2019, "A better zip bomb", https://www.bamsoftware.com/hacks/zipbomb/. An entry has a
    header of 30 bytes and its name in front of it.
    """
    places = sorted((i.header_offset, i.compress_size, len(i.filename)) for i in archive.infolist())
    ends = (*(place for place, *_ in places[1:]), archive.start_dir)
    for (place, size, name), end in zip(places, ends, strict=False):  # both empty in an empty zip
        if place + 30 + name + size > end:
            raise _refusal(path, "files in it overlap")


def _readable(info: zipfile.ZipInfo) -> str:
    """The entry's name as its writer meant it.

    Without the flag for UTF-8 a name is in an old code page (APPNOTE.TXT, appendix D), but macOS
    writes UTF-8 and no flag, with accents as signs of their own.
    """
    name = info.filename
    if not info.flag_bits & 0x800 and not name.isascii():
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return unicodedata.normalize("NFC", name)


def open_place(path: str | os.PathLike[str]) -> tuple[Place, str]:
    """The folder or zip at `path`, and the folder inside the zip when the path goes on in it."""
    place = Path(path).expanduser()
    inside = ""
    if not os.path.exists(place):  # unlike Path.exists it never raises
        around = next((p for p in place.parents if os.path.isfile(p)), None)
        if around is None:
            raise DataError(
                f"{place} does not exist; give a folder or a .zip that holds one folder a class."
            )
        place, inside = around, place.relative_to(around).as_posix()
    if place.is_dir():
        return _Folder(place), ""
    if not zipfile.is_zipfile(place):
        raise DataError(
            f"{place} is neither a folder nor a complete zip; "
            "give a folder or a .zip that holds one folder a class."
        )
    return _Zip(place), inside


# --- Which folders are classes ----------------------------------------------------------------


@dataclass
class _Node:
    """A folder: the folders in it by name, and the full names of the photos directly in it."""

    name: str
    folders: dict[str, "_Node"] = field(default_factory=dict)
    photos: list[str] = field(default_factory=list)

    def all_photos(self) -> Iterator[str]:
        yield from sorted(self.photos)
        for _, folder in sorted(self.folders.items()):
            yield from folder.all_photos()

    @property
    def leaf(self) -> str:
        return self.name.rpartition("/")[2].lower()


Classes = dict[str, list[str]]  # class → names of its photos; empty for an empty folder


def _is_system(part: str) -> bool:
    return part.startswith(".") or part.lower() in _SYSTEM_NAMES


def _tree(entries: Iterable[tuple[str, int | None]], skipped: Skipped) -> _Node:
    root = _Node("")
    system: set[str] = set()
    for number, (name, size) in enumerate(entries):
        if number >= MAX_FILES:
            raise DataError(
                f"There are more than {MAX_FILES:,} files; choose the folder of class folders."
            )
        parts = name.split("/")
        hidden = next((i for i, part in enumerate(parts) if _is_system(part)), None)
        if hidden is not None:
            system.add("/".join(parts[: hidden + 1]))
            continue
        node = root
        for depth, part in enumerate(parts if size is None else parts[:-1]):
            if part not in node.folders:
                node.folders[part] = _Node("/".join(parts[: depth + 1]))
            node = node.folders[part]
        if size is None:
            continue
        if why := _no_photo(parts[-1], size):
            skipped.append((name, why))
        else:
            node.photos.append(name)
    skipped.extend((name, "a hidden or system file") for name in sorted(system))
    return root


def _any_photo(node: _Node) -> bool:
    return next(node.all_photos(), None) is not None


def _no_photo(name: str, size: int) -> str:
    if not PHOTO_NAME.fullmatch(name, max(0, name.rfind(".") - 1)):
        return "not a photo"
    if size == 0:
        return "empty"
    if size > MAX_PHOTO_BYTES:
        return f"larger than {MAX_PHOTO_BYTES // 2**20} MB"
    return ""


class Found:
    """What lies at a path: the place, its sets by split name ("all" when undivided), the rest."""

    def __init__(self, path: str | os.PathLike[str]):
        self.skipped: Skipped = []
        self.shown = str(path)
        self.place, inside = open_place(path)
        self.name = self.place.path.resolve().name
        node = _tree(self.place.entries(self.skipped), self.skipped)
        for part in inside.split("/") if inside else ():
            if part not in node.folders:
                raise DataError(f"{path} does not exist; {self.name} has no folder {inside}/.")
            node = node.folders[part]
        while len(node.folders) == 1:  # a folder around the class folders, or around train/
            (only,) = node.folders.values()
            deeper = only.folders and (not only.photos or len(only.folders) > 1)
            if only.leaf in _SPLITS or not deeper:
                break
            self._report_stray(node)
            node = only
        self.sets = self._split(node)

    def _split(self, node: _Node) -> dict[str, Classes]:
        folders = [folder for _, folder in sorted(node.folders.items())]
        splits: dict[str, _Node] = {}
        # A class may be called "train" (beside "bus"): a split is what has class folders inside.
        for folder in folders:
            split = _SPLITS.get(folder.leaf)
            if split is None or not any(_any_photo(f) for f in folder.folders.values()):
                continue
            if split in splits:
                raise DataError(
                    f"{self.shown} has both {splits[split].name}/ and {folder.name}/; keep one."
                )
            splits[split] = folder
        if not splits:
            if folders and all(folder.leaf in _SPLITS for folder in folders):
                raise DataError(
                    f"{self.shown} has no class folders inside {folders[0].name}/; sort its photos "
                    "into one folder a class, named after what they show."
                )
            return {"all": self._classes(node)}
        if "train" not in splits:
            names = " and ".join(f"{folder.name}/" for folder in splits.values())
            raise DataError(
                f"{self.shown} has {names} but no train/; "
                "put the class folders to learn from into a folder called train."
            )
        self.skipped.extend(
            (folder.name, "not used: it lies beside train/ and is no set of class folders")
            for folder in folders
            if folder not in splits.values()
        )
        self._report_stray(node)
        return {split: self._classes(folder) for split, folder in splits.items()}

    def _classes(self, node: _Node) -> Classes:
        found = {name: list(folder.all_photos()) for name, folder in sorted(node.folders.items())}
        for name, photos in found.items():
            if photos and (fault := name_fault(name)):
                raise DataError(
                    f"The class folder {plain(name, 60)} in {self.name} has a name that {fault}; "
                    "rename it."
                )
        if not any(found.values()):
            where = f"{node.name}/ in {self.shown}" if node.name else self.shown
            if node.photos:
                raise DataError(
                    f"{where} holds photos but no class folders; sort the photos into one folder "
                    "a class, named after what they show."
                )
            raise DataError(
                f"{where} holds no photos; it needs one folder a class with photos such as "
                ".jpg or .png inside."
            )
        self.skipped.extend(
            (node.folders[name].name, "a class folder without photos")
            for name, photos in found.items()
            if not photos
        )
        self._report_stray(node)
        return found

    def _report_stray(self, node: _Node) -> None:
        self.skipped.extend((name, "in no class folder") for name in sorted(node.photos))
