"""Commands that ask a model about photos, or a run about its answers."""

import argparse
import json
import sys
from pathlib import Path

from vit.cli.terminal import Command, percent, progress
from vit.metrics import Count
from vit.names import one_line


def add_to(command: Command) -> None:
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
    add("run_folder", metavar="RUN", help="folder of a run, or its name")
    add("--set", help="photos to look at: test, validation … [the largest test set]")
    add("--worst", type=int, default=10, help="mistakes to list [10]")
    add("--json", action="store_true", help="print JSON, with every photo")

    add = command("calibrate", calibrate).add_argument
    add("checkpoint", help="name or path; a bundled one is copied into the user's folder")
    add("photos", metavar="PHOTOS", help="validation photos in class folders")
    add("--strangers", metavar="FOLDER", help="pictures of anything but the model's dishes")
    add("--share", type=float, default=0.1, help="of known photos that may be called unsure [0.1]")
    add("--plot", metavar="FILE", help="draw how honest the probabilities are")
    add("--out", metavar="FILE", help="where the calibrated checkpoint goes")

    add = command("tour", tour).add_argument
    add("photo", metavar="PHOTO")
    add("--checkpoint", default=None, help="name or path [the bundled one]")


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
    from vit.data import open_photos
    from vit.evaluate import confused, recorded
    from vit.evaluate import evaluate as count
    from vit.names import dish_name

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
    from vit.home import home
    from vit.names import dish_names
    from vit.outcome import Answers, OutcomeError, counted
    from vit.runs import Runs

    folder = home() / "runs" / given.run_folder
    if not folder.is_dir():
        folder = Path(given.run_folder)
    if not folder.is_dir():  # what the page and `train.py` call it; of several the newest
        named = (run.folder for run in Runs().all() if run.title == given.run_folder)
        folder = next(named, folder)
    asked = counted(folder)
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
    names = dish_names(classes)
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


def tour(given: argparse.Namespace) -> int:
    """Take a photo through a model step by step, as Markdown with the real numbers."""
    from vit.checkpoint import resolve
    from vit.classifier import DEFAULT
    from vit.guide import first_choice, guide
    from vit.tour import as_markdown

    this = guide(given.photo, resolve(given.checkpoint or DEFAULT))
    print(as_markdown(this, first_choice(this)), end="")
    return 0
