"""Fine-tune a Vision Transformer on folders of photos, or train one from scratch.

python train.py PHOTOS                         a new head, in seconds
python train.py PHOTOS --mode last --blocks 2  the last two blocks and the head
python train.py PHOTOS --mode all              every weight
python train.py PHOTOS --from Ti/16            from scratch
python train.py --resume RUN                   go on with a run that was interrupted
torchrun --nproc_per_node=2 train.py PHOTOS …  the same on two GPUs, or two processes

Ctrl-C, or a file named stop in the run's folder, ends a run at its next batch and keeps the best
weights; that is a success. Exit code 1: the loss was no number; 2: something must be put right.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vit.cli.needed import missing
from vit.cli.terminal import Parser
from vit.home import home
from vit.names import one_line

if TYPE_CHECKING:  # loaded later: whoever wants a stop while torch is loading shall get it
    from vit.distributed import World
    from vit.recipe import Recipe


def main(arguments: list[str] | None = None) -> int:
    began = time.time()
    if said := missing():
        print(said, file=sys.stderr)
        return 2
    from vit.distributed import join
    from vit.recipe import Recipe

    parser = Parser(
        prog="python train.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    Recipe.add_arguments(parser)
    add = parser.add_argument
    # torchrun takes --run for a short form of two options of its own.
    add("--run", "--folder", metavar="FOLDER", help="where the run's state and log lie")
    add("--resume", metavar="FOLDER", help="go on with the run in this folder")
    add("--out", metavar="FILE", help="where the checkpoint goes [the user's folder]")
    add("--replace", action="store_true", help="take the place of a checkpoint of the same name")
    add("--save-every", type=float, default=60.0, metavar="SECONDS", help="state saved [60]")
    add("--quiet", action="store_true", help="print epochs, not steps")
    given = parser.parse_args(arguments)
    try:
        with join() as world:
            recipe, folder = what_and_where(given)
            return train(recipe, world.agree(folder), given, began, world)
    except OSError as error:
        about = f"{error.filename}: " if error.filename else ""
        print(one_line(f"{about}{error.strerror or error}"), file=sys.stderr)
    except (ValueError, MemoryError, RuntimeError) as error:
        if not isinstance(error, ValueError) and not out_of_memory(error):
            raise
        text = "The memory ran out: use a smaller --batch or --image-size, or --resume later."
        print(one_line(str(error)) if isinstance(error, ValueError) else text, file=sys.stderr)
    return 2


def what_and_where(given: argparse.Namespace) -> tuple[Recipe, Path]:
    """The recipe of the run and its folder, which may not exist yet."""
    from vit.checkpoint import destination
    from vit.recipe import Recipe
    from vit.runstate import BEST, HISTORY, STATE, read_recipe

    if given.resume:
        recipe = read_recipe(Path(given.resume))
        allowed = Recipe(recipe.data, threads=given.threads)
        given.data = given.data or recipe.data
        if given.run or Recipe.from_arguments(given) != allowed:
            raise ValueError(
                "A resumed run keeps its settings: leave out all others but --threads."
            )
        return replace(recipe, threads=given.threads or recipe.threads), Path(given.resume)
    if not given.data:
        raise ValueError("Give a folder or zip of class folders, or --resume with a run's folder.")
    recipe = Recipe.from_arguments(given)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = Path(given.run) if given.run else home() / "runs" / f"{stamp}-{recipe.name}"
    if any((folder / name).exists() for name in (STATE, BEST, HISTORY)):
        raise ValueError(f"{folder} holds a run already; resume it, or name another folder.")
    if not given.out:
        destination(recipe.name, given.replace)  # before hours of work, not after
    return recipe, folder


def train(
    recipe: Recipe, folder: Path, given: argparse.Namespace, began: float, world: World
) -> int:
    """Run to the end, printing and logging every report; the exit code."""
    import torch

    from vit import checkpoint
    from vit.finetune import finetune
    from vit.reports import Finished, Prepared, Started, Step, in_words, report_to_json
    from vit.runstate import HISTORY, STOP, forget_after

    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    pause = 0.5 if sys.stdout.isatty() else 10.0  # seconds between two printed steps
    printed = -pause
    reports = finetune(recipe, folder, save_every=given.save_every, since=began, world=world)
    with stop_on_signals(folder / STOP, world), closing(reports):
        for report in reports:
            if not world.leads:
                if isinstance(report, Finished):
                    return 1 if report.outcome == "failed" else 0
                continue
            if isinstance(report, Started):
                print(f"run: {folder}", flush=True)
                forget_after(folder / HISTORY, report.resumed_at)
            append(folder / HISTORY, json.dumps(report_to_json(report)))
            now = time.monotonic()
            often = isinstance(report, Prepared | Step)
            if not often or (now - printed >= pause and not given.quiet):
                print(in_words(report), flush=True)
                printed = now if often else printed
            if isinstance(report, Finished):
                if report.path:
                    out = Path(given.out or home() / "checkpoints" / f"{recipe.name}.safetensors")
                    checkpoint.save(out, *checkpoint.load(report.path))
                    print(f"checkpoint: {out}", flush=True)
                return 1 if report.outcome == "failed" else 0
    return 1


def append(log: Path, line: str) -> None:
    """Add a line, at once and whole; OSError tells how to go on."""
    try:
        with open(log, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise OSError(
            f"{log} cannot be written ({error.strerror}); mend that, then go on with "
            f"python train.py --resume {shlex.quote(str(log.parent))}"
        ) from None


@contextmanager
def stop_on_signals(stop: Path, world: World) -> Iterator[None]:
    """Ctrl-C or a polite kill ends the run at the next batch; a second one ends it at once.

    Of several processes the leading one does so. All get the signal twice, from the terminal and
    from torchrun, which itself ends at once what has not ended after half a minute.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL if world.size == 1 else signal.SIG_IGN)
        os.write(2, b"stopping at the next batch; once more ends it at once\n")
        stop.parent.mkdir(parents=True, exist_ok=True)
        stop.touch()

    for number in before:
        signal.signal(number, handle if world.leads else signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def out_of_memory(error: Exception) -> bool:
    """torch has an error of its own for a GPU only."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "allocate memory" in text


if __name__ == "__main__":
    code = main()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Threads of torch's that still run now and then abort a process of several as it ends.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
