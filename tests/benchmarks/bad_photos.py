"""Bad photos by the thousand, and the largest and worst of every kind: what each may cost.

    python -m tests.benchmarks.bad_photos --inputs 20000 --seed 1

Each of the large ones is read in a process of its own, whose memory is told beside that of an empty
one. Fails with the seed when an input is neither a photo nor one sentence.
"""

import argparse
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.bad_photos import changed, flat_png, jpeg_of_passes, saved, sentence, worst

SIDES = (12_000, 9_999)  # just under the limit of 120 million pixels
MEGABYTES = 50  # of a file that the page takes


def flat(mode: str, kind: str, size: tuple[int, int] = SIDES, **options: object) -> bytes:
    return saved(Image.new(mode, size), kind, **options)


LARGE: dict[str, Callable[[], bytes]] = {
    "PNG, 1 bit": lambda: flat_png(*SIDES, 1, 0),
    "PNG, palette": lambda: flat_png(*SIDES, 8, 0),
    "PNG, 16 bits and alpha": lambda: flat_png(*SIDES, 16, 6),
    "PNG, 16 bits grey": lambda: flat_png(*SIDES, 16, 0),
    "JPEG": lambda: flat("RGB", "JPEG"),
    "JPEG, progressive": lambda: flat("RGB", "JPEG", progressive=True),
    "JPEG, CMYK": lambda: flat("CMYK", "JPEG"),
    "GIF": lambda: flat("P", "GIF"),
    "WebP": lambda: flat("RGB", "WEBP", method=0, quality=10),
    "AVIF": lambda: flat("RGB", "AVIF", speed=10),
    "TIFF, CMYK": lambda: flat("CMYK", "TIFF", compression="tiff_lzw"),
    "TIFF, floats": lambda: flat("F", "TIFF", compression="tiff_lzw"),
    "JPEG 2000": lambda: flat("RGB", "JPEG2000"),
    "JPEG of 100 passes": lambda: jpeg_of_passes(100),
}


def read(data: bytes) -> None:
    """Seconds of the processor, peak of the memory in MB, and what came of it."""
    started = time.process_time()
    said = sentence(data, 448) if data else ""
    (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())  # Linux
    print(f"{time.process_time() - started:.2f} {int(peak) // 1000} {said or 'read'}")


def measured(data: bytes) -> tuple[float, int, str]:
    command = [sys.executable, "-m", "tests.benchmarks.bad_photos", "--read"]
    done = subprocess.run(command, input=data, capture_output=True, check=True)
    seconds, peak, said = done.stdout.decode().splitlines()[-1].split(" ", 2)
    return float(seconds), int(peak), said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        return read(sys.stdin.buffer.read())
    chance, seconds, refused = random.Random(given.seed), [], 0
    for number in range(given.inputs):
        done, data = changed(chance)
        started = time.process_time()
        try:
            refused += sentence(data, chance.choice((None, 16, 448))) is not None
        except BaseException as error:
            error.add_note(f"--seed {given.seed}, input {number}: {done}")
            raise
        seconds.append(time.process_time() - started)
    top = 1000 * np.quantile(seconds, [0.5, 0.99, 1])
    print(
        f"{given.inputs:,} inputs: {refused:,} refused, the others read; "
        f"{top[0]:.1f} ms in the middle, {top[1]:.1f} for 99 of 100, {top[2]:.1f} at most"
    )
    _, empty, _ = measured(b"")
    print(f"{'':32} {'MB':>6} {'seconds':>8} {'memory':>7}")
    large = ((name, make()) for name, make in LARGE.items())
    for name, data in (*large, *worst(1_000_000 * MEGABYTES)):
        spent, peak, said = measured(data)
        print(f"{name:32} {len(data) / 1e6:6.1f} {spent:8.2f} {peak - empty:7,} {said}", flush=True)


if __name__ == "__main__":
    main()
