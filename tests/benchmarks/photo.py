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
import multiprocessing
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image, ImageOps
from torch import Tensor

from tests.benchmarks.timing import (
    Ratio,
    clock,
    milliseconds,
    spread,
    verdict,
    versions,
)
from vit import checkpoint
from vit.card import Card
from vit.classifier import Classifier
from vit.data import open_photos
from vit.images import open_photo
from vit.model import LAYER_NORM_EPS, ViT
from vit.naming import from_hugging_face
from vit.top import answer

TARGET, JUDGED = 0.25, "phone, 12 megapixels"
Clock = Callable[[], float]
PIXELS = {JUDGED: (4032, 3024), "phone, 48 megapixels": (8064, 6048)}


# --- the other way ------------------------------------------------------------------------------


def pipeline(model: ViT, card: Card) -> Any:
    """transformers' pipeline with these weights, class names and preprocessing."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    preprocess = card.preprocess
    (height, width), crop = preprocess.size, preprocess.crop
    processor = transformers.ViTImageProcessor(
        size={"shortest_edge": round(min(height, width) / crop)},
        crop_size={"height": height, "width": width},
        do_center_crop=True,
        resample={"bicubic": 3, "bilinear": 2, "lanczos": 1}[preprocess.interpolation],
        image_mean=list(preprocess.mean),
        image_std=list(preprocess.std),
    )
    with tempfile.TemporaryDirectory() as folder:
        hugging_face(model, card).save_pretrained(folder)
        processor.save_pretrained(folder)
        made: Any = transformers.pipeline("image-classification", model=folder, device="cpu")
    return made


class Elsewhere:
    """The pipeline in a process of its own."""

    def __init__(self, checkpoint_path: Path, threads: int, cpu: bool) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.ours, theirs = spawn.Pipe()
        arguments = (theirs, checkpoint_path, threads, cpu)
        spawn.Process(target=answer_elsewhere, args=arguments, daemon=True).start()

    def time(self, path: Path) -> tuple[float, dict[str, float]]:
        """Milliseconds of a whole answer, and of the steps of another."""
        self.ours.send(path)
        return self.ours.recv()


def answer_elsewhere(asked: Connection, checkpoint_path: Path, threads: int, cpu: bool) -> None:
    torch.set_num_threads(threads)
    other, by = pipeline(*checkpoint.load(checkpoint_path)), clock(cpu)
    with suppress(EOFError):  # nobody asks any more
        while True:
            path = asked.recv()
            whole = milliseconds(partial(other, str(path), top_k=5), by)
            asked.send((whole, their_steps(other, path, by)))


def hugging_face(model: ViT, card: Card) -> Any:
    """The same weights in transformers' own model: its ViT, or, for registers, which that lacks,
    its DINOv2 without the LayerScale and the mean that our models do not have."""
    config = model.config
    settings: dict[str, Any] = {
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "layer_norm_eps": LAYER_NORM_EPS,
        "image_size": config.image_size[0],
        "patch_size": config.patch_size[0],
        "id2label": dict(enumerate(card.classes)),
        "label2id": {name: number for number, name in enumerate(card.classes)},
    }
    if config.registers:
        ratio = config.mlp_width // config.width
        theirs: Any = transformers.Dinov2WithRegistersForImageClassification(
            transformers.Dinov2WithRegistersConfig(
                **settings, mlp_ratio=ratio, num_register_tokens=config.registers
            )
        )
    else:
        theirs = transformers.ViTForImageClassification(
            transformers.ViTConfig(**settings, intermediate_size=config.mlp_width)
        )
    weights = split_qkv(model.state_dict())
    for their, value in theirs.state_dict().items():
        ours = next(iter(from_hugging_face({their: value})))  # what we call it
        if ours in weights:
            value.zero_()  # for the head of DINOv2 also reads the mean of the patches
            given = weights.pop(ours)
            value[..., : given.shape[-1]] = given
    if weights:
        raise SystemExit(f"transformers' model has no place for {', '.join(weights)}")
    return theirs.eval()


def split_qkv(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values as a matrix each."""
    parts: dict[str, Tensor] = {}
    for name, value in state.items():
        if ".attn.qkv." in name:
            names = [name.replace("qkv", part) for part in ("query", "key", "value")]
            parts |= dict(zip(names, value.chunk(3), strict=True))
        else:
            parts[name] = value
    return parts


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


def their_steps(other: Any, path: Path, by: Clock) -> dict[str, float]:
    done, took = dict[str, Any](), dict[str, float]()

    def step(name: str, work: Callable[[], object]) -> None:
        took[name] = milliseconds(lambda: done.update({name: work()}), by)

    # as transformers.image_utils.load_image does
    step("read", lambda: ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    step("preprocess", lambda: other.image_processor(images=done["read"], return_tensors="pt"))
    with torch.inference_mode():
        step("model", lambda: other.model(**done["preprocess"]))
        step("top 5", lambda: other.postprocess(done["model"], top_k=5))
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
