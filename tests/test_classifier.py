"""Photos to answers: probabilities, the box, bad photos, checkpoints kept loaded, many threads."""

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vit import checkpoint, classifier
from vit.card import Card, CheckpointError
from vit.classifier import KEPT_LOADED, Classifier, Prediction, UntrainedHead
from vit.data import DataError, open_photos
from vit.evaluate import evaluate
from vit.images import PhotoError, Preprocess, open_photo
from vit.model import ViT, ViTConfig

CLASSES = ("pizza", "pad_thai", "creme_brulee", "sushi", "steak", "pho", "tacos")
CONFIG = ViTConfig((32, 32), (8, 8), width=16, depth=2, heads=2, mlp_width=24, classes=7)
CARD = Card(CONFIG, Preprocess(size=(32, 32), mean=(0.5, 0.25, 0.75)), CLASSES)


@pytest.fixture(autouse=True)
def nothing_loaded() -> Iterator[None]:
    classifier._loaded.clear()
    yield
    classifier._loaded.clear()


def stored(path: Path, seed: int = 0, **changes: Any) -> Path:
    torch.manual_seed(seed)
    model = ViT(CONFIG)
    torch.nn.init.normal_(model.head.weight, std=0.2)
    return checkpoint.save(path, model, replace(CARD, **changes))


@pytest.fixture
def loaded(tmp_path: Path) -> Classifier:
    return Classifier.load(stored(tmp_path / "dishes.safetensors"))


def photo(width: int = 60, height: int = 40, seed: int = 0) -> Image.Image:
    """Soft blobs of colour, each seed its own."""
    small = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def expected(of: Classifier, image: Image.Image, preprocess: Preprocess) -> list[float]:
    """The probabilities, from the parts that have tests of their own."""
    with torch.inference_mode():
        logits = of.model(preprocess(image)[None])[0]
    return (logits / of.card.temperature).softmax(0).tolist()


# --- One photo --------------------------------------------------------------------------------


def test_answer(loaded: Classifier) -> None:
    image = photo()
    answer = loaded.classify(image, top=7)
    assert sum(answer.probabilities) == pytest.approx(1, abs=1e-6)
    assert list(answer.probabilities) == sorted(answer.probabilities, reverse=True)
    assert answer.probabilities[0] > 1.2 / 7  # not uniform
    assert set(answer.classes) == set(CLASSES)
    shares = dict(zip(CLASSES, expected(loaded, image, CARD.preprocess), strict=True))
    assert dict(zip(answer.classes, answer.probabilities, strict=True)) == pytest.approx(shares)
    names = dict(zip(answer.classes, answer.labels, strict=True))
    assert names["pad_thai"] == "Pad thai"
    assert names["creme_brulee"] == "Crème brûlée"
    assert answer.confidence == answer.probabilities[0]
    assert answer.photo_size == (60, 40)
    assert answer.photo.size == (60, 40)
    assert answer.view.size == (32, 32)
    assert answer.view.tobytes() == CARD.preprocess.view(image).tobytes()
    assert answer.box == CARD.preprocess.box(60, 40) == pytest.approx((12, 2, 48, 38))
    assert answer.milliseconds > 0
    assert not answer.unsure  # no threshold in the file


@pytest.mark.parametrize(("top", "count"), [(1, 1), (5, 5), (7, 7), (100, 7)])
def test_top(loaded: Classifier, top: int, count: int) -> None:
    answer = loaded.classify(photo(), top=top)
    assert len(answer.labels) == len(answer.classes) == len(answer.probabilities) == count
    assert answer.probabilities == loaded.classify(photo(), top=7).probabilities[:count]


def test_what_cannot_be_asked(loaded: Classifier) -> None:
    with pytest.raises(ValueError, match="top must be at least 1, got 0"):
        loaded.classify(photo(), top=0)
    for batch in (0, -1):
        with pytest.raises(ValueError, match="batch must be at least 1"):
            loaded.classify_many([photo()], batch=batch)
    wrong: Any = "squeeze"
    with pytest.raises(ValueError, match="fit must be one of crop, letterbox"):
        loaded.classify(photo(), fit=wrong)


def test_temperature_is_applied(tmp_path: Path) -> None:
    plain = Classifier.load(stored(tmp_path / "a.safetensors"))
    warm = Classifier.load(stored(tmp_path / "b.safetensors", temperature=4.0))
    first, second = plain.classify(photo(), top=7), warm.classify(photo(), top=7)
    assert first.classes == second.classes
    ratios = np.log(first.probabilities) - np.log(first.probabilities[0])
    warmer = np.log(second.probabilities) - np.log(second.probabilities[0])
    np.testing.assert_allclose(warmer, ratios / 4, atol=1e-5)


def test_unsure_below_the_threshold(tmp_path: Path) -> None:
    confidence = Classifier.load(stored(tmp_path / "a.safetensors")).classify(photo()).confidence
    for name, threshold, unsure in [
        ("b", confidence + 0.001, True),
        ("c", confidence - 0.001, False),
        ("d", confidence, False),  # only under it
        ("e", None, False),
    ]:
        path = stored(tmp_path / f"{name}.safetensors", unsure_below=threshold)
        assert Classifier.load(path).classify(photo()).unsure is unsure


def test_whole_photo(loaded: Classifier) -> None:
    image, rules = photo(80, 40), replace(CARD.preprocess, fit="letterbox")
    answer = loaded.classify(image, fit="letterbox", top=7)
    assert answer.box == (0, -20, 80, 60)
    assert answer.view.getpixel((16, 1)) == (128, 64, 191)  # the mean colour
    assert answer.probabilities == pytest.approx(
        sorted(expected(loaded, image, rules), reverse=True)
    )
    assert answer.probabilities != loaded.classify(image, top=7).probabilities
    assert loaded.classify(image).box == CARD.preprocess.box(80, 40)  # and only for that call


def test_fit_of_the_file_is_used(tmp_path: Path) -> None:
    rules = replace(CARD.preprocess, fit="letterbox")
    boxed = Classifier.load(stored(tmp_path / "a.safetensors", preprocess=rules))
    assert boxed.classify(photo(80, 40)).box == (0, -20, 80, 60)
    assert boxed.classify(photo(80, 40), fit="crop").box == CARD.preprocess.box(80, 40)


def test_every_kind_of_source(loaded: Classifier, tmp_path: Path) -> None:
    image = photo()
    data = io.BytesIO()
    image.save(data, "PNG")
    (tmp_path / "a.png").write_bytes(data.getvalue())
    sources = [
        image, np.asarray(image), data.getvalue(), tmp_path / "a.png", str(tmp_path / "a.png"),
    ]  # fmt: skip
    answers = [loaded.classify(source).probabilities for source in sources]
    assert len(set(answers)) == 1


@pytest.mark.parametrize("fit", ["crop", "letterbox"])
def test_box_is_on_the_original_of_a_reduced_photo(
    loaded: Classifier, tmp_path: Path, fit: Any
) -> None:
    path = tmp_path / "big.jpg"
    photo(2400, 1600).save(path, quality=90)
    answer = loaded.classify(path, fit=fit)
    assert min(answer.photo.size) < 800  # it was reduced while it was decoded
    assert answer.photo_size == (2400, 1600)
    assert answer.box == replace(CARD.preprocess, fit=fit).box(2400, 1600)
    full = np.asarray(replace(CARD.preprocess, fit=fit).view(Image.open(path)), dtype=float)
    assert np.abs(np.asarray(answer.view, dtype=float) - full).mean() < 3  # the same picture


def test_box_of_a_phone_photo_is_upright(loaded: Classifier, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(600, 400).save(tmp_path / "a.jpg", exif=exif)
    answer = loaded.classify(tmp_path / "a.jpg")
    assert answer.photo_size == (400, 600)
    assert answer.photo.height > answer.photo.width
    assert answer.box == CARD.preprocess.box(400, 600)


# --- Many photos ------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 3, 16])
def test_many_equal_one(loaded: Classifier, batch: int) -> None:
    images = [photo(60 + 7 * seed, 50, seed) for seed in range(5)]
    together = loaded.classify_many(images, batch=batch)
    for image, answer in zip(images, together, strict=True):
        assert isinstance(answer, Prediction)
        single = loaded.classify(image)
        assert answer.classes == single.classes
        assert answer.probabilities == pytest.approx(single.probabilities, abs=1e-6)
        assert answer.box == single.box
        assert answer.view.tobytes() == single.view.tobytes()
    assert len({answer.probabilities for answer in together if isinstance(answer, Prediction)}) == 5


@pytest.mark.parametrize("batch", [1, 2, 16])
def test_a_bad_photo_stands_in_its_own_place(
    loaded: Classifier, tmp_path: Path, batch: int
) -> None:
    (tmp_path / "text.jpg").write_text("not a photo")
    sources = [
        b"",
        photo(seed=1),
        tmp_path / "text.jpg",
        tmp_path / "none.jpg",
        photo(seed=2),
        b"x",
    ]
    answers = loaded.classify_many(sources, batch=batch)
    kinds = [type(answer) for answer in answers]
    assert kinds == [PhotoError, Prediction, PhotoError, PhotoError, Prediction, PhotoError]
    assert "text.jpg" in str(answers[2]) and "none.jpg" in str(answers[3])
    for place, seed in ((1, 1), (4, 2)):
        answer = answers[place]
        assert isinstance(answer, Prediction)
        assert answer.classes == loaded.classify(photo(seed=seed)).classes


def test_no_photos_and_only_bad_ones(loaded: Classifier) -> None:
    assert loaded.classify_many([]) == []
    assert [type(answer) for answer in loaded.classify_many([b"", b"y"])] == [PhotoError] * 2
    with pytest.raises(PhotoError):
        loaded.classify(b"")


def test_answers_are_those_of_evaluate(loaded: Classifier, tmp_path: Path) -> None:
    """The app and the counted result must not see different pixels."""
    for number in range(6):
        folder = tmp_path / "photos" / CLASSES[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        photo(900 - 50 * number, 700, number).save(folder / f"{number}.jpg")
    photos = open_photos(tmp_path / "photos")
    counted = evaluate(loaded.model, photos, loaded.card.preprocess, CLASSES, batch=4)
    sources: list[Any] = [photos.read(index) for index in range(len(photos))]
    answers = loaded.classify_many(sources, top=7)
    for row, answer in zip(counted.logits.softmax(1), answers, strict=True):
        assert isinstance(answer, Prediction)
        assert answer.classes[0] == CLASSES[int(row.argmax())]
        assert answer.probabilities == pytest.approx(row.sort(descending=True).values.tolist())
    right = sum(
        isinstance(answer, Prediction) and answer.classes[0] == photos.classes[sample.label]
        for sample, answer in zip(photos.samples, answers, strict=True)
    )
    assert (counted.top1.correct, counted.top1.total) == (right, 6)
    with pytest.raises(DataError, match="no photos"):
        evaluate(loaded.model, photos.subset([]), loaded.card.preprocess, CLASSES)
    with pytest.raises(DataError, match="does not know creme_brulee"):
        evaluate(loaded.model, photos, loaded.card.preprocess, ("pizza", "pad_thai", "pho"))


def test_same_answer_every_time_and_no_gradients(loaded: Classifier) -> None:
    assert not any(module.training for module in loaded.model.modules())
    before = torch.get_rng_state()
    first = loaded.classify(photo(), top=7)
    assert loaded.classify(photo(), top=7).probabilities == first.probabilities
    assert torch.equal(torch.get_rng_state(), before)
    assert all(weight.grad is None for weight in loaded.model.parameters())


# --- Loading ----------------------------------------------------------------------------------


def test_by_name_and_by_path(vit_home: Path) -> None:
    path = stored(vit_home / "checkpoints" / "my-dishes.safetensors")
    by_name = Classifier.load("my-dishes")
    assert (by_name.name, by_name.path, by_name.card.classes) == ("my-dishes", path, CLASSES)
    assert by_name.device.type in ("cpu", "cuda")
    assert Classifier.load(path) is by_name
    assert Classifier.load(os.path.relpath(path)) is by_name
    with pytest.raises(CheckpointError, match="no checkpoint named 'other'"):
        Classifier.load("other")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files read, in order."""
    names: list[str] = []
    real = checkpoint.load

    def load(path: Path) -> tuple[ViT, Card]:
        names.append(path.stem)
        return real(path)

    monkeypatch.setattr(checkpoint, "load", load)
    return names


def test_keeps_the_last_three(tmp_path: Path, loads: list[str]) -> None:
    paths = {name: stored(tmp_path / f"{name}.safetensors") for name in "abcd"}
    for name in "abcabc":
        Classifier.load(paths[name])
    assert loads == ["a", "b", "c"]
    Classifier.load(paths["a"])  # now b was used longest ago
    Classifier.load(paths["d"])
    Classifier.load(paths["a"])
    Classifier.load(paths["c"])
    assert loads == ["a", "b", "c", "d"]
    Classifier.load(paths["b"])
    assert loads == ["a", "b", "c", "d", "b"]
    assert len(classifier._loaded) == KEPT_LOADED == 3


def test_a_changed_file_is_loaded_anew(tmp_path: Path, loads: list[str]) -> None:
    path = tmp_path / "a.safetensors"
    first = Classifier.load(stored(path))
    status = path.stat()
    stored(path, seed=1)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # a coarse clock
    assert path.stat().st_size == status.st_size
    second = Classifier.load(path)
    assert loads == ["a", "a"]
    assert not torch.equal(first.model.head.weight, second.model.head.weight)
    assert len(classifier._loaded) == 1  # the old one takes no room
    assert first.classify(photo())  # but whoever holds it may go on


def test_a_broken_file_says_so_and_the_next_load_works(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=r"a\.safetensors is not a whole"):
        Classifier.load(path)
    path.write_bytes(whole)
    assert Classifier.load(path).classify(photo())


def test_a_removed_file_is_gone(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.safetensors")
    Classifier.load(path)
    path.unlink()
    with pytest.raises(CheckpointError, match="no checkpoint file"):
        Classifier.load(path)


def test_a_backbone_refuses(tmp_path: Path) -> None:
    backbone = Classifier.load(stored(tmp_path / "a.safetensors", trained_head=False))
    for ask in (lambda: backbone.classify(photo()), lambda: backbone.classify_many([])):
        with pytest.raises(UntrainedHead, match="python train.py PHOTOS --from a"):
            ask()


def test_eight_threads(tmp_path: Path, loads: list[str]) -> None:
    """Four files take turns in three places while eight threads ask."""
    paths = [stored(tmp_path / f"{seed}.safetensors", seed) for seed in range(4)]
    alone = [Classifier.load(path).classify(photo(seed=9)).probabilities for path in paths]
    assert len(set(alone)) == 4

    def ask(number: int) -> bool:
        answer = Classifier.load(paths[number % 4]).classify(photo(seed=9))
        return answer.probabilities == pytest.approx(alone[number % 4], abs=1e-6)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(80)))
    assert len(classifier._loaded) == KEPT_LOADED


def test_threads_load_a_file_once(tmp_path: Path, loads: list[str]) -> None:
    path = stored(tmp_path / "a.safetensors")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Classifier.load(path), range(16)))
    assert loads == ["a"]
    assert all(each is found[0] for each in found)


def test_photo_as_array_is_left_alone(loaded: Classifier) -> None:
    pixels = np.asarray(open_photo(photo()).image).copy()
    before = pixels.copy()
    loaded.classify(pixels)
    assert (pixels == before).all()
