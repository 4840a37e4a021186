"""Random changes to training photos."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from vit.augment import Augment, _random_box
from vit.images import Preprocess

SIZES = [(300, 200), (200, 300), (64, 64), (9, 400), (1000, 37)]
PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8))
PLAIN = Preprocess((32, 32))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("aspect", [1.0, 1.5, 0.5])
@pytest.mark.parametrize("min_area", [0.001, 0.3, 0.99])
def test_the_crop_lies_inside_the_photo(size, aspect, min_area):
    width, height = size
    largest = min(width, height * aspect) ** 2 / aspect
    for seed in range(50):
        left, top, right, bottom = _random_box(size, aspect, min_area, rng(seed))
        assert 0 <= left < right <= width + 1e-9
        assert 0 <= top < bottom <= height + 1e-9
        area = (right - left) * (bottom - top)
        assert area <= largest * 1.0001
        # Where the stretched side would leave the photo it is cut off, by less than 4:3's root.
        assert area >= min_area * largest / 1.16


@pytest.mark.parametrize("fit", ["crop", "letterbox"])
@pytest.mark.parametrize("size", [(32, 32), (24, 48), (48, 24)])
def test_pictures_have_the_size_of_the_model(fit, size):
    augment = Augment(min_area=0.2, flip=True, blur=0.5)
    rules = Preprocess(size, fit=fit)
    for width, height in SIZES:
        photo = PHOTO.resize((width, height))
        for seed in range(5):
            assert augment.view(photo, rules, rng(seed)).size == (size[1], size[0])


def test_nothing_asked_for_changes_nothing():
    for fit in ("crop", "letterbox"):
        rules = replace(PLAIN, fit=fit)
        seen = Augment().view(PHOTO, rules, rng())
        assert np.array_equal(np.asarray(seen), np.asarray(rules.view(PHOTO)))
    images, targets = torch.randn(4, 3, 8, 8), torch.eye(4)
    assert torch.equal(Augment().recolour(images, rng()), images)
    assert Augment().mix(images, targets, rng()) == (images, targets)


def test_grain_sharpens_and_roughens_about_half_of_the_photos():
    smooth = torch.linspace(-1, 1, 32).expand(200, 3, 32, 32)
    rough = Augment(grain=1.0).roughen(smooth, rng())
    changed = (rough != smooth).flatten(1).any(1)
    assert 70 < changed.sum() < 130
    assert (rough - smooth).abs().mean() < 0.1 and torch.equal(rough[~changed], smooth[~changed])
    checks = torch.zeros(200, 3, 32, 32)
    checks[:, :, 12:20, 12:20] = 1
    edges = Augment(grain=1.0).roughen(checks, rng()).amax((1, 2, 3))
    assert (edges[changed] > 1.05).float().mean() > 0.8  # edges overshoot
    assert torch.equal(Augment().roughen(checks, rng()), checks)


def test_flips_alone_show_the_plain_view_or_its_mirror_image():
    plain = np.asarray(PLAIN.view(PHOTO))
    seen = [np.asarray(Augment(flip=True).view(PHOTO, PLAIN, rng(seed))) for seed in range(40)]
    mirrored = [not np.array_equal(picture, plain) for picture in seen]
    assert 8 < sum(mirrored) < 32
    assert all(
        np.array_equal(picture[:, ::-1] if turned else picture, plain)
        for picture, turned in zip(seen, mirrored, strict=True)
    )


def test_letterboxed_crops_keep_their_border():
    """A wide photo in a square picture: bars of the mean colour above and below."""
    rules = Preprocess((32, 32), fit="letterbox")
    photo = Image.new("RGB", (200, 100), "white")
    for seed in range(10):
        picture = np.asarray(Augment(min_area=0.3, flip=True).view(photo, rules, rng(seed)))
        assert (picture[:4] == 128).all() and (picture[-4:] == 128).all()
        assert (picture[14:18] == 255).all()


def test_the_same_seed_gives_the_same_picture():
    augment = Augment(min_area=0.3, flip=True, blur=0.5)
    one, again, other = (augment.view(PHOTO, PLAIN, rng(seed)).tobytes() for seed in (1, 1, 2))
    assert one == again != other


def test_blurred_pictures_have_less_detail():
    sharp = np.asarray(Augment().view(PHOTO, PLAIN, rng()), float)
    soft = np.asarray(Augment(blur=1).view(PHOTO, PLAIN, rng()), float)
    assert np.abs(np.diff(soft, axis=1)).mean() < 0.8 * np.abs(np.diff(sharp, axis=1)).mean()


def test_colours_change_photo_by_photo_and_reproducibly():
    images = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    augment = Augment(colour=0.4)
    changed = augment.recolour(images, rng(5))
    assert torch.equal(changed, augment.recolour(images, rng(5)))
    shifts = (changed - images).mean((1, 2, 3))
    assert len(set(shifts.tolist())) == 3
    assert shifts.abs().max() <= 0.4 + 1e-5


def test_mixing_keeps_sums_and_mixes_photos_as_their_targets():
    images = torch.eye(6).view(6, 6, 1, 1) * torch.ones(6, 6, 4, 4)  # photo i is 1 in channel i
    mixed, targets = Augment(mixup=1.0).mix(images, torch.eye(6), rng(3))
    torch.testing.assert_close(targets.sum(1), torch.ones(6))
    torch.testing.assert_close(targets.sum(0), torch.ones(6))
    torch.testing.assert_close(mixed[:, :, 0, 0], targets)
    assert ((targets > 0).sum(1) == 2).any()


def test_mixing_by_hand():
    class Drawn:
        beta = staticmethod(lambda a, b: 0.25 if a == b == 0.2 else 1)
        permutation = staticmethod(lambda count: np.array([1, 0][:count]))

    photos, labels = torch.tensor([[8.0], [0.0]]), torch.tensor([[1.0, 0, 0], [0, 0, 1]])
    mixed, targets = Augment(mixup=0.2).mix(photos, labels, Drawn())  # pyright: ignore[reportArgumentType]
    assert mixed.tolist() == [[2], [6]]  # a quarter of its own, the rest of the other
    assert targets.tolist() == [[0.25, 0, 0.75], [0.75, 0, 0.25]]


@pytest.mark.parametrize(
    "values", [{"min_area": 0}, {"min_area": 1.1}, {"colour": -0.1}, {"blur": 2}, {"mixup": -1}]
)
def test_values_out_of_range_are_refused_by_name(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        Augment(**values)
