"""Commands that list, describe, make and fetch models."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vit.cli.terminal import Command, megabytes
from vit.names import one_line, plain

if TYPE_CHECKING:  # what loads torch is imported by the commands that need it
    from vit.card import Card

FAMILIES = ("augreg", "deit", "dinov2", "huggingface", "swag", "torchvision")  # of vit.conventions


def add_to(command: Command) -> None:
    command("list", list_checkpoints)

    add = command("summary", summary).add_argument
    add("model", help="a preset such as Ti/16, or a checkpoint")
    add("--classes", type=int, help="outputs of the head")
    add("--image-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"))

    add = command("import", import_weights).add_argument
    add("file", metavar="FILE_OR_URL", help="weights of Google, timm, transformers or torchvision")
    add("--name", help="name of the checkpoint [the file's]")
    add("--replace", action="store_true", help="take the place of one of the same name")
    add("--classes", metavar="FILE", help="text file with one class name a line")
    add("--heads", type=int, metavar="N", help="attention heads [as the published models have]")
    add("--preprocess", choices=FAMILIES, help="whose way to see photos [the file's]")
    for statistic in ("mean", "std"):
        add(f"--{statistic}", type=float, nargs=3, metavar=("R", "G", "B"), help="of the pixels")
    add("--crop", type=float, metavar="SHARE", help="share of the short side that is seen")
    add("--interpolation", choices=("bicubic", "bilinear", "lanczos"))
    add("--image-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), help="pixels that it sees")

    add = command("pull", pull_model).add_argument
    add("name", nargs="?", help="a published model; without a name, they are listed")

    add = command("blend", blend).add_argument
    add("checkpoint", help="name or path")
    add("start", help="what it was trained from, or another trained from that")
    add("--share", type=float, default=0.8, help="of the way from the start to it [0.8]")
    add("--out", metavar="FILE", required=True, help="where the new checkpoint goes")


def list_checkpoints(given: argparse.Namespace) -> int:
    """List the checkpoints, with what they say about themselves."""
    from vit.checkpoint import available

    problems: list[str] = []
    for entry in available(problems):
        counts = "; ".join(f"{plain(n)} {count}" for n, count in entry.card.metrics.items())
        name, many = one_line(entry.name), len(entry.card.classes)
        print(f"{name}: {many} classes; {counts or 'nothing counted yet'}")
    for problem in problems:
        print(one_line(problem), file=sys.stderr)
    return 0


def summary(given: argparse.Namespace) -> int:
    """Print a model's layers, parameters and shapes."""
    from dataclasses import replace

    from vit.checkpoint import read_card, resolve
    from vit.model import PRESETS
    from vit.summary import ledger_text, table

    if given.model in PRESETS:
        config = PRESETS[given.model]
    elif "/" in given.model and not Path(given.model).exists():
        raise ValueError(f"There is no preset {given.model}; there are {', '.join(PRESETS)}.")
    else:
        config = read_card(resolve(given.model)).config
    if given.classes is not None:
        config = replace(config, classes=given.classes)
    if given.image_size:
        config = replace(config, image_size=tuple(given.image_size))
    print(table(config))
    print(f"\nOne photo's way through {given.model}:\n{ledger_text(config)}")
    return 0


def import_weights(given: argparse.Namespace) -> int:
    """Turn a file of published weights, here or on the web, into a checkpoint."""
    from dataclasses import replace

    from vit import checkpoint
    from vit.conventions import preprocess_for
    from vit.sources import read_from, store

    model, card = read_from(given.file, given.heads, megabytes)
    name = given.name or card.title
    path = checkpoint.destination(name, given.replace)
    rules = card.preprocess
    if given.preprocess:
        rules = preprocess_for(given.preprocess, card.config.image_size)
    stated = {
        "mean": given.mean and tuple(given.mean),
        "std": given.std and tuple(given.std),
        "crop": given.crop,
        "interpolation": given.interpolation,
        "size": given.image_size and tuple(given.image_size),
    }
    rules = replace(rules, **{key: value for key, value in stated.items() if value is not None})
    if given.classes:
        names = Path(given.classes).read_text("utf-8").split("\n")
        card = replace(card, classes=tuple(name.strip() for name in names if name.strip()))
    card = replace(card, title=name, preprocess=rules)
    store(path, model, card)
    described(path, card)
    return 0


def pull_model(given: argparse.Namespace) -> int:
    """Fetch a published model by name."""
    from vit.checkpoint import read_card
    from vit.sources import SOURCES, pull

    if given.name:
        path = pull(given.name, megabytes)
        described(path, read_card(path))
        return 0
    for each in SOURCES:
        print(f"{each.name:<20} {each.megabytes:>4} MB  {each.title}: {each.about}")
    return 0


def blend(given: argparse.Namespace) -> int:
    """Mix a checkpoint's weights with its start's, or another run's; count it anew afterwards."""
    from vit import checkpoint
    from vit.blend import blend as mix
    from vit.blend import blended
    from vit.start import load

    fine, card = checkpoint.load(checkpoint.resolve(given.checkpoint))
    path = Path(given.start) if Path(given.start).is_file() else checkpoint.resolve(given.start)
    start, other = load(path)
    model = mix(fine, start, given.share, same_classes=other.classes == card.classes)
    checkpoint.save(given.out, model, blended(card, given.share, checkpoint.fingerprint(path)))
    print(f"checkpoint: {given.out}")
    return 0


def described(path: Path, card: "Card") -> None:
    """Print what an imported model is, and what was done to it."""
    from vit.summary import prefix_names

    config, training = card.config, card.training
    rows, columns = config.grid
    print(
        f"{path}\n{training['layout']}: {config.depth} blocks, {config.width} wide, "
        f"{config.heads} heads, {rows} × {columns} patches, "
        f"behind the {prefix_names(config)}, "
        + (f"{config.classes:,} classes" if config.classes > 1 else "no classes")
    )
    seen = card.preprocess
    print(
        f"It sees {seen.size[0]} × {seen.size[1]} pixels, {seen.crop:.3g} of the short side, "
        f"{seen.interpolation}, mean {seen.mean}, standard deviation {seen.std}."
    )
    if seen.size != config.image_size:
        made = " ".join(map(str, config.image_size))
        print(f"It was made for another size; import it with --image-size {made} to see that.")
    for note in training["notes"]:
        print(one_line(note))
    if "checked" in training:
        print(f"Checked: {training['checked']}.")
    if not card.trained_head:
        print(
            f"It has no trained head: fine-tune it with python train.py PHOTOS --from {path.stem}"
        )
