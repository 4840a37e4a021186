"""How good is it, and how sure can we be: counts, intervals, confusion, calibration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST_BINS = 100  # of a calibration
MOST = 10**12  # counted in one file; more would be no count, and no float either
Labels = Sequence[int] | np.ndarray | Tensor


def wilson(correct: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson score interval (low, high) of a rate, both within 0 to 1; z = 1.96 gives 95 %.

    Unlike rate ± z·σ it stays within 0 to 1 and says something when every answer was right.
    Nothing counted gives (0, 1). ValueError unless 0 <= correct <= total.
    Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if not 0 <= correct <= total:
        raise ValueError(f"A count needs 0 <= correct <= total, got {correct} of {total}.")
    if total == 0:
        return 0.0, 1.0
    rate, spread = correct / total, z * z / total
    middle = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / total + spread / (4 * total)) / (1 + spread)
    # At the ends the formula is exact; rounding must not turn 1 into 0.9999999.
    low = 0.0 if correct == 0 else middle - half
    high = 1.0 if correct == total else middle + half
    return low, high


@dataclass(frozen=True)
class Count:
    """`correct` right answers out of `total`; ValueError unless 0 <= correct <= total."""

    correct: int
    total: int

    def __post_init__(self) -> None:
        if not 0 <= self.correct <= self.total:
            raise ValueError(
                f"A count needs 0 <= correct <= total, got {self.correct} of {self.total}."
            )

    @property
    def rate(self) -> float:
        """Share of right answers, 0 to 1; NaN when nothing was counted."""
        return self.correct / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the rate."""
        return wilson(self.correct, self.total)

    def __str__(self) -> str:
        if self.total == 0:
            return "0/0"
        low, high = self.interval
        return (
            f"{self.correct}/{self.total} = {100 * self.rate:.1f} % "
            f"({100 * low:.1f} to {100 * high:.1f} %)"
        )

    def to_json(self) -> dict[str, int]:
        return {"correct": self.correct, "total": self.total}

    @classmethod
    def from_json(cls, data: dict[str, int]) -> "Count":
        """The inverse of `to_json`; ValueError when a field is missing or not a whole number."""
        fields = []
        for name in ("correct", "total"):
            value = data.get(name) if isinstance(data, dict) else None
            if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MOST:
                raise ValueError(f"A count needs a whole number as '{name}', not {value!r:.40}.")
            fields.append(value)
        return cls(*fields)


def confusion(actual: Labels, predicted: Labels, classes: int) -> np.ndarray:
    """(classes, classes) int64: row = what it is, column = what was answered.

    ValueError when the two differ in length or hold a label outside 0 to classes - 1.
    """
    rows, columns = _labels(actual, classes), _labels(predicted, classes)
    if len(rows) != len(columns):
        raise ValueError(f"{len(rows)} labels but {len(columns)} answers.")
    cells = np.bincount(rows * classes + columns, minlength=classes * classes)
    return cells.reshape(classes, classes).astype(np.int64)


def top_k_correct(logits: Tensor, targets: Labels, k: int) -> int:
    """How many of N rows of logits (N, C) have their target (N,) among the k highest.

    k above C counts as C. ValueError for NaN, unequal lengths, labels outside 0 to C - 1, k < 1.
    """
    if k < 1:
        raise ValueError(f"Top-k needs k of at least 1, got {k}.")
    scores, wanted = _scores(logits, targets)
    best = scores.topk(min(k, scores.shape[1]), dim=1).indices  # (N, k)
    return int((best == wanted[:, None]).any(dim=1).sum())


@dataclass(frozen=True)
class Calibration:
    """Do 80 % sure answers come true 80 % of the time? One entry a bin, from unsure to sure.

    ece: expected calibration error, 0 to 1 (0 is best). confidence, accuracy: means in the bin,
    NaN where it is empty. count: answers in the bin.
    """

    ece: float
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    count: tuple[int, ...]

    @property
    def counts(self) -> tuple[Count, ...]:
        """The right answers of each bin."""
        return tuple(
            Count(round(accuracy * count) if count else 0, count)
            for accuracy, count in zip(self.accuracy, self.count, strict=True)
        )

    def to_json(self) -> list[dict[str, Any]]:
        """A bin's counts, and how sure its answers were on average (4 digits; null without any)."""
        return [
            {**each.to_json(), "confidence": round(sure, 4) if each.total else None}
            for each, sure in zip(self.counts, self.confidence, strict=True)
        ]

    @classmethod
    def from_json(cls, data: object) -> "Calibration":
        """The inverse of `to_json`, up to its rounding; ValueError for anything else."""
        bins = data if isinstance(data, list) and len(data) <= MOST_BINS else []
        counts = tuple(Count.from_json(each) for each in bins)
        total = sum(count.total for count in counts)
        if not total:
            raise ValueError(f"A calibration needs up to {MOST_BINS} bins, and answers in them.")
        confidence, apart = [], 0.0
        for each, count in zip(bins, counts, strict=True):
            sure = each.get("confidence") if count.total else math.nan
            if not isinstance(sure, float | int) or sure < 0 or sure > 1:
                raise ValueError(f"A bin's confidence must be from 0 to 1, not {sure!r:.40}.")
            confidence.append(float(sure))
            apart += abs(count.correct - count.total * sure) if count.total else 0
        rates, totals = (count.rate for count in counts), (count.total for count in counts)
        return cls(apart / total, tuple(confidence), tuple(rates), tuple(totals))


def calibration_error(probabilities: Tensor, targets: Labels, bins: int = 15) -> Calibration:
    """Expected calibration error of probabilities (N, C) with equally wide bins of confidence.

    A bin holds its upper edge, not its lower. ValueError as in `top_k_correct`, and when
    probabilities lie outside 0 to 1 (logits passed by mistake) or nothing is given.
    Guo et al. 2017, arXiv:1706.04599, equation 3.
    """
    if bins < 1:
        raise ValueError(f"Calibration needs at least one bin, got {bins}.")
    scores, wanted = _scores(probabilities, targets)
    if len(scores) == 0:
        raise ValueError("Calibration needs at least one answer, got none.")
    if scores.min() < -1e-6 or scores.max() > 1 + 1e-6:
        raise ValueError("Calibration needs probabilities between 0 and 1; apply softmax first.")
    sure, answer = scores.max(dim=1)
    right = (answer == wanted).double().numpy()
    sure = sure.numpy()
    place = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    filled = np.maximum(count, 1)
    confidence = np.bincount(place, sure, bins) / filled
    accuracy = np.bincount(place, right, bins) / filled
    ece = float((count * np.abs(accuracy - confidence)).sum() / count.sum())
    confidence[count == 0] = accuracy[count == 0] = math.nan
    return Calibration(
        ece, tuple(confidence.tolist()), tuple(accuracy.tolist()), tuple(count.tolist())
    )


def fit_temperature(logits: Tensor, targets: Labels) -> float:
    """The temperature T, 0.01 to 100, whose softmax(logits / T) fits the targets best.

    Minimises the negative log-likelihood of N photos and one imaginary photo more that could be
    of any class. That one hardly moves T when N is large, and without it a small validation set
    with no mistake would ask for T = 0: certainty that its few photos cannot prove (the law of
    succession; Platt smooths his targets for the same reason). Logits (N, C), targets (N,).
    Rows that are all equal say nothing: 1. ValueError for infinities, NaN or no row.
    Guo et al. 2017, arXiv:1706.04599, section 4.2.
    """
    scores, wanted = _scores(logits, targets)
    if len(scores) == 0 or not torch.isfinite(scores).all():
        raise ValueError("A temperature needs at least one row of logits, all of them finite.")
    scores = scores - scores.mean(dim=1, keepdim=True)  # mean 0: what the imaginary photo expects
    rows = len(scores)
    reached = scores.gather(1, wanted[:, None]).sum() / (rows + 1)

    def slope(sharpness: float) -> float:
        """Derivative of the loss by 1/T; it only rises, so its zero is the one minimum."""
        expected = (torch.softmax(sharpness * scores, dim=1) * scores).sum() / rows
        return float(expected - reached)

    if float(scores.abs().max()) < 1e-12:
        return 1.0
    low, high = math.log(0.01), math.log(100)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) < 0 else (low, middle)
    return math.exp(-(low + high) / 2)


def _labels(labels: Labels, classes: int) -> np.ndarray:
    """Labels as int64 (N,), each checked to be one of `classes`."""
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    array = np.asarray(labels)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"Labels must be a row of whole numbers, got shape {array.shape}.")
    array = array.astype(np.int64)
    if array.size and (array.min() < 0 or array.max() >= classes):
        raise ValueError(
            f"Labels must lie between 0 and {classes - 1}, got {array.min()} to {array.max()}."
        )
    return array


def _scores(scores: Tensor, targets: Labels) -> tuple[Tensor, Tensor]:
    """Scores (N, C) as float64 and targets (N,) as int64, both on the CPU and checked."""
    if scores.ndim != 2:
        raise ValueError(f"Expected scores of shape (N, C), got {tuple(scores.shape)}.")
    scores = scores.detach().cpu().double()
    wanted = torch.from_numpy(_labels(targets, scores.shape[1]))
    if len(scores) != len(wanted):
        raise ValueError(f"{len(scores)} rows of scores but {len(wanted)} targets.")
    if scores.isnan().any():
        raise ValueError("The scores hold NaN: the model that gave them is broken.")
    return scores, wanted
