"""The dataset doctor on healthy, ill and hostile folders and zips."""

import io
import json
import os
import random
import re
import stat
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from test_data import Files, folder, zipped

from vit import doctor, folders
from vit.__main__ import main
from vit.data import _REASONS, open_data
from vit.doctor import Examined, ends_early, examine, report_on
from vit.findings import KINDS, Finding, Report
from vit.findings_html import LISTED, details_html, page_html
from vit.photoset import Reading

Make = Callable[..., Path]


def picture(seed: object, size: tuple[int, int] = (96, 80)) -> Image.Image:
    """Soft squares of colour, different for every seed."""
    colours = random.Random(str(seed)).randbytes(6 * 5 * 3)
    return Image.frombytes("RGB", (6, 5), colours).resize(size, Image.Resampling.BICUBIC)


def photo(seed: object, kind: str = "JPEG", size: tuple[int, int] = (96, 80), **how: Any) -> bytes:
    file = io.BytesIO()
    picture(seed, size).save(file, kind, **how)
    return file.getvalue()


def photos(front: str = "", each: int = 11, names: str = "ab") -> Files:
    return {
        f"{front}{name}/{i:02}.jpg": photo(f"{front}{name}{i}")
        for name in names
        for i in range(each)
    }


@pytest.fixture(params=["folder", "zip"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "folder":
        return lambda files, name="set": folder(tmp_path / name, files)
    return lambda files, name="set": zipped(tmp_path / f"{name}.zip", files)


def kinds(report: Report) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for finding in report.findings:
        found.setdefault(finding.kind, []).append(finding.files)
    return found


def check(report: Report) -> None:
    """What holds for every report, whatever the data set."""
    assert len(report.lines()) == 3
    for said in (*report.lines(), report.problem, *(f.happens for f in report.findings)):
        assert said.isprintable() and (not said or said.endswith(".")) and len(said) < 1000
    text = json.dumps(report.to_json(), ensure_ascii=False)
    text.encode()  # no lone surrogates
    assert json.loads(text)["trainable"] is report.trainable
    html = page_html(report)
    html.encode()
    assert "<script" not in html and not re.search(r"<img (?!src=\"data:)", html)
    assert set(report.thumbnails) <= {name for f in report.findings for name in f.files}
    for finding in report.findings:
        assert finding.kind in KINDS


# --- A healthy set ----------------------------------------------------------------------------


@pytest.mark.parametrize("front", ["", "food/"])
def test_a_healthy_set_has_no_findings(make: Make, front: str) -> None:
    path = make(photos(f"{front}train/") | photos(f"{front}test/", 3))
    report = report_on(path)
    check(report)
    assert report.trainable and report.findings == ()
    assert report.lines() == (
        "28 photos of 2 classes (A 14, B 14): 18 to learn from, 4 to choose by, 6 to test with.",
        "Nothing is left out.",
        "Nothing else stands out.",
    )
    data = open_data(path)
    assert report.fingerprint == data.fingerprint
    counts = [(c.name, c.train, c.val, c.test) for c in report.classes]
    assert counts == [("a", 9, 2, 3), ("b", 9, 2, 3)]
    assert len(data.train) == 18 and len(data.val) == 4


def test_progress_goes_from_nothing_to_all_and_can_be_left(make: Make) -> None:
    path = make(photos(each=40))
    steps = list(examine(path))
    reading = [step for step in steps if isinstance(step, Examined)]
    assert isinstance(steps[-1], Report) and len(reading) == len(steps) - 1 >= 1
    assert all(0 <= step.done <= 80 and step.total in (0, 80) for step in reading)
    half = examine(path)
    assert isinstance(next(half), Examined)
    half.close()  # type: ignore[attr-defined]


def test_closing_ends_the_work(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun, real = threading.Event(), [], doctor._note

    def slow(reading: Reading) -> doctor._Note:
        begun.append(reading.name)
        gate.wait()
        return real(reading)

    monkeypatch.setattr(doctor, "_note", slow)
    others = set(threading.enumerate())
    steps = examine(make(photos(each=40)))
    while not begun:
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    gate.set()
    for thread in set(threading.enumerate()) - others:
        thread.join(60)
        assert not thread.is_alive()
    assert len(begun) == 1  # of 80


# --- Findings ---------------------------------------------------------------------------------


def test_every_file_that_is_not_used_is_found_with_its_reason(make: Make) -> None:
    train, test = photos("train/"), photos("test/", 2)
    bad = {
        "train/a/half.jpg": photo("half", size=(400, 300))[:3000],
        "train/a/half.png": photo("half2", "PNG")[:900],
        "train/a/words.jpg": b"two eggs",
        "train/a/empty.jpg": b"",
        "train/a/dot.png": photo("dot", "PNG", (4, 4)),
        "train/a/strip.png": photo("strip", "PNG", (8, 600)),
        "train/a/copy.jpg": train["train/a/00.jpg"],
        "train/b/peek.jpg": test["test/b/00.jpg"],
        "train/a/two.jpg": photo("two"),
        "train/b/two.jpg": photo("two"),
        "train/a/notes.txt": b"x",
        "train/a/inner.zip": b"PK\3\4",
        "train/stray.jpg": photo("stray"),
        "train/a/.hidden.jpg": photo("h"),
        "__MACOSX/._a": b"x",
        "train/none/": b"",
        "extra/x.jpg": photo("beside"),
    }
    path = make(train | test | bad)
    report = report_on(path)
    check(report)
    assert report.trainable
    assert kinds(report) == {
        "truncated": [("train/a/half.jpg",), ("train/a/half.png",)],
        "unreadable": [("train/a/words.jpg",)],
        "empty": [("train/a/empty.jpg",)],
        "too small": [("train/a/dot.png",), ("train/a/strip.png",)],
        "contradiction": [("train/a/two.jpg", "train/b/two.jpg")],
        "copy of test": [("train/b/peek.jpg", "test/b/00.jpg")],
        "copy": [("train/a/copy.jpg", "train/a/00.jpg")],
        "packed": [("train/a/inner.zip",)],
        "no photo": [("train/a/notes.txt",)],
        "hidden": [("__MACOSX",), ("train/a/.hidden.jpg",)],
        "stray": [("train/stray.jpg",)],
        "not used": [("extra",)],
        "empty class": [("train/none",)],
    }
    # What it says of a file is what happens to it.
    data = open_data(path)
    first = {f.files[0] for f in report.findings} | {"train/b/two.jpg"}
    assert first == {name for name, _ in data.skipped}
    used = {s.name for s in (*data.train.samples, *data.val.samples)}
    assert not used & first and used == set(train)
    assert all("left out" in f.happens.lower() for f in report.findings)
    assert "train/a/copy.jpg" in report.thumbnails and "train/a/half.jpg" not in report.thumbnails
    with Image.open(io.BytesIO(report.thumbnails["train/a/copy.jpg"])) as small:
        assert small.format == "JPEG" and max(small.size) <= 120


def test_every_reason_of_the_data_set_has_a_kind() -> None:
    for reason in _REASONS:
        assert any(reason.startswith(start.strip()) for start, _ in doctor._KINDS), reason


def test_what_is_used_but_worth_a_look(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "HUGE", 1e6)
    frames = [picture(f"frame {i}") for i in range(3)]
    moving = {kind: io.BytesIO() for kind in ("GIF", "WEBP", "PNG")}
    for kind, file in moving.items():
        shifted = [picture(f"{kind} {i}") for i in range(len(frames))]
        shifted[0].save(file, kind, save_all=True, append_images=shifted[1:], duration=100)
    files = photos(each=31) | {
        "a/tiny.png": photo("tiny", "PNG", (63, 90)),
        "a/huge.jpg": photo("huge", size=(1200, 900), quality=40),
        **{f"a/moving.{kind.lower()}": file.getvalue() for kind, file in moving.items()},
        "c/0.jpg": photo("c0"),
        "c/1.jpg": photo("c1"),
        "A /0.jpg": photo("A0"),
        "A /1.jpg": photo("A1"),
    }
    report = report_on(make(files))
    check(report)
    assert report.trainable
    assert kinds(report) == {
        "few photos": [("A ",), ("c",)],
        "imbalance": [("A ",), ("c",)],
        "similar names": [("A ", "a")],
        "tiny": [("a/tiny.png",)],
        "huge": [("a/huge.jpg",)],
        "animated": [("a/moving.gif",), ("a/moving.png",), ("a/moving.webp",)],
    }
    assert report.lines()[1] == "Nothing is left out."
    assert all(KINDS[f.kind].used for f in report.findings)


def near(seed: object, width: int, kind: str = "JPEG", **how: Any) -> bytes:
    small = picture(seed, (480, 400)).resize((width, width * 5 // 6))
    file = io.BytesIO()
    small.save(file, kind, **how)
    return file.getvalue()


def test_near_duplicates_within_and_across_classes_and_sets(make: Make) -> None:
    files = photos("train/") | photos("val/", 3) | photos("test/", 3)
    files |= {
        "train/a/big.jpg": near("one", 480),
        "train/a/small.jpg": near("one", 240, quality=40),
        "train/a/web.webp": near("one", 96, "WEBP", quality=30),
        "train/b/x.png": near("two", 300, "PNG"),
        "test/b/x.jpg": near("two", 120, quality=60),
        "train/a/y.png": near("three", 300, "PNG"),
        "val/b/y.jpg": near("three", 200, quality=60),
        "test/a/same.jpg": near("four", 200),
        "test/a/same too.jpg": near("four", 200),
    }
    report = report_on(make(files))
    check(report)
    assert kinds(report) == {
        "alike across classes": [("train/a/y.png", "val/b/y.jpg")],
        "alike across sets": [("train/b/x.png", "test/b/x.jpg")],
        "alike": [
            ("train/a/big.jpg", "train/a/small.jpg", "train/a/web.webp"),
            ("test/a/same too.jpg", "test/a/same.jpg"),
        ],
    }
    (same,) = [f for f in report.findings if "test/a/same.jpg" in f.files]
    assert same.happens.startswith("The same file among the test photos")
    assert set(report.thumbnails) == {name for f in report.findings for name in f.files}


def test_more_photos_than_are_compared_are_said(make: Make, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "MAX_COMPARED", 10)
    report = report_on(make(photos()))
    (finding,) = report.findings
    assert finding.kind == "not compared" and "10 of 22" in finding.happens


def test_the_real_photos_are_fit(shared_data: Path) -> None:
    report = report_on(shared_data / "pizza_steak_sushi")
    check(report)
    assert report.trainable and report.findings == ()
    assert report.lines()[0].startswith("300 photos of 3 classes (Pizza 103, Steak 94, Sushi 103):")


def test_real_photos_under_other_names_sizes_and_sets(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "pizza_steak_sushi"
    files: Files = {}
    for dish in ("pizza", "steak"):
        for split, count in (("train", 12), ("test", 4)):
            for path in sorted((source / split / dish).glob("*.jpg"))[:count]:
                files[f"{split}/{dish}/{path.name}"] = path.read_bytes()
    expected = set()
    for i, name in enumerate(sorted(n for n in files if n.startswith("test/"))):
        with Image.open(io.BytesIO(files[name])) as image:
            smaller = image.convert("RGB").resize((image.width // (i + 1), image.height // (i + 1)))
        packed = io.BytesIO()
        smaller.save(packed, "JPEG", quality=60)
        copy = name.replace("test/", "train/").replace(".jpg", "-small.jpg")
        files[copy] = packed.getvalue()
        expected.add((copy, name))
    report = report_on(zipped(tmp_path / "set.zip", files))
    assert set(kinds(report)["alike across sets"]) == expected and len(expected) == 8


# --- What cannot be trained on ----------------------------------------------------------------


def with_link(path: Path) -> Path:
    zipped(path, photos())
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("a/link.jpg")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return path


def locked(path: Path) -> Path:
    raw = bytearray(zipped(path, photos()).read_bytes())
    raw[raw.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(raw)
    return path


def bomb(path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/1.jpg", bytes(101_000_000))
    return path


def half(path: Path) -> Path:
    raw = zipped(path, photos()).read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    return path


def damaged_directory(path: Path) -> Path:
    raw = bytearray(zipped(path, photos()).read_bytes())
    at = raw.index(b"PK\1\2")
    raw[at : at + 4] = b"XXXX"
    path.write_bytes(raw)
    return path


def unknown_packing(path: Path) -> Path:
    """Says of every file that it is packed in a way that nobody knows."""
    raw = bytearray(zipped(path, photos()).read_bytes())
    for start in (b"PK\3\4", b"PK\1\2"):
        at = raw.find(start)
        while at >= 0:
            method = at + (8 if start == b"PK\3\4" else 10)
            raw[method : method + 2] = (77).to_bytes(2, "little")
            at = raw.find(start, at + 4)
    path.write_bytes(raw)
    return path


def of(files: Files) -> Callable[[Path], Path]:
    return lambda path: zipped(path, files)


def raw(content: bytes) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        path.write_bytes(content)
        return path

    return write


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "goes up": (of(photos() | {"../x.jpg": photo(1)}), "points outside it"),
    "goes up inside": (of(photos() | {"a/../../x.jpg": photo(1)}), "points outside it"),
    "absolute": (of(photos() | {"/etc/x.jpg": photo(1)}), "points outside it"),
    "a drive": (of(photos() | {"C:/x.jpg": photo(1)}), "points outside it"),
    "backslashes up": (of(photos() | {"..\\x.jpg": photo(1)}), "points outside it"),
    "link": (with_link, "is a link"),
    "password": (locked, "locked with a password"),
    "bomb": (bomb, "more than 200 times its size"),
    "half": (half, "neither a folder nor a complete zip"),
    "damaged directory": (damaged_directory, "is damaged or incomplete"),
    "unknown packing": (unknown_packing, "no training photo left"),
    "no bytes": (raw(b""), "neither a folder nor a complete zip"),
    "only the end of a zip": (raw(b"PK\5\6" + bytes(18)), "holds no photos"),
    "a photo": (raw(photo(1)), "neither a folder nor a complete zip"),
    "only a zip inside": (of({"photos.zip": zipfile.__name__.encode()}), "holds no photos"),
    "only hidden files": (of({".DS_Store": b"x", "__MACOSX/a/._1.jpg": b"x"}), "holds no photos"),
    "no class folders": (of({"1.jpg": photo(1), "2.jpg": photo(2)}), "no class folders"),
    "one class": (of(photos(names="a")), "one class only (a)"),
    "one class and an empty one": (of(photos(names="a") | {"b/": b""}), "one class only (a)"),
    "empty classes": (of({"a/": b"", "b/": b""}), "holds no photos"),
    "test alone": (of(photos("test/")), "no train/"),
    "two validation sets": (of(photos("train/") | photos("val/") | photos("dev/")), "keep one"),
    "test lacks a class": (of(photos("train/") | photos("test/", names="a")), "lacks the class b"),
    "a class in test alone": (of(photos("train/") | photos("test/", names="abc")), "the class c"),
    "splits without classes": (of({"train/1.jpg": photo(1)}), "no class folders inside train/"),
    "nothing readable in a class": (of(photos(names="a") | {"b/1.jpg": b"x"}), "class b"),
    "one photo a class": (of(photos(each=1)), "no validation photos"),
    "all the same photo": (
        of({f"{c}/{i}.jpg": photo(0) for c in "ab" for i in range(4)}),
        "no training photo left",
    ),
    "every photo is a test photo": (
        of({f"{split}/{c}/1.jpg": photo(c) for split in ("train", "test") for c in "ab"}),
        "no training photo left",
    ),
    "names of 10,000 letters": (of({f"{'x' * 10_000}/1.jpg": photo(1)}), "longer than 200"),
    "HTML for a name": (of({"<img src=x>/1.jpg": photo(1)}), "one class only (<img src=x>)"),
    "lines in a name": (of({"a\nb\x1b[31m/1.jpg": photo(1)}), "The class folder a?b?[31m in"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_cannot_be_trained_on_is_one_sentence(case: str, tmp_path: Path, capsys) -> None:
    build, expected = HOSTILE[case]
    (tmp_path / "here").mkdir()
    path = build(tmp_path / "here" / "set.zip")
    before = sorted(p.name for p in tmp_path.rglob("*"))
    report = report_on(path)
    check(report)
    assert not report.trainable and expected in report.problem
    assert "\n" not in report.problem and len(report.problem) < 700
    assert report.problem in report.lines()[0]
    assert sorted(p.name for p in tmp_path.rglob("*")) == before  # nothing was written anywhere
    assert main(["doctor", str(path)]) == 2
    printed = capsys.readouterr()
    assert expected in printed.out and "Traceback" not in printed.out + printed.err


def test_missing_unreadable_and_odd_paths(tmp_path: Path, monkeypatch) -> None:
    for path in (tmp_path / "nowhere", tmp_path / ("x" * 5000), "a\0b", ""):
        report = report_on(path)
        check(report)
        assert not report.trainable and report.problem
    monkeypatch.setattr(folders, "MAX_FILES", 6)
    assert "more than 6" in report_on(folder(tmp_path / "set", photos())).problem


# --- Odd names --------------------------------------------------------------------------------


def test_more_photos_than_may_be_used_are_not_read(make: Make, monkeypatch) -> None:
    path = make(photos())
    monkeypatch.setattr("vit.doctor.open_data", None)  # whoever reads a photo goes through it
    count = len(photos())
    *_, report = examine(path, most=count - 1)
    assert isinstance(report, Report) and not report.trainable
    assert f"{count} photos, more than the {count - 1}" in report.problem


def test_names_are_escaped_shortened_and_on_one_line(make: Make, request) -> None:
    long = "y" * (10_000 if "zip" in request.node.name else 200)
    files = photos() | {
        "<b>bold</b>&amp;/1.jpg": photo("bold 1"),
        "<b>bold</b>&amp;/2.jpg": photo("bold 2"),
        "a/<script>alert(1)<.jpg": b"no photo",
        f"a/{long}.jpg": b"no photo",
        "a/two\nlines\x07.jpg": b"no photo",
    }
    try:
        path = make(files)
    except OSError:
        pytest.skip("this system has no such names")
    report = report_on(path)
    check(report)
    assert report.trainable and len(report.of_kind("unreadable")) == 3
    html = details_html(report)
    assert "<b>" not in html and "&lt;b&gt;bold" in html and "y" * 150 not in html


def test_class_names_that_differ_in_case_alone(make: Make, request) -> None:
    path = make(photos() | {"B/1.jpg": photo("B1"), "B/2.jpg": photo("B2")})
    if "folder" in request.node.name and not (path / "B").samefile(path / "B"):
        pytest.skip("this system knows no such names")
    report = report_on(path)
    assert kinds(report)["similar names"] == [("B", "b")]


@pytest.mark.skipif(os.name == "nt", reason="names are text on Windows")
def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = folder(tmp_path / "set", photos())
    try:
        os.mkdir(os.fsencode(path) + b"/cr\xe8me")
        Path(os.fsdecode(os.fsencode(path) + b"/a/caf\xe9.jpg")).write_bytes(photo("c"))
    except OSError:
        pytest.skip("this system has no such names")
    report = report_on(path)
    check(report)
    assert report.trainable
    assert kinds(report) == {"not used": [("a/caf\\udce9.jpg",), ("cr\\udce8me",)]}


def test_zips_of_macs_and_old_windows(tmp_path: Path) -> None:
    """macOS writes UTF-8 without saying so, accents apart; old programs use a code page."""
    decomposed = "cre\u0300me"
    files = photos() | {f"cXXXXXXme/{i}.jpg": photo(f"c{i}") for i in range(12)}
    raw = zipped(tmp_path / "mac.zip", files).read_bytes()
    utf8 = decomposed.encode()  # 7 bytes
    path = tmp_path / "mac2.zip"
    path.write_bytes(raw.replace(b"cXXXXXXme/", utf8 + b"dd/"))
    report = report_on(path)
    assert report.trainable and [c.name for c in report.classes] == ["a", "b", "cr\u00e8medd"]
    path.write_bytes(raw.replace(b"cXXXXXXme/", b"cr\x8amexxxx/"))
    assert [c.name for c in report_on(path).classes] == ["a", "b", "cr\u00e8mexxxx"]


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_two_files_of_one_name_in_a_zip(tmp_path: Path) -> None:
    path = zipped(tmp_path / "set.zip", photos())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a/00.jpg", photo("another"))
    report = report_on(path)
    check(report)
    (finding,) = report.findings
    assert finding.kind == "not used" and finding.files == ("a/00.jpg",)
    assert "one of several files" in finding.happens


# --- The report kept --------------------------------------------------------------------------


def test_the_command_line_saves_and_prints_the_report(make: Make, tmp_path: Path, capsys) -> None:
    path = make(photos() | {"a/words.jpg": b"two eggs", "a/copy.jpg": photo("a0")})
    out = tmp_path / "deep" / "report.html"
    assert main(["doctor", str(path), "--report", str(out)]) == 0
    printed = capsys.readouterr()
    assert "22 photos of 2 classes" in printed.out and "a/words.jpg: Left out" in printed.out
    html = out.read_text("utf-8")
    assert "a/words.jpg" in html and html.count("data:image/jpeg;base64,") == 2
    assert not re.search(r'(src|href)=(?!"data:)', html)  # nothing from elsewhere
    assert main(["doctor", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["trainable"] and {f["kind"] for f in data["findings"]} == {"unreadable", "copy"}
    assert data["classes"][0] == {"name": "a", "train": 9, "val": 2, "test": 0}
    assert main(["doctor", str(tmp_path / "none"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["trainable"] is False


def test_a_report_of_thousands_of_findings_stays_small() -> None:
    many = tuple(
        Finding("no photo", (f"a/{i}.txt",), "Left out: not a photo.") for i in range(9000)
    )
    report = Report("set", "", (), many)
    assert len(page_html(report)) < 100_000 and f"{9000 - LISTED:,} more" in page_html(report)
    assert len(report.to_json()["findings"]) == 9000


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "AVIF"])
def test_files_that_end_early_are_told_from_whole_ones(kind: str) -> None:
    whole = photo("whole", kind, (200, 160))
    assert not ends_early(whole) and ends_early(whole[: len(whole) // 2])
    assert not ends_early(b"two eggs") and not ends_early(b"")
