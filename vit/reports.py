"""What a training run says while it goes on: small frozen values, as JSON and in words."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from vit.metrics import Count
from vit.names import one_line


@dataclass(frozen=True)
class Started:
    """What will be trained on what. `resumed_at` is the step that a resumed run goes on from."""

    start: str
    classes: tuple[str, ...]
    train: int  # photos, like the next two
    val: int
    test: int
    epochs: int
    steps: int
    trainable: int  # parameters
    fingerprint: str  # of the data set
    resumed_at: int


@dataclass(frozen=True)
class Prepared:
    """Before the first step, the backbone has seen `done` of `total` photos, once and for all.

    `seconds_left` is for the rest of them, None where that is not known.
    """

    done: int
    total: int
    seconds_left: float | None = None


@dataclass(frozen=True)
class Step:
    """After a batch. `waited` is the share of the time spent waiting for photos, 0 to 1."""

    step: int
    epoch: int
    loss: float
    rate: float
    photos_per_second: float
    seconds_left: float
    waited: float


@dataclass(frozen=True)
class Epoch:
    """After an epoch: the mean training loss, and counts on the validation photos.

    train: right answers to the training photos as the epoch met them: changed at random, and by
    weights that were still learning, so it may be below `val`. A mixture of two photos counts as
    the one of the larger share. None in what an older version wrote.
    """

    step: int
    epoch: int
    train_loss: float
    val_loss: float
    val: Count
    best: bool
    train: Count | None = None


@dataclass(frozen=True)
class Warned:
    """Something that a person should know, in one sentence."""

    step: int
    text: str


@dataclass(frozen=True)
class Finished:
    """The end: how it came, and counts of the kept weights on every set of photos.

    outcome: `finished`, `stopped` (by a person, a success) or `failed` (the loss was no number).
    path: the checkpoint in the run's folder; empty when there was nothing to keep.
    """

    step: int
    outcome: str
    metrics: dict[str, Count]
    seconds: float
    path: str


Report = Started | Prepared | Step | Epoch | Warned | Finished


def report_to_json(report: Report) -> dict[str, Any]:
    """A report as JSON values, with its class name as `kind`."""
    return {"kind": type(report).__name__.lower(), **asdict(report)}


def report_from_json(values: Mapping[str, Any]) -> Report:
    """The report that `report_to_json` described; ValueError for anything else."""
    kinds = {
        kind.__name__.lower(): kind for kind in (Started, Prepared, Step, Epoch, Warned, Finished)
    }
    try:
        kind = kinds[values["kind"]]
        found = {
            setting.name: values[setting.name]
            for setting in fields(kind)
            if setting.default is MISSING or setting.name in values
        }
        if kind is Started:
            found["classes"] = tuple(found["classes"])
        if kind is Epoch:
            found["val"] = Count(**found["val"])
            if found.get("train") is not None:
                found["train"] = Count(**found["train"])
        if kind is Finished:
            found["metrics"] = {name: Count(**count) for name, count in found["metrics"].items()}
        return kind(**found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"This is not a report of a run: {error!r}.") from None


def in_words(report: Report) -> str:
    """A report for a person: one line, or several for the counts at the end."""
    match report:
        case Started():
            again = f", resumed at step {report.resumed_at}" if report.resumed_at else ""
            return (
                f"{len(report.classes)} classes, {report.train} training, {report.val} validation, "
                f"{report.test} test photos, {report.trainable:,} parameters, "
                f"{number(report.epochs, 'epoch')}, {number(report.steps, 'step')}{again}"
            )
        case Prepared():
            left = report.seconds_left
            rest = "" if left is None else f" · {duration(left)} left"
            return f"looked at {report.done} of {report.total} photos{rest}"
        case Step():
            return (
                f"step {report.step} · loss {report.loss:.3f} · rate {report.rate:.1e} · "
                f"{report.photos_per_second:.0f} photos/s · {duration(report.seconds_left)} left · "
                f"waited {100 * report.waited:.0f} %"
            )
        case Epoch():
            mark = " · best so far" if report.best else ""
            train = report.train
            met = f"{train.correct}/{train.total} right as trained · " if train else ""
            return (
                f"epoch {report.epoch + 1} · train loss {report.train_loss:.3f} · {met}"
                f"val loss {report.val_loss:.3f} · val {report.val}{mark}"
            )
        case Warned():
            return f"warning: {one_line(report.text)}"
        case Finished():
            counts = "".join(f"\n  {one_line(n)}: {count}" for n, count in report.metrics.items())
            took = duration(report.seconds)
            return f"{report.outcome} after {number(report.step, 'step')} and {took}{counts}"


def number(count: int, thing: str) -> str:
    """For instance "1 epoch", "2 epochs"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def duration(seconds: float) -> str:
    """Seconds in words: "1 h 5 min", "2 min 3 s", "9 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
