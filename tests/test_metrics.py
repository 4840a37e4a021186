"""Numbers that can be worked out on paper."""

import math

import numpy as np
import pytest
import torch

from vit.metrics import (
    Calibration,
    Count,
    calibration_error,
    confusion,
    fit_temperature,
    top_k_correct,
    wilson,
)


def test_wilson_by_hand():
    # With z = 1 and 1 of 2: middle (1/2 + 1/4) / (3/2) = 1/2, half √(1/8 + 1/16) / (3/2) = 1/√12.
    assert wilson(1, 2, z=1) == pytest.approx((0.5 - 1 / math.sqrt(12), 0.5 + 1 / math.sqrt(12)))
    # All right: the lower end is n / (n + z²).
    low, high = wilson(3, 3, z=2)
    assert low == pytest.approx(3 / 7) and high == 1.0
    # All wrong: the mirror image, z² / (n + z²).
    low, high = wilson(0, 3, z=2)
    assert low == 0.0 and high == pytest.approx(4 / 7)
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilson_of_the_course_test_set():
    # p = 0.97333, z² = 3.84146, n = 75: middle 0.95027, half 0.04239.
    assert wilson(73, 75) == pytest.approx((0.90788, 0.99266), abs=5e-5)


@pytest.mark.parametrize(("correct", "total"), [(-1, 3), (4, 3)])
def test_impossible_counts_are_refused(correct, total):
    with pytest.raises(ValueError, match="0 <= correct <= total"):
        wilson(correct, total)
    with pytest.raises(ValueError, match="0 <= correct <= total"):
        Count(correct, total)


def test_count_reads_well_and_survives_json():
    count = Count(73, 75)
    assert str(count) == "73/75 = 97.3 % (90.8 to 99.3 %)"
    assert count.rate == pytest.approx(73 / 75)
    assert Count.from_json(count.to_json()) == count
    assert str(Count(0, 0)) == "0/0" and math.isnan(Count(0, 0).rate)
    for broken in ({}, {"correct": 1}, {"correct": 1.5, "total": 2}, {"correct": True, "total": 1}):
        with pytest.raises(ValueError, match="whole number"):
            Count.from_json(broken)


def test_confusion_has_what_it_is_in_rows():
    table = confusion([0, 0, 1, 2, 2], torch.tensor([0, 1, 1, 0, 0]), 3)
    assert table.tolist() == [[1, 1, 0], [0, 1, 0], [2, 0, 0]]
    assert confusion([], [], 2).tolist() == [[0, 0], [0, 0]]
    for actual, answer in (([0], [3]), ([0], [-1]), ([0, 1], [0]), ([0.5], [0])):
        with pytest.raises(ValueError):
            confusion(actual, answer, 3)  # type: ignore[arg-type]


def test_top_k():
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 3.0, 1.0]])
    targets = [0, 0, 0]  # first, third and second best
    assert [top_k_correct(logits, targets, k) for k in (1, 2, 3, 9)] == [1, 2, 3, 3]
    with pytest.raises(ValueError, match="NaN"):
        top_k_correct(logits * math.nan, targets, 1)
    with pytest.raises(ValueError, match="3 rows of scores but 2 targets"):
        top_k_correct(logits, [0, 0], 1)


def test_calibration_by_hand():
    # Two bins: 0.5 falls into the lower. There one wrong answer at 0.5, above right, right, wrong
    # at 0.9, 0.7, 0.8: ece = 1/4 · |0 - 0.5| + 3/4 · |2/3 - 0.8| = 0.125 + 0.1.
    sure = torch.tensor([0.5, 0.9, 0.7, 0.8], dtype=torch.float64)
    result = calibration_error(torch.stack([sure, 1 - sure], 1), [1, 0, 0, 1], bins=2)
    assert result.ece == pytest.approx(0.225)
    assert result.count == (1, 3)
    assert result.confidence == pytest.approx((0.5, 0.8))
    assert result.accuracy == pytest.approx((0.0, 2 / 3))


def test_calibration_marks_empty_bins_and_refuses_logits():
    result = calibration_error(torch.tensor([[1.0, 0.0]]), [0], bins=3)
    assert result.ece == 0 and result.count == (0, 0, 1) and math.isnan(result.accuracy[0])
    with pytest.raises(ValueError, match="softmax"):
        calibration_error(torch.tensor([[4.0, -1.0]]), [0])
    with pytest.raises(ValueError, match="none"):
        calibration_error(torch.zeros(0, 2), [])


def test_a_calibration_from_a_file_is_checked():
    good = [{"correct": 1, "total": 2, "confidence": 0.6}, {"correct": 0, "total": 0}]
    assert Calibration.from_json(good).ece == pytest.approx(0.1)
    for change in ({"correct": 3}, {"confidence": 1.5}, {"confidence": "x"}, {"total": 0.5}):
        with pytest.raises(ValueError):
            Calibration.from_json([good[0] | change])
    for broken in (None, [], [{}], good[1:], [good[0]] * 101, {"bins": good}):
        with pytest.raises(ValueError):
            Calibration.from_json(broken)


def test_temperature_by_hand():
    # Logits ±1 (a gap of 2) and three right of four: without the imaginary photo σ(2/T) = 3/4, so
    # T = 2 / ln 3. That photo counts half for each class: (3n + 1/2) / (4n + 1) instead of 3/4.
    for n in (1, 1000):
        logits = torch.tensor([[1.0, -1.0]]).repeat(4 * n, 1)
        targets = torch.tensor([0, 0, 0, 1]).repeat(n)
        share = (3 * n + 0.5) / (4 * n + 1)
        expected = 2 / math.log(share / (1 - share))
        assert fit_temperature(logits, targets) == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx(2 / math.log(3), rel=1e-3)


def test_temperature_recovers_a_known_scale_and_lowers_the_loss():
    generator = torch.Generator().manual_seed(0)
    honest = 2 * torch.randn(4000, 5, generator=generator)
    targets = torch.multinomial(honest.softmax(1), 1, generator=generator)[:, 0]
    assert fit_temperature(honest, targets) == pytest.approx(1, abs=0.1)
    fitted = fit_temperature(7 * honest, targets)
    assert fitted == pytest.approx(7 * fit_temperature(honest, targets), rel=1e-6)
    loss = torch.nn.functional.cross_entropy
    least = loss(7 * honest / fitted, targets)
    assert least < loss(7 * honest / (1.05 * fitted), targets)
    assert least < loss(7 * honest / (0.95 * fitted), targets)


def test_temperature_stays_sane_at_the_edges():
    # Ten photos, no mistake: as sure as ten and a half of eleven, never 100 %.
    logits = 3 * torch.eye(2)[torch.arange(10) % 2]
    sure = (logits / fit_temperature(logits, np.arange(10) % 2)).softmax(1).max()
    assert sure == pytest.approx(10.5 / 11, abs=1e-6)
    assert fit_temperature(torch.zeros(4, 3), [0, 1, 2, 0]) == 1.0
    assert fit_temperature(logits, 1 - np.arange(10) % 2) == pytest.approx(100)  # all wrong
    for broken in (torch.full((1, 2), math.inf), torch.zeros(0, 2)):
        with pytest.raises(ValueError, match="finite"):
            fit_temperature(broken, [0] * len(broken))
