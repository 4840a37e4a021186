"""Any photo file to upright RGB pixels, and from those to what the model sees.

Training, evaluation, the app and the command line all come through here, so a photo
means the same pixels everywhere. `open_photo` reads; `Preprocess` holds the rules, stored with
every checkpoint, that turn a photo into the model's picture and that picture into a tensor.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import IO, Any, Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vit.formats import PhotoError, PhotoTooLarge, damaged, is_jpeg, open_lazily
from vit.settings import amount

Source = str | os.PathLike[str] | bytes | Image.Image | np.ndarray

MIN_SIDE = 8  # pixels; less than this shows no dish
MAX_ASPECT = 50  # long side over short side


def _max_pixels() -> int:
    return max(1, int(1e6 * amount("VIT_MAX_MEGAPIXELS")))


MAX_PIXELS = _max_pixels()  # a photo of more pixels is refused before it is decoded
LARGE = (
    16_000_000  # pixels of a photo of which two at most are decoded at once, to bound the memory
)
STRIP = 2**20  # pixels that are brought to RGB at a time
_large_ones = threading.BoundedSemaphore(2)

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # EXIF orientation → the turn that undoes it; 5 to 8 swap width and height


class PhotoTooSmall(PhotoError):
    """It has fewer pixels than MIN_SIDE on a side, or is a strip beyond MAX_ASPECT."""


@dataclass(frozen=True)
class Photo:
    """An upright RGB photo. `size` is (width, height) of the upright original, in pixels; `image`
    may be smaller, with the same content, when `open_photo` was allowed to reduce it."""

    image: Image.Image
    size: tuple[int, int]

    @property
    def scale(self) -> float:
        """Pixels of `image` for one pixel of the original, at most 1."""
        return self.image.width / self.size[0]


def open_photo(source: Source, at_least: int | None = None) -> Photo:
    """Read a photo from a path, the bytes of a file, a PIL image or an array, upright and in RGB.

    EXIF orientation is applied, transparency is laid on white, an animation gives its first frame.
    Arrays are (H, W), (H, W, 1), (H, W, 3) or (H, W, 4): bool, integers 0 to 255, uint16 over its
    whole range, or floats 0 to 1. With `at_least`, a photo whose short side has more pixels may
    come back smaller, its short side still that long or longer; large JPEGs then decode fast.
    The source is left as it was. Raises PhotoError and nothing else for whatever cannot be read.
    """
    if isinstance(source, np.ndarray):
        return _finish(_from_array(source), "The picture", at_least)
    if isinstance(source, Image.Image):
        return _finish(source, _base_name(getattr(source, "filename", "")), at_least)
    if isinstance(source, bytes | bytearray | memoryview):
        return _read(io.BytesIO(source), "The picture", at_least)
    if not isinstance(source, str | os.PathLike):
        kind = type(source).__name__
        raise PhotoError(f"Give a photo as a path, bytes, a PIL image or an array, not as {kind}.")
    name = _base_name(source)
    if os.path.isdir(source):
        raise PhotoError(f"{name} is a folder; choose a photo inside it.")
    if not os.path.exists(source):
        raise PhotoError(f"{name} was not found; check its name and folder.")
    if not os.path.isfile(source):  # a pipe or a device may never end
        raise PhotoError(f"{name} is not an ordinary file; choose a photo.")
    try:
        with open(source, "rb") as file:
            return _read(file, name, at_least)
    except OSError as error:
        raise PhotoError(f"{name} cannot be opened; check that you may read the file.") from error


def is_animated(content: bytes) -> bool:
    """Whether a file holds several pictures in a row, of which `open_photo` takes the first.

    False for what cannot be read, and for the second, hidden picture of many phones' JPEGs.
    """
    try:
        with open_lazily(io.BytesIO(content), "") as image:
            return bool(getattr(image, "is_animated", False))
    except Exception:  # Pillow looks at the next picture, and raises what it likes when it is bad
        return False


def _base_name(path: object) -> str:
    """What a message calls the file: never its folders, and not over several lines."""
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    text = "".join(c if c.isprintable() else "?" for c in text.replace("\\", "/").rstrip("/"))
    name = text.rpartition("/")[2]
    return (name if len(name) <= 80 else f"{name[:60]}…{name[-15:]}") or "The picture"


def _read(file: IO[bytes], name: str, at_least: int | None) -> Photo:
    """Find the format by content, whatever the file is called, and decode."""
    image = open_lazily(file, name)
    if at_least is None or not is_jpeg(image):
        return _finish(image, name, at_least)
    size = image.size
    # libjpeg decodes to 1/2, 1/4 or 1/8 of each side at a fraction of the work
    image.draft(None, (max(1, at_least), max(1, at_least)))  # pyright: ignore[reportArgumentType]
    return _finish(image, name, at_least, size)


def _check_size(size: tuple[int, int], name: str) -> None:
    """Refuse what would fill the memory, or is too small or narrow to show a dish."""
    short, long = sorted(size)
    what = f"{name} has {size[0]:,} × {size[1]:,} pixels"
    if short * long > MAX_PIXELS:
        limit = MAX_PIXELS / 1e6
        raise PhotoTooLarge(f"{what}, over the limit of {limit:g} million; make it smaller first.")
    if short < MIN_SIDE:
        raise PhotoTooSmall(f"{what}; choose a photo with at least {MIN_SIDE} on each side.")
    if long > MAX_ASPECT * short:
        raise PhotoTooSmall(f"{what}, which is too narrow a strip; crop it to the dish first.")


def _finish(
    image: Image.Image, name: str, at_least: int | None, size: tuple[int, int] | None = None
) -> Photo:
    """Decode, and make an upright RGB copy; `size` is that of a JPEG before its draft."""
    _check_size(image.size if size is None else size, name)
    with _large_ones if math.prod(image.size) > LARGE else nullcontext():
        try:
            image.load()
            width, height = size or image.size  # a TIFF is turned, a HEIC cut, while loading
            orientation = _orientation(image)
            pixels = _rgb(image)
            # half as far as a draft goes: averaging squares is a coarser filter than libjpeg's
            if at_least is not None and (factor := min(pixels.size) // max(1, 2 * at_least)) > 1:
                pixels = pixels.reduce(factor)
            if orientation != 1:
                pixels = pixels.transpose(_UPRIGHT[orientation])
            if pixels is image:
                pixels = image.copy()
        except PhotoError:  # it asked for too much work
            raise
        except Exception as error:  # damaged files make Pillow raise nearly every kind there is
            raise damaged(name, image.format, error) from error
    pixels.info = {}  # an orientation left in here would turn the photo a second time
    return Photo(pixels, (height, width) if orientation >= 5 else (width, height))


def _orientation(image: Image.Image) -> int:
    """1 to 8; a photo with unreadable EXIF is still a photo, taken to be upright.

    Looks for the one tag in the raw block where there is one: Pillow reads all of it, and warns of
    any damage, which is common in photos that went through other programs.
    """
    raw = image.info.get("exif")
    try:
        if isinstance(raw, bytes):
            value = _exif_orientation(raw.removeprefix(b"Exif\0\0"))
        else:  # TIFF's own tags, or XMP
            value = image.getexif().get(_ORIENTATION_TAG)
    except Exception:
        return 1
    return value if value in _UPRIGHT else 1


def _exif_orientation(exif: bytes) -> int:
    """The orientation in the first directory of a TIFF structure, as EXIF is; 1 where it has none.
    Raises KeyError or struct.error when it is damaged before that."""
    order = {b"II": "<", b"MM": ">"}[exif[:2]]
    (start,) = struct.unpack_from(f"{order}I", exif, 4)
    (entries,) = struct.unpack_from(f"{order}H", exif, start)
    for entry in range(entries):
        tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, start + 2 + 12 * entry)
        if tag == _ORIENTATION_TAG:
            return value
    return 1


def _rgb(image: Image.Image) -> Image.Image:
    """The image in RGB: itself, or a copy made strip by strip, for a copy of another mode, or of
    deep numbers, may take several times its memory."""
    deep = image.mode in ("I", "F") or image.mode.startswith("I;")
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    levels = _levels(np.asarray(strip) for _, strip in _strips(image)) if deep else (0, 0)
    result = Image.new("RGB", image.size, "white")
    for place, strip in _strips(image):
        if deep:
            strip = Image.fromarray(_grey8(np.asarray(strip), *levels))
        if strip.has_transparency_data:
            layer = strip.convert("RGBA")
            result.paste(layer, place, mask=layer.getchannel("A"))
        else:
            result.paste(strip if strip.mode == "RGB" else strip.convert("RGB"), place)
    return result


def _strips(image: Image.Image) -> Iterator[tuple[tuple[int, int], Image.Image]]:
    """(left, top) and picture of strips that make up the image."""
    rows = max(1, STRIP // image.width)
    if rows >= image.height:
        yield (0, 0), image
        return
    for top in range(0, image.height, rows):
        yield (0, top), image.crop((0, top, image.width, min(top + rows, image.height)))


def _levels(strips: Iterable[np.ndarray]) -> tuple[float, float]:
    """Grey values that become black and white. A 16-bit file runs from 0 to 65,535; 32-bit integers
    and floats do not say, so they run to the first of 1 (floats), 255 and 65,535 that holds them
    all, and from their least to their greatest value when none does."""
    low, high, tops = math.inf, -math.inf, [65535.0]
    for values in strips:
        tops = {"u": [65535.0], "i": [255.0, 65535.0], "f": [1.0, 255.0, 65535.0]}[
            values.dtype.kind
        ]
        values = _finite(values)
        low, high = min(low, values.min()), max(high, values.max())
    if low >= 0 and high <= tops[-1]:
        low, high = 0.0, next(top for top in tops if high <= top)
    return low, high


def _finite(values: np.ndarray) -> np.ndarray:
    """As float64, 0 for what is no number."""
    with np.errstate(invalid="ignore"):  # some bits for "no number" complain when they are copied
        return np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0)


def _grey8(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Grey levels of any depth to 8 bits, `low` to 0 and `high` to 255."""
    return np.rint((_finite(values) - low) * (255 / (high - low or 1))).astype(np.uint8)


def _from_array(array: np.ndarray) -> Image.Image:
    what = f"An array of shape {array.shape} and type {array.dtype}"
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if 0 in array.shape or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise PhotoError(f"{what} is no photo; give (height, width), with 3 or 4 colours last.")
    top = {"b": 1, "f": 1, "i": 255, "u": 65535 if array.dtype == np.uint16 else 255}
    limit = top.get(array.dtype.kind)
    if limit is None or not (array.min() >= 0 and array.max() <= limit):  # NaN is refused as well
        raise PhotoError(f"{what} has values out of range; give 0 to 255, or floats from 0 to 1.")
    if limit != 255:
        array = np.rint(array.astype(np.float32) * (255 / limit))
    return Image.fromarray(np.ascontiguousarray(array, dtype=np.uint8))


Fit = Literal["crop", "letterbox"]
Interpolation = Literal["bicubic", "bilinear", "lanczos"]


LEAST = 0.001  # of a crop or a standard deviation; less would only make numbers overflow
_RESAMPLE = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
}


def content_of(path: str) -> str:
    """The SHA-256 of a photo's file, whatever it is called; the path itself where it is no file."""
    try:
        known = os.stat(path)
        return _digest(path, (known.st_ino, known.st_size, known.st_mtime_ns))
    except OSError:  # `open_photo` has the words for it
        return path


@lru_cache(maxsize=256)
def _digest(path: str, stamp: tuple[int, int, int]) -> str:
    """`stamp` so that a changed file is read again."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Preprocess:
    """The rules from a photo to the tensor a model was trained on; they travel in its checkpoint.

    With fit "crop" the model sees the middle of the photo: the largest rectangle of the model's
    shape, times `crop`, which is what resizing to size / crop and cutting out the centre gives.
    With "letterbox" it sees the whole photo, bordered with the mean colour.
    Raises ValueError naming the field that cannot be.
    """

    size: tuple[int, int] = (224, 224)  # (height, width) of the model's picture, in pixels
    crop: float = 0.9  # share of the short side that the square keeps
    fit: Fit = "crop"
    interpolation: Interpolation = "bicubic"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)  # of red, green, blue, each from 0 to 1
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        names = get_args(Interpolation)
        wanted = {
            "size": (_is_size(self.size), "two whole numbers, height and width, from 1 to 16,384"),
            "crop": (_numbers((self.crop,), 1) and self.crop >= LEAST, f"from {LEAST} to 1"),
            "fit": (self.fit in get_args(Fit), f"one of {', '.join(get_args(Fit))}"),
            "interpolation": (self.interpolation in names, f"one of {', '.join(names)}"),
            "mean": (_numbers(self.mean, 3), "three numbers from 0 to 1"),
            "std": (
                _numbers(self.std, 3) and min(self.std) >= LEAST,
                f"three numbers from {LEAST} to 1",
            ),
        }
        for field, (holds, expected) in wanted.items():
            if not holds:
                got = getattr(self, field)
                raise ValueError(f"Preprocess.{field} must be {expected}, not {got!r}.")

    def box(self, width: float, height: float) -> tuple[float, float, float, float]:
        """(left, top, right, bottom): the part of a width × height photo that fills the model's
        picture, in the photo's pixels. For "letterbox" it reaches beyond the photo."""
        rows, columns = self.size
        if self.fit == "crop":
            scale = min(width / columns, height / rows) * self.crop
        else:
            scale = max(width / columns, height / rows)
        half_width, half_height = columns * scale / 2, rows * scale / 2
        middle, centre = width / 2, height / 2
        if self.fit == "crop":  # rounding must not take it off the photo
            half_width, half_height = min(half_width, middle), min(half_height, centre)
        return middle - half_width, centre - half_height, middle + half_width, centre + half_height

    def view(self, image: Image.Image) -> Image.Image:
        """The RGB picture of `size` that the model sees of an upright photo."""
        if image.mode != "RGB":
            image = open_photo(image).image
        rows, columns = self.size
        resample = _RESAMPLE[self.interpolation]
        if self.fit == "crop":
            box = self.box(*image.size)
            return image.resize((columns, rows), resample, box=box, reducing_gap=3.0)
        scale = min(columns / image.width, rows / image.height)
        inside = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        canvas = Image.new("RGB", (columns, rows), tuple(round(255 * m) for m in self.mean))
        corner = (columns - inside[0]) // 2, (rows - inside[1]) // 2
        canvas.paste(image.resize(inside, resample, reducing_gap=3.0), corner)
        return canvas

    def tensor(self, view: Image.Image) -> Tensor:
        """A view as (3, H, W) float32: (colour / 255 - mean) / std."""
        return self.batch([view])[0]

    def batch(self, views: Iterable[Image.Image]) -> Tensor:
        """Views as one (B, 3, H, W) float32 tensor."""
        views = list(views)
        rows, columns = self.size
        pixels = torch.empty(len(views), 3, rows, columns)
        for slot, view in zip(pixels, views, strict=True):
            if view.size != (columns, rows):
                raise ValueError(f"The view must be {columns} × {rows} pixels, not {view.size}.")
            slot.copy_(torch.from_numpy(np.array(view.convert("RGB"))).permute(2, 0, 1))
        mean, std = (torch.tensor(value).view(3, 1, 1) * 255 for value in (self.mean, self.std))
        return pixels.sub_(mean).div_(std)

    def __call__(self, image: Image.Image) -> Tensor:
        """An upright photo to the (3, H, W) tensor that the model reads."""
        return self.tensor(self.view(image))

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Preprocess:
        """The inverse of `to_json`; raises ValueError naming a missing, unknown or bad field."""
        if not isinstance(data, dict):
            raise ValueError(f"Preprocess must be a JSON object, not {data!r}.")
        for name in sorted({field.name for field in fields(cls)} ^ set(data)):
            raise ValueError(f"Preprocess.{name} is {'unknown' if name in data else 'missing'}.")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**values)


def _is_size(value: object) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return all(type(side) is int and 1 <= side <= 16384 for side in value)


def _numbers(value: object, count: int) -> bool:
    """Whether this is a tuple of so many numbers from 0 to 1 (a bool or NaN is not one)."""
    if not isinstance(value, tuple) or len(value) != count:
        return False
    return all(isinstance(v, float | int) and type(v) is not bool and 0 <= v <= 1 for v in value)
