"""Whether a model is right as often as it is sure, as its own file records it."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import lru_cache
from html import escape
from io import BytesIO

from vit.card import Card
from vit.metrics import Calibration, Count
from vit.ui.words import kinds


def calibration_html(card: Card) -> str:
    """What `python -m vit calibrate` found, in words and as a picture; "" where it has not run, or
    ran before it kept the numbers of its picture."""
    record = card.training.get("calibration")
    if not isinstance(record, dict):
        return ""
    try:
        before = Calibration.from_json(record.get("bins_before"))
        after = Calibration.from_json(record.get("bins_after"))
    except ValueError:
        return ""
    said = (
        "When it is 80 % sure, is it right in 80 % of the cases? Its probabilities are off by "
        f"{100 * after.ece:.1f} % on average, and were by {100 * before.ece:.1f} % before a "
        f"temperature was fitted: on {sum(after.count):,} photos that did not choose it."
    )
    unsure = {
        f"photos of its {kinds(card)}": "known_called_unsure",
        "of the same with their own one struck from the answers": "unknown_dishes_called_unsure",
        "pictures of nothing it knows": "strangers_called_unsure",
    }
    found = [f"{count} {whose}" for whose, name in unsure.items() if (count := _told(record, name))]
    called = f"<p>It calls itself unsure for {escape(', '.join(found))}.</p>" if found else ""
    light, dark, alt = _pictures(json.dumps(before.to_json()), json.dumps(after.to_json()))
    pictures = "".join(
        f'<img class="{name}" src="{url}" alt="{escape(alt)}">'
        for name, url in (("on-light", light), ("on-dark", dark))
    )
    return f"<p>{escape(said)}</p>{pictures}{called}"


def _told(record: dict, name: str) -> str:
    try:
        count = Count.from_json(record[name])
    except (KeyError, ValueError):
        return ""
    return f"{count.correct:,} of {count.total:,}" if count.total else ""


@lru_cache(maxsize=8)
def _pictures(before: str, after: str) -> tuple[str, str, str]:
    """For a light page, for a dark one, and in words."""
    from vit.reliability import in_words, reliability_plot  # matplotlib, for those who look

    found = Calibration.from_json(json.loads(before)), Calibration.from_json(json.loads(after))
    urls = []
    for dark in (False, True):
        data = BytesIO()
        reliability_plot(*found, dark=dark).savefig(data, format="png", dpi=120)
        urls.append(f"data:image/png;base64,{b64encode(data.getvalue()).decode()}")
    return urls[0], urls[1], in_words(*found)
