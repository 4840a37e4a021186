"""How time and memory grow with the picture, the patches, the batch and the number of photos, drawn
beside what is to be expected.

    python -m tests.benchmarks.growth [--out .assets/growth.png] [--threads 2] [--seconds 1.0]
                                      [--cpu]

Of ViT-Ti/16, float32. Every point is a process of its own, so that none finds what another left.
Time is the median of as many forwards as `--seconds` hold, at least three (`--cpu`: processor time,
for one thread on a busy machine); memory the most that the process held during the first of them,
less what it held before. Expected time: proportional to the multiply-adds of `vit.calculator`, by
one factor for each plot. Expected memory, a lower bound: the widest moment of a forward, when an
MLP has its input, its LayerNorm, and the hidden layer before and after GELU, B · N · (2 · D + 2 ·
M) floats; with all maps kept, L · A · N · N floats more for each photo. Photos: what
`classify_many` returns holds each photo, and 8 at a time go through the model.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

from tests.benchmarks.timing import clock, milliseconds, versions
from tests.benchmarks.visitors import noise
from vit.attention import attend
from vit.calculator import attention_memory, multiply_adds, symbols
from vit.classifier import Classifier
from vit.model import PRESETS, ViT, ViTConfig

PLAIN = PRESETS["Ti/16"]
SIZES = (64, 128, 224, 320, 448, 640)  # pixels
PATCHES = (56, 32, 16, 8)  # pixels
BATCHES = (1, 2, 4, 8, 16, 32)
PHOTOS = (1, 4, 16, 64)
PHOTO = (800, 600)  # pixels
CHECKPOINT = "pizza-steak-sushi"
MEGABYTE = 1e6


@dataclass(frozen=True)
class Work:
    """One point: photos of noise through a new model, or files through the classifier."""

    config: ViTConfig = PLAIN
    batch: int = 1
    maps: bool = False
    files: tuple[Path, ...] = ()

    def prepare(self) -> Callable[[], object]:
        if self.files:
            loaded = Classifier.load(CHECKPOINT)
            loaded.classify(self.files[0])
            return lambda: loaded.classify_many(self.files)
        model, images = ViT(self.config).eval(), torch.randn(self.batch, 3, *self.config.image_size)
        model(torch.zeros(1, 3, *self.config.patch_size))  # what the first forward sets up
        return (lambda: attend(model, images)) if self.maps else (lambda: model(images))

    @property
    def arithmetic(self) -> float:
        """Multiply-adds."""
        return multiply_adds(self.config).total * (len(self.files) or self.batch)

    @property
    def expected_memory(self) -> float:
        """Bytes."""
        s = symbols(self.config)
        batch = min(16, len(self.files)) or self.batch
        widest = 4.0 * batch * s["N"] * (2 * s["D"] + 2 * s["M"])
        kept = self.batch * attention_memory(self.config).total if self.maps else 0.0
        views = 3.0 * self.config.image_size[0] * self.config.image_size[1]
        return widest + kept + len(self.files) * (3.0 * PHOTO[0] * PHOTO[1] + views)


def held(what: str) -> float:
    """Bytes that this process holds now (VmRSS), or held at most (VmHWM)."""
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith(what))
    return 1024.0 * int(line.split()[1])


def measure(work: Work, threads: int, seconds: float, cpu: bool) -> tuple[float, float]:
    """Milliseconds of one go, and bytes."""
    torch.set_num_threads(threads)
    with torch.inference_mode():
        go = work.prepare()
        Path("/proc/self/clear_refs").write_text("5")  # forget the most that was held
        before = held("VmRSS")
        times, end = [milliseconds(go, clock(cpu))], time.monotonic() + seconds
        most = held("VmHWM") - before
        while len(times) < 4 or time.monotonic() < end:
            times.append(milliseconds(go, clock(cpu)))
    return statistics.median(times[1:]), max(most, 1.0)


def works(files: Sequence[Path]) -> dict[str, dict[int, Work]]:
    """By what grows, and how far."""

    def config(size: int = 224, patch: int = 16) -> ViTConfig:
        return replace(PLAIN, image_size=(size, size), patch_size=(patch, patch))

    return {
        "side of the picture, pixels": {size: Work(config(size)) for size in SIZES},
        "the same, all maps kept": {size: Work(config(size), maps=True) for size in SIZES},
        "side of a patch, pixels": {patch: Work(config(patch=patch)) for patch in PATCHES},
        "photos in a batch": {batch: Work(batch=batch) for batch in BATCHES},
        "photo files": {count: Work(files=tuple(files[:count])) for count in PHOTOS},
    }


def draw(found: dict[str, dict[int, tuple[Work, float, float]]], out: Path) -> None:
    """Time above, memory below; points are measured, lines expected."""
    figure = Figure(figsize=(3 * len(found), 5.2), layout="constrained")
    axes = figure.subplots(2, len(found))
    for column, (what, points) in enumerate(found.items()):
        xs = list(points)
        sums = [work.arithmetic for work, *_ in points.values()]
        times = [took for _, took, _ in points.values()]
        factor = statistics.median(t / s for t, s in zip(times, sums, strict=True))
        rows = (
            (times, [factor * each for each in sums], "ms"),
            (
                [most / MEGABYTE for *_, most in points.values()],
                [work.expected_memory / MEGABYTE for work, *_ in points.values()],
                "MB",
            ),
        )
        for row, (measured, expected, unit) in enumerate(rows):
            plot = axes[row, column]
            plot.plot(xs, expected, color="#8a8179", label="expected")
            plot.plot(xs, measured, "o", color="#d9480f", label="measured")
            plot.set(xscale="log", yscale="log", xlabel=what, ylabel=unit)
            plot.set_xticks(xs, [str(x) for x in xs])
            plot.minorticks_off()
            plot.grid(alpha=0.25)
    axes[0, 0].legend(frameon=False)
    figure.savefig(out, dpi=65, pil_kwargs={"optimize": True})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("growth.png"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    asked = parser.parse_args()
    print(versions("torch"), f"; {asked.threads} threads", sep="")
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    found: dict[str, dict[int, tuple[Work, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = noise(Path(folder) / "noise", max(PHOTOS), PHOTO)
        for what, points in works(files).items():
            found[what] = {}
            for x, work in points.items():
                with processes.Pool(1) as one:
                    took, most = one.apply(measure, (work, asked.threads, asked.seconds, asked.cpu))
                found[what][x] = work, took, most
                expected = work.expected_memory / MEGABYTE
                print(
                    f"{what} {x}: {took:.1f} ms, {work.arithmetic / took / 1e6:.1f} million "
                    f"multiply-adds a millisecond, {most / MEGABYTE:.1f} MB, expected "
                    f"{expected:.1f} MB",
                    flush=True,
                )
    draw(found, asked.out)
    print(asked.out)


if __name__ == "__main__":
    main()
