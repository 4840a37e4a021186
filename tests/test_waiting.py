"""What takes longer than a second says how long it will still take."""

from collections.abc import Callable

import pytest

from vit.doctor import Examined
from vit.reports import Prepared, in_words, report_from_json, report_to_json
from vit.speed import TimeLeft
from vit.ui.downloads import progress_html as download_html
from vit.ui.faithful import progress_html as hiding_html
from vit.ui.photos_in import examining_html
from vit.ui.results import _counting
from vit.ui.words import going_html

WAITS: dict[str, Callable[[float, TimeLeft], str]] = {  # by the share that is done
    "any": lambda share, clock: going_html("At work", share, clock),
    "download": lambda share, clock: download_html(int(4e7 * share), 40_000_000, clock),
    "zip": lambda share, clock: examining_html(Examined(int(400 * share), 400), clock),
    "faithful": lambda share, clock: hiding_html(share, 22, 3, clock),
    "result": lambda share, clock: _counting(int(400 * share), 400, clock),
}


@pytest.mark.parametrize("wait", WAITS)
def test_waits_say_how_long_still(wait: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("vit.speed.time.perf_counter", lambda: now)
    clock = TimeLeft()
    assert " left" not in WAITS[wait](0, clock)
    now = 30
    said = WAITS[wait](0.25, clock)
    assert 'value="0.250"' in said and "about 1 min 30 s left" in said
    now = 119
    assert "about 1 s left" in WAITS[wait](0.9975, clock)  # never 0 while it goes on


def test_waits_of_unknown_length_have_a_bar_without_value() -> None:
    for said in (
        going_html("Opening"),
        download_html(1000, None, TimeLeft()),
        examining_html(Examined(0, 0), TimeLeft()),
        _counting(0, 0, TimeLeft()),
    ):
        assert "<progress></progress>" in said


def test_a_first_look_at_the_photos_tells_its_time_left() -> None:
    report = Prepared(40, 120, 61.2)
    assert report_from_json(report_to_json(report)) == report
    assert in_words(report) == "looked at 40 of 120 photos · 1 min 1 s left"
    older = {"kind": "prepared", "done": 120, "total": 120}
    assert report_from_json(older) == Prepared(120, 120)
    assert in_words(Prepared(120, 120)) == "looked at 120 of 120 photos"
