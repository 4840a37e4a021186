"""Photos that visitors bring: apart, bounded, never half-written, gone after a while."""

import io
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms
from test_data import zipped
from test_doctor import photo, photos

from vit import collect
from vit.collect import (
    CollectError,
    Visitor,
    balance,
    class_name,
    clean_up,
    is_key,
    limits,
    new_key,
    wanted,
)
from vit.data import open_data
from vit.images import PhotoError, open_photo


@pytest.fixture
def visitor(vit_home: Path) -> Visitor:
    return Visitor(new_key())


def sent(folder: Path, seed: object, name: str = "IMG 1.JPG") -> Path:
    """A photo as it lies in the page's temporary folder."""
    path = folder / "uploads" / str(seed) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(photo(seed))
    return path


def fill(visitor: Visitor, folder: Path, each: int = 3, names: str = "ab") -> None:
    for name in names:
        visitor.create(name)
        for number in range(each):
            visitor.add(name, sent(folder, f"{name}{number}"))


def counts(visitor: Visitor) -> dict[str, int]:
    return {name: len(found) for name, found in visitor.classes().items()}


def alike(kept: Path, sent: bytes) -> bool:
    """Whether two files show the same; as JPEG no pixel stays quite what it was."""
    one, other = (np.asarray(open_photo(each).image, float) for each in (kept, sent))
    return one.shape == other.shape and abs(one - other).mean() < 3


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.startswith(".")]


# --- Whose photos they are --------------------------------------------------------------------


def test_two_visitors_see_nothing_of_one_another(vit_home: Path, tmp_path: Path) -> None:
    one, other = new_key(), new_key()
    fill(Visitor(one), tmp_path)
    assert Visitor(other).classes() == {} and counts(Visitor(one)) == {"a": 3, "b": 3}
    everything = "".join(str(path) for path in vit_home.rglob("*"))
    assert one not in everything  # whoever reads a path cannot become that visitor
    with pytest.raises(CollectError, match="not there any more"):
        Visitor(other).add("a", sent(tmp_path, "x"))


@pytest.mark.parametrize("key", ["", "x", "../" * 8, "A" * 32, "0" * 31, "0" * 33, None, 5, {}])
def test_what_is_no_key_opens_nothing(key: object, vit_home: Path) -> None:
    assert not is_key(key) and is_key(new_key())
    with pytest.raises(CollectError, match="reload"):
        Visitor(key)  # type: ignore[arg-type]


def test_looking_writes_nothing(visitor: Visitor, vit_home: Path) -> None:
    assert visitor.classes() == {} and not vit_home.exists()


# --- Classes ----------------------------------------------------------------------------------


def test_classes_are_named_renamed_and_removed(visitor: Visitor, tmp_path: Path) -> None:
    assert visitor.create("  Pad   thai ") == "Pad thai"
    visitor.add("Pad thai", sent(tmp_path, 1))
    visitor.create("cre\u0300me")
    assert list(visitor.classes()) == ["cr\u00e8me", "Pad thai"]
    with pytest.raises(CollectError, match="There is a class Pad thai already"):
        visitor.create("pad_thai")
    with pytest.raises(CollectError, match="already"):
        visitor.rename("cr\u00e8me", "PAD THAI")
    assert visitor.rename("Pad thai", "pad thai") == "pad thai"
    assert visitor.rename("pad thai", "Pho") == "Pho" and counts(visitor)["Pho"] == 1
    with pytest.raises(CollectError, match="not there any more"):
        visitor.rename("Pad thai", "x")
    visitor.remove("Pho")
    assert list(visitor.classes()) == ["cr\u00e8me"]
    with pytest.raises(CollectError, match="not there any more"):
        visitor.remove("Pho")
    assert leftovers(visitor.folder) == []


@pytest.mark.parametrize(
    "name",
    ["", "  ", "..", ".", ".hidden", "a/b", "a\\b", "../up", "C:x", 'say "x"', "<b>", "a\x00b"]
    + ["x" * 61, "con", "NUL.txt", "train", "Test", "..."],
)
def test_names_that_cannot_be_folders(name: str, visitor: Visitor) -> None:
    with pytest.raises(CollectError) as error:
        visitor.create(name)
    assert "\n" not in str(error.value) and str(error.value).endswith(".")
    assert visitor.classes() == {}


def test_names_that_can(visitor: Visitor) -> None:
    for name in ("Käsespätzle", "寿司", "Mac & cheese", "O'Brien", "-dash", "50 %"):
        assert class_name(name) == name and visitor.create(name) == name


def test_a_class_is_no_path(visitor: Visitor, tmp_path: Path) -> None:
    fill(visitor, tmp_path, 1)
    (visitor.folder / "secret").mkdir()
    for name in ("../secret", "..", "", ".", str(tmp_path), "a/../b"):
        for act in (visitor.remove, lambda n: visitor.rename(n, "new")):
            with pytest.raises(CollectError):
                act(name)
        with pytest.raises(CollectError):
            visitor.add(name, sent(tmp_path, "more"))
    assert counts(visitor) == {"a": 1, "b": 1} and (visitor.folder / "secret").is_dir()


def test_too_many_classes(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_CLASSES", 2)
    visitor.create("a")
    visitor.create("b")
    with pytest.raises(CollectError, match="2 classes already"):
        visitor.create("c")


# --- Photos -----------------------------------------------------------------------------------


def test_photos_are_copied_before_anything_uses_them(visitor: Visitor, tmp_path: Path) -> None:
    visitor.create("a")
    source = sent(tmp_path, 1, "My lunch (1).JPG")
    added = visitor.add("a", source, "My lunch (1).JPG")
    shutil.rmtree(tmp_path / "uploads")  # as Gradio does when it likes
    assert not added.known and alike(added.path, photo(1))
    assert added.path.name.startswith("My_lunch_1-") and added.path.suffix == ".jpg"
    with Image.open(visitor.folder / "thumbs" / f"{added.path.stem[-12:]}.jpg") as small:
        assert max(small.size) <= 320
    shutil.rmtree(visitor.folder / "thumbs")
    assert visitor.thumbnail(added.path).startswith(b"\xff\xd8")
    assert leftovers(visitor.folder) == []


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "MPO"])
def test_a_photo_keeps_its_pixels_upright_and_nothing_else(
    visitor: Visitor, tmp_path: Path, kind: str
) -> None:
    """Where and when it was taken, with what, and by whom, is nobody's business."""
    exif = Image.Exif()
    exif[0x0112] = 6  # it lies on its side
    exif[0x010F], exif[0x013B], exif[0x9286] = "Phone maker", "Ann Example", "for my eyes only"
    exif.get_ifd(0x8825).update({1: "N", 2: (48.0, 51.0, 29.6), 3: "E", 4: (2.0, 17.0, 40.2)})
    with Image.open(io.BytesIO(photo(1))) as image:
        picture = image.convert("RGB").resize((96, 60))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    more: dict[str, Any] = {"icc_profile": profile}
    if kind == "MPO":
        more |= {"save_all": True, "append_images": [picture]}
    source = tmp_path / f"IMG_1.{kind.lower()}"
    picture.save(source, kind, exif=exif, **more)
    source.write_bytes(source.read_bytes() + b"\0GPS 48.858 2.294 Ann Example")
    assert b"Ann Example" in source.read_bytes()
    visitor.create("a")
    added = visitor.add("a", source)
    assert added.path.suffix == ".jpg"
    with Image.open(added.path) as kept:
        assert kept.format == "JPEG" and kept.size == (60, 96) and not kept.getexif()
        assert not kept.info.keys() - {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
    assert alike(added.path, source.read_bytes())
    for path in visitor.folder.rglob("*.jpg"):
        data = path.read_bytes()
        assert not [word for word in (b"Ann", b"Phone", b"my eyes", b"Exif") if word in data]
    # the same photo with other words in it is the same photo
    source.write_bytes(source.read_bytes() + b"and more")
    assert visitor.add("a", source).known


def test_a_large_photo_is_kept_smaller(visitor: Visitor, tmp_path: Path) -> None:
    visitor.create("a")
    Image.effect_noise((3000, 2400), 60).convert("RGB").save(tmp_path / "large.jpg", quality=95)
    added = visitor.add("a", tmp_path / "large.jpg")
    with Image.open(added.path) as kept:
        assert kept.size == (1500, 1200)
    assert added.path.stat().st_size < (tmp_path / "large.jpg").stat().st_size / 2


def test_the_newest_photo_comes_first_and_one_is_deleted(visitor: Visitor, tmp_path: Path) -> None:
    visitor.create("a")
    paths = [visitor.add("a", sent(tmp_path, n)).path for n in range(3)]
    for age, path in enumerate(paths):
        os.utime(path, (1000 + age, 1000 + age))
    assert visitor.classes()["a"] == paths[::-1]
    visitor.delete("a", paths[1].name)
    visitor.delete("a", paths[1].name)  # from another page, a moment later
    visitor.delete("a", "../used")
    assert visitor.classes()["a"] == [paths[2], paths[0]] and (visitor.folder / "used").exists()


def test_a_photo_is_kept_once_a_class(visitor: Visitor, tmp_path: Path) -> None:
    visitor.create("a")
    visitor.create("b")
    first = visitor.add("a", sent(tmp_path, 1))
    again = visitor.add("a", sent(tmp_path, 1), "another name.png")
    assert again.known and again.path == first.path
    assert not visitor.add("b", sent(tmp_path, 1)).known
    assert counts(visitor) == {"a": 1, "b": 1}


@pytest.mark.parametrize("content", [b"", b"two eggs", photo(1)[:500], photo(1, "PNG", (4, 4))])
def test_what_is_no_photo_is_not_kept(content: bytes, visitor: Visitor, tmp_path: Path) -> None:
    visitor.create("a")
    path = tmp_path / "bad.jpg"
    path.write_bytes(content)
    with pytest.raises(PhotoError, match="^bad.jpg: ") as error:
        visitor.add("a", path)
    assert str(tmp_path) not in str(error.value)
    assert counts(visitor) == {"a": 0} and leftovers(visitor.folder) == []


def test_bounds_on_photos_and_bytes(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIT_COLLECT_PHOTOS", "2")
    visitor.create("a")
    visitor.add("a", sent(tmp_path, 1))
    visitor.add("a", sent(tmp_path, 2))
    with pytest.raises(CollectError, match="2 photos already"):
        visitor.add("a", sent(tmp_path, 3))
    assert visitor.add("a", sent(tmp_path, 1)).known  # costs nothing
    monkeypatch.delenv("VIT_COLLECT_PHOTOS")
    monkeypatch.setattr(collect, "MAX_PHOTO_MB", 0)
    with pytest.raises(CollectError, match="is larger than 0 MB"):
        visitor.add("a", sent(tmp_path, 3))
    monkeypatch.undo()


def test_no_more_than_a_visitors_share_of_the_disk(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIT_COLLECT_MB", "1")
    visitor.create("a")
    big = tmp_path / "big.png"
    with pytest.raises(CollectError, match="of 1 MB; delete some"):
        for _ in range(10):
            Image.effect_noise((640, 480), 90).convert("RGB").save(big)
            visitor.add("a", big)
    assert 3e5 < sum(path.stat().st_size for path in visitor.folder.rglob("*.jpg")) < 1e6
    monkeypatch.setattr(collect, "RESERVE", 1 << 60)
    monkeypatch.setenv("VIT_COLLECT_MB", "1000")
    with pytest.raises(CollectError, match="disk of this page is full"):
        visitor.add("a", big)


@pytest.mark.parametrize("variable", ["VIT_COLLECT_PHOTOS", "VIT_ZIP_MB", "VIT_KEEP_DAYS"])
def test_bad_variables_are_named(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("many", "0", "-1", "nan", "inf"):
        monkeypatch.setenv(variable, text)
        with pytest.raises(ValueError, match=variable):
            limits()
    monkeypatch.setenv(variable, " ")
    monkeypatch.delenv("SPACE_ID", raising=False)
    usual = limits()
    monkeypatch.setenv("SPACE_ID", "someone/food")
    assert limits().days < usual.days and limits().megabytes < usual.megabytes


def test_a_write_that_fails_leaves_nothing(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(visitor, tmp_path, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(collect.os, "replace", full)
    source = sent(tmp_path, "more")
    for act in (
        lambda: visitor.add("a", source),
        lambda: visitor.keep_zip(source, "x.zip"),
        visitor.choose,
    ):
        with pytest.raises(OSError):
            act()
    monkeypatch.undo()
    assert counts(visitor) == {"a": 1, "b": 1} and leftovers(visitor.folder) == []
    assert not list((visitor.folder / "sets").glob("*"))


def test_many_at_once(visitor: Visitor, tmp_path: Path) -> None:
    visitor.create("a")
    sources = [sent(tmp_path, n % 10) for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: Visitor.add(visitor, "a", path), sources))
    assert len(visitor.classes()["a"]) == 10
    assert leftovers(visitor.folder) == []


# --- What is trained on -----------------------------------------------------------------------


def test_the_bound_holds_for_many_at_once(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIT_COLLECT_PHOTOS", "5")
    visitor.create("a")
    (tmp_path / "same.jpg").write_bytes(photo("same"))
    for number in range(16):
        (tmp_path / f"{number}.jpg").write_bytes(photo(number))

    def add(name: str) -> str:
        try:
            return "known" if visitor.add("a", tmp_path / name).known else "added"
        except CollectError:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(add, ["same.jpg"] * 8)) == ["added"] + ["known"] * 7
        added = list(pool.map(add, [f"{number}.jpg" for number in range(16)]))
    assert added.count("added") == 4 and added.count("refused") == 12
    assert len(visitor.classes()["a"]) == 5


def test_what_is_chosen_never_changes(visitor: Visitor, tmp_path: Path) -> None:
    fill(visitor, tmp_path, 4)
    visitor.create("empty")
    chosen = visitor.choose()
    before = open_data(chosen)
    assert before.classes == ("a", "b") and len(before.train) + len(before.val) == 8
    assert visitor.choose() == chosen
    visitor.delete("a", visitor.classes()["a"][0].name)
    visitor.rename("b", "c")
    other = visitor.choose()
    assert other != chosen and open_data(other).classes == ("a", "c")
    visitor.remove("c")
    assert open_data(chosen).fingerprint == before.fingerprint
    assert leftovers(visitor.folder) == []


def test_two_classes_with_photos_are_needed(visitor: Visitor, tmp_path: Path) -> None:
    with pytest.raises(CollectError, match="no photos yet"):
        visitor.choose()
    visitor.create("soup")
    visitor.create("b")
    with pytest.raises(CollectError, match="no photos yet"):
        visitor.choose()
    visitor.add("soup", sent(tmp_path, 1))
    with pytest.raises(CollectError, match="photos of Soup alone; add another class"):
        visitor.choose()


def test_old_choices_go(visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "KEPT_SETS", 3)
    fill(visitor, tmp_path, 1)
    made = []
    for number in range(5):
        visitor.add("a", sent(tmp_path, f"more {number}"))
        made.append(visitor.choose())
        os.utime(made[-1], (1000 + number, 1000 + number))
    assert [path.is_dir() for path in made] == [False, False, True, True, True]


def test_zips_are_copied_within_bounds(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = zipped(tmp_path / "up" / "blob", photos())
    kept = visitor.keep_zip(source, "My <photos>/../x.zip")
    source.unlink()
    assert kept.is_relative_to(visitor.folder) and kept.name == "x.zip"
    assert open_data(kept).classes == ("a", "b")
    big = tmp_path / "big.zip"
    big.write_bytes(os.urandom(700_000))
    monkeypatch.setenv("VIT_COLLECT_MB", "1")
    first = visitor.keep_zip(big, "big.zip")
    big.write_bytes(os.urandom(700_000))
    second = visitor.keep_zip(big, "big.zip")  # takes the place of the first
    assert second.exists() and not first.exists()
    big.write_bytes(os.urandom(1_100_000))
    monkeypatch.setenv("VIT_ZIP_MB", "1")
    with pytest.raises(CollectError, match="big.zip has 1 MB, more than 1"):
        visitor.keep_zip(big, "big.zip")
    assert second.exists() and leftovers(visitor.folder) == []


# --- Balance and time -------------------------------------------------------------------------


def test_balance_says_which_class_needs_more() -> None:
    assert (
        balance({}) == balance({"a": 30}) == ("Two classes are the least that can be told apart.")
    )
    assert balance({"pad_thai": 30, "b": 15}) == "The classes are balanced."
    assert (
        balance({"pad_thai": 30, "b": 5, "c": 0})
        == "More photos would help: 15 more of C, 10 more of B."
    )
    assert wanted({"a": 3, "b": 10}) == {"a": 7}
    many = {f"dish {n}": n for n in range(9)} | {"full": 10}
    assert balance(many).endswith("5 more of Dish 5 and 3 other classes.")


def test_what_nobody_uses_goes_and_nothing_else(
    vit_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_up()  # nothing there yet
    old, new = Visitor(new_key()), Visitor(new_key())
    fill(old, tmp_path, 1)
    fill(new, tmp_path, 1)
    left = new.folder / ".unfinished-1"
    left.mkdir()
    course = vit_home / "data" / "pizza_steak_sushi" / "train"
    course.mkdir(parents=True)
    strange = old.folder.parent / "notes"
    strange.mkdir()
    now, day = time.time(), 24 * 3600
    monkeypatch.setenv("VIT_KEEP_DAYS", "3")
    clean_up(now)
    assert counts(old) == counts(new) == {"a": 1, "b": 1} and left.exists()
    for path in (old.folder / "used", old.folder, strange, course):
        os.utime(path, (now - 4 * day, now - 4 * day))
    clean_up(now + 60)  # a minute after the last time: nothing is looked at
    assert old.folder.exists()
    clean_up(now + 2 * day)
    assert not old.folder.exists() and counts(new) == {"a": 1, "b": 1} and not left.exists()
    assert strange.is_dir() and course.is_dir()
    assert [p.name for p in old.folder.parent.iterdir() if p.name.startswith(".gone")] == []
