"""Near duplicates: found after what people do to copies, and nothing else."""

import io
import random
from itertools import combinations
from pathlib import Path

import pytest
from PIL import Image, ImageEnhance

from vit.data import open_photos
from vit.duplicates import Signature, groups, near_pairs, signature
from vit.images import open_photo


def pairs(signatures: list[Signature]) -> list[tuple[int, int]]:
    *_, last = near_pairs(signatures)
    assert isinstance(last, list)
    return last


def read(image: Image.Image, kind: str = "JPEG", **how: int) -> Signature:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return signature(open_photo(file.getvalue(), at_least=64).image)


CHANGES = {
    "half the size": lambda i: read(i.resize((i.width // 2, i.height // 2)), quality=80),
    "a quarter": lambda i: read(i.resize((i.width // 4, i.height // 4)), quality=60),
    "64 pixels": lambda i: read(i.resize((64, 64)), quality=80),
    "quality 20": lambda i: read(i, quality=20),
    "WebP": lambda i: read(i, "WEBP", quality=40),
    "PNG": lambda i: read(i, "PNG"),
    "brighter": lambda i: read(ImageEnhance.Brightness(i).enhance(1.2)),
    "darker": lambda i: read(ImageEnhance.Brightness(i).enhance(0.75)),
    "contrast": lambda i: read(ImageEnhance.Contrast(i).enhance(1.3)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_of_real_photos_are_found_and_no_others(
    change: str, shared_data: Path
) -> None:
    photos = open_photos(shared_data / "pizza_steak_sushi" / "test")
    images = [photos.photo(index) for index in range(0, len(photos), 3)]
    originals = [read(image, quality=92) for image in images]
    found = pairs(originals + [CHANGES[change](image) for image in images])
    count = len(images)
    assert count == 25 and found == [(i, i + count) for i in range(count)]


def test_plain_surfaces_of_other_colours_are_not_alike() -> None:
    plain = [signature(Image.new("RGB", (64, 64), c)) for c in ("red", "green", "white", "red")]
    assert pairs(plain) == [(0, 3)]


def test_all_pairs_are_found_whatever_the_order() -> None:
    rng = random.Random(3)
    marks = []
    for number in range(300):
        base = rng.randbytes(16)
        for _ in range(number % 3 + 1):
            flipped = int.from_bytes(base, "big")
            for bit in rng.sample(range(128), rng.randrange(5)):  # two copies differ in 8 at most
                flipped ^= 1 << bit
            marks.append(Signature(flipped.to_bytes(16, "big"), bytes(192)))
    rng.shuffle(marks)
    expected = [
        (i, j)
        for (i, one), (j, other) in combinations(enumerate(marks), 2)
        if (int.from_bytes(one.bits, "big") ^ int.from_bytes(other.bits, "big")).bit_count() <= 12
    ]
    assert pairs(marks) == expected and len(expected) > 300
    assert pairs([]) == [] and pairs(marks[:1]) == []


def test_groups_join_what_hangs_together() -> None:
    assert groups([(1, 5), (2, 3), (5, 9), (3, 7), (0, 9)]) == [[0, 1, 5, 9], [2, 3, 7]]
    assert groups([]) == []
