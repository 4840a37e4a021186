"""From `python app.py` to the page and to the first answer, against importing gradio and torch
alone; what is imported, and what only later; and the memory that the app takes.

    python -m tests.benchmarks.start [--rounds 7] [--photos 100] [--cpu]

All start as processes of their own, in turns, with the files in the disk's cache. "page": the
address answers. "answer": the first photo sent to /classify is answered, asked for as soon as the
page is there; the app loads its model in the background meanwhile. Memory is what the process holds
(VmRSS). `--cpu` counts the processor time of each process, on a busy machine. Target: the page in
at most 1.5 times the bare imports.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import requests

from tests.benchmarks.timing import Ratio, milliseconds, spread, used, verdict, versions
from tests.benchmarks.visitors import ROOT, app, noise
from vit import checkpoint
from vit.classifier import DEFAULT
from vit.model import PRESETS, ViT

TARGET = 1.5
BARE = "import gradio, torch"
LATER = (
    "matplotlib",
    "torchvision",
    "torchinfo",
    "torch._dynamo",
    "torch.distributed",
    "pandas",
    "vit.finetune",
)
SHOWN = 12  # imports, the longest first


def classify(url: str, photo: bytes, model: str = "") -> dict:
    """What /classify says, over plain HTTP."""
    api = f"{url}gradio_api"
    sent = requests.post(f"{api}/upload", files={"files": ("photo.jpg", photo)}, timeout=60)
    file = {"path": sent.json()[0], "meta": {"_type": "gradio.FileData"}}
    asked = requests.post(
        f"{api}/call/classify", json={"data": [file, 5, None, model]}, timeout=60
    ).json()
    said = requests.get(f"{api}/call/classify/{asked['event_id']}", timeout=120).text
    if not (found := re.search(r"event: complete\ndata: (.*)", said)):
        raise SystemExit(f"/classify said {said!r}")
    return json.loads(found[1])[0]


def memory(process: int) -> float:
    """Megabytes that a process holds."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1]) / 1000


def bare(cpu: bool) -> float:
    """Milliseconds of the bare imports."""

    def children() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def start() -> None:
        subprocess.run([sys.executable, "-c", BARE], check=True, cwd=ROOT)

    return milliseconds(start, children if cpu else time.perf_counter)


def starts(folder: Path, photo: bytes, asked: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds of the bare imports, until the page, and until the first answer."""
    bare(asked.cpu)  # brings the files into the disk's cache
    times: dict[str, list[float]] = {"bare": [], "page": [], "answer": []}
    for number in range(asked.rounds):
        if number % 2:
            times["bare"].append(bare(asked.cpu))
        began = time.perf_counter()
        with app(folder) as (url, process):
            for what in ("page", "answer"):
                if what == "answer":
                    classify(url, photo)
                passed = used(process) if asked.cpu else time.perf_counter() - began
                times[what].append(1000 * passed)
        if not number % 2:
            times["bare"].append(bare(asked.cpu))
    return times


def imported() -> None:
    """What importing the app imports, and for how long."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import app, sys; print(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    own: dict[str, int] = {}  # microseconds, each package without what it imports of others
    for line in done.stderr.splitlines():
        if found := re.fullmatch(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)", line):
            package = found[2].split(".")[0]
            own[package] = own.get(package, 0) + int(found[1])
    longest = sorted(own, key=lambda name: own[name], reverse=True)[:SHOWN]
    print("imports, ms:", ", ".join(f"{name} {own[name] / 1000:.0f}" for name in longest))
    there = set(done.stdout.split())
    print("imported only later:", ", ".join(name for name in LATER if name not in there))
    print("imported at once:", ", ".join(name for name in LATER if name in there))


def memories(folder: Path, photo: bytes, photos: int) -> None:
    """After the start, after so many photos, and with ViT-B/16 loaded as well."""
    card = checkpoint.read_card(checkpoint.resolve(DEFAULT))
    config = replace(PRESETS["B/16"], classes=len(card.classes))
    checkpoint.save(
        folder / "home" / "checkpoints" / "large.safetensors",
        ViT(config),
        replace(card, config=config),
    )
    with app(folder) as (url, process):
        classify(url, photo)
        print(f"memory: {memory(process):.0f} MB after the first answer", end="", flush=True)
        for _ in range(photos):
            classify(url, photo)
        print(f", {memory(process):.0f} MB after {photos} more", end="", flush=True)
        classify(url, photo, "large")
        print(f", {memory(process):.0f} MB with ViT-B/16 loaded as well")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--photos", type=int, default=100)
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    asked = parser.parse_args()
    print(versions("torch", "gradio"), flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ["VIT_HOME"] = str(folder / "home")
        photo = noise(folder / "noise", 1)[0].read_bytes()
        times = starts(folder, photo, asked)
        for what in times:
            median, low, high = spread(times[what])
            print(f"{what}: {median / 1000:.2f} s [{low / 1000:.2f}, {high / 1000:.2f}]")
        page, answer = (Ratio.of(times[what], times["bare"]) for what in ("page", "answer"))
        print(f"ratio to the bare imports: page {page}  {verdict(page.median, TARGET)}; ", end="")
        print(f"first answer {answer}", flush=True)
        imported()
        memories(folder, photo, asked.photos)


if __name__ == "__main__":
    main()
