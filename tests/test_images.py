"""Reading photos: every format, mode and orientation, and every way a file can be bad."""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import random
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from vit import formats, images
from vit.formats import FORMATS
from vit.images import Photo, PhotoError, Preprocess, open_photo

HEIC = pytest.param(
    "HEIF",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("pillow_heif") is None, reason="pillow-heif is not installed"
    ),
)
LOSSLESS: dict[str, dict] = {
    "PNG": {},
    "WEBP": {"lossless": True},
    "GIF": {},
    "BMP": {},
    "TIFF": {},
    "JPEG2000": {},
    "PPM": {},
    "QOI": {},
    "PCX": {},
    "SGI": {},
}
LOSSY: dict[str, dict] = {"JPEG": {"quality": 95, "subsampling": 0}, "AVIF": {"speed": 10}}
OPTIONS = LOSSLESS | LOSSY
ORIENTATION = 0x0112


def scene(width: int = 96, height: int = 64) -> Image.Image:
    """A smooth picture whose corners all differ, so that every turn of it shows."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    colours = np.stack([40 + 200 * x, 30 + 190 * y, 220 - 150 * x * y], axis=-1)
    return Image.fromarray(colours.round().astype(np.uint8))


def noise(width: int = 96, height: int = 64, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encode(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    if kind == "HEIF":
        import pillow_heif

        options.pop("speed", None)
        pillow_heif.from_pillow(image).save(buffer, quality=95, **options)
    else:
        image.save(buffer, kind, **{**OPTIONS.get(kind, {}), **options})
    return buffer.getvalue()


def array(image: Image.Image | Photo) -> np.ndarray:
    """RGB pixels as numbers that can be subtracted."""
    image = image.image if isinstance(image, Photo) else image
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def difference(a: Image.Image | Photo, b: Image.Image | Photo) -> float:
    assert array(a).shape == array(b).shape
    return float(np.abs(array(a) - array(b)).mean())


def refusal(source: images.Source, at_least: int | None = None) -> str:
    """The message, which must be one sentence for a person."""
    with pytest.raises(PhotoError) as caught:
        open_photo(source, at_least)
    text = str(caught.value)
    assert text.endswith(".") and text.count(". ") == 0 and "\n" not in text
    assert "Error" not in text and "0x" not in text
    return text


# --- formats -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*OPTIONS, HEIC])
@pytest.mark.parametrize("way", ["path", "str", "bytes", "image"])
def test_every_format_reads_the_same_by_every_way(kind: str, way: str, tmp_path: Path) -> None:
    data = encode(scene(), kind)
    path = tmp_path / "lunch.jpg"  # the name does not decide
    path.write_bytes(data)
    source = {"path": path, "str": str(path), "bytes": data}.get(way)
    if source is None and kind == "HEIF":
        source = importlib.import_module("pillow_heif").open_heif(path).to_pillow()
    source = source or Image.open(path)
    photo = open_photo(source)
    tolerance = 0 if kind in LOSSLESS and kind != "GIF" else 4  # GIF has only 256 colours
    assert photo.size == (96, 64) and photo.scale == 1
    assert difference(photo, scene()) <= tolerance
    if isinstance(source, Image.Image):
        source.close()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", HEIC])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_once(kind: str, orientation: int) -> None:
    upright = np.asarray(scene())
    # how the camera stores an upright picture, from what EXIF says of row 0 and column 0
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    data = encode(Image.fromarray(np.ascontiguousarray(stored)), kind, exif=exif.tobytes())
    photo = open_photo(data)
    assert photo.size == (96, 64)
    assert difference(photo, scene()) < 4
    assert ImageOps.exif_transpose(photo.image).size == (96, 64)  # nothing left to apply again
    small = open_photo(data, at_least=16)
    assert small.size == (96, 64) and min(small.image.size) >= 16
    assert difference(small, scene().resize(small.image.size, Image.Resampling.BOX)) < 5
    if kind != "HEIF":
        with Image.open(io.BytesIO(data)) as image:
            assert difference(open_photo(image), scene()) < 4


def test_orientation_of_an_open_image_and_in_xmp() -> None:
    turned = scene().transpose(Image.Transpose.ROTATE_90)
    turned.getexif()[ORIENTATION] = 6
    assert difference(open_photo(turned), scene()) == 0
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="6"/></x:xmpmeta>'
    data = encode(scene().transpose(Image.Transpose.ROTATE_90), "WEBP", xmp=xmp)
    assert difference(open_photo(data), scene()) == 0


@pytest.mark.parametrize(
    ("exif", "size"),
    [
        (b"Exif\0\0garbage", (40, 30)),
        (b"Exif\0\0", (40, 30)),
        (b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01\x03\0", (40, 30)),  # ends within the tag
        (b"Exif\0\0II*\0\xff\xff\xff\xff", (40, 30)),  # points far outside
        (b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\x63\0\0\0\0\0\0", (40, 30)),  # 99
        (b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0", (30, 40)),  # whole: 6
        (b"Exif\0\0MM\0*\0\0\0\x08\0\2\1\x12\0\3\0\0\0\1\0\6\0\0", (30, 40)),  # broken after it
    ],
)
def test_damaged_exif_neither_refuses_nor_warns(exif: bytes, size: tuple[int, int]) -> None:
    assert open_photo(encode(scene(40, 30), "JPEG", exif=exif)).size == size


# --- modes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("RGBA", "PNG"), ("RGBA", "WEBP"), ("RGBA", "TIFF"), ("RGBA", "AVIF"), ("RGBA", "JPEG2000")]
    + [("RGBA", "QOI"), ("LA", "PNG"), ("P", "PNG"), ("P", "GIF"), ("L", "PNG"), ("RGB", "PNG")],
)
def test_transparency_lies_on_white(mode: str, kind: str) -> None:
    """Left half opaque grey 60, right half fully transparent, black underneath."""
    rgba = Image.new("RGBA", (64, 48), (0, 0, 0, 0))
    rgba.paste((60, 60, 60, 255), (0, 0, 32, 48))
    if mode in ("L", "RGB"):  # one colour is named as transparent, there is no alpha channel
        data = encode(rgba.convert(mode), kind, transparency=0 if mode == "L" else (0, 0, 0))
    elif mode == "P":
        palette = Image.new("P", (64, 48), 1)
        palette.putpalette([60, 60, 60, 0, 0, 0])
        palette.paste(0, (0, 0, 32, 48))
        data = encode(palette, kind, transparency=1)
    else:
        data = encode(rgba.convert(mode), kind, **({"lossless": True} if kind == "WEBP" else {}))
    pixels = array(open_photo(data))
    assert np.abs(pixels[:, :28] - 60).max() <= 3
    assert np.abs(pixels[:, 36:] - 255).max() <= 3


def test_half_transparent_pixels_mix_with_white() -> None:
    image = Image.new("RGBA", (16, 16), (0, 100, 200, 128))
    assert array(open_photo(image))[0, 0].tolist() == [127, 177, 227]
    pa = Image.new("RGB", (16, 16), (0, 100, 200)).quantize(4).convert("PA")
    pa.putalpha(Image.new("L", (16, 16), 128))
    assert np.abs(array(open_photo(pa))[0, 0] - [127, 177, 227]).max() <= 1
    grey = Image.merge("LA", (Image.new("L", (16, 16), 100), Image.new("L", (16, 16), 51)))
    assert array(open_photo(grey))[0, 0].tolist() == [224, 224, 224]


def test_grey_palette_bilevel_and_ycbcr() -> None:
    grey = scene().convert("L")
    assert (array(open_photo(grey)) == np.asarray(grey)[..., None]).all()
    palette = scene().quantize(256, dither=Image.Dither.NONE)
    assert palette.mode == "P" and difference(open_photo(palette), scene()) < 4
    bits = np.asarray(grey) > 128
    for source in (Image.fromarray(bits), encode(Image.fromarray(bits), "PNG")):
        assert (array(open_photo(source)) == 255 * bits[..., None]).all()
    assert difference(open_photo(scene().convert("YCbCr")), scene()) < 2


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind: str) -> None:
    data = encode(scene().convert("CMYK"), kind)
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == "CMYK"
    if kind == "JPEG":  # which then says Adobe, and is stored inverted
        assert b"Adobe" in data
    assert difference(open_photo(data), scene()) < 4
    small = open_photo(data, at_least=16)
    assert difference(small, scene().resize(small.image.size, Image.Resampling.BOX)) < 4


RAMP = np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (16, 1))
RAMP8 = np.tile(np.arange(256), (16, 1))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("scale", [1, 4])
def test_sixteen_bits_are_scaled_not_clipped(kind: str, scale: int) -> None:
    """A darker picture stays darker: the depth counts, not the brightest pixel."""
    if kind == "PPM":
        data = b"P5 256 16 65535\n" + (RAMP // scale).astype(">u2").tobytes()
    else:
        data = encode(Image.fromarray(RAMP // scale), kind)
    pixels = array(open_photo(data))
    assert np.abs(pixels[..., 0] - RAMP8 / scale).max() <= 1
    assert (pixels[..., 0] == pixels[..., 1]).all()


def test_sixteen_bit_colour_png() -> None:
    """Written by hand, as Pillow cannot."""
    rows = b"".join(b"\0" + np.repeat(row, 3).astype(">u2").tobytes() for row in RAMP)
    assert np.abs(array(open_photo(png(256, 16, 16, 2, rows))) - RAMP8[..., None]).max() <= 1


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (np.int32, 0, 255),
        (np.int32, 0, 65535),
        (np.int32, 0, 2**31 - 1),
        (np.int32, -1000, 1000),
        (np.float32, 0, 1),
        (np.float32, 0, 255),
        (np.float32, 0, 65535),
        (np.float32, -3, 5),
    ],
)
def test_deep_grey_fills_eight_bits(dtype: type, low: float, high: float) -> None:
    values = np.tile(np.linspace(low, high, 256), (16, 1)).astype(dtype)
    pixels = array(open_photo(encode(Image.fromarray(values), "TIFF")))
    assert np.abs(pixels[..., 0] - RAMP8).max() <= 1


def test_a_flat_or_broken_deep_picture_is_read() -> None:
    flat = np.full((16, 16), -7.0, dtype=np.float32)
    assert array(open_photo(Image.fromarray(flat))).max() == 0
    flat[:8], flat[0, 0], flat[0, 1] = 0.5, np.nan, np.inf
    flat[8:] = 0
    assert set(np.unique(array(open_photo(Image.fromarray(flat))))) == {0, 128}


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
def test_animation_gives_its_first_frame(kind: str) -> None:
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "lime", "blue")]
    data = encode(frames[0], kind, save_all=True, append_images=frames[1:])
    with Image.open(io.BytesIO(data)) as image:
        assert getattr(image, "n_frames", 1) == 3
    assert np.abs(array(open_photo(data)) - [255, 0, 0]).max() <= 3


def test_phone_pictures_with_several_images_in_one_jpeg() -> None:
    """MPO: a JPEG with a depth map or a second exposure behind it."""
    data = encode(scene(), "MPO", save_all=True, append_images=[noise()], quality=95)
    assert difference(open_photo(data), scene()) < 4


# --- arrays and open images ----------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        np.asarray(scene()),
        np.asarray(scene()).astype(np.int64),
        np.asarray(scene()) / 255,
        (np.asarray(scene()) / 255).astype(np.float32),
        np.asarray(scene()).astype(np.uint16) * 257,
        np.asarray(scene())[::-1][::-1],
        np.asarray(scene().convert("RGBA")),
    ],
    ids=["uint8", "int64", "float64", "float32", "uint16", "strides", "rgba"],
)
def test_arrays_of_colours(values: np.ndarray) -> None:
    before = values.copy()
    photo = open_photo(values)
    assert difference(photo, scene()) == 0
    photo.image.putpixel((0, 0), (1, 2, 3))
    assert (values == before).all()  # no memory is shared


def test_arrays_of_grey_bits_and_half_floats() -> None:
    grey = np.asarray(scene().convert("L"))
    for values in (grey, grey[:, :, None], grey / 255):
        assert (array(open_photo(values))[..., 1] == grey).all()
    assert (array(open_photo(grey > 99))[..., 0] == 255 * (grey > 99)).all()
    assert np.abs(array(open_photo((grey / 255).astype(np.float16)))[..., 0] - grey).max() <= 1


def test_array_alpha_lies_on_white() -> None:
    values = np.zeros((10, 12, 4), dtype=np.uint8)
    values[:, :6, 3] = 255
    pixels = array(open_photo(values))
    assert (pixels[:, :6] == 0).all() and (pixels[:, 6:] == 255).all()


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((3, 32, 32), np.uint8),
        np.zeros((32, 32, 2), np.uint8),
        np.zeros((1, 32, 32, 3), np.uint8),
        np.zeros(32, np.uint8),
        np.zeros((0, 32, 3), np.uint8),
        np.array(7),
    ],
)
def test_arrays_of_other_shapes_are_refused(values: np.ndarray) -> None:
    assert str(values.shape) in refusal(values)


@pytest.mark.parametrize(
    "values",
    [
        np.full((32, 32), 1.5),
        np.full((32, 32), -0.1),
        np.full((32, 32), np.nan),
        np.full((32, 32), 256),
        np.full((32, 32), -1),
        np.zeros((32, 32), np.complex64),
        np.full((32, 32), "a"),
        np.full((32, 32), None),
    ],
)
def test_arrays_out_of_range_are_refused(values: np.ndarray) -> None:
    assert "0 to 255" in refusal(values)


def test_an_open_image_is_left_as_it_was() -> None:
    image = scene()
    photo = open_photo(image)
    photo.image.paste("black", (0, 0, 96, 64))
    assert difference(image, scene()) == 0
    assert min(open_photo(image, at_least=0).image.size) >= 1  # as 1: any size will do
    with Image.open(io.BytesIO(encode(scene(640, 480), "JPEG"))) as lazy:
        assert min(open_photo(lazy, at_least=100).image.size) < 480
        assert lazy.size == (640, 480)


@pytest.mark.parametrize("source", [None, 7, ["a.jpg"], object()])
def test_other_things_are_refused(source) -> None:
    assert type(source).__name__ in refusal(source)


# --- large photos --------------------------------------------------------------------------


LARGE = {
    (kind, size): encode(scene(*size), kind)
    for kind in ("JPEG", "PNG")
    for size in ((400, 300), (300, 400), (301, 799))
}


@pytest.mark.parametrize(("kind", "size"), LARGE)
@pytest.mark.parametrize("at_least", [20, 50, 75, 99, 100, 101, 150, 250, 299, 300, 5000])
def test_at_least_is_kept(kind: str, size: tuple[int, int], at_least: int) -> None:
    photo = open_photo(LARGE[kind, size], at_least)
    width, height = photo.image.size
    assert photo.size == size
    assert min(width, height) >= min(at_least, min(size))
    assert width == pytest.approx(size[0] * photo.scale, abs=1)
    assert height == pytest.approx(size[1] * photo.scale, abs=1 + height / width)
    reducible = min(size) >= (2 if kind == "JPEG" else 4) * at_least
    assert (width < size[0]) == reducible
    assert difference(photo, scene(*size).resize((width, height), Image.Resampling.BOX)) < 4


def test_a_reduced_photo_gives_the_same_view() -> None:
    rules = Preprocess(size=(64, 64))
    for kind in ("JPEG", "PNG"):
        data = encode(scene(1200, 900), kind)
        small, large = open_photo(data, at_least=128), open_photo(data)
        assert small.image.width <= 600 and large.image.width == 1200
        assert difference(rules.view(small.image), rules.view(large.image)) < 1.5


def test_a_large_jpeg_is_never_decoded_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[tuple[int, int]] = []
    real = formats._Jpeg.load
    monkeypatch.setattr(formats._Jpeg, "load", lambda self: (loaded.append(self.size), real(self)))
    assert open_photo(encode(scene(1600, 1200), "JPEG"), at_least=150).size == (1600, 1200)
    assert set(loaded) == {(200, 150)}


def test_threads_read_at_once() -> None:
    sources = [
        (LARGE[kind, (400, 300)], at_least) for kind in ("JPEG", "PNG") for at_least in (None, 60)
    ]
    alone = [open_photo(*source) for source in sources] * 8
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda source: open_photo(*source), sources * 8))
    assert [difference(a, b) for a, b in zip(alone, together, strict=True)] == [0] * 32


# --- refusals ------------------------------------------------------------------------------


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *more: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + b"".join(more) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [
        b"Margherita: tomato, mozzarella, basil\n",
        b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
        b"<?xml version='1.0'?><svg/>",
        b"<!DOCTYPE html><html><body>404</body></html>",
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99 99\n",
        b"8BPS\0\1" + bytes(40),
        b"PK\x03\x04" + bytes(40),
        b"\0",
        bytes(200),
        b"\xff\xd8",
    ],
    ids=["text", "svg", "xml", "html", "pdf", "eps", "psd", "zip", "nul", "zeros", "two bytes"],
)
def test_what_is_no_photo_gets_the_formats(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "menu.jpg"
    path.write_bytes(content)
    message = refusal(path)
    assert message.startswith("menu.jpg ") and FORMATS in message and str(tmp_path) not in message
    assert refusal(content).startswith("The picture ")


def test_eps_never_reaches_ghostscript() -> None:
    assert "EPS" in {kind for kind in Image.SAVE} and "EPS" not in FORMATS
    assert "not a photo that can be read" in refusal(encode(scene(), "EPS"))


def test_empty_missing_folder_and_pipe(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    assert refusal(tmp_path / "empty.png").startswith("empty.png is empty")
    assert refusal(b"").startswith("The picture is empty")
    assert refusal(tmp_path / "gone.jpg").startswith("gone.jpg was not found")
    assert refusal(tmp_path).startswith(f"{tmp_path.name} is a folder")
    assert "not found" in refusal("a\0b.jpg")
    assert len(refusal("x" * 5000)) < 200
    assert "\n" not in refusal("two\nlines.jpg")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.jpg")
        assert refusal(tmp_path / "pipe.jpg").startswith("pipe.jpg is not an ordinary file")


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.jpg"
    path.write_bytes(encode(scene(), "JPEG"))

    def deny(*_args, **_options):
        raise PermissionError("no")

    monkeypatch.setattr("builtins.open", deny)
    assert refusal(path).startswith("secret.jpg cannot be opened")


@pytest.mark.parametrize("kind", [*OPTIONS, HEIC])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_photo_is_refused(kind: str, share: float, tmp_path: Path) -> None:
    """Not answered with the missing part in grey."""
    data = encode(noise(), kind)
    path = tmp_path / "cut.bin"
    path.write_bytes(data[: int(len(data) * share)])
    for at_least in (None, 16):
        message = refusal(path, at_least)
        assert message.startswith("cut.bin is a damaged or incomplete ")


@pytest.mark.parametrize("kind", [*OPTIONS, HEIC])
def test_damaged_bytes_raise_nothing_else(kind: str) -> None:
    data = encode(noise(24, 16), kind)
    chance = random.Random(kind)
    refused = 0
    for _ in range(60):
        damaged = bytearray(data[: chance.randrange(1, len(data) + 1)])
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(min(len(damaged), 200))] = chance.randrange(256)
        try:
            assert open_photo(bytes(damaged), at_least=8).image.mode == "RGB"
        except PhotoError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("error", [MemoryError, SyntaxError, zlib.error, struct.error, IndexError])
def test_whatever_pillow_raises(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(scene(), "PNG")

    def fail(*_args):
        raise error("deep inside")

    monkeypatch.setattr(formats.PngImagePlugin.PngImageFile, "load", fail)
    message = refusal(data)
    assert ("memory" in message) == (error is MemoryError) and "deep inside" not in message


def test_a_small_file_of_a_huge_picture_is_refused_before_decoding() -> None:
    """Its pixel data is nonsense, so that decoding it would give another message."""
    data = png(30_000, 30_000, 8, 2, b"nonsense")
    assert len(data) < 1000
    for at_least in (None, 224):
        message = refusal(data, at_least)
        assert "30,000 × 30,000" in message and "120 million" in message
    header = b"\xff\xd8\xff\xc0\x00\x11\x08" + struct.pack(">HH", 60000, 60000)
    scan = b"\3\1\x11\0\2\x11\1\3\x11\1\xff\xda\0\x0c\3\1\0\2\x11\3\x11\0\x3f\0"
    assert "60,000 × 60,000" in refusal(header + scan, 224)
    assert "60,000 × 60,000" in refusal(b"P6 60000 60000 255\n")


def test_the_limit_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 96 * 64)
    assert open_photo(scene()).size == (96, 64)
    for source in (scene(96, 65), np.asarray(scene(96, 65)), encode(scene(96, 65), "JPEG")):
        assert "96 × 65" in refusal(source)
    for text, pixels in (("", 120_000_000), ("0.5", 500_000), (" 300 ", 300_000_000)):
        monkeypatch.setenv("VIT_MAX_MEGAPIXELS", text)
        assert images._max_pixels() == pixels
    for text in ("many", "0", "-3", "nan", "inf"):
        monkeypatch.setenv("VIT_MAX_MEGAPIXELS", text)
        with pytest.raises(ValueError, match="VIT_MAX_MEGAPIXELS"):
            images._max_pixels()


@pytest.mark.parametrize("kind", [kind for kind in OPTIONS if kind != "TIFF"])
def test_pillows_own_limit_neither_warns_nor_refuses(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encode(scene(), kind)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(Image.DecompressionBombError):
        Image.open(io.BytesIO(data))
    assert open_photo(data).size == (96, 64)


@pytest.mark.parametrize(
    ("size", "part"),
    [
        ((1, 2000), "at least 8"),
        ((2000, 1), "at least 8"),
        ((7, 7), "at least 8"),
        ((20_000, 100), "strip"),
        ((100, 20_000), "strip"),
        ((8, 401), "strip"),
    ],
)
def test_strips_are_refused(size: tuple[int, int], part: str) -> None:
    for source in (Image.new("RGB", size), encode(Image.new("RGB", size), "PNG")):
        message = refusal(source)
        assert part in message and f"{size[0]:,} × {size[1]:,}" in message


@pytest.mark.parametrize("size", [(8, 8), (8, 400), (20_000, 400)])
@pytest.mark.parametrize("fit", ["crop", "letterbox"])
def test_the_narrowest_photos_have_an_answer(size: tuple[int, int], fit) -> None:
    photo = open_photo(Image.new("RGB", size, "red"), at_least=448)
    assert Preprocess(fit=fit)(photo.image).shape == (3, 224, 224)


def test_bombs_in_png_chunks() -> None:
    rows = b"".join(bytes(1 + 3 * 16) for _ in range(16))
    text = b"Comment\0\0" + zlib.compress(bytes(80_000_000), 9)
    assert len(text) < 90_000
    assert open_photo(png(16, 16, 8, 2, rows)).size == (16, 16)
    assert "damaged" in refusal(png(16, 16, 8, 2, rows, chunk(b"zTXt", text)))
    assert "damaged" in refusal(png(16, 16, 8, 2, rows, chunk(b"iCCP", text)))


# --- HEIC ----------------------------------------------------------------------------------


@pytest.mark.parametrize("brand", [b"heic", b"heix", b"mif1", b"hevc"])
def test_heic_without_its_package_names_it(
    brand: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    path = tmp_path / "IMG_0042.HEIC"
    path.write_bytes(b"\0\0\0\x18ftyp" + brand + bytes(4) + b"mif1heic" + bytes(60))
    message = refusal(path)
    assert message.startswith("IMG_0042.HEIC ") and "pillow-heif" in message and "JPEG" in message


def test_avif_does_not_need_that_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    data = encode(scene(), "AVIF")
    assert difference(open_photo(data), scene()) < 4
    general = data.replace(b"ftypavif", b"ftypmif1", 1)
    assert general != data and difference(open_photo(general), scene()) < 4


# --- Preprocess ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "photo", "box"),
    [
        (Preprocess(), (400, 300), (65, 15, 335, 285)),
        (Preprocess(), (300, 400), (15, 65, 285, 335)),
        (Preprocess(crop=1), (400, 300), (50, 0, 350, 300)),
        (Preprocess(crop=1), (224, 224), (0, 0, 224, 224)),
        (Preprocess(size=(100, 200), crop=1), (400, 300), (0, 50, 400, 250)),
        (Preprocess(size=(200, 100), crop=0.5), (400, 300), (162.5, 75, 237.5, 225)),
        (Preprocess(fit="letterbox"), (400, 300), (0, -50, 400, 350)),
        (Preprocess(fit="letterbox"), (300, 400), (-50, 0, 350, 400)),
        (Preprocess(size=(100, 200), fit="letterbox"), (300, 300), (-150, 0, 450, 300)),
    ],
)
def test_box(rules: Preprocess, photo: tuple[int, int], box: tuple[float, ...]) -> None:
    assert rules.box(*photo) == pytest.approx(box)


@pytest.mark.parametrize("crop", [1.0, 0.9])
@pytest.mark.parametrize("size", [(224, 224), (192, 192), (224, 160)])
def test_a_crop_of_any_photo_lies_on_it(crop: float, size: tuple[int, int]) -> None:
    """Pillow refuses a box that a rounding error has moved off the photo: 600 × 450 was such a one,
    seen whole by a model of 224 pixels."""
    rules = Preprocess(size=size, crop=crop)
    for width in (600, 601, 448, 901):
        for height in range(8, 1200):
            left, top, right, bottom = rules.box(width, height)
            assert 0 <= left < right <= width and 0 <= top < bottom <= height, (width, height)
    assert rules.view(Image.new("RGB", (600, 450))).size == (size[1], size[0])


@pytest.mark.parametrize("fit", ["crop", "letterbox"])
@pytest.mark.parametrize("size", [(96, 96), (64, 128), (128, 64)])
@pytest.mark.parametrize("photo_size", [(600, 420), (420, 600)])
def test_box_is_where_the_view_comes_from(
    fit, size: tuple[int, int], photo_size: tuple[int, int]
) -> None:
    """A bright square on a dark photo is found in the view where the box says."""
    square = (photo_size[0] // 2 - 70, photo_size[1] // 2 - 50, photo_size[0] // 2 + 30,
              photo_size[1] // 2 + 40)  # fmt: skip
    photo = Image.new("RGB", photo_size)
    photo.paste("white", square)
    rules = Preprocess(size=size, fit=fit, mean=(0, 0, 0))
    bright = array(rules.view(photo))[..., 0] > 127
    rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
    left, top, right, bottom = rules.box(*photo_size)
    scale = size[1] / (right - left)
    assert scale == pytest.approx(size[0] / (bottom - top))
    found = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    said = [(edge - start) * scale for edge, start in zip(square, (left, top) * 2, strict=True)]
    assert found == pytest.approx(said, abs=1.01)


@pytest.mark.parametrize("photo_size", [(640, 480), (300, 500), (100, 80), (224, 224)])
@pytest.mark.parametrize("size", [224, 160])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "lanczos"])
def test_views_are_those_of_timm(photo_size: tuple[int, int], size: int, interpolation) -> None:
    from timm.data.transforms_factory import create_transform

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    theirs = create_transform(
        size, interpolation=interpolation, crop_pct=0.9, mean=mean, std=std, is_training=False
    )
    ours = Preprocess((size, size), 0.9, interpolation=interpolation, mean=mean, std=std)
    photo = scene(*photo_size)
    assert not isinstance(theirs, tuple)
    expected = theirs(photo)
    assert isinstance(expected, torch.Tensor)
    apart = (ours(photo) - expected).abs() * torch.tensor(std).view(3, 1, 1) * 255
    assert apart.mean() < 1 and apart.max() < 4  # of 255


def test_letterbox_keeps_the_whole_photo_and_pads_with_the_mean() -> None:
    rules = Preprocess(size=(100, 100), fit="letterbox", mean=(0.2, 0.4, 0.6))
    photo = Image.new("RGB", (400, 200), "white")
    photo.paste("red", (0, 0, 40, 200))
    pixels = array(rules.view(photo))
    assert (pixels[:25] == [51, 102, 153]).all() and (pixels[75:] == [51, 102, 153]).all()
    assert (pixels[25:75, :8] == [255, 0, 0]).all() and (pixels[25:75, 14:] == 255).all()
    padding = rules(photo)[:, :25]
    assert padding.abs().max() < 0.01  # the mean is 0 to the model


@pytest.mark.parametrize("fit", ["crop", "letterbox"])
@pytest.mark.parametrize("size", [(224, 224), (64, 96), (17, 5)])
def test_view_and_tensor_shapes(fit, size: tuple[int, int]) -> None:
    rules = Preprocess(size=size, fit=fit)
    for photo in (scene(), scene(50, 300), scene(2000, 300), scene().convert("RGBA")):
        view = rules.view(photo)
        assert view.mode == "RGB" and view.size == (size[1], size[0])
        pixels = rules(photo)
        assert pixels.shape == (3, *size) and pixels.dtype == torch.float32
        assert pixels.is_contiguous() and torch.equal(pixels, rules.tensor(view))


def test_tensor_by_hand() -> None:
    rules = Preprocess(size=(8, 16), mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    view = Image.new("RGB", (16, 8), (255, 0, 51))
    view.putpixel((15, 0), (0, 255, 255))
    pixels = rules.tensor(view)
    assert pixels[:, 7, 0].tolist() == pytest.approx([1, -1, 0.2])
    assert pixels[:, 0, 15].tolist() == pytest.approx([-1, 3, 1])


def test_batch_is_its_tensors() -> None:
    rules = Preprocess(size=(32, 48))
    views = [rules.view(scene()), rules.view(noise())]
    batch = rules.batch(iter(views))
    assert batch.is_contiguous() and batch.dtype == torch.float32
    assert torch.equal(batch, torch.stack([rules.tensor(view) for view in views]))
    assert rules.batch([]).shape == (0, 3, 32, 48)
    with pytest.raises(ValueError, match="48 × 32"):
        rules.batch([scene()])


def test_json_keeps_everything() -> None:
    import json

    rules = Preprocess((64, 96), 0.875, "letterbox", "lanczos", (0.1, 0.2, 0.3), (0.4, 0.5, 1))
    assert Preprocess.from_json(json.loads(json.dumps(rules.to_json()))) == rules
    assert Preprocess.from_json(json.loads(json.dumps(Preprocess().to_json()))) == Preprocess()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", 224),
        ("size", [224]),
        ("size", [224, 0]),
        ("size", [224.0, 224]),
        ("size", [True, True]),
        ("size", [10**9, 10**9]),
        ("crop", 0),
        ("crop", 1.1),
        ("crop", "0.9"),
        ("crop", True),
        ("crop", float("nan")),
        ("fit", "stretch"),
        ("fit", ["crop"]),
        ("fit", None),
        ("interpolation", "nearest"),
        ("interpolation", {}),
        ("mean", [0.5, 0.5]),
        ("mean", [0.5, 0.5, 127]),
        ("mean", [0.5, 0.5, None]),
        ("mean", 0.5),
        ("std", [0.5, 0, 0.5]),
        ("std", [0.5, "a", 0.5]),
        ("std", []),
    ],
)
def test_bad_fields_are_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"Preprocess.{field} must be"):
        Preprocess.from_json({**Preprocess().to_json(), field: value})


def test_missing_and_unknown_fields_are_named() -> None:
    rules = Preprocess().to_json()
    with pytest.raises(ValueError, match="colour is unknown"):
        Preprocess.from_json({**rules, "colour": 1})
    for field in rules:
        with pytest.raises(ValueError, match=f"{field} is missing"):
            Preprocess.from_json({k: v for k, v in rules.items() if k != field})
    with pytest.raises(ValueError, match="JSON object"):
        Preprocess.from_json([])  # type: ignore[arg-type]


def test_preprocess_is_a_value() -> None:
    rules = Preprocess()
    assert replace(rules, size=(64, 64)).size == (64, 64) and hash(rules) == hash(Preprocess())
    with pytest.raises(FrozenInstanceError):
        rules.crop = 1  # type: ignore[misc]
