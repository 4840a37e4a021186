"""The command line: `python -m vit COMMAND`; `python -m vit --help` lists the commands."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vit.metrics import Count
from vit.names import one_line, plain

if TYPE_CHECKING:  # what loads torch is imported by the commands that need it
    from vit.card import Card

FAMILIES = ("augreg", "deit", "dinov2", "huggingface", "swag", "torchvision")  # of vit.conventions


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vit", description=__doc__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        text = (run.__doc__ or "").split("\n")[0]
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    add = command("classify", classify).add_argument
    add("photos", nargs="+", metavar="PHOTO")
    add("--top", type=int, default=5, metavar="K", help="dishes to name [5]")
    add("--checkpoint", default=None, help="name or path [the bundled one]")
    add("--whole", action="store_true", help="look at the whole photo, not its middle square")
    add("--precision", default="float32", help="bfloat16 is faster, and nearly as right [float32]")
    add("--json", action="store_true", help="print JSON")

    add = command("evaluate", evaluate).add_argument
    add("checkpoint", help="name or path")
    add("folder", metavar="PHOTOS", help="folder or zip of class folders")
    add("--crop", type=float, help="share of the short side that is seen [the checkpoint's]")
    add("--precision", default="float32", help="of the arithmetic: float32 or bfloat16 [float32]")
    add("--record", metavar="NAME", help="write the counts into --out, as those of photos NAME")
    add("--out", metavar="FILE", help="a copy of the checkpoint, with the counts and --crop")
    add("--json", action="store_true", help="print JSON")

    add = command("results", results).add_argument
    add("run_folder", metavar="RUN", help="folder of a run, or its name in the user's folder")
    add("--set", help="photos to look at: test, validation … [the largest test set]")
    add("--worst", type=int, default=10, help="mistakes to list [10]")
    add("--json", action="store_true", help="print JSON, with every photo")

    add = command("doctor", doctor).add_argument
    add("data", metavar="DATA", help="folder or zip of class folders")
    add("--report", metavar="FILE.html", help="save the report, with pictures, in one file")
    add("--json", action="store_true", help="print JSON")

    add = command("calibrate", calibrate).add_argument
    add("checkpoint", help="name or path; a bundled one is copied into the user's folder")
    add("photos", metavar="PHOTOS", help="validation photos in class folders")
    add("--strangers", metavar="FOLDER", help="pictures of anything but the model's dishes")
    add("--share", type=float, default=0.1, help="of known photos that may be called unsure [0.1]")
    add("--plot", metavar="FILE", help="draw how honest the probabilities are")
    add("--out", metavar="FILE", help="where the calibrated checkpoint goes")

    add = command("blend", blend).add_argument
    add("checkpoint", help="name or path")
    add("start", help="checkpoint or weights file that it was trained from")
    add("--share", type=float, default=0.8, help="of the way from the start to it [0.8]")
    add("--out", metavar="FILE", required=True, help="where the new checkpoint goes")

    command("list", list_checkpoints)

    add = command("summary", summary).add_argument
    add("model", help="a preset such as Ti/16, or a checkpoint")
    add("--classes", type=int, help="outputs of the head")
    add("--image-size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"))

    add = command("tour", tour).add_argument
    add("photo", metavar="PHOTO")
    add("--checkpoint", default=None, help="name or path [the bundled one]")

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

    add = command("download", download).add_argument
    add("dataset", choices=("pizza-steak-sushi", "pizza-steak-sushi-20-percent"))
    add("--to", metavar="FOLDER", help="where it goes [the user's folder]")

    add = command("figure", figure).add_argument
    add("data", help="folder or zip of class folders")
    add("--count", type=int, default=25, help="photos [25]")
    add("--seed", type=int, default=0)
    add("--out", default="photos.png", metavar="FILE", help="[photos.png]")

    given = parser.parse_args(arguments)
    try:
        return given.run(given)
    except (ValueError, OSError) as error:
        print(one_line(str(error)), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


def classify(given: argparse.Namespace) -> int:
    """Name the dish on photos."""
    from vit.classifier import DEFAULT, Classifier
    from vit.images import PhotoError

    classifier = Classifier.load(given.checkpoint or DEFAULT, given.precision)
    fit = "letterbox" if given.whole else None
    answers = classifier.classify_many(given.photos, given.top, fit)
    found = []
    for photo, answer in zip(given.photos, answers, strict=True):
        if isinstance(answer, PhotoError):
            found.append({"photo": photo, "error": str(answer)})
            if not given.json:
                print(one_line(str(answer)), file=sys.stderr)
            continue
        ranked = list(zip(answer.labels, answer.probabilities, strict=True))
        found.append(
            {
                "photo": photo,
                "top": [{"label": label, "probability": value} for label, value in ranked],
                "unsure": answer.unsure,
                "box": answer.box,
                "milliseconds": answer.milliseconds,
            }
        )
        if not given.json:
            unsure = f", but none of {len(classifier.card.classes)} dishes looks right"
            print(
                f"{one_line(photo)} ({answer.milliseconds:.0f} ms{unsure if answer.unsure else ''})"
            )
            for label, value in ranked:
                print(f"  {percent(value):>6}  {label}")
    if given.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
    return 2 if any("error" in row for row in found) else 0


def evaluate(given: argparse.Namespace) -> int:
    """Count what a checkpoint gets right on photos in class folders."""
    from dataclasses import replace

    from vit import checkpoint
    from vit.classifier import Classifier, UntrainedHead
    from vit.data import dish_name, open_photos
    from vit.evaluate import confused, recorded
    from vit.evaluate import evaluate as count

    if bool(given.record) != bool(given.out):
        raise ValueError("--record NAME and --out FILE belong together: give both or neither.")
    if given.out and given.precision != "float32":
        raise ValueError("A checkpoint is written from float32 alone: leave out --precision.")
    classifier = Classifier.load(given.checkpoint, given.precision)
    if not classifier.card.trained_head:
        raise UntrainedHead(f"{classifier.name} has no trained head; fine-tune it first.")
    skipped: list[tuple[str, str]] = []
    photos = open_photos(given.folder, check=True, skipped=skipped)
    card = classifier.card
    if given.crop is not None:
        card = replace(card, preprocess=replace(card.preprocess, crop=given.crop))
    result = count(classifier.model, photos, card.preprocess, card.classes, progress=progress)
    if given.out:
        checkpoint.save(given.out, classifier.model, recorded(card, given.record, result))
    for name, why in skipped:
        print(one_line(f"left out: {name}: {why}"), file=sys.stderr)
    wrong = result.confusion
    recalls = {
        name: Count(int(wrong[i, i]), int(wrong[i].sum()))
        for i, name in enumerate(card.classes)
        if wrong[i].sum()
    }
    if given.json:
        counts = {
            "checkpoint": classifier.name,
            "top1": result.top1.to_json(),
            "top5": result.top5.to_json(),
            "classes": {name: recall.to_json() for name, recall in recalls.items()},
            "confusion": {
                "classes": list(card.classes),
                "rows_actual": result.confusion.tolist(),
            },
            "milliseconds": result.milliseconds,
            "skipped": skipped,
        }
        print(json.dumps(counts, indent=1, ensure_ascii=False))
        return 0
    print(f"{classifier.name}: {result.top1}")
    if len(card.classes) > 5:
        print(f"among the first five: {result.top5}")
    print(f"{result.milliseconds:.0f} ms a photo, file to answer")
    for name, recall in sorted(recalls.items(), key=lambda item: item[1].rate)[:10]:
        print(f"  {dish_name(name):<24} {recall}")
    pairs = confused(result, card.classes)
    print("most confused:" if pairs else "nothing confused")
    for actual, answered, times in pairs:
        print(f"  {times:>4} × {dish_name(actual)} taken for {dish_name(answered)}")
    if given.out:
        print(f"checkpoint: {given.out}")
    return 0


def results(given: argparse.Namespace) -> int:
    """Show what a finished run got right and wrong, photo by photo."""
    from vit.data import dish_name
    from vit.home import home
    from vit.outcome import Answers, OutcomeError, counted

    own = home() / "runs" / given.run_folder
    asked = counted(own if own.is_dir() else Path(given.run_folder))
    while True:
        try:
            progress(*next(asked))
        except StopIteration as end:
            outcome = end.value
            break
    sets: dict[str, Answers] = {each.name: each for each in outcome.sets}
    if given.set and given.set not in sets:
        raise OutcomeError(f"The run has no set {given.set}; choose one of {', '.join(sets)}.")
    shown = outcome.named(given.set)
    classes, table = shown.classes, shown.confusion
    if given.json:
        values = {
            "set": shown.name,
            "top1": shown.count.to_json(),
            "recall": {name: c.to_json() for name, c in zip(classes, shown.recalls, strict=True)},
            "precision": {
                name: c.to_json() for name, c in zip(classes, shown.precisions, strict=True)
            },
            "confusion": {"classes": list(classes), "rows_actual": table.tolist()},
            "photos": [
                {
                    "file": answer.photo.name,
                    "actual": classes[answer.actual],
                    "predicted": classes[answer.predicted],
                    "probability": answer.probability,
                }
                for answer in shown.answers
            ],
        }
        print(json.dumps(values, indent=1, ensure_ascii=False))
        return 0
    for each in outcome.sets:
        print(f"{each.name}: {each.count}")
    names = [dish_name(name) for name in classes]
    width = min(24, max(map(len, names)))
    print(f"\n{shown.name}, class by class: recognised; right of the times it was answered")
    for name, recall, precision in zip(names, shown.recalls, shown.precisions, strict=True):
        print(f"  {name:<{width}} {recall}; {precision.correct}/{precision.total}")
    if len(names) <= 12:
        cell = max(4, len(str(table.max())) + 1)
        print("\nrow: what it is; column: what was answered, in the order of the rows")
        for name, row in zip(names, table, strict=True):
            print(f"  {name:<{width}}" + "".join(f"{count:>{cell}}" for count in row))
    pairs = shown.confused()[:10]
    print("\nmost confused:" if pairs else "\nnothing confused")
    for actual, predicted, count in pairs:
        print(f"  {count:>4} × {names[actual]} taken for {names[predicted]}")
    mistakes = shown.mistakes()[: max(0, given.worst)]
    if mistakes:
        print("\nmost certain mistakes:")
    for answer in (shown.answers[place] for place in mistakes):
        said = f"{names[answer.actual]} taken for {names[answer.predicted]}"
        print(f"  {percent(answer.probability):>6}  {said}: {one_line(answer.photo.name)}")
    return 0


def doctor(given: argparse.Namespace) -> int:
    """Say what is in a data set and what training does with every file; 2 when it cannot train."""
    from vit.doctor import examine
    from vit.findings import KINDS, Report, shown_findings
    from vit.findings_html import page_html

    report = None
    for step in examine(given.data):
        if isinstance(step, Report):
            report = step
        elif step.total:
            progress(step.done, step.total)
    assert report
    if given.report:
        path = Path(given.report)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page_html(report), "utf-8")
        print(f"report: {path}", file=sys.stderr)
    if given.json:
        print(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
        return 0 if report.trainable else 2
    print("\n".join(line for line in dict.fromkeys(report.lines())))
    for name, findings in shown_findings(report.findings).items():
        print(f"\n{KINDS[name].title} ({len(findings):,}). {KINDS[name].advice}")
        for finding in findings[:10]:
            files = " = ".join(plain(file) for file in finding.files)
            print(f"  {files}: {finding.happens}" if files else f"  {finding.happens}")
        if len(findings) > 10:
            print(f"  … and {len(findings) - 10:,} more; --report and --json list them")
    return 0 if report.trainable else 2


def calibrate(given: argparse.Namespace) -> int:
    """Make a checkpoint's probabilities honest, and choose when it says that it is unsure."""
    from vit import checkpoint
    from vit.calibrate import calibrate as fit
    from vit.data import open_photos
    from vit.home import home
    from vit.reliability import reliability_plot

    path = checkpoint.resolve(given.checkpoint)
    model, card = checkpoint.load(path)
    strangers: list[Path] = []
    if given.strangers:
        strangers = sorted(p for p in Path(given.strangers).iterdir() if p.name[0] != ".")
    photos = open_photos(given.photos, check=True)
    result = fit(model, card, photos, strangers, given.share, progress=progress)
    out = Path(given.out or home() / "checkpoints" / path.name)
    checkpoint.save(out, model, result.card)
    if given.plot:
        reliability_plot(result.before, result.after).savefig(given.plot, dpi=100)
    print(f"temperature {result.card.temperature}, unsure below {result.card.unsure_below}")
    print(
        f"expected calibration error {100 * result.before.ece:.1f} % before, "
        f"{100 * result.after.ece:.1f} % after"
    )
    print(f"called unsure: known dishes {result.known}")
    print(f"called unsure: the same with their own dish struck from the answers {result.unknown}")
    if strangers:
        print(f"called unsure: {given.strangers} {result.strangers}")
    print(f"checkpoint: {out}")
    return 0


def blend(given: argparse.Namespace) -> int:
    """Mix a checkpoint's weights with those it was trained from; count it anew afterwards."""
    from vit import checkpoint
    from vit.blend import blend as mix
    from vit.blend import blended
    from vit.start import load

    fine, card = checkpoint.load(checkpoint.resolve(given.checkpoint))
    path = Path(given.start) if Path(given.start).is_file() else checkpoint.resolve(given.start)
    model = mix(fine, load(path)[0], given.share)
    checkpoint.save(given.out, model, blended(card, given.share, checkpoint.fingerprint(path)))
    print(f"checkpoint: {given.out}")
    return 0


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


def tour(given: argparse.Namespace) -> int:
    """Take a photo through a model step by step, as Markdown with the real numbers."""
    from vit.checkpoint import resolve
    from vit.classifier import DEFAULT
    from vit.guide import first_choice, guide
    from vit.tour import as_markdown

    this = guide(given.photo, resolve(given.checkpoint or DEFAULT))
    print(as_markdown(this, first_choice(this)), end="")
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


def described(path: Path, card: "Card") -> None:
    """Print what an imported model is, and what was done to it."""
    config, training = card.config, card.training
    rows, columns = config.grid
    print(
        f"{path}\n{training['layout']}: {config.depth} blocks, {config.width} wide, "
        f"{config.heads} heads, {rows} × {columns} patches, {config.classes} classes"
    )
    seen = card.preprocess
    print(
        f"It sees {seen.size[0]} × {seen.size[1]} pixels, {seen.crop:.3g} of the short side, "
        f"{seen.interpolation}, mean {seen.mean}, standard deviation {seen.std}."
    )
    for note in training["notes"]:
        print(one_line(note))
    if "checked" in training:
        print(f"Checked: {training['checked']}.")
    if not card.trained_head:
        print(
            f"It has no trained head: fine-tune it with python train.py PHOTOS --from {path.stem}"
        )


def download(given: argparse.Namespace) -> int:
    """Fetch the photos of pizza, steak and sushi."""
    from vit.download import download_pizza_steak_sushi

    variant = "20_percent" if given.dataset.endswith("percent") else "10_percent"
    print(download_pizza_steak_sushi(given.to, variant, megabytes))
    return 0


def figure(given: argparse.Namespace) -> int:
    """Draw random training photos with their labels."""
    from vit.data import open_data, sample_figure

    sample_figure(open_data(given.data).train, given.count, given.seed).save(given.out)
    print(given.out)
    return 0


def percent(value: float) -> str:
    """A probability for people."""
    return "< 1 %" if value < 0.01 else f"{100 * value:.0f} %"


def progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total} photos", end="\n" if done == total else "", file=sys.stderr)


def megabytes(done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        of = f" of {total / 1e6:.1f}" if total else ""
        end = "\n" if done == total else ""
        print(f"\r{done / 1e6:.1f}{of} MB", end=end, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
