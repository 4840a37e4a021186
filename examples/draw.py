"""Draw the example dishes: `python examples/draw.py [NAME…]` writes every picture anew.

A scene is a table seen from above: one height, one colour and one gloss for every point. Dishes
are stamped onto it (`lay` sets a body down, `coat` spreads something over what is there), then a
camera looks at it from the side: shadows and light are worked out on the map, rays walk over the
heights until they hit, and a lens adds blur, grain and a vignette. Every picture has its own seed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

TEXELS = 420  # points of the map to one unit of length; a plate is about two units wide
SIDE = 3.4  # the map is a square of this length
ORIGIN = (-1.7, -1.6)  # its near left corner
NOWHERE = -1.0  # height of a body outside its outline
Array = np.ndarray


# --- small mathematics ---------------------------------------------------------------------------


def smooth(low: float, high: float, x: Array) -> Array:
    """0 below `low`, 1 above `high` (or the other way round), an S-curve between."""
    t = np.clip((x - low) / (high - low), 0, 1)
    return t * t * (3 - 2 * t)


def ramp(t: Array | float, *colours: str) -> Array:
    """Linear-light RGB for `t` in 0..1 along evenly spaced `colours` ("#rrggbb")."""
    stops = [[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours]
    table = np.asarray(stops, np.float32) ** 2.2
    where = np.clip(np.asarray(t, np.float32), 0, 1) * (len(colours) - 1)
    channels = [np.interp(where, np.arange(len(colours)), table[:, i]) for i in range(3)]
    return np.stack(channels, -1).astype(np.float32)


def mix(a: Array | float, b: Array | float, t: Array) -> Array:
    """From `a` to `b` by `t`; colours or plain numbers."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    if a.ndim % 2 or b.ndim % 2:  # one colour, or a map of colours
        t = t[..., None]
    return a + (b - a) * t


def blur(field: Array, radius: float) -> Array:
    """A soft copy of a map or a picture; `radius` in pixels."""
    if field.ndim == 3:
        return np.stack([blur(field[..., i], radius) for i in range(field.shape[2])], -1)
    image = Image.fromarray(np.ascontiguousarray(field, np.float32))
    small = [max(2, round(side / radius)) for side in image.size]
    reduced = image.resize((small[0], small[1]), Image.Resampling.HAMMING)
    return np.asarray(reduced.resize(image.size, Image.Resampling.BICUBIC))


def box(u: Array, v: Array, a: float, b: Array | float, corner: float) -> Array:
    """Signed distance to a rounded rectangle of half sides `a` and `b`; negative inside."""
    x, y = np.abs(u) - a + corner, np.abs(v) - b + corner
    return np.hypot(np.maximum(x, 0), np.maximum(y, 0)) + np.minimum(np.maximum(x, y), 0) - corner


def bulge(d: Array, edge: float) -> Array:
    """Round shoulder of a body: 0 at its outline (`d` = 0), 1 from `edge` inside on."""
    return np.sqrt(np.clip(1 - np.clip(1 + d / edge, 0, 1) ** 2, 0, 1))


def cut(top: Array, d: Array) -> Array:
    """A body of height `top` that ends in a steep side where the distance `d` is 0."""
    return np.maximum(top - 8 * np.maximum(d, 0), NOWHERE)


# --- the table and its patches -------------------------------------------------------------------


@dataclass
class Patch:
    """A window on the maps with its own axes `u`, `v` (units, turned by `angle`)."""

    rng: np.random.Generator
    height: Array
    colour: Array
    gloss: Array
    origin: tuple[float, float]  # x, y of the window's first point
    centre: tuple[float, float] = (0.0, 0.0)
    angle: float = 0.0

    def __post_init__(self) -> None:
        rows, cols = self.height.shape
        x = self.origin[0] - self.centre[0] + np.arange(cols, dtype=np.float32) / TEXELS
        y = self.origin[1] - self.centre[1] + np.arange(rows, dtype=np.float32)[:, None] / TEXELS
        c, s = np.float32(np.cos(self.angle)), np.float32(np.sin(self.angle))
        self.u, self.v = x * c + y * s, y * c - x * s

    def at(self, x: float, y: float, reach: float, angle: float = 0.0) -> Patch:
        """The window within `reach` of the point (x, y) of these axes."""
        c, s = np.cos(self.angle), np.sin(self.angle)
        cx, cy = self.centre[0] + x * c - y * s, self.centre[1] + x * s + y * c
        spans, starts = [], []
        for middle, first, count in zip(
            (cx, cy), self.origin, self.height.shape[::-1], strict=True
        ):
            low = int(np.clip((middle - reach - first) * TEXELS, 0, count - 1))
            high = int(np.clip((middle + reach - first) * TEXELS, low + 1, count))
            spans.append(slice(low, high))
            starts.append(first + low / TEXELS)
        view = (spans[1], spans[0])
        maps = self.height[view], self.colour[view], self.gloss[view]
        return Patch(self.rng, *maps, (starts[0], starts[1]), (cx, cy), self.angle + angle)

    def noise(self, cell: float, stretch: float = 1.0, octaves: int = 1) -> Array:
        """Smooth random field, about -1..1: features `cell` wide, `stretch` times longer in u."""
        total = np.zeros(self.height.shape, np.float32)
        weight = 1.0
        c, s = np.cos(self.angle) / TEXELS, np.sin(self.angle) / TEXELS
        for _ in range(octaves):
            us, vs = self.u / (cell * stretch), self.v / cell
            low_u, low_v = float(us.min()) - 3, float(vs.min()) - 3
            grid = (int(vs.max() - low_v) + 5, int(us.max() - low_u) + 5)
            lattice = Image.fromarray(self.rng.standard_normal(grid, np.float32))
            wide = cell * stretch
            affine = (c / wide, s / wide, us[0, 0] - low_u, -s / cell, c / cell, vs[0, 0] - low_v)
            size = self.height.shape[::-1]
            field = lattice.transform(
                size, Image.Transform.AFFINE, affine, Image.Resampling.BICUBIC
            )
            total += weight * np.asarray(field)
            cell, weight = cell / 2, weight * 0.55
        return total * 0.8

    def lay(
        self, top: Array, colour: Array, gloss: Array | float = 0.3, soft: float = 0.004
    ) -> None:
        """Set down a body whose upper side is `top`; it shows wherever it is the highest."""
        shown = smooth(0, soft, top - self.height)
        self._paint(shown, colour, gloss)
        np.maximum(self.height, top, out=self.height)

    def coat(self, mask: Array, thick: Array | float, colour: Array, gloss: Array | float) -> None:
        """Spread something over what is there, `thick` where `mask` is 1."""
        self._paint(mask, colour, gloss)
        self.height += mask * thick

    def _paint(self, mask: Array, colour: Array, gloss: Array | float) -> None:
        self.colour[:] = mix(self.colour, colour, mask)
        self.gloss[:] = mix(self.gloss, gloss, mask)

    @property
    def ground(self) -> float:
        """Height of what a body in this patch stands on."""
        return float(self.height[np.hypot(self.u, self.v) < 0.08].min())

    def scatter(self, count: int, radius: float, inner: float = 0.0) -> Array:
        """`count` random points (rows u, v) in a disc or ring."""
        r = radius * np.sqrt(self.rng.uniform((inner / radius) ** 2, 1, count))
        a = self.rng.uniform(0, 2 * np.pi, count)
        return np.stack([r * np.cos(a), r * np.sin(a)], -1)

    def spread(self, count: int, radius: float, gap: float) -> list[tuple[float, float]]:
        """Up to `count` points in a disc, no two nearer than `gap`."""
        chosen: list[tuple[float, float]] = []
        for u, v in self.scatter(40 * count, radius):
            if len(chosen) < count and all(np.hypot(u - a, v - b) > gap for a, b in chosen):
                chosen.append((float(u), float(v)))
        return chosen


def table(seed: int) -> Patch:
    """An empty table."""
    n = int(SIDE * TEXELS)
    maps = (
        np.zeros((n, n), np.float32),
        np.zeros((n, n, 3), np.float32),
        np.zeros((n, n), np.float32),
    )
    return Patch(np.random.default_rng(seed), *maps, ORIGIN)


# --- light and lens ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shot:
    """Where the camera stands and how the light falls."""

    size: tuple[int, int] = (800, 600)
    pitch: float = 50.0  # degrees above the table
    width: float = 2.2  # units across the picture at the target
    target: tuple[float, float] = (0.0, 0.0)
    sun: tuple[float, float, float] = (-0.55, 0.5, 0.75)
    warmth: float = 0.05
    exposure: float = 1.0
    focus: float = 0.0  # distance in front of (-) or behind (+) the target that is sharp
    aperture: float = 5.0


def vec(*numbers: float) -> Array:
    """A few numbers as a vector."""
    return np.array(numbers, np.float32)


def unit(*vector: float) -> Array:
    """The vector, one long."""
    return vec(*vector) / np.linalg.norm(vector)


def shadows(height: Array, sun: Array, texels: float, steps: int = 30) -> Array:
    """1 in the light, 0 in the shade, softer the further the thing that shades is away."""
    lit = np.ones_like(height)
    padded = np.pad(height, steps * 3, mode="edge")
    flat = sun[:2] / np.hypot(*sun[:2])
    climb = sun[2] / np.hypot(*sun[:2])
    rows, cols = height.shape
    for k in range(1, steps + 1):
        far = 0.8 * k * (1 + 2 * k / steps)  # texels
        r, c = (steps * 3 + np.round(flat[::-1] * far)).astype(int)
        over = padded[r : r + rows, c : c + cols] - height - climb * far / texels
        soft = 0.008 + 0.25 * far / texels
        np.minimum(lit, 1 - smooth(-soft * 0.4, soft * 0.6, over), out=lit)
    return lit


def light(scene: Patch, sun: Array) -> tuple[Array, Array, Array]:
    """Normals, light that falls on every point (RGB) and the share of the sun it sees."""
    gy, gx = np.gradient(scene.height, np.float32(1 / TEXELS))
    normal = np.stack([-gx, -gy, np.ones_like(gx)], -1)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    lit = shadows(scene.height[::2, ::2], sun, TEXELS / 2)
    lit = np.asarray(
        Image.fromarray(lit).resize(scene.height.shape[::-1], Image.Resampling.BICUBIC)
    )
    hidden = sum(np.clip(blur(scene.height, r) - scene.height, 0, None) / r for r in (8, 24, 70))
    open_sky = 1 / (1 + 160 * np.asarray(hidden))
    facing = np.clip((normal @ sun + 0.15) / 1.15, 0, 1) * lit
    facing = np.stack([0.5 * (facing + blur(facing, r)) for r in (7, 4, 2)], -1)
    fill = np.clip(normal @ unit(0.7, -0.6, 0.6), 0, 1) * open_sky
    sky = (0.5 + 0.5 * normal[..., 2]) * open_sky
    total = (
        facing * vec(2.3, 2.15, 1.95)
        + sky[..., None] * vec(0.46, 0.49, 0.54)
        + fill[..., None] * vec(0.48, 0.46, 0.43)
    )
    return normal, total.astype(np.float32), lit * np.sqrt(open_sky)


def mirror(a: Array, last: float) -> Array:
    """Places 0..`last` on the map for places beyond its edges too."""
    a = np.abs(a)
    return np.clip(np.where(a > last, 2 * last - a, a), 0, last)


def sample(field: Array, x: Array, y: Array) -> Array:
    """Values of a map at points of the table, bilinear, mirrored beyond its edge."""
    n = field.shape[0] - 1
    c, r = (mirror((a - o) * TEXELS, n - 1e-3) for a, o in zip((x, y), ORIGIN, strict=True))
    ci, ri = c.astype(np.int32), r.astype(np.int32)
    fc, fr = (c - ci).astype(np.float32), (r - ri).astype(np.float32)
    flat = field.reshape((n + 1) ** 2, *field.shape[2:])
    i = ri * (n + 1) + ci
    if field.ndim == 3:
        fc, fr = fc[..., None], fr[..., None]
    top = flat[i] * (1 - fc) + flat[i + 1] * fc
    return top * (1 - fr) + (flat[i + n + 1] * (1 - fc) + flat[i + n + 2] * fc) * fr


def rays(shot: Shot, scale: float) -> tuple[Array, Array]:
    """The camera's place and a direction for every pixel (rows, columns, xyz)."""
    w, h = (round(s * scale) for s in shot.size)
    pitch = np.radians(shot.pitch)
    ahead = vec(0, np.cos(pitch), -np.sin(pitch))
    up = vec(0, np.sin(pitch), np.cos(pitch))
    distance = 5.0
    eye = vec(*shot.target, 0) - ahead * distance
    step = shot.width / w
    px = (np.arange(w, dtype=np.float32) - (w - 1) / 2) * step
    py = ((h - 1) / 2 - np.arange(h, dtype=np.float32)) * step
    d = ahead * distance + px[None, :, None] * vec(1, 0, 0) + py[:, None, None] * up
    return eye, d / -d[..., 2:]  # one unit down for every unit of length


def walk(height: Array, eye: Array, d: Array) -> Array:
    """How far down each ray goes before it meets the heights."""
    top = float(height.max()) + 0.01
    x, y = (eye[i] + d[..., i] * (eye[2] - top) for i in (0, 1))
    slope = float(np.hypot(d[..., 0], d[..., 1]).max())
    steps = int(np.clip(top * max(slope, 0.3) * TEXELS / 2.5, 12, 110))
    fall = np.zeros(x.shape, np.float32)
    alive = np.arange(x.size)
    fx, fy, fd = x.ravel(), y.ravel(), fall.ravel()
    dx, dy = d[..., 0].ravel(), d[..., 1].ravel()
    n = height.shape[0] - 1
    flat = height.ravel()
    for k in range(1, steps + 1):
        down = top * k / steps
        c = mirror((fx + dx * down - ORIGIN[0]) * TEXELS, n).astype(np.int32)
        r = mirror((fy + dy * down - ORIGIN[1]) * TEXELS, n).astype(np.int32)
        clear = flat[r * (n + 1) + c] < top - down
        fd[alive[clear]] = down
        if not clear.any():
            break
        alive, fx, fy, dx, dy = (a[clear] for a in (alive, fx, fy, dx, dy))
    low, high = fall, fall + top / steps
    for _ in range(4):  # halve the last step until the surface is found
        half = (low + high) / 2
        inside = sample(height, x + d[..., 0] * half, y + d[..., 1] * half) > top - half
        low, high = np.where(inside, low, half), np.where(inside, half, high)
    return eye[2] - top + high


def render(scene: Patch, shot: Shot) -> Image.Image:
    """The photo of a scene."""
    scale = 1.4
    sun = unit(*shot.sun)
    normal, shine, lit = light(scene, sun)
    eye, d = rays(shot, scale)
    depth = walk(scene.height, eye, d)
    hit = eye + d * depth[..., None]
    x, y = hit[..., 0], hit[..., 1]
    n = sample(normal, x, y)
    gloss = sample(scene.gloss, x, y)
    albedo = sample(scene.colour, x, y)
    view = -d / np.linalg.norm(d, axis=-1, keepdims=True)
    half = view + sun
    half /= np.linalg.norm(half, axis=-1, keepdims=True)
    spark = np.clip((n * half).sum(-1), 0, 1) ** (10 * 2 ** (5 * gloss)) * sample(lit, x, y)
    rim = (1 - np.clip((n * view).sum(-1), 0, 1)) ** 4
    picture = (
        albedo * sample(shine, x, y) + (gloss * (1.1 * spark * (1 + gloss) + 0.25 * rim))[..., None]
    )
    away = np.linalg.norm(hit - eye, axis=-1)
    return develop(picture, away - 5.0 - shot.focus, shot, scene.rng)


def develop(picture: Array, defocus: Array, shot: Shot, rng: np.random.Generator) -> Image.Image:
    """Lens and film: blur out of focus, reduce, tone, vignette, grain."""
    near = np.abs(defocus) * shot.aperture
    for radius in (2.0, 4.0, 8.0):
        picture = mix(picture, blur(picture, radius), smooth(radius * 0.3, radius * 0.8, near))
    w, h = shot.size
    channels = [Image.fromarray(np.ascontiguousarray(picture[..., i])) for i in range(3)]
    picture = np.stack(
        [np.asarray(c.resize((w, h), Image.Resampling.LANCZOS)) for c in channels], -1
    )
    picture = np.clip(picture, 0, None)
    picture = picture + 0.10 * blur(np.clip(picture - 0.8, 0, 2), 12)
    balance = vec(1 + shot.warmth, 1, 1 - 1.4 * shot.warmth)
    r = np.hypot(np.linspace(-1, 1, w)[None, :], np.linspace(-1, 1, h)[:, None])
    picture = picture * balance * (shot.exposure * (1 - 0.2 * smooth(0.6, 1.5, r)))[..., None]
    x = 0.6 * picture
    x = mix(x, x.mean(-1, keepdims=True), np.full(x.shape[:2], 0.12, np.float32))
    tone = np.clip(x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14), 0, 1) ** (1 / 2.2)
    grain = blur(rng.standard_normal((h, w, 1)), 1.5)
    return Image.fromarray(np.clip(tone * 255 + 1.2 * grain, 0, 255).astype(np.uint8))


# --- tables, plates and boards -------------------------------------------------------------------


def wood(p: Patch, *colours: str, plank: float = 0.5, gloss: float = 0.25) -> None:
    """Planks along u."""
    grain = 0.8 * p.noise(0.03, 14, 3) + 0.8 * p.noise(0.2, 6, 2)
    row = np.floor(p.v / plank + 0.37)
    tint = 0.18 * np.sin(row * 12.9898)
    gap = smooth(0.004, 0.010, np.abs(p.v / plank + 0.37 - np.round(p.v / plank + 0.37)) * plank)
    p.colour[:] = ramp(0.5 + 0.17 * grain + tint, *colours) * (0.35 + 0.65 * gap[..., None])
    p.height += 0.002 * grain + 0.012 * (gap - 1)
    p.gloss[:] = gloss


def slate(p: Patch) -> None:
    """Dark split stone."""
    p.height += 0.014 * p.noise(0.5, 2, 4)
    p.colour[:] = ramp(0.45 + 0.2 * p.noise(0.06, 2, 2), "#15181b", "#2c3033", "#4c5153")
    p.gloss[:] = 0.22


def marble(p: Patch) -> None:
    """White stone with grey veins."""
    vein = np.exp(-np.abs(p.noise(0.7, 2, 5)) * 9) * smooth(-0.5, 0.8, p.noise(0.5))
    p.colour[:] = ramp(
        0.75 * vein + 0.12 * p.noise(0.5, 1, 4) + 0.1, "#ece9e4", "#b9b6b4", "#77767a"
    )
    p.gloss[:] = 0.6


def cloth(p: Patch, *colours: str) -> None:
    """Woven linen with soft folds."""
    weave = np.sin(p.u * 330 + 2 * p.noise(0.1)) * np.sin(p.v * 330 + 2 * p.noise(0.1))
    fold = p.noise(0.6, 3, 2)
    p.height += 0.02 * fold + 0.0022 * weave
    p.colour[:] = ramp(0.5 + 0.2 * weave + 0.1 * p.noise(0.02, 4, 3), *colours)
    p.gloss[:] = 0.05


def plate(p: Patch, radius: float, *colours: str, rim: float = 0.09) -> None:
    """A round plate: flat in the middle, a sloping brim, a rounded edge."""
    r = np.hypot(p.u, p.v)
    top = (
        0.03
        + rim * smooth(0.62 * radius, radius, r)
        + 0.008 * smooth(0.02, 0, np.abs(r - 0.66 * radius))
    )
    top = cut(top - 0.03 * (1 - bulge(r - radius, 0.02)), r - radius)
    p.lay(top, ramp(0.3 + 0.03 * p.noise(0.3), *colours), 0.75)
    below = smooth(radius - 0.002, radius + 0.004, r) * smooth(radius + 0.05, radius + 0.012, r)
    p.coat(0.9 * below, 0.0, ramp(0.0, "#120c08"), 0.0)


def bowl(p: Patch, radius: float, high: float, clay: Array, filling: Array) -> None:
    """A small bowl filled with something liquid."""
    d = np.hypot(p.u, p.v) - radius
    top = p.ground + high * bulge(d, 0.25 * radius) - 0.35 * high * smooth(0.1, 0.25, -d / radius)
    p.lay(cut(top, d), clay, 0.7)
    p.coat(smooth(0.19, 0.22, -d / radius), 0.0, filling, 0.9)


def board(p: Patch, a: float, b: float, corner: float, *colours: str) -> None:
    """A wooden board with a rounded edge."""
    d = box(p.u, p.v, a, b, corner)
    grain = 0.7 * p.noise(0.03, 16, 3) + p.noise(0.15, 8, 2)
    top = 0.07 * bulge(d, 0.02) + 0.0015 * grain * (d < -0.01)
    p.lay(top, ramp(0.5 + 0.2 * grain, *colours), 0.22)


# --- small things --------------------------------------------------------------------------------


def leaf(
    p: Patch, length: float, width: float, *colours: str, curl: float = 0.03, gloss: float = 0.45
) -> None:
    """A leaf along u that lies on what is there."""
    t = p.u / length
    outline = width * np.clip(1 - t * t, 0, 1) ** 0.7 * (1 - 0.25 * t)
    d = np.abs(p.v) - outline
    ground = blur(p.height, 12)
    vein = np.abs(np.sin((np.abs(p.v) / width * 0.9 - t * 2) * 4))
    ridge = smooth(0.006, 0.0, np.abs(p.v))
    top = ground + 0.012 + curl * (np.abs(p.v) / width) ** 1.5 + 0.5 * curl * t * t
    top = top + 0.003 * vein - 0.004 * ridge + 0.006 * p.noise(0.06)
    tone = 0.5 + 0.18 * p.noise(0.05, 1, 3) + 0.05 * vein + 0.2 * ridge
    p.lay(np.where(np.abs(t) < 1, cut(top, d), NOWHERE), ramp(tone, *colours), gloss)


def basil(p: Patch, size: float) -> None:
    """Two or three basil leaves."""
    for turn in np.arange(p.rng.integers(2, 4)) * 2.3 + p.rng.uniform(0, 6):
        leaf(
            p.at(0.6 * size * np.cos(turn), 0.6 * size * np.sin(turn), 1.5 * size, turn),
            size * p.rng.uniform(0.75, 1),
            size * 0.5,
            "#1f3a1a",
            "#3f6330",
            "#7d9a5c",
        )


def grains(
    p: Patch, points: Sequence[tuple[float, float]] | Array, size: float, *colours: str
) -> None:
    """Grains (of rice, sesame, salt) set half into what is there, each turned its own way."""
    places = [p.at(u, v, size * 1.3, p.rng.uniform(0, 3.2)) for u, v in points]
    bases = [float(g.height[g.height.shape[0] // 2, g.height.shape[1] // 2]) for g in places]
    for g, base in zip(places, bases, strict=True):
        bump = np.clip(1 - (g.u / size) ** 2 - (g.v / (0.48 * size)) ** 2, 0, 1)
        top = np.where(bump > 0, base - 0.3 * size + 0.75 * size * np.sqrt(bump), NOWHERE)
        g.lay(top, ramp(p.rng.uniform(), *colours), 0.5, soft=0.002)


def stick(
    p: Patch,
    length: float,
    radius: float,
    square: float,
    rise: float,
    colour: Array,
    rest: float = 0.3,
    most: float = 9.0,
) -> None:
    """A stick along u, round (`square` 0) or with edges (1), on the quantile `rest` below.

    It stands no higher than `most`, deep in a heap if need be.
    """
    d = box(p.u, p.v, length, radius, radius * (1 - 0.7 * square))
    under = p.height[d < 0]
    ground = min(most, float(np.quantile(under, rest))) if under.size else 0.0
    top = ground + rise * p.u + 2 * radius * bulge(d, radius * (1 - 0.55 * square))
    p.lay(cut(top, d), colour, 0.4, soft=0.4 * radius)


# --- pizza ---------------------------------------------------------------------------------------


def pizza(p: Patch, radius: float, cheese: float = 0.0, rim: float = 0.1) -> None:
    """Crust, sauce and melted cheese; a larger `cheese` covers more."""
    a = np.arctan2(p.v, p.u)
    r = np.hypot(p.u, p.v) / radius * (1 + 0.02 * np.sin(3 * a + 1) + 0.012 * p.noise(0.25, 1, 2))
    ring = np.exp(-(((r - 0.91) / (0.075 + 0.012 * p.noise(0.3))) ** 2))
    bubbles = np.clip(p.noise(0.09, 1, 2) - 0.3, 0, 1)
    base = p.ground
    top = base + 0.035 + rim * ring * (1 + 0.35 * bubbles) + 0.006 * p.noise(0.03, 1, 3)
    top = np.minimum(top, base + 0.16 * bulge((r - 1) * radius, 0.09) + 0.01)
    top = cut(top, (r - 1) * radius)
    brown = 0.36 + 0.2 * p.noise(0.12, 1, 4) + 0.25 * bubbles + 0.12 * (ring - 0.5)
    crust = ramp(brown, "#ecd2a0", "#dca860", "#b8742f", "#7a4218", "#2b160b")
    char = smooth(0.75, 1.3, p.noise(0.07, 1, 3) + 0.4 * bubbles) * ring
    p.lay(top, mix(crust, ramp(0.0, "#1c100a"), 0.85 * char), 0.18)
    inside = smooth(0.86, 0.82, r + 0.015 * p.noise(0.06, 1, 3))
    tone = 0.5 + 0.22 * p.noise(0.05, 1, 4)
    p.coat(inside, 0.012, ramp(tone, "#8c2a18", "#b23c20", "#cc6236"), 0.45)
    p.height += inside * 0.004 * p.noise(0.04, 1, 2)
    lumps = p.noise(0.24, 1, 4) + cheese
    melt = smooth(0.0, 0.35, lumps) * smooth(0.84, 0.78, r + 0.02 * p.noise(0.08))
    toast = smooth(0.5, 1.6, p.noise(0.055, 1, 3) + 0.25 * lumps)
    tone = 0.3 + 0.14 * p.noise(0.1, 1, 3) + 0.14 * (1 - melt) + 0.45 * toast
    hue = ramp(tone, "#f9e6b8", "#f4d084", "#e2a044", "#a55c1e", "#5a2a10")
    p.coat(melt * 0.96, 0.022 + 0.008 * p.noise(0.09, 1, 2), hue, 0.5)


def pepperoni(p: Patch, radius: float) -> None:
    """A cupped slice of sausage with dark edge and fat specks."""
    r = np.hypot(p.u, p.v) / radius * (1 + 0.03 * p.noise(0.1))
    inside = smooth(1.0, 0.94, r)
    speck = smooth(0.5, 1.1, p.noise(0.014, 1, 2))
    tone = 0.55 + 0.1 * p.noise(0.03, 1, 2) - 0.4 * smooth(0.8, 1.0, r) + 0.3 * speck
    hue = ramp(tone, "#54170f", "#8f2f1e", "#ad4a30", "#cf8058")
    p.coat(inside, 0.012 + 0.022 * smooth(0.55, 1, r), hue, 0.4)


def mozzarella(p: Patch, radius: float) -> None:
    """A melted slice of fresh white cheese."""
    r = np.hypot(p.u, p.v) / radius * (1 + 0.16 * p.noise(0.12, 1, 2))
    tone = 0.2 + 0.2 * p.noise(0.05, 1, 3) + 0.4 * smooth(0.8, 1.8, p.noise(0.05, 1, 2))
    p.coat(
        smooth(1.0, 0.72, r), 0.035, ramp(tone, "#fffaf0", "#fbefd2", "#e8b868", "#94521f"), 0.55
    )


def pizza_margherita() -> Image.Image:
    """A whole pizza with mozzarella and basil on a round board, seen from above."""
    t = table(11)
    wood(t, "#2f2117", "#463022", "#5d432f")
    board(t, 1.12, 1.12, 1.1, "#6e4522", "#9b6a38", "#c79a60")
    pizza(t, 0.96, cheese=-0.25)
    for u, v in t.spread(11, 0.66, 0.3):
        mozzarella(t.at(u, v, 0.25), t.rng.uniform(0.1, 0.15))
    for u, v in t.spread(6, 0.55, 0.4):
        basil(t.at(u, v, 0.3), 0.13)
    return render(t, Shot((720, 600), pitch=68, width=2.35, aperture=3))


def pizza_pepperoni() -> Image.Image:
    """A cut pepperoni pizza on a dark table, seen at an angle."""
    t = table(23)
    slate(t)
    plate(t, 1.12, "#e8e4da", "#d8d2c4", rim=0.03)
    pizza(t, 1.0, cheese=0.5)
    for u, v in t.spread(16, 0.72, 0.33):
        pepperoni(t.at(u, v, 0.2), t.rng.uniform(0.125, 0.145))
    for u, v in t.spread(4, 0.6, 0.5):
        basil(t.at(u, v, 0.25), 0.1)
    return render(t, Shot((820, 600), pitch=44, width=2.35, target=(0.0, -0.08)))


# --- steak ---------------------------------------------------------------------------------------

CRUST = ("#22130d", "#472c1e", "#6b452f", "#936a4c")


def seared(
    p: Patch, d: Array, angle: float, step: float, cross: bool
) -> tuple[Array, Array, Array]:
    """Colour, bumps and gloss of a grilled surface with marks `step` apart; `d` is its outline."""
    fibre = p.noise(0.03, 3, 3)
    blot = p.noise(0.14, 1, 3)
    marks = np.zeros_like(blot)
    for turn in (angle, angle + 1.45)[: 1 + cross]:
        across = p.u * np.sin(turn) + p.v * np.cos(turn) + 0.008 * p.noise(0.15, 1, 2)
        line = np.abs(across / step - np.round(across / step)) * step
        marks = np.maximum(marks, smooth(0.030, 0.012, line + 0.006 * fibre))
    colour = ramp(0.58 + 0.17 * blot + 0.13 * fibre, *CRUST)
    marks = marks * smooth(-0.03, -0.09, d)
    colour = mix(colour, ramp(0.0, "#170d09"), 0.85 * marks)
    return (
        colour,
        0.007 * fibre + 0.008 * blot - 0.014 * marks,
        np.clip(0.6 + 0.12 * blot, 0.2, 0.8),
    )


def steak(
    p: Patch, a: float, b: float, high: float = 0.2, cross: bool = False, step: float = 0.17
) -> None:
    """A whole steak with grill marks and a strip of fat along one side."""
    bend = p.v + 0.12 * (p.u / a) ** 2 - 0.05
    d = box(p.u, bend, a, b * (1 - 0.22 * p.u / a), 0.8 * b) + 0.03 * p.noise(0.35, 1, 3)
    colour, bumps, gloss = seared(p, d, 0.7, step, cross)
    fat = smooth(-0.10, -0.03, d + 0.01 * p.noise(0.05, 1, 2)) * smooth(0.3 * b, 0.7 * b, bend)
    tone = 0.5 + 0.25 * p.noise(0.05, 1, 3)
    colour = mix(colour, ramp(tone, "#8a5526", "#c08d4a", "#e2bd7c"), 0.9 * fat)
    base = p.ground
    top = base + high * bulge(d, 0.11) + (bumps + 0.02 * p.noise(0.3)) * smooth(0.0, -0.06, d)
    p.lay(cut(top, d), colour, gloss)


def slices(p: Patch, count: int, step: float, half: float, high: float) -> None:
    """Slices of a steak leaning on one another along u, their pink cut faces towards +u."""
    base = p.ground
    for i in range(count):
        s = p.at(i * step, 0.03 * p.rng.standard_normal(), half + 0.4, p.rng.uniform(-0.07, 0.07))
        wide = half * (1 - 0.1 * abs(i - count / 2) / count) * p.rng.uniform(0.95, 1.05)
        run = 0.34 * p.rng.uniform(0.95, 1.1)
        along = s.u / run  # 0 at the top edge, 1 at the foot of the cut face
        d = box(s.u - run / 2 + 0.03, s.v, run / 2 + 0.06, wide, 0.09) + 0.012 * s.noise(0.12, 1, 2)
        fibre = s.noise(0.02, 3, 3)
        edge = np.minimum(-d, s.u + 0.012 * fibre)  # how far inside the cut face
        deep = edge / 0.11 + 0.05 * s.noise(0.1, 1, 2) + 0.05 * fibre
        face = ramp(deep * 0.9, "#2a1710", "#6a4733", "#8d6a55", "#9c6c5e", "#9a594f", "#924e47")
        fat = smooth(0.7, 1.3, s.noise(0.03, 4, 2)) * smooth(0.02, 0.06, -d)
        face = mix(face, ramp(0.0, "#e9bfa0"), 0.2 * fat)
        rise = high * np.clip(1 - along, 0, 1)
        top = base + 0.02 + rise * bulge(d, 0.05) + 0.005 * fibre
        crust, bumps, gloss = seared(s, d, 0.7, 0.17, False)
        s.lay(cut(top + bumps * (s.u < 0), d), mix(crust, face, smooth(0.0, 0.02, edge)), gloss)


def salt(p: Patch, count: int, radius: float) -> None:
    """Coarse salt."""
    grains(p, p.scatter(count, radius), 0.012, "#ffffff", "#e8e4de")


def rosemary(p: Patch, length: float) -> None:
    """A sprig: a stem with needles."""
    stick(p, length, 0.008, 0, 0, ramp(0.5, "#3b2a18", "#5c4526"))
    for u in np.linspace(-length, length, int(length * 110)):
        side = p.rng.choice([-1, 1])
        turn = side * p.rng.uniform(0.5, 1.1)
        n = p.at(u + 0.04 * np.cos(turn), 0.05 * np.sin(turn), 0.09, turn)
        stick(n, 0.055, 0.007, 0, 0.15, ramp(p.rng.uniform(), "#1f3320", "#4d6a44", "#7f9a72"))


def fries(p: Patch, count: int, radius: float, size: float = 0.2, high: float = 0.3) -> None:
    """A heap of chips."""
    for u, v in p.scatter(count, radius):
        f = p.at(u, v, size * 1.4, p.rng.uniform(0, 6.3))
        length = size * p.rng.uniform(0.6, 1.2)
        tone = 0.4 + 0.1 * f.noise(0.05, 2, 3) + 0.45 * smooth(0.75, 1.0, np.abs(f.u) / length)
        tone = tone + p.rng.uniform(-0.12, 0.12) + 0.2 * smooth(0.015, 0.028, np.abs(f.v))
        colour = ramp(tone, "#f8e08c", "#efc25a", "#d9952f", "#9a5718")
        most = 0.03 + high * p.rng.uniform(0.3, 1) * (1 - np.hypot(u, v) / radius)
        stick(f, length, 0.03, 0.8, p.rng.uniform(-0.25, 0.25), colour, most=most)


def tomato(p: Patch, radius: float) -> None:
    """A small tomato."""
    d = np.hypot(p.u, p.v) - radius
    hue = ramp(0.5 + 0.2 * p.noise(0.1), "#9c1f12", "#c43a22", "#d9663a")
    p.lay(cut(p.ground + 1.5 * radius * bulge(d, radius), d), hue, 0.85)


def salad(p: Patch, count: int, radius: float) -> None:
    """A heap of small leaves."""
    for u, v in p.scatter(count, radius):
        s = p.rng.uniform(0.07, 0.13)
        greens = ("#2b4420", "#5b8038", "#a5ba72")
        leaf(p.at(u, v, 0.2, p.rng.uniform(0, 6.3)), s, 0.5 * s, *greens, curl=0.025)


def steak_sliced() -> Image.Image:
    """A grilled steak, half of it cut into slices, on a plate."""
    t = table(5)
    wood(t, "#1b1613", "#332a24", "#4d4138")
    plate(t, 1.2, "#f7f5f1", "#e9e6e0", rim=0.06)
    salad(t.at(0.55, 0.45, 0.7), 90, 0.3)
    for u, v in ((0.15, 0.55), (0.02, 0.66), (0.27, 0.68)):
        tomato(t.at(u, v, 0.2), 0.085)
    slices(t.at(0.02, -0.02, 1.4, -0.5), 3, 0.21, 0.42, 0.24)
    steak(t.at(-0.42, 0.18, 1.1, -0.3), 0.62, 0.47, 0.22)
    rosemary(t.at(-0.4, -0.5, 0.5, -0.3), 0.26)
    salt(t.at(-0.4, 0.2, 1.0), 40, 0.4)
    return render(t, Shot((600, 660), pitch=48, width=2.1, target=(-0.05, 0.0)))


def steak_frites() -> Image.Image:
    """A steak with grill marks, chips and salad on a white plate."""
    t = table(9)
    wood(t, "#3a2416", "#5d3c24", "#7f5836")
    plate(t, 1.15, "#f7f5f1", "#e9e6e0")
    fries(t.at(-0.22, 0.46, 1.0), 150, 0.42, high=0.5)
    salad(t.at(0.55, 0.4, 0.6), 60, 0.24)
    steak(t.at(0.06, -0.2, 1.0, 0.12), 0.72, 0.42, 0.2, cross=True, step=0.2)
    salt(t.at(0.1, -0.2, 0.8), 40, 0.3)
    return render(t, Shot((600, 760), pitch=48, width=1.75, target=(0.02, 0.0)))


# --- sushi ---------------------------------------------------------------------------------------

RICE = ("#f4f1ea", "#e9e4d8", "#fbf9f4")


def rice(p: Patch, a: float, b: float, high: float) -> None:
    """A pressed mound of rice."""
    d = box(p.u, p.v, a, b, b * 0.95)
    base = p.ground
    p.lay(cut(base + high * bulge(d, b), d), ramp(0.5, *RICE), 0.4)
    points = p.rng.uniform(-1, 1, (700, 2)) * (a, b)
    inside = box(points[:, 0], points[:, 1], a, b, b * 0.95) < -0.012
    grains(p, points[inside], 0.025, *RICE)


def fish(p: Patch, base: float, lines: float, *colours: str) -> None:
    """A slice of fish draped over rice that stands at `base`; `lines` (0..1) of white fat."""
    a, b = 0.31, 0.108
    d = box(p.u, p.v, a, b, 0.07) + 0.010 * p.noise(0.15, 1, 2)
    drape = base + 0.145 * np.sqrt(np.clip(1 - (p.v / (b * 1.6)) ** 2, 0.05, 1))
    drape = drape - 0.1 * smooth(0.65 * a, 1.05 * a, np.abs(p.u))
    phase = p.u + 0.9 * p.v + 0.35 * p.v**2 / b + 0.02 * p.noise(0.2, 1, 2)
    line = np.abs(phase / 0.075 - np.round(phase / 0.075))
    white = smooth(0.2, 0.05, line + 0.05 * p.noise(0.05)) * lines
    tone = 0.5 + 0.13 * p.noise(0.08, 2, 3) + 0.05 * p.noise(0.012, 4)
    colour = mix(ramp(tone, *colours), ramp(0.0, "#fbd9bf"), 0.75 * white)
    top = drape + 0.05 * bulge(d, 0.045) + 0.003 * p.noise(0.03, 2, 2) - 0.003 * white
    p.lay(cut(top, d), colour, 0.68)


def nigiri(p: Patch, kind: str) -> None:
    """Rice with a slice of salmon or tuna."""
    base = p.ground
    rice(p, 0.27, 0.135, 0.145)
    if kind == "salmon":
        fish(p, base, 1.0, "#d9683f", "#ec8a5c", "#f4a981")
    else:
        fish(p, base, 0.12, "#7c1f22", "#a03332", "#b9534a")


def maki(p: Patch, radius: float, high: float, filling: Sequence[str]) -> None:
    """A standing roll: seaweed, rice and a filling."""
    r = np.hypot(p.u, p.v) * (1 + 0.02 * p.noise(0.15))
    base = p.ground
    nori = ramp(0.5 + 0.2 * p.noise(0.03, 1, 3), "#0a100c", "#16211a", "#26332a")
    p.lay(cut(base + high * bulge(r - radius, 0.012), r - radius), nori, 0.4)
    core = 0.42 * radius
    p.coat(smooth(0.9 * radius, 0.86 * radius, r), 0.0, ramp(0.2, *RICE), 0.4)
    grains(p, p.scatter(230, 0.84 * radius, core), 0.021, *RICE)
    d = box(p.u, p.v, core, core, 0.5 * core) + 0.008 * p.noise(0.05, 1, 2)
    tone = 0.4 + 0.2 * p.noise(0.03, 3, 3)
    halves = smooth(-0.006, 0.006, p.v + 0.01 * p.noise(0.05))
    stripes = mix(ramp(tone, *filling), ramp(tone, "#6f9a3c", "#b5cf7c", "#e3ebb4"), halves)
    p.lay(cut(base + high + 0.018 * bulge(d, 0.02), d), stripes, 0.6)


def ginger(p: Patch) -> None:
    """A rose of pickled ginger."""
    for i in range(7):
        turn = i * 2.4
        g = p.at(0.045 * np.cos(turn), 0.045 * np.sin(turn), 0.18, turn)
        leaf(g, 0.1, 0.06, "#e9a58f", "#f3c4ae", "#fbe0d0", curl=0.012, gloss=0.6)


def wasabi(p: Patch, radius: float) -> None:
    """A lump of green horseradish."""
    r = np.hypot(p.u, p.v) - radius + 0.02 * p.noise(0.08, 1, 3)
    top = p.ground + 0.09 * bulge(r, radius) + 0.008 * p.noise(0.02, 1, 3)
    p.lay(cut(top, r), ramp(0.5 + 0.2 * p.noise(0.03), "#6f8f3a", "#93b25a"), 0.3)


def chopsticks(p: Patch) -> None:
    """A pair of lacquered sticks along u."""
    for v, angle in ((-0.035, 0.02), (0.035, -0.02)):
        c = p.at(0, v, 1.3, angle)
        stick(
            c,
            1.05,
            0.018,
            0.5,
            0,
            ramp(0.5 + 0.2 * c.noise(0.02, 20, 2), "#2a0d08", "#5c2114"),
            rest=0.6,
        )


def sushi_nigiri() -> Image.Image:
    """A row of nigiri with salmon and tuna on a slate."""
    t = table(31)
    wood(t, "#5f452d", "#82623f", "#a5845a")
    d = box(t.u, t.v, 1.2, 0.62, 0.03) + 0.01 * t.noise(0.08, 1, 3)
    stone = table(32)
    slate(stone)
    t.lay(cut(0.05 + stone.height, d), stone.colour, 0.25)
    for i, kind in enumerate(["salmon", "tuna", "salmon", "tuna", "salmon"]):
        nigiri(t.at(-0.76 + 0.38 * i, 0.12, 0.36, 0.85 + 0.05 * t.rng.standard_normal()), kind)
    bowl(t.at(0.62, -0.38, 0.3), 0.2, 0.11, ramp(0.5, "#e9e6df", "#cfcac0"), ramp(0.0, "#1a0a05"))
    wasabi(t.at(-0.35, -0.4, 0.2), 0.08)
    ginger(t.at(-0.62, -0.4, 0.4))
    return render(t, Shot((820, 600), pitch=38, width=1.95, target=(0.02, 0.02)))


def sushi_maki() -> Image.Image:
    """Rolls with salmon and cucumber on a dark stone, with chopsticks."""
    t = table(41)
    slate(t)
    salmon, cucumber = ("#d9541f", "#f08448", "#f9b183"), ("#4d8a2f", "#a9cf7b", "#dfeec0")
    for row in range(2):
        for col in range(3):
            x, y = (col - 1) * 0.48 - 0.12, (row - 0.5) * 0.48 + 0.1
            x, y = (x, y) + 0.025 * t.rng.standard_normal(2)
            maki(
                t.at(x, y, 0.29, t.rng.uniform(0, 6)),
                0.23,
                0.25,
                (salmon, cucumber)[(row + col) % 2],
            )
    wasabi(t.at(0.72, -0.28, 0.2), 0.1)
    ginger(t.at(0.7, 0.08, 0.4))
    chopsticks(t.at(0.1, -0.62, 1.3, 0.1))
    return render(t, Shot((640, 640), pitch=46, width=1.75, target=(0.0, -0.02)))


# --- sweet things --------------------------------------------------------------------------------


def donut(p: Patch, radius: float, glaze: Sequence[str], sprinkles: Sequence[str]) -> None:
    """A ring of fried dough with glaze and sprinkles."""
    r = np.hypot(p.u, p.v) * (1 + 0.015 * p.noise(0.3, 1, 2))
    middle, wide = 0.62 * radius, 0.38 * radius
    d = np.abs(r - middle) - wide
    round_off = bulge(d, wide)
    band = smooth(0.25, 0.1, np.abs(round_off - 0.5)) * (r > middle)
    tone = 0.55 + 0.12 * p.noise(0.06, 1, 3) - 0.35 * band
    dough = ramp(tone, "#f1d9a6", "#d99f55", "#b06c2c", "#7c441c")
    p.lay(cut(p.ground + 0.5 * wide + 0.95 * wide * round_off, d), dough, 0.25)
    edge = d / wide + 0.30 + 0.10 * p.noise(0.13, 1, 2)
    tone = 0.5 + 0.15 * p.noise(0.1, 1, 2)
    p.coat(smooth(0.06, -0.06, edge), 0.022, ramp(tone, *glaze), 0.8)
    for u, v in p.scatter(90 if sprinkles else 0, middle + 0.5 * wide, middle - 0.5 * wide):
        s = p.at(u, v, 0.05, p.rng.uniform(0, 6.3))
        stick(s, 0.026, 0.007, 0, 0, ramp(0.0, str(p.rng.choice(sprinkles))), rest=0.9)


def macaron(p: Patch, shell: Sequence[str], cream: str) -> None:
    """A macaron that lies on its side, its axis along u."""
    radius, half = 0.2, 0.15
    t = np.abs(p.u) / half
    foot = smooth(0.2, 0.24, t) * smooth(0.46, 0.4, t)
    profile = np.where(
        t > 0.22, np.sqrt(np.clip(1 - ((t - 0.36) / 0.64).clip(0) ** 2.4, 0, 1)), 0.93
    )
    rough = p.noise(0.018, 1, 2)
    profile = radius * profile * (1 + foot * (0.03 + 0.035 * rough))
    inside = np.clip(profile**2 - p.v**2, 0, 1)
    top = p.ground + radius * 0.5 + np.sqrt(inside)
    hue = ramp(0.5 + 0.1 * p.noise(0.08, 1, 3) + 0.25 * foot * rough, *shell)
    hue = mix(hue, ramp(0.0, cream), smooth(0.23, 0.19, t))
    p.lay(cut(top, np.maximum(np.abs(p.v) - profile, np.abs(p.u) - half)), hue, 0.25)


def scoop(p: Patch, radius: float, *colours: str) -> None:
    """A scoop of ice cream with torn skirts."""
    r = np.hypot(p.u, p.v) * (1 + 0.05 * p.noise(0.2, 1, 2))
    torn = p.noise(0.09, 2.5, 4)
    d = r - 1.08 * radius - 0.01 * torn
    ball = np.sqrt(np.clip(1 - (r / radius) ** 2, 0, 1))
    skirt = 0.1 * smooth(0.08, -0.04, d) * (1 + 0.2 * torn)
    top = p.ground + np.maximum(0.04 + radius * ball, skirt) + 0.016 * torn
    p.lay(cut(top, d), ramp(0.5 + 0.14 * torn, *colours), 0.35)


def pancake(p: Patch, radius: float, high: float) -> None:
    """One pancake on what is there, brown above and pale at the side."""
    r = np.hypot(p.u, p.v) * (1 + 0.012 * p.noise(0.5, 1, 2))
    d = r - radius
    pale = smooth(-0.035, -0.008, d + 0.008 * p.noise(0.08))
    tone = 0.62 + 0.1 * p.noise(0.12, 1, 4) + 0.12 * smooth(-0.16, -0.07, d) - 0.55 * pale
    hue = ramp(tone, "#f6dfa8", "#e8bd74", "#c8853f", "#9c5a22")
    top = p.ground + high * (0.45 + 0.55 * bulge(d, 0.05)) + 0.003 * p.noise(0.05, 1, 2)
    p.lay(cut(top, d), hue, 0.3)


def syrup(p: Patch, radius: float) -> None:
    """A puddle of syrup that follows what is below."""
    d = np.hypot(p.u, p.v) - radius * (1 + 0.25 * p.noise(0.35, 1, 2))
    p.coat(
        smooth(0.02, -0.02, d), 0.012, ramp(0.5 + 0.2 * p.noise(0.2), "#6a2f0a", "#a3581a"), 0.95
    )


def butter(p: Patch, half: float) -> None:
    """A square of butter, its foot a little into what is below."""
    d = box(p.u, p.v, half, half, 0.03)
    top = float(p.height[d < 0].max()) + 0.07 * bulge(d, 0.03)
    p.lay(cut(top, d), ramp(0.3, "#fbe7a0", "#f3d36b"), 0.6)


def berry(p: Patch, radius: float) -> None:
    """A blueberry with its crown."""
    r = np.hypot(p.u, p.v)
    hue = ramp(0.4 + 0.25 * p.noise(0.05, 1, 2), "#141a35", "#33406b", "#6f7ca3")
    crown = smooth(0.45, 0.3, r / radius)
    top = p.ground + 0.7 * radius + radius * bulge(r - radius, radius) - 0.35 * radius * crown
    p.lay(cut(top, r - radius), mix(hue, ramp(0.0, "#0d1020"), 0.8 * crown), 0.45)


def donuts() -> Image.Image:
    """Five glazed rings on marble."""
    t = table(51)
    marble(t)
    pink, brown, white = ("#e2809b", "#f0a3b5"), ("#2e170d", "#4d2a18"), ("#f3ece0", "#fffaf0")
    bright = ("#f4d03f", "#e74c3c", "#ffffff", "#5dade2", "#58d68d")
    places = ((-0.62, 0.36, pink), (0.13, 0.42, brown), (0.82, 0.3, white), (-0.3, -0.3, brown))
    for x, y, glaze in (*places, (0.46, -0.3, pink)):
        sprinkles = () if glaze is brown and y > 0 else bright
        donut(t.at(x, y, 0.42), 0.36, glaze, sprinkles)
    return render(t, Shot((800, 600), pitch=52, width=2.15, target=(0.07, 0.05)))


def macarons() -> Image.Image:
    """A row of macarons in many colours."""
    t = table(52)
    cloth(t, "#c9c2b4", "#e3ddd0", "#f2eee6")
    kinds = (
        (("#d9788f", "#e99bac"), "#f6dfe0"),
        (("#9ab55f", "#b7cd83"), "#efe7c6"),
        (("#6b3f26", "#86563a"), "#3a1d10"),
        (("#e3c35c", "#f0d987"), "#fbf3d8"),
        (("#9a86bd", "#b7a6d3"), "#f3ebf3"),
    )
    for row, y in enumerate((0.3, -0.25)):
        for i in range(5):
            shell, cream = kinds[(i + 2 * row) % 5]
            place = t.at(-0.82 + 0.4 * i + 0.05 * row, y, 0.3, t.rng.uniform(-0.35, 0.35))
            macaron(place, shell, cream)
    return render(t, Shot((840, 600), pitch=42, width=1.95))


def ice_cream() -> Image.Image:
    """Three scoops in a bowl."""
    t = table(53)
    wood(t, "#33261c", "#4c3a2c", "#66503d")
    bowl(t.at(0, 0, 1), 0.8, 0.3, ramp(0.5, "#e4e6e4", "#d3d8d8"), ramp(0.5, "#e4e6e4", "#d3d8d8"))
    scoop(t.at(-0.3, 0.12, 0.6, 0.4), 0.33, "#f0dfae", "#f7ecc8", "#fff8e4")
    scoop(t.at(0.3, 0.14, 0.6, 1.9), 0.33, "#3f2a1f", "#5a4031", "#755847")
    scoop(t.at(0.02, -0.26, 0.6, 1.0), 0.33, "#d8788a", "#e79aa6", "#f3bcc2")
    for turn in (0.5, 2.2):
        leaf(t.at(0.02, 0.06, 0.2, turn), 0.12, 0.06, "#2c5a2a", "#5b8f45", "#8fb86c")
    return render(t, Shot((640, 700), pitch=42, width=1.75, target=(0, 0.05)))


def pancakes() -> Image.Image:
    """A stack of pancakes with butter, syrup and blueberries."""
    t = table(54)
    wood(t, "#6d6259", "#8d8177", "#aba096")
    plate(t, 1.05, "#f4f2ee", "#e4e0d8", rim=0.05)
    for i in range(6):
        u, v = 0.025 * t.rng.standard_normal(2)
        pancake(t.at(u, v, 0.75), 0.66 - 0.018 * i, 0.1)
    syrup(t.at(0.02, -0.1, 0.8), 0.47)
    butter(t.at(0, 0, 0.3, 0.5), 0.115)
    for u, v in t.at(0, 0, 1).scatter(14, 0.86, 0.74):
        berry(t.at(u, v, 0.09), t.rng.uniform(0.05, 0.062))
    return render(t, Shot((640, 640), pitch=34, width=1.9, target=(0, 0.12)))


def waffles() -> Image.Image:
    """Two waffles with syrup, butter and blueberries."""
    t = table(55)
    cloth(t, "#7d8b99", "#97a4b0", "#b3bec8")
    plate(t, 1.15, "#f6f4ef", "#e6e2da", rim=0.05)
    for x, y, angle in ((-0.2, 0.16, 0.35), (0.15, -0.12, 0.1)):
        w = t.at(x, y, 0.9, angle)
        d = box(w.u, w.v, 0.58, 0.46, 0.12) + 0.012 * w.noise(0.2, 1, 2)
        cells = [np.abs((a / 0.165) - np.round(a / 0.165)) for a in (w.u, w.v)]
        pit = smooth(0.40, 0.22, np.maximum(*cells)) * smooth(-0.02, -0.05, d)
        tone = 0.5 + 0.16 * w.noise(0.15, 1, 4) - 0.3 * pit + 0.12 * smooth(-0.08, 0, d)
        hue = ramp(tone, "#f0cd84", "#d99f4c", "#b5742b", "#7f4817")
        top = w.ground + 0.13 * bulge(d, 0.05) - 0.075 * pit + 0.004 * w.noise(0.04, 1, 2)
        w.lay(cut(top, d), hue, 0.3)
    syrup(t.at(0.12, -0.12, 0.7), 0.3)
    butter(t.at(0.15, -0.1, 0.3, 0.5), 0.1)
    for u, v in t.at(0, 0, 1).spread(9, 0.2, 0.11):
        berry(t.at(0.66 + u, 0.42 + v, 0.09), 0.055)
    return render(t, Shot((800, 600), pitch=50, width=2.2))


# --- savoury things ------------------------------------------------------------------------------


def noodles(p: Patch, count: int, radius: float, high: float) -> None:
    """A nest of spaghetti: arcs of circles over a mound."""
    for i in range(count):
        middle = p.scatter(1, 0.6 * radius)[0]
        n = p.at(middle[0], middle[1], 0.75 * radius, p.rng.uniform(0, 6.3))
        bend = p.rng.uniform(0.25, 0.7) * radius
        away = np.abs(np.hypot(n.u, n.v) - bend) / 0.017
        turn = np.arctan2(n.v, n.u)
        tube = np.sqrt(np.clip(1 - away**2, 0, 1))
        lift = high * (i / count) * (1 - 0.6 * float(np.hypot(*middle)) / radius) + 0.02 * np.sin(
            2 * turn + i
        )
        shown = (away < 1) & (np.abs(turn) < p.rng.uniform(1.2, 3.1))
        hue = ramp(0.5 + 0.3 * p.rng.standard_normal() + 0 * tube, "#f3d68c", "#e9bf66", "#d9a548")
        n.lay(np.where(shown, 0.04 + lift + 0.017 * tube, NOWHERE), hue, 0.55)


def mince(p: Patch, radius: float) -> None:
    """Meat sauce: red-brown lumps."""
    r = np.hypot(p.u, p.v) / radius + 0.14 * p.noise(0.2, 1, 3)
    lumps = p.noise(0.045, 1, 3)
    tone = 0.5 + 0.2 * lumps + 0.12 * p.noise(0.15)
    hue = ramp(tone, "#642012", "#8c3a1e", "#9f5330", "#7f5238")
    p.height[:] = mix(p.height, blur(p.height, 10), smooth(1.1, 0.9, r))
    p.coat(smooth(1.0, 0.92, r), 0.05 * np.clip(1.2 - r, 0.3, 1) + 0.012 * lumps, hue, 0.6)


def disc(
    p: Patch, base: float, radius: float, thick: float, tilt: float, colour: Array, gloss: float
) -> None:
    """A round slice that leans: it rises by `tilt` a unit along u."""
    d = np.hypot(p.u, p.v) - radius + 0.006 * p.noise(0.1)
    top = base + thick * bulge(d, 0.4 * thick) + tilt * (p.u + radius)
    p.lay(cut(top, d), colour, gloss)


def spaghetti_bolognese() -> Image.Image:
    """Spaghetti with meat sauce and basil on a plate."""
    t = table(61)
    wood(t, "#2b211a", "#43352a", "#5d4b3c")
    plate(t, 1.12, "#f5f3ee", "#e5e1d9", rim=0.1)
    noodles(t.at(0, 0, 0.95), 230, 0.72, 0.22)
    mince(t.at(0, 0, 0.7), 0.5)
    grains(t, t.scatter(160, 0.38), 0.016, "#fff6dd", "#f3e3b8")
    basil(t.at(0.02, 0.02, 0.3), 0.12)
    return render(t, Shot((800, 600), pitch=48, width=2.2))


def french_fries() -> Image.Image:
    """A heap of chips with ketchup."""
    t = table(62)
    wood(t, "#3b2a1f", "#574030", "#745a45")
    plate(t, 1.1, "#efece6", "#dcd7ce", rim=0.05)
    fries(t.at(-0.15, 0.12, 1.2), 260, 0.62, 0.26, 0.42)
    hue = ramp(0.5, "#8f1a0c", "#b3240f")
    bowl(t.at(0.6, -0.5, 0.4), 0.25, 0.15, ramp(0.3, "#f3f1ec", "#d8d4cc"), hue)
    salt(t.at(-0.1, 0.1, 0.8), 120, 0.55)
    return render(t, Shot((640, 640), pitch=46, width=1.9))


def caprese_salad() -> Image.Image:
    """Slices of tomato and mozzarella in turn, with basil."""
    t = table(64)
    cloth(t, "#5b6470", "#77808b", "#98a0a9")
    plate(t, 1.15, "#f7f6f3", "#e8e6e1", rim=0.06)
    for i in range(14):
        turn = i / 14 * 2 * np.pi
        p = t.at(0.58 * np.cos(turn), 0.58 * np.sin(turn), 0.35, turn - np.pi / 2)
        if i % 2:
            hue = ramp(0.3 + 0.1 * p.noise(0.1, 1, 2), "#fffdf6", "#efe8d8")
            disc(p, t.ground, 0.23, 0.08, 0.35, hue, 0.5)
        else:
            r, a = np.hypot(p.u, p.v) / 0.25, np.arctan2(p.v, p.u)
            seeds = (
                smooth(0.3, 0.7, np.abs(np.sin(2.5 * a)))
                * smooth(0.3, 0.4, r)
                * smooth(0.85, 0.75, r)
            )
            tone = 0.4 + 0.12 * p.noise(0.06, 1, 2) + 0.4 * seeds
            disc(p, t.ground, 0.25, 0.06, 0.35, ramp(tone, "#9c1d10", "#bf3820", "#d3743f"), 0.12)
    for u, v in ((0.0, 0.0), (0.5, 0.3), (-0.5, 0.25), (-0.1, -0.58)):
        basil(t.at(u, v, 0.35), 0.15)
    return render(t, Shot((800, 620), pitch=54, width=2.25))


# --- all of them ---------------------------------------------------------------------------------

DISHES = (
    pizza_margherita,
    pizza_pepperoni,
    steak_sliced,
    steak_frites,
    sushi_nigiri,
    sushi_maki,
    donuts,
    macarons,
    ice_cream,
    pancakes,
    waffles,
    spaghetti_bolognese,
    french_fries,
    caprese_salad,
)


def jpeg(picture: Image.Image, most: int = 60_000) -> bytes:
    """The picture as JPEG, as good as fits into `most` bytes."""
    quality, data = 90, b""
    while not data or (len(data) > most and quality > 40):
        quality -= 2
        file = BytesIO()
        picture.save(file, "JPEG", quality=quality, optimize=True, progressive=True)
        data = file.getvalue()
    return data


def main(names: Sequence[str], folder: Path) -> None:
    """Write the named dishes, or all of them, as JPEG into `folder`."""
    for dish in DISHES:
        if not names or dish.__name__ in names:
            (folder / f"{dish.__name__}.jpg").write_bytes(jpeg(dish()))


if __name__ == "__main__":
    main(sys.argv[1:], Path(__file__).parent)
