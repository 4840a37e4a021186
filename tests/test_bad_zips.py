"""Zips and folders made to do harm: refused as a whole with one sentence, or read with what is left
out named; nothing is ever written, and no name becomes anything but text.

`VIT_SEED=n python -m pytest tests/test_bad_zips.py` repeats a failure, or looks for others.
"""

import io
import os
import random
import stat
import struct
import time
import zipfile
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bad_photos import cut, double, drawn, flip, insert, leave_out, odd_number, saved

from vit.data import open_data
from vit.doctor import report_on
from vit.findings_html import details_html, lines_html, page_html
from vit.folders import DataError
from vit.images import PhotoError

SEED = int(os.environ.get("VIT_SEED", "8"))
INPUTS = 300
SECONDS = 5.0  # of the processor, for a zip of some kilobytes

Files = dict[str, bytes]


def photos(*classes: str, each: int = 2) -> Files:
    names = classes or ("pizza", "sushi")
    return {
        f"{name}/{number}.png": saved(drawn(), "PNG") for name in names for number in range(each)
    }


def zipped(files: Files, how: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        open_data(path)
    text = str(caught.value)
    assert text.isprintable() and text.endswith(".") and len(text) < 400, text
    return text


# --- Damage -----------------------------------------------------------------------------------


def in_directory(data: bytes, chance: random.Random) -> bytes:
    """Another number in the list of files at the end, which says where they are and how large."""
    start = data.find(b"PK\1\2")
    place = chance.randrange(start, len(data)) if start >= 0 else 0
    number = chance.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80", b"\1", b"\xff\xff"))
    return data[:place] + number + data[place + len(number) :]


@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_damaged_zips_are_read_or_refused(how: int, tmp_path: Path) -> None:
    whole, path = zipped(photos() | {"pizza/notes.txt": b"dough"}, how), tmp_path / "set.zip"
    chance = random.Random(f"{SEED} {how}")
    changes = (flip, cut, leave_out, double, insert, odd_number, *4 * (in_directory,))
    refused = 0
    for number in range(INPUTS // 3):
        change = chance.choice(changes)
        path.write_bytes(change(whole, chance))
        started = time.process_time()
        try:
            found = open_data(path)
        except DataError as error:
            refused += 1
            assert str(error).endswith(".") and "\n" not in str(error)
        except BaseException as error:
            error.add_note(f"VIT_SEED={SEED}, input {number}: {change.__name__}")
            raise
        else:
            for index in range(len(found.train)):
                try:
                    found.train.photo(index)
                except PhotoError as error:
                    assert "\n" not in str(error)
        assert time.process_time() - started < SECONDS
    assert 0.2 * INPUTS / 3 < refused < INPUTS / 3
    assert os.listdir(tmp_path) == ["set.zip"]  # nothing was unpacked


# --- Made to do harm --------------------------------------------------------------------------


@pytest.mark.parametrize("system", [0, 3, 19], ids=["DOS", "Unix", "macOS"])
@pytest.mark.parametrize(
    ("kind", "called"),
    [
        (stat.S_IFLNK, "a link"),
        (stat.S_IFIFO, "a pipe"),
        (stat.S_IFBLK, "a device"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFSOCK, "a socket"),
    ],
)
def test_what_is_no_file_is_refused(kind: int, called: str, system: int, tmp_path: Path) -> None:
    """Whatever system the entry says it comes from."""
    path = tmp_path / "set.zip"
    path.write_bytes(zipped(photos()))
    with zipfile.ZipFile(path, "a") as archive:
        entry = zipfile.ZipInfo("pizza/9.png")
        entry.create_system, entry.external_attr = system, (kind | 0o644) << 16
        archive.writestr(entry, "/etc/passwd")
    assert f"'pizza/9.png' is {called}" in refusal(path)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd.png",
        "pizza/../../x.png",
        "..\\x.png",
        "C:\\x.png",
        "C:x.png",
        "\\\\server\\share\\x.png",
        "pizza/..",
    ],
)
def test_names_that_lead_outside_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "set.zip"
    path.write_bytes(zipped(photos() | {name: b"x"}))
    assert "points outside it" in refusal(path)


def overlapping(quoted: bool, copies: int = 40) -> bytes:
    """Many entries of one file's bytes: each at the same place, or each beginning with the headers
    of those behind it (Fifield 2019, https://www.bamsoftware.com/hacks/zipbomb/)."""
    content = bytes(40_000)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    kernel = packer.compress(content) + packer.flush()
    names = [f"{dish}/{number:03}.png".encode() for dish in ("a", "b") for number in range(copies)]

    def local(name: bytes, size: int, raw: int, check: int) -> bytes:
        numbers = (20, 0, 8, 0, 0x21, check, size, raw, len(name), 0)
        return b"PK\3\4" + struct.pack("<HHHHHIIIHH", *numbers) + name

    body, places, raw = kernel, [], content
    for name in reversed(names):
        check = zlib.crc32(raw)
        header = local(name, len(body), len(raw), check)
        places.append((name, len(header) + len(body), len(body), len(raw), check))
        if quoted:  # the next entry's data begins with this header, as bytes that are not packed
            quote = b"\0" + struct.pack("<HH", len(header), len(header) ^ 0xFFFF)
            raw, body = header + raw, quote + header + body
    if not quoted:
        body = local(names[0], len(kernel), len(content), zlib.crc32(content)) + kernel
        places = [(n, len(body), len(kernel), len(content), zlib.crc32(content)) for n in names]
    directory = b"".join(
        b"PK\1\2"
        + struct.pack(
            "<HHHHHHIIIHHHHHII",
            20,
            20,
            0,
            8,
            0,
            0x21,
            check,
            size,
            full,
            len(name),
            0,
            0,
            0,
            0,
            0,
            len(body) - behind,
        )  # fmt: skip # noqa: E501
        + name
        for name, behind, size, full, check in places
    )
    end = struct.pack("<HHHHIIH", 0, 0, len(places), len(places), len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + end


@pytest.mark.parametrize("quoted", [False, True], ids=["one place", "quoted"])
def test_zips_that_share_their_bytes_are_refused(quoted: bool, tmp_path: Path) -> None:
    path = tmp_path / "set.zip"
    path.write_bytes(overlapping(quoted))
    with zipfile.ZipFile(path) as archive:  # for other programs it is a zip like any other
        assert len(archive.namelist()) == 80 and archive.getinfo("a/000.png").file_size >= 40_000
    assert "files in it overlap" in refusal(path)


def test_zips_in_zips_are_not_opened(tmp_path: Path) -> None:
    inner = zipped({f"{number}.png": bytes(1000) for number in range(10)})
    path = tmp_path / "set.zip"
    path.write_bytes(zipped(photos() | {"pizza/more.zip": inner, "pizza/zip.png": inner}))
    kinds = {finding.kind: finding.files for finding in report_on(path).findings}
    assert kinds["packed"] == ("pizza/more.zip",) and kinds["unreadable"] == ("pizza/zip.png",)


# --- Folders ----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_pipes_devices_and_circles_in_folders_hold_nothing_up(tmp_path: Path) -> None:
    place = tmp_path / "set"
    for name, content in photos().items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    os.mkfifo(place / "pizza" / "pipe.png")
    (place / "pizza" / "endless.png").symlink_to("/dev/zero")
    (place / "pizza" / "gone.png").symlink_to(tmp_path / "nowhere")
    (place / "pizza" / "round").symlink_to(place)
    (place / "pizza" / "itself.png").symlink_to(place / "pizza" / "itself.png")
    started = time.monotonic()
    report = report_on(place)
    assert report.trainable and [c.total for c in report.classes] == [2, 2]
    left = {name for finding in report.findings if finding.kind in ("empty", "not used", "unreadable") for name in finding.files}  # fmt: skip # noqa: E501
    assert {f"pizza/{n}.png" for n in ("pipe", "endless", "gone", "itself")} < left
    assert "pizza/round/" in left and time.monotonic() - started < 30


# --- Names ------------------------------------------------------------------------------------

NASTY = {
    "html": '<img src=x onerror="window.ran=1">',
    "script": "<style><script>window.ran=1",
    "quotes": "\"' onmouseover='window.ran=1' x=\"",
    "markdown": "![x](http:evil) **bold** `code` [a](b)",
    "formula": "=HYPERLINK(cmd);+1",
    "right to left": "פיצה مرحبا",
    "emoji": "👩‍🍳🍕",
    "entity": "&lt;b&gt;&amp;",
    "braces": "{0} %s ${x} {{y}}",
}


class Elements(HTMLParser):
    """The elements of a page and what they say."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.found |= {tag} | {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", NASTY.values(), ids=NASTY)
def test_names_of_classes_and_files_are_text(name: str, tmp_path: Path) -> None:
    plain = tmp_path / "plain.zip"
    plain.write_bytes(zipped(photos("pizza", "sushi") | {"pizza/pizza.png": b"no photo"}))
    path = tmp_path / "set.zip"
    path.write_bytes(zipped(photos(name, "sushi") | {f"{name}/{name}.png": b"no photo"}))
    usual, report = report_on(plain), report_on(path)
    assert report.trainable and name in [each.name for each in report.classes]
    for show in (lines_html, details_html, page_html):
        shown = Elements(show(report))
        assert shown.found == Elements(show(usual)).found
        assert name in shown.text or name[:1].upper() + name[1:] in " ".join(shown.text.split())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x" * 10_000, "longer than 200 characters"),
        ("two\nlines", "cannot be seen"),
        ("bell\x07", "cannot be seen"),
        ("\x1b]0;title\x07", "cannot be seen"),
        ("gnp.\u202eazzip", "cannot be seen"),
        ("a\u2028b", "cannot be seen"),
    ],
    ids=["long", "line break", "bell", "terminal", "turned", "line separator"],
)
def test_class_names_that_cannot_be_are_said_before_anything_is_read(
    name: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "set.zip"
    path.write_bytes(zipped(photos(name, "sushi")))
    text = refusal(path)
    assert why in text and "rename it" in text
    report = report_on(path)
    assert why in report.problem and Elements(lines_html(report)).text.isprintable()


def test_odd_names_of_files_are_shown_on_one_short_line(tmp_path: Path) -> None:
    """Also in another code page, and with signs that end a name for other programs."""
    path = tmp_path / "set.zip"
    odd = ["x" * 10_000, "two\nlines", "\x1b[31mred", "gnp.\u202eevil", "caf\xe9", "nul\0.png"]
    path.write_bytes(zipped(photos() | {f"pizza/{name}.png": b"no photo" for name in odd}))
    raw = path.read_bytes().replace(b"caf\xc3\xa9", b"caf\x82 ")  # cp437, though it says UTF-8
    path.write_bytes(raw)
    assert "damaged" in refusal(path)
    path.write_bytes(zipped(photos() | {f"pizza/{name}.png": b"no photo" for name in odd}))
    report = report_on(path)
    assert report.trainable
    shown = Elements(details_html(report)).text
    assert shown.isprintable() and "x" * 200 not in shown
    left = [each for each in report.findings if each.kind in ("unreadable", "no photo")]
    assert len(left) == len(odd)


def test_names_that_differ_in_case_or_in_their_form_alone(tmp_path: Path) -> None:
    path = tmp_path / "set.zip"
    composed, apart = "cre\u0300me", "cr\u00e8me"
    path.write_bytes(zipped(photos("Pizza", "pizza", "PIZZA", composed) | {f"{apart}/0.png": b""}))
    report = report_on(path)
    assert [each.name for each in report.classes] == ["PIZZA", "Pizza", apart, "pizza"]
    assert any(finding.kind == "similar names" for finding in report.findings)
    assert any("one of several files" in finding.happens for finding in report.findings)
