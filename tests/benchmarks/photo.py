"""From a photo's file to the five likeliest dishes: ours against transformers' image-classification
pipeline with the same weights and the same crop; where the time goes; and how often both agree.

    python -m tests.benchmarks.photo [CHECKPOINT] [--photos FOLDER_OR_ZIP …] [--rounds 20]
                                     [--threads 2] [--count 1000] [--cpu]

The photos of the first part are made here: JPEGs as phones write them, of 12 and 48 megapixels, on
their side by EXIF, 4 and 15 MB; a PNG and a WebP as they lie on the web. Ours and the pipeline take
turns, the pipeline in a process of its own, which has nothing of ours: neither the quicker products
nor the memory that is kept. The second part gives the medians of both ways' steps. The third asks
both about the first `--count` photos of each place and counts the same first answer. Target: 0.25
for the 12-megapixel JPEG, where a reader that decodes no more than it needs pays most. `--cpu`
counts processor time, for one thread on a busy machine.
"""

import argparse
import io
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tests.benchmarks.pipeline import Clock, Elsewhere, pipeline
from tests.benchmarks.timing import (
    Ratio,
    clock,
    milliseconds,
    spread,
    verdict,
    versions,
)
from vit.classifier import Classifier
from vit.data import open_photos
from vit.images import open_photo
from vit.top import answer

TARGET, JUDGED = 0.25, "phone, 12 megapixels"
PIXELS = {JUDGED: (4032, 3024), "phone, 48 megapixels": (8064, 6048)}


# --- photos -------------------------------------------------------------------------------------


def scene(width: int, height: int) -> Image.Image:
    """A picture with detail of every size, as photos have, and the grain of a small sensor."""
    random = np.random.default_rng(0)
    picture = np.full((height, width, 3), 110, np.float32)
    side = 4
    while side < max(width, height):
        blobs = random.normal(0, 1, (side * 3 // 4, side, 3)).astype(np.float32)
        for channel in range(3):
            layer = Image.fromarray(blobs[..., channel]).resize((width, height), 3)
            picture[..., channel] += np.asarray(layer) * 90 / side**0.6
        side *= 4
    picture += random.normal(0, 7, (height, width, 1)).astype(np.float32)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))


def made_photos(folder: Path) -> dict[str, Path]:
    """The files by what they are."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F], exif[0x0110] = 6, "Phone", "Phone 12"  # lies on its side
    files: dict[str, Path] = {}
    for name, (width, height) in PIXELS.items():
        files[name] = folder / f"{width}.jpg"
        scene(width, height).save(files[name], quality=90, exif=exif)
    web = scene(1600, 1200)
    for kind in ("png", "webp"):
        files[f"{kind}, 1600 × 1200"] = folder / f"web.{kind}"
        web.save(files[f"{kind}, 1600 × 1200"])
    return files


# --- where the time goes ------------------------------------------------------------------------


def our_steps(classifier: Classifier, path: Path, by: Clock) -> dict[str, float]:
    """Milliseconds of each step of one answer."""
    preprocess, done, took = classifier.card.preprocess, dict[str, Any](), dict[str, float]()

    def step(name: str, work: Callable[[], object]) -> None:
        took[name] = milliseconds(lambda: done.update({name: work()}), by)

    step("read", lambda: open_photo(path, at_least=2 * min(preprocess.size)).image)
    step("resize", lambda: preprocess.view(done["read"]))
    step("tensor", lambda: preprocess.batch([done["resize"]]))
    with torch.inference_mode():
        step("model", lambda: answer(classifier.model, done["tensor"]))
        step("top 5", lambda: done["model"].softmax(1).topk(min(5, done["model"].shape[1])))
    return took


def profile(name: str, rounds: Sequence[dict[str, float]]) -> str:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for steps in rounds:
        for step, took in steps.items():
            times[step].append(took)
    total = sum(map(statistics.median, times.values()))
    parts = [
        f"{step} {statistics.median(took):.1f} ms ({100 * statistics.median(took) / total:.0f} %)"
        for step, took in times.items()
    ]
    return f"  {name}: {', '.join(parts)}"


# --- agreement ----------------------------------------------------------------------------------


def agreement(classifier: Classifier, other: Any, place: str, count: int) -> str:
    """How many of the photos in class folders have the same first answer."""
    photos, same, right = open_photos(place), 0, [0, 0]
    chosen = range(0, len(photos), max(1, len(photos) // count))[:count]
    for index in chosen:
        content = photos.read(index)
        ours = classifier.classify(content, top=1)
        file = io.BytesIO(content) if isinstance(content, bytes) else content
        theirs = other(Image.open(file).convert("RGB"), top_k=1)[0]["label"]
        same += ours.classes[0] == theirs
        name = photos.classes[photos.samples[index].label]
        right[0] += ours.classes[0] == name
        right[1] += theirs == name
    return (
        f"{Path(place).name}: the same first answer for {same} of {len(chosen)} photos; "
        f"right: ours {right[0]}, the pipeline {right[1]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("checkpoint", nargs="?", default="pizza-steak-sushi")
    parser.add_argument("--photos", nargs="*", default=[], help="folders or zips of class folders")
    parser.add_argument("--count", type=int, default=1000, help="photos of each")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    classifier = Classifier.load(asked.checkpoint)
    elsewhere = Elsewhere(classifier.path, asked.threads, asked.cpu)
    print(versions("torch", "transformers", "pillow"), f"; {asked.threads} threads", sep="")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in made_photos(Path(folder)).items():
            compare(classifier, elsewhere, name, path, asked)
    other = pipeline(classifier.model, classifier.card) if asked.photos else None
    for place in asked.photos:
        print(agreement(classifier, other, place, asked.count), flush=True)


def compare(
    classifier: Classifier, elsewhere: Elsewhere, name: str, path: Path, asked: argparse.Namespace
) -> None:
    by, whole = clock(asked.cpu), dict[str, list[float]](ours=[], theirs=[])
    steps = dict[str, list[dict[str, float]]](ours=[], theirs=[])
    for number in range(asked.rounds + 1):
        for who in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
            if who == "ours":
                took = milliseconds(partial(classifier.classify, path), by)
                parts = our_steps(classifier, path, by)
            else:
                took, parts = elsewhere.time(path)
            if number:  # the first of each is to get used to it
                whole[who].append(took)
                steps[who].append(parts)
    ratio = Ratio.of(whole["ours"], whole["theirs"])
    print(f"{name}, {path.stat().st_size / 1e6:.1f} MB: ", end="")
    print(f"ours {spread(whole['ours'])[0]:.1f} ms, pipeline {spread(whole['theirs'])[0]:.1f} ms, ")
    print(f"  ratio {ratio}", end="")
    print(f"  {verdict(ratio.median, TARGET)}" if name == JUDGED else "")
    print(profile("ours", steps["ours"]))
    print(profile("pipeline", steps["theirs"]), flush=True)


if __name__ == "__main__":
    main()
