"""The app under load: 64 photos in one call against one by one, and 1, 4 and 16 visitors who ask at
the same time, while nothing else goes on and while a run trains beside them.

    python -m tests.benchmarks.visitors [--visitors 1 4 16] [--seconds 15] [--photos 64]
                                        [--rounds 5] [--checkpoint NAME] [--cpu]

Starts `python app.py` as it is started for visitors, with a folder of its own, and asks /classify
and /classify_many with gradio_client: upload, queue, model, answer. Photos are noise of 1200 × 900
pixels, 0.3 MB. A visitor asks again as soon as the answer is there. The run is started as the page
starts one: every weight of the checkpoint, on made-up photos. Target: many photos in one call in at
most 0.8 of the time. The clients take their share of the same cores; "in Python" leaves them out;
`--cpu` does so too in the comparison of many with one, by counting the app's processor time.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
from gradio_client import Client, handle_file
from PIL import Image

from tests.benchmarks.timing import (
    Ratio,
    clock,
    load,
    percentile,
    spread,
    take_turns,
    used,
    verdict,
    versions,
)
from vit.classifier import DEFAULT, Classifier
from vit.recipe import Recipe
from vit.runfolder import Visitor
from vit.runs import Runs

ROOT = Path(__file__).resolve().parents[2]
TARGET = 0.8
PATIENCE = 300  # seconds for the app to start, and for a run to take its first step


def noise(
    folder: Path, count: int, size: tuple[int, int] = (1200, 900), seed: int = 0
) -> list[Path]:
    """So many JPEGs, no two alike, in `folder`."""
    folder.mkdir(parents=True)
    random, paths = np.random.default_rng(seed), []
    for number in range(count):
        blobs = random.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
        paths.append(folder / f"{number}.jpg")
        Image.fromarray(blobs).resize(size, Image.Resampling.BICUBIC).save(paths[-1])
    return paths


@contextmanager
def app(folder: Path) -> Iterator[tuple[str, int]]:
    """`python app.py` on a free port: its address, and the number of its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    environment = os.environ | {"GRADIO_TEMP_DIR": str(folder / "uploads")}
    with (folder / "app.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port)],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: urllib.request.urlopen(url, timeout=5).close(), "the app")
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def wait_for(attempt: Callable[[], object], what: str) -> None:
    """Until `attempt` raises no OSError and does not answer False."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with suppress(OSError):
            if attempt() is not False:
                return
        time.sleep(0.02)
    raise SystemExit(f"{what} did not begin within {PATIENCE} seconds")


@contextmanager
def training(folder: Path, checkpoint: str) -> Iterator[None]:
    """A run of every weight, as the page starts it, under way."""
    for seed, name in enumerate(("one", "two")):
        noise(folder / "photos" / name, 64, (256, 256), seed)
    runs, visitor = Runs(), Visitor("benchmark")
    recipe = Recipe(
        str(folder / "photos"), start=checkpoint, name="beside", mode="all", epochs=10_000
    )
    run = runs.start(recipe, visitor)
    try:
        wait_for(lambda: (now := runs.get(run.id)).told.at > 0 or now.over, "the run")
        if runs.get(run.id).over:
            raise SystemExit(f"the run ended at once: {runs.get(run.id).log}")
        yield
    finally:
        runs.stop(run.id, visitor)
        wait_for(lambda: runs.get(run.id).over, "the end of the run")


def many_against_one(url: str, process: int, photos: list[Path], asked: argparse.Namespace) -> None:
    checkpoint, rounds = asked.checkpoint, asked.rounds
    client, files = Client(url, verbose=False), [handle_file(path) for path in photos]

    def ask(file: object) -> None:
        client.predict(file, checkpoint=checkpoint, api_name="/classify")

    def one_by_one() -> None:
        for file in files:
            ask(file)

    def together() -> None:
        client.predict(files, checkpoint=checkpoint, api_name="/classify_many")

    ask(files[0])
    by = partial(used, process) if asked.cpu else time.perf_counter
    times = take_turns({"many": together, "one": one_by_one}, rounds, clock=by)
    say_many("over the API", times, len(photos))
    loaded = Classifier.load(checkpoint)
    loaded.classify_many(photos[:16])
    works = {
        "many": lambda: loaded.classify_many(photos),
        "one": lambda: [loaded.classify(path) for path in photos],
    }
    times = take_turns(works, rounds, clock=clock(asked.cpu))
    say_many("in Python", times, len(photos))


def say_many(where: str, times: dict[str, list[float]], count: int) -> None:
    ratio = Ratio.of(times["many"], times["one"])
    each = [f"{spread(times[name])[0] / count:.1f} ms" for name in ("many", "one")]
    print(f"{count} photos {where}: {each[0]} a photo in one call, {each[1]} one by one; ", end="")
    print(f"ratio {ratio}  {verdict(ratio.median, TARGET)}", flush=True)


def visited(
    url: str, photos: list[Path], checkpoint: str, visitors: int, seconds: float
) -> tuple[float, list[float]]:
    """Photos a second, and how many milliseconds each answer took."""
    clients = [Client(url, verbose=False) for _ in range(visitors)]
    took: list[list[float]] = [[] for _ in clients]
    ready, end = threading.Barrier(visitors + 1), 0.0

    def visit(number: int) -> None:
        ready.wait()
        while (began := time.monotonic()) < end:
            file = handle_file(photos[(number + len(took[number])) % len(photos)])
            clients[number].predict(file, checkpoint=checkpoint, api_name="/classify")
            took[number].append(1000 * (time.monotonic() - began))

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(visitors)]
    for thread in threads:
        thread.start()
    began, end = time.monotonic(), time.monotonic() + seconds
    ready.wait()
    for thread in threads:
        thread.join()
    every = [each for mine in took for each in mine]
    return len(every) / (time.monotonic() - began), every


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--checkpoint", default=DEFAULT)
    parser.add_argument("--visitors", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--photos", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    asked = parser.parse_args()
    print(versions("torch", "gradio"), flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ["VIT_HOME"] = str(folder / "home")
        photos = noise(folder / "noise", asked.photos)
        with app(folder) as (url, process):
            many_against_one(url, process, photos, asked)

            def measure(beside: str) -> None:
                for visitors in asked.visitors:
                    rate, took = visited(url, photos, asked.checkpoint, visitors, asked.seconds)
                    print(
                        f"{visitors:2} visitors {beside}: {rate:.1f} photos/s, median "
                        f"{percentile(took, 50):.0f} ms, 99th percentile "
                        f"{percentile(took, 99):.0f} ms, {len(took)} answers, load {load()}",
                        flush=True,
                    )

            measure("alone")
            with training(folder, asked.checkpoint):
                measure("beside a run")


if __name__ == "__main__":
    main()
