"""Pictures of no dish at all: `python -m tests.benchmarks.strangers FOLDER [--count 120]`.

What a visitor might drop by mistake, as far as it can be drawn: skies, textures, pages of text,
charts, patterns, faces of a toy, noise. `python -m vit calibrate … --strangers FOLDER` counts how
many of them a model calls unsure.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIDE = 256
Random = np.random.Generator
Colour = tuple[int, int, int]


def colour(random: Random) -> Colour:
    red, green, blue = (int(v) for v in random.integers(0, 256, 3))
    return red, green, blue


def clouds(random: Random) -> Image.Image:
    """Noise of many sizes: sky, marble, carpet, grass."""
    field = np.zeros((SIDE, SIDE))
    for octave in range(int(random.integers(1, 4)), 8):
        cells = 2**octave
        stretch = max(1, cells // int(random.integers(1, 5)))
        noise = Image.fromarray(random.random((cells, stretch)).astype(np.float32))
        field += np.asarray(noise.resize((SIDE, SIDE), Image.Resampling.BICUBIC)) / octave
    field = (field - field.min()) / np.ptp(field)
    low, high = np.array(colour(random)), np.array(colour(random))
    return Image.fromarray((low + field[..., None] * (high - low)).astype(np.uint8))


def page(random: Random) -> Image.Image:
    """A page of writing, or a screen of it."""
    dark = random.random() < 0.3
    picture = Image.new("RGB", (SIDE, SIDE), (25, 27, 30) if dark else (250, 249, 245))
    draw = ImageDraw.Draw(picture)
    for y in range(14, SIDE - 10, int(random.integers(9, 15))):
        x = 14
        while x < SIDE - 40 and random.random() < 0.95:
            width = int(random.integers(6, 34))
            draw.rectangle((x, y, x + width, y + 4), fill=(190,) * 3 if dark else (60,) * 3)
            x += width + 6
    return picture


def chart(random: Random) -> Image.Image:
    """Bars on white."""
    picture = Image.new("RGB", (SIDE, SIDE), "white")
    draw = ImageDraw.Draw(picture)
    fill, bars = colour(random), int(random.integers(4, 14))
    for bar in range(bars):
        left, top = 20 + bar * 220 // bars, int(random.integers(30, 220))
        draw.rectangle((left, top, left + 150 // bars, 230), fill=fill)
    draw.line((18, 20, 18, 232, 240, 232), fill="black", width=2)
    return picture


def pattern(random: Random) -> Image.Image:
    """Stripes, checks or dots."""
    y, x = np.mgrid[:SIDE, :SIDE]
    turn, step = random.uniform(0, np.pi), random.uniform(8, 50)
    u = x * np.cos(turn) + y * np.sin(turn)
    v = y * np.cos(turn) - x * np.sin(turn)
    wave = [np.sin(u / step * 6), np.sin(u / step * 6) * np.sin(v / step * 6)][random.integers(2)]
    mask = (wave > random.uniform(-0.3, 0.5))[..., None]
    return Image.fromarray(np.where(mask, colour(random), colour(random)).astype(np.uint8))


def noise(random: Random) -> Image.Image:
    """Snow, blurred a little."""
    snow = Image.fromarray(random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
    return snow.filter(ImageFilter.GaussianBlur(random.uniform(0, 6)))


def landscape(random: Random) -> Image.Image:
    """Sky, hills, a sun."""
    picture = Image.new("RGB", (SIDE, SIDE), (120, 170, int(random.integers(200, 256))))
    draw = ImageDraw.Draw(picture)
    x, y = (int(v) for v in random.integers(20, 120, 2))
    draw.ellipse((x, y, x + 36, y + 36), fill=(255, 240, 180))
    for depth in range(4):
        base, phase = 120 + depth * 32, random.uniform(0, 6)
        ridge = [
            (column, base + 18 * np.sin(column / (18 + 9 * depth) + phase))
            for column in range(0, SIDE + 8, 8)
        ]
        green = (40 + 20 * depth, 90 + 25 * depth, 60)
        draw.polygon([*ridge, (SIDE, SIDE), (0, SIDE)], fill=green)
    return picture.filter(ImageFilter.GaussianBlur(1))


def toy(random: Random) -> Image.Image:
    """A round face."""
    picture = Image.new("RGB", (SIDE, SIDE), colour(random))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((40, 30, 216, 226), fill=(232, 190, int(random.integers(110, 170))))
    for x in (92, 150):
        draw.ellipse((x, 96, x + 16, 116), fill=(30, 30, 40))
    draw.arc((88, 120, 168, 186), 20, 160, fill=(140, 40, 40), width=5)
    return picture


def room(random: Random) -> Image.Image:
    """Walls, a window, furniture: rectangles in perspective of a kind."""
    picture = Image.new("RGB", (SIDE, SIDE), colour(random))
    draw = ImageDraw.Draw(picture)
    draw.polygon([(0, 190), (SIDE, 170), (SIDE, SIDE), (0, SIDE)], fill=colour(random))
    for _ in range(int(random.integers(3, 9))):
        x, y = (int(v) for v in random.integers(0, 200, 2))
        width, height = (int(v) for v in random.integers(20, 110, 2))
        draw.rectangle((x, y, x + width, y + height), fill=colour(random), outline=(40, 40, 40))
    return picture.filter(ImageFilter.GaussianBlur(0.8))


KINDS: tuple[Callable[[Random], Image.Image], ...] = (
    clouds,
    page,
    chart,
    pattern,
    noise,
    landscape,
    toy,
    room,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=120)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for number in range(given.count):
        kind = KINDS[number % len(KINDS)]
        picture = kind(np.random.default_rng(number))
        picture.save(given.folder / f"{kind.__name__}-{number:03}.jpg", quality=90)
    print(f"{given.count} pictures in {given.folder}")


if __name__ == "__main__":
    main()
