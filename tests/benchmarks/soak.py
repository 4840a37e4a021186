"""Many visitors at once for some minutes: errors, latencies, memory, temporary files.

    python -m tests.benchmarks.soak --visitors 50 --minutes 5 --train

Starts the app with a folder of its own. Each visitor opens the page, sends photos that nobody sent
before, asks for dishes, maps and patches with some seconds between two questions, and now and then
reloads the page. `--train` lets a run learn every weight meanwhile. Exit code 1 when anything went
wrong, or the temporary files exceeded their bound.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from serving import Server, jpeg, serving
from session import API, Session, teach
from test_strangers import dishes

from vit.collect import new_key
from vit.runfolder import kill
from vit.runs import Runs

EVERY = 5.0  # seconds between two looks at memory and files
WARM = 60.0  # seconds until memory is taken to be warm
PHOTOS = 40  # different pictures; each is sent with a tail of its own, so it is another file


class Page(Session):
    """An open page: what it loads, and the connection by which the server knows that it is open."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.http.get("")
        self.beat = self.http.stream("GET", f"{API}/heartbeat/{self.hash}")
        self.beat.__enter__()
        for name in ("listing", "clean_up", "find"):
            self.run(self.named(name))

    def close(self) -> None:
        self.beat.__exit__(None, None, None)
        super().close()


class Visitor:
    """One who comes, asks, and comes again."""

    def __init__(self, url: str, number: int, pictures: list[bytes], pause: float) -> None:
        self.url, self.pause, self.pictures = url, pause, pictures
        self.random = random.Random(number)
        self.took: dict[str, list[float]] = defaultdict(list)
        self.errors: list[str] = []
        self.page: Page | None = None

    def stay(self, until: float) -> None:
        ways = {
            "page load": (self.load, 1),
            "classify": (self.classify, 6),
            "attention": (self.attention, 3),
            "patches": (self.patches, 2),
            "classify_many": (self.many, 1),
        }
        names, weights = list(ways), [weight for _, weight in ways.values()]
        name = "page load"
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                ways[name][0]()
                self.took[name].append(time.monotonic() - began)
            except Exception as error:
                self.errors.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
            time.sleep(self.random.uniform(0, 2 * self.pause))
            name = self.random.choices(names, weights)[0] if self.page else "page load"
        if self.page:
            self.page.close()

    def load(self) -> None:
        if self.page:
            self.page.close()
            self.page = None
        self.page = Page(self.url)

    def send(self, count: int = 1) -> list:
        assert self.page
        tails = (os.urandom(8) for _ in range(count))
        files = [("photo.jpg", self.random.choice(self.pictures) + tail) for tail in tails]
        return self.page.upload(*files)

    def ask(self, endpoint: str, *data: object) -> None:
        assert self.page
        answer = self.page.call(self.page.named(endpoint), list(data))
        if not answer or not answer[0]:
            raise ValueError(f"an empty answer: {answer}")

    def classify(self) -> None:
        """As the page does it: the photo's picture comes back, too."""
        assert self.page
        self.page.values[self.page.component("photo")] = self.send()[0]
        *_, html = self.page.run(self.page.named("answer"))[:3]
        if "dishes" not in str(html):
            raise ValueError(str(html)[:200])

    def attention(self) -> None:
        self.ask("attention", *self.send(), "relevance", None, 1, None, "looks at", "", None, "")

    def patches(self) -> None:
        self.ask("patches", *self.send(), 3, 4, None, "")

    def many(self) -> None:
        self.ask("classify_many", self.send(6), 5, None, "")


def memory(process: int) -> float:
    """Megabytes that a process has in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def megabytes(folder: Path) -> float:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--visitors", type=int, default=50)
    add("--minutes", type=float, default=5)
    add("--pause", type=float, default=3, help="mean seconds between two questions of one [3]")
    add("--train", action="store_true", help="let a run train meanwhile")
    add("--temporary", type=int, default=200, help="megabytes of temporary files, VIT_TEMP_MB")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        start = serving(folder, folder / "home")
        start.environment |= {"VIT_TEMP_MB": str(given.temporary), "VIT_ZIP_MB": "50"}
        with start as server:
            try:
                return soak(server, start.process.pid, given)
            finally:
                for run in Runs(server.home / "runs").all():
                    kill(run.folder)


def soak(server: Server, process: int, given: argparse.Namespace) -> int:
    runs = Runs(server.home / "runs")
    if given.train:
        with Session(server.url) as owner:
            teach(owner, new_key(), dishes(40), "meanwhile", "pizza-steak-sushi", epochs="5000")
    pictures = [jpeg(640, 480, f"hsl({9 * number}, 60%, 50%)") for number in range(PHOTOS)]
    began = time.monotonic()
    until = began + 60 * given.minutes
    visitors = [Visitor(server.url, n, pictures, given.pause) for n in range(given.visitors)]
    threads = [threading.Thread(target=each.stay, args=(until,)) for each in visitors]
    looks: list[tuple[float, float, float]] = []
    for thread in threads:
        thread.start()
        time.sleep(given.pause / given.visitors)
    while any(thread.is_alive() for thread in threads):
        looks.append(
            (time.monotonic() - began, memory(process), megabytes(server.log.parent / "uploads"))
        )
        time.sleep(EVERY)
    seconds = time.monotonic() - began
    for run in runs.all():
        print(f"run {run.title}: {run.state}, step {run.told.at}")
    return report(visitors, looks, seconds, given)


def report(
    visitors: list[Visitor],
    looks: list[tuple[float, float, float]],
    seconds: float,
    given: argparse.Namespace,
) -> int:
    took: dict[str, list[float]] = defaultdict(list)
    for visitor in visitors:
        for name, each in visitor.took.items():
            took[name] += each
    count = sum(map(len, took.values()))
    print(f"{len(visitors)} visitors, {seconds:.0f} s: {count / seconds:.1f} answers a second")
    for name, each in sorted(took.items()):
        high = statistics.quantiles(each, n=100)[98] if len(each) > 1 else each[0]
        middle = statistics.median(each)
        print(f"{name:<14} {len(each):>5} times  median {middle:5.2f} s  p99 {high:5.2f} s")
    print("seconds   memory MB   temporary files MB")
    for at, memory_, files in looks[:: max(1, len(looks) // 15)]:
        print(f"{at:7.0f} {memory_:11.0f} {files:20.0f}")
    warm = [look for look in looks if look[0] > WARM] or looks
    half = len(warm) // 2 or 1
    first, last = (statistics.mean(m for _, m, _ in part) for part in (warm[:half], warm[-half:]))
    most = max(files for *_, files in looks)
    print(
        f"memory after {WARM:.0f} s: {first:.0f} MB in the first half, {last:.0f} MB in the second"
    )
    print(f"temporary files: {most:.0f} MB at most, of {given.temporary} MB")
    errors = [error for visitor in visitors for error in visitor.errors]
    print(f"errors: {len(errors)}")
    for error in sorted(set(errors))[:20]:
        print(f"  {errors.count(error)} x {error}")
    return 1 if errors or most > given.temporary else 0


if __name__ == "__main__":
    sys.exit(main())
