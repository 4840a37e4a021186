"""Folders and zips as people have them, to checked and reproducible sets of photos."""

import io
import os
import pickle
import random
import stat
import tempfile
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image

from vit import folders
from vit.data import DataError, DataSet, open_data, open_photos, sample_figure
from vit.home import home
from vit.images import PhotoError
from vit.names import dish_name
from vit.photoset import PhotoSet

Files = dict[str, bytes]


def photo(seed: object) -> bytes:
    """A tiny PNG; different for every seed."""
    colours = random.Random(str(seed)).randbytes(8 * 8 * 3)
    packed = io.BytesIO()
    Image.frombytes("RGB", (8, 8), colours).save(packed, "PNG")
    return packed.getvalue()


def photos(front: str = "", counts: tuple[int, ...] = (4, 3), names: str = "ab") -> Files:
    """Class folders a, b… below `front`, with so many photos each, no two of them the same."""
    return {
        f"{front}{name}/{i}.png": photo(f"{front}{name}{i}")
        for name, count in zip(names, counts, strict=True)
        for i in range(count)
    }


def folder(place: Path, files: Files) -> Path:
    for name, content in files.items():
        path = place / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return place


def zipped(place: Path, files: Files) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return place


@pytest.fixture(params=["folder", "zip"])
def make(request, tmp_path):
    """Put files into a folder or a zip, and give its path."""
    if request.param == "folder":
        return lambda files, name="set": folder(tmp_path / name, files)
    return lambda files, name="set": zipped(tmp_path / f"{name}.zip", files)


def names(photos: PhotoSet | None) -> list[str]:
    assert photos is not None
    return [sample.name for sample in photos.samples]


def all_names(found: DataSet) -> list[str]:
    return sorted(names(found.train) + names(found.val))


def contents(photos: PhotoSet) -> list[bytes]:
    sources = (photos.read(i) for i in range(len(photos)))
    return [s if isinstance(s, bytes) else s.read_bytes() for s in sources]


# --- Layouts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("front", ["", "food/", "my food/v2/"])
def test_class_folders_on_top_or_inside_folders(make, front):
    found = open_data(make(photos(front)))
    assert found.classes == ("a", "b")
    assert all_names(found) == sorted(photos(front))
    assert found.test is None and found.skipped == ()
    # 15 % of 4 and of 3, and at least one of each
    assert Counter(found.val.targets) == {0: 1, 1: 1}


@pytest.mark.parametrize("front", ["", "food/"])
@pytest.mark.parametrize("val", ["val", "valid", "Validation", "dev", None])
def test_splits_as_folders(make, front, val):
    train, test = ("train", "test") if val != "dev" else ("training", "Test")
    files = photos(f"{front}{train}/") | photos(f"{front}{test}/", (1, 2))
    if val:
        files |= photos(f"{front}{val}/", (2, 1))
    found = open_data(make(files))
    assert names(found.test) == sorted(photos(f"{front}{test}/", (1, 2)))
    assert found.test is not None and found.test.targets == [0, 1, 1]
    if val:
        assert names(found.train) == sorted(photos(f"{front}{train}/"))
        assert names(found.val) == sorted(photos(f"{front}{val}/", (2, 1)))
    else:
        assert all_names(found) == sorted(photos(f"{front}{train}/"))
    assert found.skipped == ()


def test_photos_deeper_in_a_class_and_one_stray(make):
    files = photos() | {"a/more/still/x.JPG": photo("x"), "stray.png": photo("s")}
    found = open_data(make(files))
    assert "a/more/still/x.JPG" in all_names(found)
    assert found.skipped == (("stray.png", "in no class folder"),)


def test_a_class_may_be_called_train(make):
    found = open_data(make(photos(names="xy") | {"train/1.png": photo("t")}))
    assert found.classes == ("train", "x", "y")


def test_test_photos_without_classes_are_no_test_set(make):
    found = open_data(make(photos("train/") | {"test/1.png": photo("t")}))
    assert found.test is None
    ((name, why),) = found.skipped
    assert name == "test" and "not used" in why


def test_what_is_left_out_is_reported(make):
    junk = {
        "a/.hidden.png": b"x",
        ".ipynb_checkpoints/a.png": b"x",
        "a/.ipynb_checkpoints/a-checkpoint.png": b"x",
        "__MACOSX/a/._0.png": b"x",
        ".DS_Store": b"x",
        "b/Thumbs.db": b"x",
        "a/notes.txt": b"x",
        "a/empty.png": b"",
        "nothing/": b"",
        "onlytext/readme.md": b"x",
    }
    found = open_data(make(photos() | junk))
    assert found.classes == ("a", "b") and all_names(found) == sorted(photos())
    assert dict(found.skipped) == {
        "a/.hidden.png": "a hidden or system file",
        ".ipynb_checkpoints": "a hidden or system file",
        "a/.ipynb_checkpoints": "a hidden or system file",
        "__MACOSX": "a hidden or system file",
        ".DS_Store": "a hidden or system file",
        "b/Thumbs.db": "a hidden or system file",
        "a/notes.txt": "not a photo",
        "a/empty.png": "empty",
        "nothing": "a class folder without photos",
        "onlytext/readme.md": "not a photo",
        "onlytext": "a class folder without photos",
    }


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no photos"),
        ({"a/": b"", "b/": b""}, "holds no photos"),
        ({"a/x.txt": b"x"}, "holds no photos"),
        ({"1.png": photo(1), "2.png": photo(2)}, "no class folders"),
        (photos(counts=(3,), names="a"), r"one class only \(a\)"),
        (photos("train/", (3,), "a"), r"one class only \(a\)"),
        (photos("test/"), "no train/"),
        (photos("train/") | photos("val/") | photos("dev/"), "both dev/ and val/; keep one"),
        (photos("train/") | photos("test/", (1, 1), "ac"), "lacks the class b"),
        (photos("train/") | photos("test/", (1, 1, 1), "abc"), "no training photos; add"),
        (photos("train/") | photos("val/", (1, 1, 1), "abc"), "has the class c"),
        ({"train/1.png": photo(1), "test/2.png": photo(2)}, "no class folders inside test/"),
    ],
)
def test_what_cannot_be_used_says_what_to_do(make, files, message):
    with pytest.raises(DataError, match=message) as error:
        open_data(make(files) if files else make({"readme": b"x"}))
    assert "\n" not in str(error.value) and str(error.value).endswith(".")


def test_missing_and_wrong_paths(tmp_path):
    with pytest.raises(DataError, match="does not exist; give a folder or a .zip"):
        open_data(tmp_path / "nowhere")
    (tmp_path / "data.tar").write_bytes(b"x" * 600)
    with pytest.raises(DataError, match="neither a folder nor a complete zip"):
        open_data(tmp_path / "data.tar")
    whole = zipped(tmp_path / "whole.zip", photos()).read_bytes()
    (tmp_path / "half.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="neither a folder nor a complete zip"):
        open_data(tmp_path / "half.zip")
    with pytest.raises(DataError, match="0 or more and below 1"):
        open_data(tmp_path, val_fraction=1)


def test_an_empty_test_class_folder_is_reported_not_refused(make):
    files = photos("train/") | photos("test/", (2,), "a") | {"test/b/": b""}
    found = open_data(make(files))
    assert found.test is not None and found.test.targets == [0, 0]
    assert found.skipped == (("test/b", "a class folder without photos"),)


def test_links_are_followed_but_not_in_circles(tmp_path):
    place = folder(tmp_path / "set", photos())
    folder(tmp_path / "elsewhere", {"1.png": photo("linked")})
    try:
        (place / "c").symlink_to(tmp_path / "elsewhere")
        (place / "a" / "round").symlink_to(place)
        (place / "a" / "gone.png").symlink_to(tmp_path / "gone.png")
    except OSError:
        pytest.skip("this system makes no links")
    found = open_data(place)
    assert found.classes == ("a", "b", "c")
    assert [name for name, _ in found.skipped] == ["a/gone.png", "a/round/"]


# --- Zips that want to do harm ----------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../evil.png", "a/../../evil.png", "/etc/evil.png", "C:\\evil.png", "..\\evil.png"]
)
def test_zip_entries_that_point_outside(tmp_path, name):
    path = zipped(tmp_path / "bad.zip", photos() | {name: photo("evil")})
    with pytest.raises(DataError, match="bad.zip is refused: the entry .* points outside it"):
        open_data(path)


def test_zip_with_a_link_or_a_password(tmp_path):
    path = zipped(tmp_path / "link.zip", photos())
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("a/link.png")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="is a link"):
        open_data(path)
    locked = bytearray(zipped(tmp_path / "locked.zip", photos()).read_bytes())
    locked[locked.index(b"PK\1\2") + 8] |= 1  # the flag of the first entry in the directory
    (tmp_path / "locked.zip").write_bytes(locked)
    with pytest.raises(DataError, match="password"):
        open_data(tmp_path / "locked.zip")


def test_zip_that_unpacks_to_too_much(tmp_path, monkeypatch):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/1.png", bytes(101_000_000))
    with pytest.raises(DataError, match="more than 200 times its size"):
        open_data(path)
    monkeypatch.setattr(folders, "MAX_ZIP_BYTES", 1000)
    with pytest.raises(DataError, match="more than 0 GB"):
        open_data(path)


def test_too_many_files(make, monkeypatch):
    path = make(photos())
    monkeypatch.setattr(folders, "MAX_FILES", 6)
    with pytest.raises(DataError, match="more than 6"):
        open_data(path)


def test_zip_that_lies_about_its_number_of_entries(tmp_path, monkeypatch):
    path = zipped(tmp_path / "set.zip", photos())
    raw = bytearray(path.read_bytes())
    end = raw.rindex(b"PK\5\6")
    raw[end + 8 : end + 12] = bytes([1, 0, 1, 0])  # one entry, it says
    path.write_bytes(raw)
    monkeypatch.setattr(folders, "MAX_FILES", 6)
    with pytest.raises(DataError, match="holds 7 entries, more than 6"):
        open_data(path)


def test_zip_made_with_backslashes(tmp_path):
    files = {name.replace("/", "\\"): content for name, content in photos().items()}
    assert all_names(open_data(zipped(tmp_path / "w.zip", files))) == sorted(photos())


# --- Unreadable photos ------------------------------------------------------------------------


def test_unreadable_photos_are_found_before_training(make):
    broken = photo("broken")[:60]
    files = photos() | {"a/broken.png": broken, "b/text.jpg": b"no photo"}
    seen = []
    found = open_data(make(files), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (9, 9)
    assert all_names(found) == sorted(photos())
    assert [name for name, _ in found.skipped] == ["a/broken.png", "b/text.jpg"]
    assert all(why and not why.endswith(".") for _, why in found.skipped)

    unchecked = open_photos(make(files, "again"))
    assert [unchecked.samples[i].name for i, _ in unchecked.check()] == [
        "a/broken.png",
        "b/text.jpg",
    ]
    with pytest.raises(PhotoError, match="^a/broken.png: The picture is .*damaged"):
        unchecked[names(unchecked).index("a/broken.png")]

    report: list[tuple[str, str]] = []
    checked = open_photos(make(files, "third"), check=True, skipped=report)
    assert len(checked) == 7 and len(report) == 2


def test_a_class_that_loses_all_its_photos(make):
    with pytest.raises(DataError, match="class b .* has no training photo left"):
        open_data(make(photos(counts=(3,), names="a") | {"b/1.png": b"broken"}))


def test_a_photo_that_vanishes_later_is_named(tmp_path):
    found = open_photos(folder(tmp_path / "set", photos()))
    (tmp_path / "set" / "a" / "0.png").unlink()
    with pytest.raises(PhotoError, match="^a/0.png: It cannot be read"):
        found[0]


def test_damage_inside_a_zip_is_named(tmp_path):
    path = zipped(tmp_path / "set.zip", photos())
    raw = bytearray(path.read_bytes())
    raw[60] ^= 255  # in the stored bytes of a/0.png: its checksum no longer fits
    path.write_bytes(raw)
    found = open_data(path, check=False)
    assert found.skipped == (("a/0.png", "It is damaged inside the zip; pack the zip again"),)
    with pytest.raises(PhotoError, match="^a/0.png: It is damaged"):
        open_photos(path)[0]


# --- The split, copies, fingerprint -----------------------------------------------------------


def test_split_is_stratified_seeded_and_disjoint(make):
    path = make(photos(counts=(40, 20, 2, 1), names="abcd"))
    found = open_data(path, val_fraction=0.25, seed=3)
    assert Counter(found.val.targets) == {0: 10, 1: 5, 2: 1}
    assert Counter(found.train.targets) == {0: 30, 1: 15, 2: 1, 3: 1}
    assert not set(names(found.train)) & set(names(found.val))
    same, other = open_data(path, val_fraction=0.25, seed=3), open_data(path, val_fraction=0.25)
    assert names(same.val) == names(found.val) and same.fingerprint == found.fingerprint
    assert names(other.val) != names(found.val) and other.fingerprint != found.fingerprint
    assert len(open_data(path, val_fraction=0).val) == 0
    assert Counter(open_data(path, val_fraction=0.99).train.targets) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_split_and_fingerprint_follow_contents_not_names(tmp_path):
    files = photos(counts=(9, 9))
    renamed = {f"food/{name.replace('/', '/new')}": files[name] for name in sorted(files)[::-1]}
    one = open_data(folder(tmp_path / "one", files))
    two = open_data(zipped(tmp_path / "two.zip", renamed))
    assert one.fingerprint == two.fingerprint and len(one.fingerprint) == 16
    assert sorted(contents(one.val)) == sorted(contents(two.val))
    moved = dict(files)
    moved["b/moved.png"] = moved.pop("a/0.png")
    assert open_data(folder(tmp_path / "three", moved)).fingerprint != one.fingerprint


def test_copies_never_help(make):
    train, test = photos("train/", (5, 5)), photos("test/", (2, 2))
    files = train | test
    files["train/a/copy.png"] = train["train/a/0.png"]
    files["train/b/seen.png"] = test["test/b/1.png"]
    files["train/a/two_names.png"] = files["train/b/two_names.png"] = photo("contradiction")
    found = open_data(make(files))
    assert all_names(found) == sorted(train)
    assert names(found.test) == sorted(test)
    assert dict(found.skipped) == {
        "train/a/copy.png": "a copy of train/a/0.png",
        "train/b/seen.png": "a copy of the test photo test/b/1.png",
        **{
            f"train/{c}/two_names.png": "the same photo lies in different classes: "
            "train/a/two_names.png, train/b/two_names.png"
            for c in "ab"
        },
    }


def test_validation_photos_of_ones_own(make):
    train, chosen = photos("train/"), photos("mine/", (2, 1))
    own, test = photos("val/", (1, 1)), photos("test/", (1, 1))
    train["train/a/peek.png"] = chosen["mine/a/0.png"]
    train["train/a/peek_own.png"] = own["val/a/0.png"]
    chosen["mine/b/tested.png"] = test["test/b/0.png"]
    main = make(train | own | test, "main")
    mine = make({name.removeprefix("mine/"): content for name, content in chosen.items()}, "mine")
    found = open_data(main, val=mine)
    assert names(found.val) == [f"{mine.name}/{name}" for name in ("a/0.png", "a/1.png", "b/0.png")]
    assert names(found.train) == sorted(photos("train/"))
    assert len(found.skipped) == 3
    with pytest.raises(DataError, match=r"holds the sets test, val, train; name one of them"):
        open_data(main, val=main)
    assert names(open_data(main, val=main / "val").val) != []
    with pytest.raises(DataError, match="lacks the class b"):
        open_data(main, val=make(photos(counts=(1,), names="a"), "part"))


def test_extra_training_photos(make):
    main = make(photos("train/") | photos("test/", (2, 2)), "main")
    more = photos("train/", (6, 3)) | {"test/a/t.png": photo("t"), "test/b/t.png": photo("u")}
    more["train/a/seen.png"] = photo("test/a0")  # what main tests with
    more["train/b/seen.png"] = photo("t")  # what is tested with beside it
    extra = make(more, "more")
    found = open_data(main, extra=[extra])
    new = [f"{extra.name}/train/a/{i}.png" for i in (4, 5)]
    assert all_names(found) == sorted([*photos("train/"), *new])
    reasons = Counter(why.split(" photo")[0] for _, why in found.skipped)
    assert reasons["a copy of the test"] == 2
    assert sum(reasons.values()) == 2 + 7  # 4 + 3 photos lie in both
    one = open_data(main, extra=[make(photos(counts=(5,), names="a"), "only_a")])
    assert Counter(one.train.targets + one.val.targets) == {0: 9, 1: 3}
    with pytest.raises(DataError, match="has the class c"):
        open_data(main, extra=[make(photos(names="ac"), "other")])


# --- Reading ----------------------------------------------------------------------------------


def test_open_photos_one_set(make):
    path = make(photos("train/") | photos("test/", (2,), "b"))
    found = open_photos(path / "test")
    assert found.classes == ("b",)
    assert [Path(name).name for name in names(found)] == ["0.png", "1.png"]
    with pytest.raises(DataError, match=r"holds the sets test, train; name one.*set(\.zip)?/test"):
        open_photos(path)
    with pytest.raises(DataError, match="does not exist"):
        open_photos(path / "nowhere")


def test_a_photo_set_is_a_torch_dataset(make):
    found = open_photos(make(photos()))
    assert isinstance(found, torch.utils.data.Dataset)
    image, label = found[5]
    assert image.mode == "RGB" and image.size == (8, 8) and label == 1
    assert found.targets == [0, 0, 0, 0, 1, 1, 1] and len(found) == 7
    part = found.subset([6, 0])
    assert part.classes == found.classes and names(part) == ["b/2.png", "a/0.png"]
    with pytest.raises(IndexError):
        found[7]


def test_reading_from_threads_and_after_pickling(make):
    found = open_photos(make(photos(counts=(30, 30))))
    expected = contents(found)
    copy = pickle.loads(pickle.dumps(found))
    order = list(range(60)) * 5
    random.Random(0).shuffle(order)

    def read(i: int) -> bool:
        return copy.photo(i).tobytes() == found.photo(i).tobytes()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, order))
    assert contents(copy) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_reading_in_forked_workers(tmp_path):
    found = open_photos(zipped(tmp_path / "set.zip", photos(counts=(30, 30))))
    found.photo(0)  # opened before the fork, as a training script would
    first = [found.photo(i).tobytes() for i in range(60)]
    loader = torch.utils.data.DataLoader(
        found, batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    assert [image.tobytes() for image, _ in loader] == first


# --- The real photos --------------------------------------------------------------------------


def test_the_union_of_both_course_sets(shared_data):
    small, large = shared_data / "pizza_steak_sushi", shared_data / "pizza_steak_sushi_20_percent"
    found = open_data(small, extra=[large])
    assert found.classes == ("pizza", "steak", "sushi")
    assert len(found.train) + len(found.val) == 480
    assert found.test is not None and Counter(found.test.targets) == {0: 25, 1: 19, 2: 31}
    assert Counter(why.split()[0] for _, why in found.skipped) == {"a": 195}
    learnt = set(contents(found.train)) | set(contents(found.val))
    assert len(learnt) == 480
    for place in (small, large):
        assert not learnt & set(contents(open_photos(place / "test")))


def test_real_photos_in_a_zip(shared_data):
    found = open_photos(shared_data / "food101_256px_val.zip")
    assert len(found.classes) == 13 and Counter(found.targets) == dict.fromkeys(range(13), 30)
    assert found.subset(range(0, 390, 30)).check() == []
    assert min(found.photo(100).size) == 256


# --- Names and a figure -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "dish"),
    [
        ("pad_thai", "Pad thai"),
        ("spaghetti_carbonara", "Spaghetti carbonara"),
        ("pho", "Pho"),
        ("creme_brulee", "Crème brûlée"),
        ("Granny Smith", "Granny Smith"),
        ("my__dish_", "My dish"),
        ("", ""),
    ],
)
def test_dish_names(folder, dish):
    assert dish_name(folder) == dish


def test_sample_figure(make):
    found = open_photos(make(photos(counts=(20, 20))))
    figure = sample_figure(found)
    assert figure.mode == "RGB" and figure.width > 5 * 8
    assert figure.tobytes() == sample_figure(found, seed=0).tobytes()
    assert figure.tobytes() != sample_figure(found, seed=1).tobytes()
    assert sample_figure(found.subset([0, 1])).height < figure.height
    with pytest.raises(DataError, match="no photos to show"):
        sample_figure(found.subset([]))


def test_home(monkeypatch, tmp_path):
    monkeypatch.setenv("VIT_HOME", str(tmp_path / "here"))
    assert home() == tmp_path / "here" and not home().exists()
    monkeypatch.delenv("VIT_HOME")
    monkeypatch.delenv("SPACE_ID", raising=False)
    assert home() == Path.home() / ".cache" / "vit"
    monkeypatch.setenv("SPACE_ID", "someone/food")
    monkeypatch.setattr(Path, "is_dir", lambda self: self == Path("/data"))
    own, disk = Path.home() / ".cache" / "vit", Path("/data")
    for writable, expected in (((disk,), disk), ((own, *own.parents), own)):
        monkeypatch.setattr(os, "access", lambda path, _, some=writable: path in some)
        assert home() == expected
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert home().parent == Path(tempfile.gettempdir())  # the real thing: tests/test_space.py
