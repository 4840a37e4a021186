"""Which photo files are read, and how much work one of them may cause.

The number of pixels says little of that: a JPEG of 50 kB and 120 million pixels may have thousands
of passes over them, a GIF of 50 MB a comment that is copied once for each of its pieces. So passes,
pieces and reads are counted too, and formats that Pillow decodes in Python get fewer pixels.
"""

from __future__ import annotations

import math
import re
from importlib.util import find_spec
from typing import IO, Any

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PcxImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    QoiImagePlugin,
    SgiImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

HEIC = find_spec("pillow_heif") is not None  # whether HEIC can be read here
FORMATS = f"JPEG, PNG, WebP, {'HEIC, ' if HEIC else ''}AVIF, GIF or TIFF"  # the common ones
READS = 10_000  # from a file before its pixels begin; phones' photos need under 100
BYTES_A_READ = 1024  # of the rest of a file, on average; PNGs have pieces of 8 kB, 3 reads each
PASSES = 100  # over the pixels of a JPEG; usual are 1 and 10
PIECES = 50_000  # strips or tiles of a TIFF
SLOW_PIXELS = 2_000_000  # of what is decoded in Python: 2 to 4 seconds


class PhotoError(ValueError):
    """A photo that cannot be used; the text is one sentence that says why and what to do."""


class PhotoTooLarge(PhotoError):
    """It has more pixels than may be decoded."""


class _Pieces(PhotoError):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is made of far too many pieces; save it again as JPEG.")


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """Pillow's reader without its look for the resolution in EXIF, which warns when damaged."""

    def _read_dpi_from_exif(self) -> None:
        pass


class _Tiff(TiffImagePlugin.TiffImageFile):
    """Pillow's reader with a bound on what it makes a list of before anybody can look."""

    def _setup(self) -> None:
        for tag in (TiffImagePlugin.STRIPOFFSETS, TiffImagePlugin.TILEOFFSETS):
            offsets = self.tag_v2.get(tag)
            if isinstance(offsets, tuple) and len(offsets) > PIECES:
                raise _Pieces(getattr(self.fp, "called", ""))
        super()._setup()


# Only raster formats that Pillow decodes itself. Left out on purpose: EPS (starts Ghostscript),
# PDF and WMF (drawings), PSD, and formats without a signature, which any file could claim to be.
# The plugins are called directly because `Image.open` has a size limit of its own that warns, and
# silencing a warning is not thread-safe; and because for a phone's MPO it leaves JPEG's fast path.
_READERS: tuple[type[ImageFile.ImageFile], ...] = (
    _Jpeg,
    PngImagePlugin.PngImageFile,
    WebPImagePlugin.WebPImageFile,
    GifImagePlugin.GifImageFile,
    BmpImagePlugin.BmpImageFile,
    _Tiff,
    AvifImagePlugin.AvifImageFile,
    Jpeg2KImagePlugin.Jpeg2KImageFile,
    PpmImagePlugin.PpmImageFile,
    QoiImagePlugin.QoiImageFile,
    PcxImagePlugin.PcxImageFile,
    SgiImagePlugin.SgiImageFile,
)
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}


class _Counted:
    """A file that may be read from so many times; PhotoError beyond that."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.called, self.reads_left, self._file = name, float(READS), file

    def read(self, size: int = -1) -> bytes:
        self.reads_left -= 1
        if self.reads_left < 0:
            raise _Pieces(self.called)
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def open_lazily(file: IO[bytes], name: str) -> ImageFile.ImageFile:
    """The picture in an open file, told by its content whatever it is called, not yet decoded.

    PhotoError, in which it is called `name`, for no known format and for one that asks for too much
    work; whatever Pillow raises for a damaged one, which can be nearly anything.
    """
    head = file.read(64)
    file.seek(0, 2)
    size = file.tell()
    file.seek(0)
    if not head:
        raise PhotoError(f"{name} is empty; choose another photo.")
    counted = _Counted(file, name)
    reader = _reader(head, name)
    try:
        image = reader(counted)  # pyright: ignore[reportArgumentType]
    except PhotoError:
        raise
    except Exception as error:
        raise damaged(name, reader.format, error) from error
    if isinstance(image, _Jpeg) and _in_passes(image, file) and _passes(file) > PASSES:
        raise _Pieces(name)
    slow = any(tile[0] in Image.DECODERS for tile in image.tile[:1])  # decoders written in Python
    if slow and math.prod(image.size) > SLOW_PIXELS:
        raise PhotoTooLarge(
            f"{name} has {image.size[0]:,} × {image.size[1]:,} pixels, and this kind of "
            f"{image.format} file is read up to {SLOW_PIXELS / 1e6:g} million; save it as JPEG."
        )
    counted.reads_left = math.inf if slow else READS + size / BYTES_A_READ
    return image


def is_jpeg(image: Image.Image) -> bool:
    """Whether it can be decoded smaller at a fraction of the work."""
    return isinstance(image, _Jpeg)


def damaged(name: str, kind: str | None, error: Exception) -> PhotoError:
    """What to say of a file that Pillow failed on with `error`."""
    if isinstance(error, MemoryError):
        return PhotoError(f"{name} needs more memory than there is; make it smaller.")
    what = f"{kind} file" if kind else "picture"
    return PhotoError(f"{name} is a damaged or incomplete {what}; save or download it again.")


def _reader(head: bytes, name: str) -> type[ImageFile.ImageFile]:
    """The class that reads a file with these first bytes."""
    if head[4:8] == b"ftyp":
        brands = head[8 : int.from_bytes(head[:4], "big")]
        general = brands[:4] in (b"mif1", b"msf1")  # AVIF may begin like this as well
        if brands[:4] in _HEIC_BRANDS or (general and b"avi" not in brands):
            try:
                from pillow_heif import HeifImageFile
            except ImportError as error:
                raise PhotoError(
                    f"{name} is a HEIC photo, for which one more package is needed: "
                    "install pillow-heif, or save the photo as JPEG."
                ) from error
            return HeifImageFile
    for reader in _READERS:
        accept = Image.OPEN[reader.format or ""][1]
        if accept is not None and accept(head[:16]):
            return reader
    raise PhotoError(f"{name} is not a photo that can be read; send a {FORMATS} instead.")


def _in_passes(image: _Jpeg, file: IO[bytes]) -> bool:
    """Whether libjpeg goes over the pixels more than once: when it is progressive, or its first
    pass, whose header Pillow has just read, lacks some of the colours."""
    colours, place = image.layers, file.tell()
    length = 6 + 2 * colours
    file.seek(max(0, place - length))
    whole = file.read(3) == bytes((0, length, colours))
    file.seek(place)
    return not whole or bool(image.info.get("progressive"))


# In the data of a pass 0xFF is followed by 0 or a restart mark.
_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


def _passes(file: IO[bytes]) -> int:
    """How many passes over its pixels a JPEG has; counted a little beyond `PASSES` at most.

    Other pictures inside it (a thumbnail, a phone's film behind it) do not count.
    """
    place = file.tell()
    file.seek(0)
    content = file.read()
    file.seek(place)
    if content.count(b"\xff\xda") <= PASSES:  # some of them may be no marks
        return 1
    found, at = 0, 2
    while found <= PASSES and (mark := _MARK.search(content, at)):
        kind, at = content[mark.start() + 1], mark.end()
        if kind == 0xD9:
            break
        found += kind == 0xDA
        if not 0x01 <= kind <= 0x02 and kind != 0xD8:  # it has a length, and perhaps a thumbnail
            at += int.from_bytes(content[at : at + 2], "big")
    return found
