"""One photo through one checkpoint: kept within bounds, asked in every way, the model run once."""

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small import TINY, tiny_start

from vit import captions, checkpoint, looking, readings, wall
from vit.attention import attend
from vit.classifier import Classifier, UntrainedHead
from vit.heat import patch_box
from vit.images import PhotoError, open_photo
from vit.looking import Look, LookError, Question, look_at
from vit.lru import Store
from vit.maps import Sinks
from vit.readings import heat_of


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    looking.looks.clear()
    readings._derived.clear()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_start(tmp_path / "tiny.safetensors")


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    return noise(tmp_path / "photo.png", 0)


def noise(path: Path, seed: int, size: tuple[int, int] = (80, 60)) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


class Forwards:
    """How often a checkpoint's model has run."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        Classifier.load(path).model.patch_embed.register_forward_hook(self.add)

    def add(self, *_: object) -> None:
        self.count += 1


# the store


def test_the_store_is_bounded_in_number_and_bytes() -> None:
    store: Store[bytes] = Store(3, 100, len)
    for name in "abcd":
        store.get(name, lambda: bytes(10))
    assert len(store) == 3 and store.bytes == 30
    store.get("b", lambda: pytest.fail("b is kept"))  # now d and b were used last
    store.get("e", lambda: bytes(85))
    assert list(store._kept) == ["b", "e"] and store.bytes == 95
    assert len(store.get("huge", lambda: bytes(101))) == 101
    assert list(store._kept) == ["b", "e"]


def test_a_value_goes_when_all_have_left_who_asked_for_it() -> None:
    store: Store[bytes] = Store(9, 100, len)
    for name, key in (("Ann", "a"), ("Bob", "a"), ("Ann", "b"), (None, "c")):
        store.get(key, lambda: bytes(10), name)
    store.leave("Ann")
    assert list(store._kept) == ["a", "c"] and store.bytes == 20
    store.leave("Bob")
    store.leave("nobody")
    assert list(store._kept) == ["c"] and store.bytes == 10
    # a visitor who leaves while it is made
    value = store.get("d", lambda: store.leave("Cid") or bytes(7), "Cid")
    assert len(value) == 7 and "d" not in store and not store._names


def test_what_belongs_to_a_value_goes_with_it() -> None:
    store: Store[bytes] = Store(2, 100, len)
    owned: Store[bytes] = Store(9, 100, len, store)

    def ask(key: str) -> None:
        store.get(key, lambda: bytes(1), "Ann")
        owned.get((key, "mean"), lambda: bytes(2))
        owned.get((key, "max"), lambda: bytes(2))

    ask("a")
    ask("b")
    assert len(owned) == 4
    ask("c")  # there is no place for a any more
    assert {key[0] for key in owned._kept} == {"b", "c"}  # type: ignore[index]
    assert owned.bytes == 8
    owned.get(("b", "late"), lambda: store.leave("Ann") or bytes(3))  # gone before it was made
    assert len(store) == len(owned) == owned.bytes == 0


def test_the_store_makes_a_value_once_for_many_threads() -> None:
    store: Store[int] = Store(3, 100, lambda _: 1)
    made = []
    started = threading.Barrier(8)

    def ask(_: int) -> int:
        started.wait()
        return store.get("key", lambda: made.append(1) or 7)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [7] * 8
    assert made == [1]


def test_the_store_forgets_a_failure() -> None:
    store: Store[int] = Store(3, 100, lambda _: 1)
    with pytest.raises(ZeroDivisionError):
        store.get("key", lambda: 1 // 0)
    assert store.get("key", lambda: 5) == 5 and not store._making


# what is kept


def test_the_model_runs_once_whatever_is_asked(photo: Path, model: Path) -> None:
    runs = Forwards(model)
    look = look_at(str(photo), model)
    assert runs.count == 1
    for method in ("head", "mean", "max", "rollout"):
        for question in (
            Question(method),
            Question(method, 1, 2, token=5),
            Question(method, 0, 1, token=15, by=True, aside=True),
        ):
            again = look_at(str(photo), model)
            assert again is look
            heat_of(again, question)
            for order in wall.ORDERS:
                wall.wall(again, question, order)
            wall.wall_picture(again, question, "viridis")
    assert runs.count == 1
    heat_of(look, Question("relevance", target=2))
    assert runs.count == 2  # one forward, one backward
    heat_of(look, Question("relevance", target=2, token=3, by=True))
    assert runs.count == 2
    heat_of(look, Question("relevance", target=1))
    assert runs.count == 3


def test_a_look_agrees_with_the_classifier(photo: Path, model: Path) -> None:
    look = look_at(str(photo), model)
    answer = Classifier.load(model).classify(photo, top=5)
    best = look.probabilities.sort(descending=True)
    assert best.values.tolist() == pytest.approx(answer.probabilities)
    assert [look.card.classes[index] for index in best.indices] == list(answer.classes)
    assert look.original_box == answer.box and look.photo_size == answer.photo_size


def test_the_key_is_content_checkpoint_and_fit(photo: Path, model: Path, tmp_path: Path) -> None:
    first = look_at(str(photo), model)
    copy = shutil.copy(photo, tmp_path / "other-name.png")
    assert look_at(str(copy), model) is first
    letterbox = look_at(str(photo), model, "letterbox")
    assert letterbox is not first and not torch.equal(letterbox.maps, first.maps)
    noise(photo, 1)  # another photo in the same file
    changed = look_at(str(photo), model)
    assert not torch.equal(changed.maps, first.maps)
    tiny_start(model, replace(TINY, heads=4))  # another model in the same file
    assert look_at(str(photo), model).heads == 4


def test_many_visitors_at_once_get_their_own(model: Path, tmp_path: Path) -> None:
    photos = [str(noise(tmp_path / f"{seed}.png", seed)) for seed in range(6)]
    alone = [heat_of(look_at(path, model), Question("relevance")) for path in photos]
    looking.looks.clear()
    readings._derived.clear()
    order = [index % 6 for index in range(30)]
    with ThreadPoolExecutor(6) as pool:
        found = list(
            pool.map(lambda i: heat_of(look_at(photos[i], model), Question("relevance")), order)
        )
    for index, heat in zip(order, found, strict=True):
        torch.testing.assert_close(heat, alone[index])


def test_what_is_forgotten_is_made_again(photo: Path, model: Path) -> None:
    runs = Forwards(model)
    first = look_at(str(photo), model)
    looking.looks.clear()
    assert torch.equal(look_at(str(photo), model).maps, first.maps)
    assert runs.count == 2


def test_the_looks_are_bounded(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking.looks, "entries", 3)
    for seed in range(5):
        look_at(str(noise(tmp_path / "photo.png", seed)), model)
    assert len(looking.looks) == 3
    look = look_at(str(tmp_path / "photo.png"), model)
    assert look.maps.dtype == torch.float16
    config = Classifier.load(model).card.config
    assert looking.map_bytes(look.card, config.image_size) == look.maps.nbytes
    monkeypatch.setattr(looking, "MAX_BYTES", look.maps.nbytes - 1)
    with pytest.raises(LookError, match="larger patches"):
        look_at(str(noise(tmp_path / "photo.png", 9)), model)


def test_a_384_pixel_b16_stays_in_the_bound(photo: Path, model: Path) -> None:
    from vit.model import PRESETS

    config = replace(PRESETS["B/16"], image_size=(384, 384), classes=5)
    card = replace(Classifier.load(model).card, config=config)
    assert looking.map_bytes(card, (384, 384)) == 12 * 12 * 577**2 * 2 < looking.MAX_BYTES / 5


def test_bad_photos_and_gone_ones(model: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.jpg").write_text("two eggs")
    for name in ("notes.jpg", "gone.jpg"):
        with pytest.raises(PhotoError):
            look_at(str(tmp_path / name), model)


# which map


def test_maps_are_those_of_the_model(photo: Path, model: Path) -> None:
    look = look_at(str(photo), model)
    classifier = Classifier.load(model)
    maps = attend(classifier.model, looking.pixels_of(look, classifier))[1][:, 0]  # (L, A, N, N)
    expected = {
        Question("head", 1, 2): maps[1, 2, 0, 1:],
        Question("head", 0, 1, token=7): maps[0, 1, 8, 1:],
        Question("head", 0, 1, token=7, by=True): maps[0, 1, 1:, 8],
        Question("mean", 1): maps[1, :, 0, 1:].mean(0),
        Question("max", 1, by=True): maps[1, :, 1:, 0].amax(0),
    }
    for question, row in expected.items():
        heat = heat_of(look, question)
        assert heat.shape == (4, 4) and heat.dtype == torch.float32
        torch.testing.assert_close(heat.flatten(), row, rtol=2e-3, atol=1e-6)


def with_sinks(look: Look, *patches: int) -> Look:
    even = len(patches) / (look.grid[0] * look.grid[1])
    return replace(look, sinks=Sinks(patches, 0.3, even, (1,), (0.3,)))


def test_sinks_set_aside(photo: Path, model: Path) -> None:
    look = with_sinks(look_at(str(photo), model), 0, 5)
    heat = heat_of(look, Question("mean", 1, aside=True))
    assert heat[0, 0] == heat[1, 1] == 0
    assert heat.sum().item() == pytest.approx(1)
    kept = heat_of(look, Question("mean", 1))
    assert kept[0, 0] > 0
    torch.testing.assert_close(
        heat / kept, torch.where(heat > 0, 1 / (kept.sum() - kept[0, 0] - kept[1, 1]), 0)
    )


@pytest.mark.parametrize(
    "question",
    [
        Question("head", layer=2),
        Question("head", head=3),
        Question("mean", layer=-1),
        Question("rollout", token=16),
        Question("relevance", target=5),
        Question("guess"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_is_not_there(photo: Path, model: Path, question: Question) -> None:
    with pytest.raises(LookError, match=r"There is no .*\.$"):
        heat_of(look_at(str(photo), model), question)


def test_a_backbone_has_maps_but_no_relevance(photo: Path, model: Path, tmp_path: Path) -> None:
    vit, card = checkpoint.load(model)
    path = checkpoint.save(
        tmp_path / "backbone.safetensors", vit, replace(card, trained_head=False)
    )
    look = look_at(str(photo), path)
    assert heat_of(look, Question("rollout")).shape == (4, 4)
    asks: list[Callable[[], object]] = [
        lambda: heat_of(look, Question("relevance")),
        lambda: readings.tested(look, {}, 0),
        lambda: readings.after_each_block(look),
        lambda: readings.without(look, [(0, 0)]),
    ]
    for ask in asks:
        with pytest.raises(UntrainedHead, match="knows no dishes"):
            ask()


def test_answers_of_the_model(photo: Path, model: Path) -> None:
    look = look_at(str(photo), model)
    blocks = readings.after_each_block(look)
    assert blocks.shape == (2, 5)
    torch.testing.assert_close(blocks[-1], look.probabilities)
    torch.testing.assert_close(readings.without(look, []), look.probabilities)
    assert not torch.allclose(readings.without(look, [(0, 0), (1, 2)]), look.probabilities)
    found = readings.tested(look, {"a": heat_of(look, Question())}, look.predicted)["a"]
    assert found.before == pytest.approx(look.probabilities.max().item())
    assert found.patches == 16 - len(look.sinks.patches) and found.draws == readings.DRAWS


# where it lies on the photo


@pytest.mark.parametrize("fit", ["crop", "letterbox"])
@pytest.mark.parametrize("size", [(80, 60), (60, 80), (301, 247)])
def test_a_patch_lies_where_the_model_saw_it(
    model: Path, tmp_path: Path, fit: str, size: tuple[int, int]
) -> None:
    """A photo is black but for what fills patch 6; the heat of patch 6 must cover just that."""
    from vit.ui.seen import drawn_photo

    preprocess = replace(Classifier.load(model).card.preprocess, fit=fit)
    box = preprocess.box(*size)
    left, top, right, bottom = (round(edge) for edge in patch_box(box, (4, 4), 6))
    image = Image.new("RGB", size)
    image.paste((255, 255, 255), (left, top, right, bottom))
    path = tmp_path / "square.png"
    image.save(path)
    look = look_at(str(path), model, fit)  # pyright: ignore[reportArgumentType]
    light = np.asarray(look.view.convert("L").reduce(8))  # one pixel a patch
    assert light.argmax() == 6 and light.flat[6] > 200  # so the model sees it there
    heat = torch.zeros(4, 4)
    heat[1, 2] = 1
    look = replace(look, sinks=Sinks((), 0, 0, (1,), (0,)))
    drawn = np.asarray(
        drawn_photo(look, Question("rollout"), "gray", 0.9, False, heat).convert("L")
    )
    white = np.asarray(look.photo.convert("L")) > 128
    bright = drawn > 128
    assert bright.sum() > 0
    border = white ^ bright
    assert border.sum() <= 2 * (drawn.shape[0] + drawn.shape[1])  # rounding, a pixel at the edges
    inside = np.zeros_like(bright)
    here = patch_box(look.box, look.grid, 6)
    inside[round(here[1]) - 1 : round(here[3]) + 1, round(here[0]) - 1 : round(here[2]) + 1] = True
    assert not (bright & ~inside).any()


def test_the_photo_is_shown_upright_and_of_a_size_to_look_at(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "phone.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (2400, 1600), "peru").save(path, exif=exif)
    look = look_at(str(path), model)
    assert look.photo_size == (1600, 2400)
    assert look.photo.size == (640, 960) and open_photo(path).size == (1600, 2400)


# the wall


def test_the_wall_in_every_order(photo: Path, model: Path) -> None:
    look = look_at(str(photo), model)
    everyone = {(layer, head) for layer in range(2) for head in range(3)}
    for order in wall.ORDERS:
        cells = wall.wall(look, Question(token=4), order)
        assert {(cell.layer, cell.head) for cell in cells} == everyone
        numbers = [cell.number for cell in cells]
        if order == "layer":
            assert numbers == [None] * 6 and (cells[4].layer, cells[4].head) == (1, 1)
        else:
            assert numbers == sorted(numbers, key=lambda n: n or 0, reverse=order == "class")
    cells = wall.wall(look, Question(), "class")
    expected = look.maps[cells[0].layer, cells[0].head, 0, 0].item()
    assert cells[0].number == pytest.approx(expected)


def test_every_map_has_its_place_in_the_picture(photo: Path, model: Path) -> None:
    look = look_at(str(photo), model)
    picture = np.asarray(wall.wall_picture(look, Question(), "gray").convert("L"))
    assert picture.shape == (2 * 4, 3 * 4)
    heat = heat_of(look, Question("head", 1, 2))
    tile = picture[4:8, 8:12] / 255
    expected = (heat / wall.scale_top(heat)).clamp(0, 1).numpy()
    np.testing.assert_allclose(tile, expected, atol=0.01)


def test_heads_that_look_at_sinks_are_marked(photo: Path, model: Path) -> None:
    look = with_sinks(look_at(str(photo), model), 3)
    assert not any(cell.sink for cell in wall.wall(look, Question()))
    maps = look.maps.clone()
    maps[1, 0, 0, 1:] = 0.01
    maps[1, 0, 0, 4] = 0.5  # patch 3
    marked = [cell for cell in wall.wall(replace(look, maps=maps), Question()) if cell.sink]
    assert [(cell.layer, cell.head) for cell in marked] == [(1, 0)]


def test_one_scale_for_maps_of_different_kinds() -> None:
    shares, top = wall.same_scale([torch.ones(2, 2), torch.tensor([[8.0, 0], [0, 0]])])
    assert shares[0][0, 0] == 0.25 and shares[1][0, 0] == 1
    assert 0.25 < top <= 1


# in words


def test_what_is_drawn_is_said(photo: Path, model: Path) -> None:
    look = look_at(str(photo), model)
    said = captions.drawn(look, Question("head", 1, 2, token=6))
    assert said == (
        "Layer 2, head 3, one of 3: how much the patch in row 2, column 3 looks at each patch."
    )
    assert "how much each patch looks at the class token" in captions.drawn(
        look, Question("mean", 0, by=True)
    )
    assert captions.drawn(look, Question(target=3)).startswith(
        "Relevance: how much each patch speaks for Old 3."
    )
    aside = captions.drawn(with_sinks(look, 1, 2), Question("max", aside=True))
    assert aside.endswith(
        "The 2 sinks are set aside: drawn as zero, and the rest shared out anew to make 100 %."
    )


def test_sinks_are_named_with_their_share(photo: Path, model: Path) -> None:
    look = look_at(str(photo), model)
    four = captions.sinks_found(with_sinks(look, 0, 3, 12, 15))
    assert four.startswith(
        "4 corner patches take 30 % of what the class token gives to patches in layer 2; an even "
        "share would be 25 %."
    )
    one = captions.sinks_found(with_sinks(look, 5))
    assert one.startswith("The patch in row 2, column 2 takes 30 %")
    assert captions.sinks_found(with_sinks(look)).startswith("No patch takes far more")


def test_the_test_of_a_map_is_said() -> None:
    from vit.faithfulness import Faithfulness

    found = Faithfulness(0.94, 0.41, 0.9, 0.02, 39, 196, 10)
    assert captions.faithful("Pizza", found) == (
        "Pizza: hide its top 20 %, 94 → 41 %; hide random 20 %, 94 → 90 % (±2)"
    )
    assert "more to the model than chance" in captions.verdict(found)
    assert "do not believe" in captions.verdict(replace(found, after=0.97))
    assert "no more" in captions.verdict(replace(found, after=0.89))


# curves


def test_the_curves_of_a_map_beside_chance(photo: Path, model: Path) -> None:
    look, steps = look_at(str(photo), model), []
    found = readings.curves_of(look, heat_of(look, Question()), 0, lambda: steps.append(1))
    assert len(steps) == readings.FORWARDS * look.depth
    assert len(found.chance_deletion) == len(found.chance_insertion) == readings.CURVE_DRAWS
    whole = look.probabilities[0].item()
    for curve in (found.deletion, *found.chance_deletion):
        assert curve.shares[0] == 0 and curve.shares[-1] == 1
        assert curve.probabilities[0] == pytest.approx(whole, abs=1e-3)
    for curve in (found.insertion, *found.chance_insertion):
        assert curve.probabilities[-1] == pytest.approx(whole, abs=1e-3)
        # nothing shown is the same as everything gone
        assert curve.probabilities[0] == pytest.approx(found.deletion.probabilities[-1], abs=1e-5)
    assert len({curve.area for curve in found.chance_deletion}) > 1


# a test that takes long


def test_a_test_reports_how_far_it_is_and_can_be_left(
    photo: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vit.ui import faithful

    look = look_at(str(photo), model)
    heats = {"a": heat_of(look, Question())}
    steps: list[int] = []
    readings.tested(look, heats, 0, lambda: steps.append(1))
    assert len(steps) == 2 * look.depth  # nothing hidden, then all rows at once
    *shares, found = faithful.run_test(look, heats, 0)
    assert shares[0] == 0 and isinstance(found, dict) and set(found) == {"a"}

    started, ended, go_on = threading.Event(), threading.Event(), threading.Event()

    def slow(look: Look, heats: dict, target: int, step: Callable[[], None]) -> None:
        started.set()
        go_on.wait(10)
        try:
            step()
        finally:
            ended.set()
        pytest.fail("the test went on after it was left")

    monkeypatch.setattr(faithful, "tested", slow)
    monkeypatch.setattr(faithful, "PACE", 0.01)
    running = faithful.run_test(look, heats, 0)
    assert next(running) == 0 and next(running) == 0
    assert started.wait(10)
    running.close()  # type: ignore[attr-defined]
    go_on.set()
    assert ended.wait(10)
