"""What lies in a run's folder, and how a killed run finds its place again.

    recipe.json         what the run was told
    state.safetensors   weights, averaged weights and AdamW's moments after some step
    history.jsonl       every report, one a line
    best.safetensors    the checkpoint that is best by the validation photos
    skipped.json        files left out, and why
    outcome.json        what the result answered for every photo, see `vit.outcome`
    stop                made by whoever wants the run to end at its next batch
    activations.npy     what frozen blocks made of the photos, while the run goes on (mode last)
    lock                held by the process that trains here, see `vit.runlock`

Each is written to another name first and then renamed, or is only added to, so a kill at any
moment leaves nothing that is half a file.
"""

import json
import math
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vit.checkpoint import write_safetensors
from vit.optim import Average, moments, restore_moments
from vit.recipe import Recipe

RECIPE, HISTORY, SKIPPED = "recipe.json", "history.jsonl", "skipped.json"
STATE, BEST, STOP = "state.safetensors", "best.safetensors", "stop"


class RunError(ValueError):
    """A run's folder that cannot be used; the text says what to do."""


@dataclass
class Progress:
    """How far a run is: saved beside the weights, so that it can go on from there."""

    step: int = 0
    loss_sum: float = 0.0  # of the epoch under way
    loss_photos: int = 0
    right: int = 0  # of the answers that were trained on, of the epoch under way
    answers: int = 0
    best_score: tuple[int, int, float] = (-1, -1, -math.inf)  # stage, right, minus loss
    seconds: float = 0.0


def write_json(path: Path, values: Any, indent: int | None = 1) -> None:
    """Write JSON to `path`, whole or not at all."""
    _write_text(path, json.dumps(values, indent=indent, ensure_ascii=False))


def read_recipe(folder: Path) -> Recipe:
    """The recipe of the run in `folder`; RunError when there is none."""
    try:
        return Recipe.from_json(json.loads((folder / RECIPE).read_text("utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder} holds no run; give the folder that the run printed.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{folder / RECIPE} is damaged ({error}); start a new run.") from None


def forget_after(history: Path, step: int) -> None:
    """Take out of the log what came after `step`, where the saved state is, and the end.

    What a run said about itself before its first step is kept, unless it begins anew.
    """
    if not history.exists():
        return
    kept = []
    for line in history.read_text("utf-8", errors="replace").splitlines(keepends=True):
        try:
            report = json.loads(line)
        except json.JSONDecodeError:  # half a line, where the run was killed
            continue
        if step and report["kind"] != "finished" and report.get("step", 0) <= step:
            kept.append(line)
    _write_text(history, "".join(kept))


def clear(folder: Path) -> None:
    """Remove what a kill left while it was being written: by us, or by safetensors (.tmpAbc123)."""
    for pattern in (".*.tmp", ".tmp??????"):
        for half in folder.glob(pattern):
            half.unlink(missing_ok=True)


def save_state(
    folder: Path,
    module: nn.Module,
    average: Average,
    optimizer: torch.optim.AdamW,
    progress: Progress,
    origin: Mapping[str, str],
) -> None:
    """Keep all that `restore_state` needs; `origin` tells what the run began with."""
    tensors = {f"module.{k}": v for k, v in module.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in average.module.state_dict().items()}
    tensors |= moments(optimizer, module)
    metadata = {"progress": json.dumps(asdict(progress)), "origin": json.dumps(dict(origin))}
    write_safetensors(folder / STATE, tensors, metadata)


def restore_state(
    folder: Path,
    module: nn.Module,
    average: Average,
    optimizer: torch.optim.AdamW,
    origin: Mapping[str, str],
) -> Progress:
    """Go on from the state in `folder`, or from the beginning when there is none.

    RunError when the run began with something else than `origin`: other photos, another start.
    """
    if not (folder / STATE).exists():
        return Progress()
    try:
        with safe_open(folder / STATE, framework="pt") as file:
            saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata()
        values = json.loads(metadata["progress"])
        values["best_score"] = tuple(values["best_score"])
        progress = Progress(**values)
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise RunError(f"{folder / STATE} is damaged ({error}); start a new run.") from None
    for what, began_with in json.loads(metadata.get("origin", "{}")).items():
        if origin[what] != began_with:
            raise RunError(
                f"The {what} changed since this run began, so it cannot go on; start a new run."
            )

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)}

    module.load_state_dict(part("module."))
    average.module.load_state_dict(part("average."))
    restore_moments(optimizer, module, saved, progress.step)
    return progress


def _write_text(path: Path, text: str) -> None:
    # A name of its own, because the page may write in several threads.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
