"""What fine-tuning costs: head and last blocks against the usual loop, which sends every photo
through the frozen backbone in every epoch; a step of all weights against timm's model; and how
much of its time training waits for photos.

    python -m tests.benchmarks.finetune PHOTOS --from WEIGHTS [--repetitions 3] [--threads 2]

Ours multiplies float32 matrices as `vit.precision.quicken_float32` says, the others as torch does.
The competitors alternate, so that whatever else the machine does falls on all. Both loops have the
same photos, rates and validation after every epoch; reading and checking the data set is in
neither. "ratio" is the median of the ratios within each pair, with the least and the largest.
Targets: head at most 0.15, last two blocks at most 0.4, with the same accuracy.
"""

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import timm
import torch
from torch import nn
from torch.nn import functional as F

from tests.benchmarks.products import plainly
from vit import checkpoint
from vit.batches import plain_batches, shuffled
from vit.data import DataSet, open_data
from vit.evaluate import evaluate
from vit.finetune import finetune
from vit.model import PRESETS, ViT
from vit.optim import parameter_groups, rate_at
from vit.recipe import Recipe
from vit.reports import Finished, Step
from vit.start import read_start

TARGETS = {"head": 0.15, "last": 0.4}


def ours(recipe: Recipe, data: DataSet) -> tuple[float, int]:
    """Seconds of a run, its checkpoint written, and how many test photos it gets right."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        (*_, end) = finetune(recipe, Path(folder) / "run", replace(data, test=None))
        seconds = time.perf_counter() - began
        assert isinstance(end, Finished)
        return seconds, right(*checkpoint.load(end.path), data)


def usual(recipe: Recipe, data: DataSet) -> tuple[float, int]:
    """The same with a forward through the whole model for every photo in every epoch."""
    began = time.perf_counter()
    full = recipe.completed(len(data.train))
    assert full.rate and full.batch and full.epochs and full.warmup and full.layer_decay
    start, _ = read_start(full)
    model, card = start.new_model(data.classes, full), start.card
    lower = model.config.depth - (full.blocks or 0)
    for name, parameter in model.named_parameters():
        block = name.split(".")[1] if name.startswith("blocks.") else ""
        trained = name.startswith("head.") or bool(full.blocks) and name.startswith("norm.")
        parameter.requires_grad_(trained or bool(block) and int(block) >= lower)
    groups = parameter_groups(model, model.config.depth, full.weight_decay, full.layer_decay)
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=full.rate, fused=True)
    steps, step = full.epochs * -(-len(data.train) // full.batch), 0
    random = np.random.default_rng(0)
    for epoch in range(full.epochs):
        model.train()
        order = shuffled(len(data.train), full.seed, epoch)
        for images, labels in plain_batches(
            data.train.subset(order), card.preprocess, size=full.batch
        ):
            if full.flip:
                mirrored = torch.from_numpy(random.random(len(images)) < 0.5)[:, None, None, None]
                images = torch.where(mirrored, images.flip(3), images)
            for group in optimizer.param_groups:
                group["lr"] = full.rate * group["scale"] * rate_at(step, steps, full.warmup)
            loss = F.cross_entropy(model(images), labels, label_smoothing=full.smoothing or 0)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], full.clip)
            optimizer.step()
            step += 1
        evaluate(model, data.val, card.preprocess, data.classes)
    with tempfile.TemporaryDirectory() as folder:
        kept = replace(card, config=model.config, classes=data.classes)
        checkpoint.save(Path(folder) / "usual.safetensors", model, kept)
        seconds = time.perf_counter() - began
    return seconds, right(model, kept, data)


def right(model: ViT, card: checkpoint.Card, data: DataSet) -> int:
    assert data.test is not None
    return evaluate(model, data.test, card.preprocess, data.classes).top1.correct


def compare(mode: str, recipe: Recipe, data: DataSet, repetitions: int) -> None:
    assert data.test is not None
    times: dict[Callable, list[float]] = {ours: [], usual: []}
    counts: dict[Callable, int] = {}
    for repetition in range(repetitions):
        for work in (ours, usual) if repetition % 2 else (usual, ours):
            run = partial(work, recipe, data)
            seconds, counts[work] = run() if work is ours else plainly(run)()
            times[work].append(seconds)
    ratios = [a / b for a, b in zip(times[ours], times[usual], strict=True)]
    verdict = "meets" if statistics.median(ratios) <= TARGETS[mode] else "misses"
    print(f"{mode:5} ours {spread(times[ours])} s   usual {spread(times[usual])} s   ", end="")
    print(f"ratio {spread(ratios)}   {verdict} {TARGETS[mode]}   test photos right: ", end="")
    print(f"ours {counts[ours]}, usual {counts[usual]} of {len(data.test)}", flush=True)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} [{min(values):.3f}, {max(values):.3f}]"


def step_against_timm(repetitions: int, batch: int) -> None:
    """A step of AdamW on all weights of ViT-Ti/16: forward, backward, update."""
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(0, 3, (batch,))
    models: list[nn.Module] = [
        ViT(replace(PRESETS["Ti/16"], classes=3)),
        timm.create_model("vit_tiny_patch16_224", num_classes=3),
    ]
    steps: list[Callable[[], None]] = []
    for model in models:
        optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4, fused=True)

        def one(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

        one()  # the first makes AdamW's moments
        steps.append(one)
    turns = [steps[0], plainly(steps[1])]
    times: list[list[float]] = [[], []]
    for repetition in range(repetitions):
        for which in (0, 1) if repetition % 2 else (1, 0):
            began = time.perf_counter()
            turns[which]()
            times[which].append(time.perf_counter() - began)
    ratios = [a / b for a, b in zip(*times, strict=True)]
    print(
        f"all   step of {batch}: ours {spread(times[0])} s   timm {spread(times[1])} s   ", end=""
    )
    print(f"ratio {spread(ratios)}", flush=True)


def waiting(recipe: Recipe, data: DataSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reports = finetune(recipe, Path(folder) / "run", replace(data, test=None))
        steps = [report for report in reports if isinstance(report, Step)]
    print(f"all   waits for photos {100 * steps[-1].waited:.1f} % of the time, ", end="")
    print(f"{steps[-1].photos_per_second:.1f} photos/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("photos", help="folder with train/ and test/")
    parser.add_argument("--from", dest="start", required=True, help="checkpoint or weights file")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=["head", "last", "step", "waiting"])
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    only = asked.only or ["head", "last", "step", "waiting"]
    data = open_data(asked.photos)
    print(f"torch {torch.__version__}, timm {timm.__version__}, Python {platform.python_version()}")
    print(
        f"{asked.threads} threads, {asked.repetitions} repetitions, {asked.epochs} epochs, ", end=""
    )
    print(f"{len(data.train)} training and {len(data.val)} validation photos", flush=True)
    for mode in ("head", "last"):
        recipe = Recipe(asked.photos, start=asked.start, mode=mode, epochs=asked.epochs)
        if mode in only:
            compare(mode, recipe, data, asked.repetitions)
    if "step" in only:
        step_against_timm(3 * asked.repetitions, 32)
    if "waiting" in only:
        waiting(Recipe(asked.photos, start=asked.start, mode="all", epochs=1), data)


if __name__ == "__main__":
    main()
