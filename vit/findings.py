"""What the doctor says of a data set: findings, each with what happens to the file, and a report.

Values and words only; `vit.doctor` finds, `vit.findings_html` draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from vit.names import dish_names, plain

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
SPLIT_NAMES = {"train": "training", "val": "validation", "test": "test"}
FORMAT = 1  # of the JSON report


@dataclass(frozen=True)
class Kind:
    """A kind of finding. `title` is a heading; `few` and `many` count it in a sentence."""

    title: str
    few: str
    many: str
    used: bool  # whether the files are trained on, or counted, all the same
    advice: str


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        # left out
        "truncated": Kind(
            "Cut short", "cut short", "cut short", False, "Copy or download them again."
        ),
        "unreadable": Kind(
            "Cannot be read",
            "unreadable",
            "unreadable",
            False,
            "Open them in a photo program and save them as JPEG, or leave them out.",
        ),
        "empty": Kind("Empty files", "empty", "empty", False, "Copy or download them again."),
        "too large": Kind(
            "Too large", "too large", "too large", False, "Make them smaller; 1,000 pixels do."
        ),
        "too small": Kind(
            "Too small, or too narrow a strip",
            "too small",
            "too small",
            False,
            "Use the photo that they were made from.",
        ),
        "contradiction": Kind(
            "The same file under two classes",
            "under two classes",
            "under two classes",
            False,
            "Keep each photo in the class that it shows.",
        ),
        "copy of test": Kind(
            "Training photos that are test or validation photos too",
            "copy of a test or validation photo",
            "copies of test or validation photos",
            False,
            "Nothing need be done: what is counted on stays out of training.",
        ),
        "copy": Kind(
            "Copies of a photo of the same class",
            "copy",
            "copies",
            False,
            "Nothing need be done: one of each is kept.",
        ),
        "packed": Kind(
            "Zips inside",
            "zip or archive inside",
            "zips or archives inside",
            False,
            "Unpack them into class folders first.",
        ),
        "no photo": Kind("No photos", "no photo", "no photos", False, "Nothing need be done."),
        "hidden": Kind(
            "Hidden and system files",
            "hidden or system file",
            "hidden or system files",
            False,
            "Nothing need be done: photo programs and computers leave them behind.",
        ),
        "stray": Kind(
            "In no class folder",
            "in no class folder",
            "in no class folder",
            False,
            "Put them into the folder of the class that they show.",
        ),
        "not used": Kind(
            "Folders and files that are not read",
            "not read",
            "not read",
            False,
            "Move or rename what you want to be used.",
        ),
        # of a class or the whole set
        "empty class": Kind(
            "Classes without photos",
            "class without photos",
            "classes without photos",
            False,
            "Add photos, or delete the folder.",
        ),
        "few photos": Kind(
            "Classes with few photos",
            "class with few photos",
            "classes with few photos",
            True,
            "Add photos: other plates, other light, other sides.",
        ),
        "imbalance": Kind(
            "Unequal classes",
            "class far smaller than the largest",
            "classes far smaller than the largest",
            True,
            "Add photos to the small classes.",
        ),
        "similar names": Kind(
            "Class names that look the same",
            "pair of class names that look the same",
            "class names that look the same",
            True,
            "If they mean the same dish, put their photos into one folder.",
        ),
        # used
        "alike across classes": Kind(
            "The same picture in different classes",
            "picture in different classes",
            "pictures in different classes",
            True,
            "Keep each in the class that it shows.",
        ),
        "alike across sets": Kind(
            "The same picture to learn from and to count on",
            "picture both learnt from and counted on",
            "pictures both learnt from and counted on",
            True,
            "Keep each in one set only.",
        ),
        "alike": Kind(
            "The same picture more than once in a class",
            "picture more than once in its class",
            "pictures more than once in their class",
            True,
            "Keep the best of each.",
        ),
        "tiny": Kind("Tiny", "tiny", "tiny", True, "Use the photo that they were made from."),
        "huge": Kind(
            "Huge", "huge", "huge", True, "Made smaller they are read in a fraction of the time."
        ),
        "animated": Kind(
            "Several pictures in one file",
            "animation",
            "animations",
            True,
            "If another picture of it shows the dish better, save that one.",
        ),
        "not compared": Kind(
            "Not all photos were compared",
            "set too large to compare",
            "sets too large to compare",
            True,
            "Check a part of the data set by itself.",
        ),
    }
)


@dataclass(frozen=True)
class Finding:
    """Something about one file, class folder or group of files, and what happens to it."""

    kind: str  # a key of KINDS
    files: tuple[str, ...]  # '/'-separated paths inside the data set
    happens: str  # one sentence: what training does with it


@dataclass(frozen=True)
class ClassCount:
    """How many photos of a class each set has, copies and unreadable ones taken out."""

    name: str
    train: int = 0
    val: int = 0
    test: int = 0

    @property
    def learning(self) -> int:
        """Photos that training may draw on, to learn from or to choose by."""
        return self.train + self.val

    @property
    def total(self) -> int:
        return self.train + self.val + self.test


@dataclass(frozen=True)
class Report:
    """All that the doctor found. `problem` is the sentence that says why the data set cannot be
    trained on, "" when it can; `thumbnails` are JPEGs of some of the files named in `findings`."""

    data: str  # name of the folder or zip
    problem: str
    classes: tuple[ClassCount, ...]
    findings: tuple[Finding, ...]
    fingerprint: str = ""  # as `DataSet.fingerprint`
    drawn: bool = False  # whether the validation photos were drawn from the training photos
    thumbnails: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def trainable(self) -> bool:
        return not self.problem

    def of_kind(self, kind: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]

    def lines(self) -> tuple[str, str, str]:
        """Three plain lines: what there is, what is left out, what to look at."""
        return contents_line(self), left_out_line(self), look_line(self)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "data": self.data,
            "trainable": self.trainable,
            "problem": self.problem,
            "summary": list(self.lines()),
            "fingerprint": self.fingerprint,
            "validation": "drawn from the training photos" if self.drawn else "given",
            "classes": [
                {"name": c.name, "train": c.train, "val": c.val, "test": c.test}
                for c in self.classes
            ],
            "findings": [
                {
                    "kind": finding.kind,
                    "used": KINDS[finding.kind].used,
                    "files": list(finding.files),
                    "happens": finding.happens,
                    "advice": KINDS[finding.kind].advice,
                }
                for finding in self.findings
            ],
        }


def contents_line(report: Report) -> str:
    if not report.classes:
        return report.problem
    sizes = {split: sum(getattr(c, split) for c in report.classes) for split in SPLITS}
    names = dish_names([c.name for c in report.classes])
    named = [f"{plain(n, 40)} {c.total:,}" for n, c in zip(names, report.classes, strict=True)]
    if len(named) > 6:
        fewest, most = (pick(c.total for c in report.classes) for pick in (min, max))
        named = [f"{fewest:,} each" if fewest == most else f"{fewest:,} to {most:,} each"]
    text = f"{counted(sum(sizes.values()), 'photo')} of "
    text += f"{counted(len(report.classes), 'class', 'classes')} ({', '.join(named)})"
    if report.problem:
        return f"{text}: {report.problem}"
    parts = [f"{sizes['train']:,} to learn from", f"{sizes['val']:,} to choose by"]
    parts.append(f"{sizes['test']:,} to test with" if sizes["test"] else "none to test with")
    return f"{text}: {', '.join(parts)}."


def left_out_line(report: Report) -> str:
    return _line(report, used=False, otherwise="Nothing is left out.", start="Left out: ")


def look_line(report: Report) -> str:
    return _line(
        report, used=True, otherwise="Nothing else stands out.", start="Used, but worth a look: "
    )


def _line(report: Report, used: bool, otherwise: str, start: str) -> str:
    counts = Counter(f.kind for f in report.findings if KINDS[f.kind].used is used)
    parts = [
        counted(number, kind.few, kind.many)
        for name, kind in KINDS.items()
        if (number := counts[name])
    ]
    return f"{start}{'; '.join(parts)}." if parts else otherwise


def counted(number: int, one: str, many: str = "") -> str:
    """ "1 photo", "2,000 photos"."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """ "a, b and c"; beyond `most` names "a, b, c and 4 more"."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def shown_findings(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings by kind, in the order of KINDS."""
    kinds: dict[str, list[Finding]] = {name: [] for name in KINDS}
    for finding in findings:
        kinds[finding.kind].append(finding)
    return {name: members for name, members in kinds.items() if members}
