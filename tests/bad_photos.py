"""Photo files that somebody made to do harm, or that a disk or a network has damaged.

Real files of every kind are drawn here (`originals`), and changed (`changed`) as bytes and as what
they are: lengths, sizes, checksums. All follows from a seed. `worst` are whole files, each made to
take as much time or memory as its format can. `tests/benchmarks/bad_photos.py` measures them.
"""

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from PIL import Image, ImageDraw

from vit.formats import PhotoError
from vit.images import open_photo

WIDTH, HEIGHT = 48, 36


def drawn(mode: str = "RGB", size: tuple[int, int] = (WIDTH, HEIGHT)) -> Image.Image:
    """A plate on a table, with some noise."""
    width, height = size
    picture = Image.effect_noise(size, 30).convert("RGB")
    draw = ImageDraw.Draw(picture)
    draw.ellipse((width // 8, height // 8, 7 * width // 8, 7 * height // 8), fill=(230, 220, 200))
    draw.ellipse((width // 3, height // 3, 2 * width // 3, 2 * height // 3), fill=(190, 60, 30))
    return picture.convert(mode)


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def several(kind: str, **options: object) -> bytes:
    first, *more = (drawn().rotate(turn) for turn in (0, 90, 180))
    return saved(first, kind, save_all=True, append_images=more, **options)


def with_orientation(value: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = value
    exif[0x010F] = "camera"
    return exif.tobytes()


def chunk(name: bytes, data: bytes) -> bytes:
    """Of a PNG, with its checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(
    size: tuple[int, int], depth: int, colour: int, rows: bytes, *more: bytes, interlaced: int = 0
) -> bytes:
    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, interlaced)
    body = chunk(b"IHDR", header) + b"".join(more) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def interlaced() -> bytes:
    """A grey PNG in Adam7's seven passes, which Pillow reads and cannot write."""
    pixels = np.asarray(drawn("L"))
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2))
    rows = b""
    for top, left, down, across in (*passes, (1, 0, 2, 1)):
        rows += b"".join(b"\0" + row.tobytes() for row in pixels[top::down, left::across])
    return png((WIDTH, HEIGHT), 8, 0, rows, interlaced=1)


@cache
def originals() -> dict[str, bytes]:
    """A sound file of every kind that people send, and some that are no photos."""
    deep = np.asarray(drawn("L")).astype(np.uint16) * 257
    colours16 = np.asarray(drawn()).astype(">u2") * 257
    transparent = drawn("RGBA")
    transparent.putalpha(drawn("L"))
    files = {
        "jpeg": saved(drawn(), "JPEG"),
        "jpeg progressive": saved(drawn(), "JPEG", progressive=True),
        "jpeg restarts": saved(drawn(), "JPEG", restart_marker_blocks=2),
        "jpeg grey": saved(drawn("L"), "JPEG"),
        "jpeg cmyk": saved(drawn("CMYK"), "JPEG"),
        "jpeg turned": saved(drawn(), "JPEG", exif=with_orientation(6)),
        "jpeg profile": saved(drawn(), "JPEG", icc_profile=bytes(3000), comment=b"two eggs"),
        "mpo": several("MPO"),
        "png": saved(drawn(), "PNG"),
        "png one bit": saved(drawn("1"), "PNG"),
        "png palette": saved(drawn("P"), "PNG", transparency=3),
        "png alpha": saved(transparent, "PNG"),
        "png grey alpha": saved(transparent.convert("LA"), "PNG"),
        "png 16 bits": saved(Image.fromarray(deep), "PNG"),
        "png 16-bit colour": png(
            (WIDTH, HEIGHT), 16, 2, b"".join(b"\0" + row.tobytes() for row in colours16)
        ),
        "png interlaced": interlaced(),
        "apng": several("PNG"),
        "gif": saved(drawn("P"), "GIF"),
        "gif animated": several("GIF", comment=b"x" * 600),
        "webp": saved(drawn(), "WEBP"),
        "webp lossless": saved(transparent, "WEBP", lossless=True),
        "webp animated": several("WEBP", exif=with_orientation(3)),
        "avif": saved(drawn(), "AVIF", speed=10),
        "avif animated": several("AVIF", speed=10),
        "bmp": saved(drawn(), "BMP"),
        "bmp palette": saved(drawn("P"), "BMP"),
        "tiff": saved(drawn(), "TIFF"),
        "tiff lzw": saved(drawn(), "TIFF", compression="tiff_lzw"),
        "tiff jpeg": saved(drawn(), "TIFF", compression="jpeg"),
        "tiff cmyk": saved(drawn("CMYK"), "TIFF", compression="tiff_deflate"),
        "tiff floats": saved(drawn("F"), "TIFF"),
        "tiff pages": several("TIFF"),
        "jpeg 2000": saved(drawn(), "JPEG2000"),
        "ppm": saved(drawn(), "PPM"),
        "pgm": saved(drawn("L"), "PPM"),
        "ppm text": b"P3 9 9 255\n# dough\n" + b" 10 200 30" * 81,
        "qoi": saved(drawn(), "QOI"),
        "pcx": saved(drawn(), "PCX"),
        "sgi": saved(drawn(), "SGI"),
    }
    no_photos = {
        "ico": saved(drawn(), "ICO", sizes=[(32, 32)]),
        "heic": b"\0\0\0\x18ftypheic" + bytes(4) + b"mif1heic" + bytes(60),
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="/etc/passwd"/></svg>',
        "text": b"two eggs, flour, salt\n" * 9,
        "pdf": b"%PDF-1.7\n1 0 obj\n" + bytes(50),
        "eps": saved(drawn(), "EPS"),
    }
    assert all(open_photo(data) for data in files.values())
    return files | no_photos


ODD = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\1", b"\0\1")
SIZES = (0, 1, 7, 8, 30_000, 65_535, 2**31 - 1, 2**31, 2**32 - 1)


def changed(chance: random.Random) -> tuple[str, bytes]:
    """What was done, and the file: one of the originals, changed one to three times."""
    name = chance.choice(sorted(originals()))
    data, done = originals()[name], [name]
    for _ in range(chance.choice((1, 1, 2, 3))):
        change = chance.choice(CHANGES)
        data = change(data, chance)
        done.append(change.__name__)
    return ", ".join(done), data


def flip(data: bytes, chance: random.Random) -> bytes:
    """Some bytes are others, rather at the beginning, where files describe themselves."""
    bad = bytearray(data)
    for _ in range(chance.randrange(1, 9)):
        if bad:
            bad[int(len(bad) * chance.random() ** 3)] = chance.randrange(256)
    return bytes(bad)


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def leave_out(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    return data[:start] + data[start + chance.randrange(1, 200) :]


def double(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    piece = data[start : start + chance.randrange(1, 2000)]
    return data[:start] + piece * chance.randrange(2, 5) + data[start + len(piece) :]


def insert(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    piece = chance.choice((b"\0", b"\xff", b"\xff\xd8", b"\xff\xda", b"IDAT", b"!\xfe\xff"))
    return data[:start] + piece * chance.randrange(1, 300) + data[start:]


def odd_number(data: bytes, chance: random.Random) -> bytes:
    start = int(len(data) * chance.random() ** 3)
    number = chance.choice(ODD)
    return data[:start] + number + data[start + len(number) :]


def splice(data: bytes, chance: random.Random) -> bytes:
    other = originals()[chance.choice(sorted(originals()))]
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other)) :]


def lie(data: bytes, chance: random.Random) -> bytes:
    """Another size in the header; for a PNG with the checksum that belongs to it."""
    width, height = chance.choice(SIZES), chance.choice(SIZES)
    if data.startswith(b"\x89PNG"):
        header = struct.pack(">II", width, height) + data[24:29]
        return data[:8] + chunk(b"IHDR", header) + data[33:]
    short = struct.pack(">HH", height & 0xFFFF, width & 0xFFFF)
    if data.startswith(b"\xff\xd8"):
        for mark in (b"\xff\xc0\0\x11", b"\xff\xc0\0\x0b", b"\xff\xc2\0\x11", b"\xff\xc0\0\x14"):
            if (place := data.find(mark)) >= 0:
                return data[: place + 5] + short + data[place + 9 :]
    if data.startswith(b"GIF8"):
        return data[:6] + short[::-1] + data[10:]
    if data.startswith(b"BM"):
        return data[:18] + struct.pack("<II", width, height) + data[26:]
    if data.startswith(b"RIFF") and data[12:16] == b"VP8X":
        sides = struct.pack("<I", width & 0xFFFFFF)[:3] + struct.pack("<I", height & 0xFFFFFF)[:3]
        return data[:24] + sides + data[30:]
    if data.startswith((b"P6", b"P5", b"P3")):
        return data[:2] + b" %d %d 255\n" % (width, -height) + data[12:]
    if data.startswith(b"qoif"):
        return data[:4] + struct.pack(">II", width, height) + data[12:]
    if data.startswith((b"II*\0", b"MM\0*")):
        order = "<" if data[:1] == b"I" else ">"
        start = min(struct.unpack(f"{order}I", data[4:8].ljust(4, b"\0"))[0], len(data))
        place = start + 2 + 12 * chance.randrange(12) + chance.choice((2, 4, 8))
        return data[:place] + chance.choice(ODD) + data[place + 4 :]
    return odd_number(data, chance)


def mend(data: bytes, chance: random.Random) -> bytes:
    """A byte of a PNG's chunk is another and its checksum right all the same."""
    if not data.startswith(b"\x89PNG"):
        return flip(data, chance)
    pieces, at = [data[:8]], 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        name, inside = data[at + 4 : at + 8], bytearray(data[at + 8 : at + 8 + length])
        if inside and chance.random() < 0.5:
            inside[chance.randrange(len(inside))] = chance.randrange(256)
        pieces.append(chunk(name, bytes(inside)))
        at += 12 + length
    return b"".join(pieces)


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip,
    cut,
    leave_out,
    double,
    insert,
    odd_number,
    splice,
    lie,
    mend,
)


# --- The worst of each kind -------------------------------------------------------------------


def gif_with_comment(size: int) -> bytes:
    """Its comment has pieces of one byte, each of which would be added to a copy of all before."""
    head = b"GIF89a" + struct.pack("<HHBBB", 16, 16, 0x80, 0, 0) + bytes(6)
    return head + b"!\xfe" + b"\1x" * (size // 2) + b"\0;"


def png_of_chunks(size: int, behind: bool) -> bytes:
    data = png((16, 16), 8, 0, bytes(17) * 16)
    place = data.index(b"IEND" if behind else b"IDAT") - 4
    return data[:place] + chunk(b"abCd", b"") * (size // 12) + data[place:]


def jpeg_of_segments(size: int) -> bytes:
    data = saved(drawn(), "JPEG")
    return data[:2] + b"\xff\xe5\0\2" * (size // 4) + data[2:]


def jpeg_with_filling(size: int) -> bytes:
    data = saved(drawn(), "JPEG")
    return data[:2] + b"\xff" * size + data[2:]


def jpeg_of_passes(passes: int, side: int = 10_000) -> bytes:
    """A grey square of which each pass says in some bytes that nothing changes in it."""
    blocks = (side // 8) ** 2
    tables = b"\xff\xdb\0\x43\0" + b"\1" * 64
    for where, symbol in ((b"\0", b"\0"), (b"\x10", b"\xe0")):  # the only code: 0
        tables += b"\xff\xc4\0\x14" + where + b"\1" + bytes(15) + symbol
    frame = b"\xff\xc2\0\x0b\x08" + struct.pack(">HH", side, side) + b"\1\1\x11\0"
    skips = "".join("0" + "1" * 14 for _ in range(-(-blocks // 32_767)))  # so many blocks end here
    skips += "1" * (-len(skips) % 8)
    inside = int(skips, 2).to_bytes(len(skips) // 8, "big").replace(b"\xff", b"\xff\0")
    begin, end = b"\xff\xda\0\x08\1\1\0\0\0\0", b"\xff\xda\0\x08\1\1\0\1\x3f\0"
    first = begin + bytes(-(-blocks // 8))
    return b"\xff\xd8" + tables + frame + first + (end + inside) * (passes - 1) + b"\xff\xd9"


def tiff_of_tiles(size: int) -> bytes:
    """Uncompressed, a tile for every pixel, all in the same place."""
    side = int((size / 8) ** 0.5)
    count, behind = side * side, 8 + 2 + 12 * 10 + 4
    tags = [(256, 1, side), (257, 1, side), (258, 1, 8), (259, 1, 1), (262, 1, 1), (277, 1, 1)]
    tags += [(322, 1, 1), (323, 1, 1), (324, count, behind), (325, count, behind + 4 * count)]
    entries = b"".join(struct.pack("<HHII", tag, 4, many, value) for tag, many, value in tags)
    head = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    return head + struct.pack("<I", 8) * count + struct.pack("<I", 1) * count


def tiff_of_pages(size: int) -> bytes:
    data = bytearray(saved(drawn("L"), "TIFF"))
    (start,) = struct.unpack_from("<I", data, 4)
    (entries,) = struct.unpack_from("<H", data, start)
    struct.pack_into("<I", data, start + 2 + 12 * entries, len(data))
    for _ in range(size // 18):
        data += struct.pack("<HHHIII", 1, 256, 4, 1, 16, len(data) + 18)
    return bytes(data)


def qoi_of(pixels: int) -> bytes:
    head = b"qoif" + struct.pack(">IIBB", 1000, pixels // 1000, 3, 0)
    return head + b"\xfe\1\2\3" + b"\x75" * pixels + bytes(7) + b"\1"


def ppm_of(pixels: int, kind: bytes) -> bytes:
    """In words ("P3"), or with another top than 255 ("P6")."""
    body = b"1 " * (3 * pixels) if kind == b"P3" else b"\1" * (3 * pixels)
    return kind + b" 1000 %d 254\n" % (pixels // 1000) + body


def bmp_of_runs(pixels: int) -> bytes:
    """Packed in runs of one pixel."""
    rows, data = pixels // 1000, b"\1\5" * pixels + b"\0\1"
    head = struct.pack("<IiiHHIIiiII", 40, 1000, rows, 1, 8, 1, len(data), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", 1078 + len(data), 0, 0, 1078) + head + bytes(1024) + data


def flat_png(width: int, height: int, depth: int, colour: int) -> bytes:
    """Of one colour, packed without ever holding its pixels."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    row = bytes(1 + (width * channels * depth + 7) // 8)
    pack = zlib.compressobj(1)
    body = b"".join(pack.compress(row) for _ in range(height)) + pack.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def worst(size: int) -> Iterator[tuple[str, bytes]]:
    """Files of about so many bytes that would take minutes or hours if nobody counted."""
    pixels = size // 6000 * 1000
    yield "a GIF's comment in pieces", gif_with_comment(size)
    yield "a PNG of chunks before its pixels", png_of_chunks(size, behind=False)
    yield "a PNG of chunks behind its pixels", png_of_chunks(size, behind=True)
    yield "a JPEG of segments", jpeg_of_segments(size)
    yield "a JPEG with filling", jpeg_with_filling(size)
    yield "a JPEG of passes", jpeg_of_passes(size // 6000)
    yield "a TIFF of tiles", tiff_of_tiles(size)
    yield "a TIFF of pages", tiff_of_pages(size)
    yield "a QOI", qoi_of(pixels)
    yield "a PPM in words", ppm_of(pixels, b"P3")
    yield "a PPM of another depth", ppm_of(pixels, b"P6")
    yield "a BMP of runs", bmp_of_runs(3 * pixels)


def sentence(source: bytes, at_least: int | None) -> str | None:
    """None for a photo that was read, else the sentence that says why not.

    AssertionError for anything else: two lines, a traceback, a fault in code of ours.
    """
    try:
        photo = open_photo(source, at_least)
    except PhotoError as error:
        text = str(error)
        assert text.endswith(".") and text.count(". ") == 0 and text.isprintable(), text
        assert 20 < len(text) < 250 and "Error" not in text and "0x" not in text, text
        cause = error.__cause__
        trace = cause.__traceback__ if cause else None
        while trace and trace.tb_next:
            trace = trace.tb_next
        where = trace.tb_frame.f_code.co_filename if trace else ""
        assert "/vit/" not in where.replace("\\", "/"), f"our own fault: {cause!r} in {where}"
        return text
    assert photo.image.mode == "RGB" and min(photo.size) >= 8 and not photo.image.info
    wanted = min(photo.size) if at_least is None else min(at_least, *photo.size)
    assert wanted <= min(photo.image.size) and photo.image.width <= photo.size[0]
    return None
