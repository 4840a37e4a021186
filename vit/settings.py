"""What whoever runs the app can set in the environment: every number and choice, in one table.

All are read anew when asked for. A Hugging Face Space is open to strangers, so its defaults are the
lower ones. The README's Settings say what each is for.
"""

import os
from pathlib import Path
from typing import NamedTuple


class Number(NamedTuple):
    """Its defaults, and whether it counts things; all numbers are above 0."""

    here: float | None  # None: it depends on the machine
    space: float | None
    whole: bool = True


NUMBERS = {
    "VIT_MAX_MEGAPIXELS": Number(120, 120, whole=False),
    "VIT_MAX_PHOTOS": Number(200, 50),
    "VIT_TEMP_MB": Number(8000, 2000),
    "VIT_COLLECT_PHOTOS": Number(2000, 500),
    "VIT_COLLECT_MB": Number(4000, 500),
    "VIT_ZIP_MB": Number(2000, 200),
    "VIT_KEEP_DAYS": Number(30, 2, whole=False),
    "VIT_RUNS_AT_ONCE": Number(1, 1),
    "VIT_RUNS_WAITING": Number(20, 5),
    "VIT_RUNS_EACH": Number(20, 2),
    "VIT_RUN_MINUTES": Number(24 * 60, 30, whole=False),
    "VIT_RUN_PHOTOS": Number(200_000, 3_000),
    "VIT_RUNS_GB": Number(20, 4, whole=False),
    "VIT_RUN_THREADS": Number(None, None),
}
CHOICES = {"VIT_PULL": ("everyone", "owner")}  # the first here, the last on a Space
ADDRESSES = ("VIT_PHOTOS_URL", "VIT_MODELS_URL")
MOST = 1e12


def on_a_space() -> bool:
    """Whether this machine is a Hugging Face Space."""
    return bool(os.environ.get("SPACE_ID"))


def number(name: str) -> float | None:
    """The number of this name, or its default. ValueError, in one sentence, when it is none."""
    setting = NUMBERS[name]
    text = os.environ.get(name, "").strip()
    if not text:
        return setting.space if on_a_space() else setting.here
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= MOST or (setting.whole and value != int(value)):
        kind = "whole number" if setting.whole else "number"
        raise ValueError(f"{name} must be a {kind} above 0, not {text!r}.")
    return value


def count(name: str) -> int:
    """A whole number that has a default."""
    value = number(name)
    assert value is not None
    return int(value)


def amount(name: str) -> float:
    """A number that has a default."""
    value = number(name)
    assert value is not None
    return value


def choice(name: str) -> str:
    """Which of its values is chosen. ValueError when it is another."""
    values = CHOICES[name]
    text = os.environ.get(name, "").strip() or values[-1 if on_a_space() else 0]
    if text not in values:
        raise ValueError(f"{name} must be {' or '.join(values)}, not {text!r}.")
    return text


def problem() -> str:
    """The first setting that cannot be, in one sentence; "" when all can."""
    try:
        for name in NUMBERS:
            number(name)
        for name in CHOICES:
            choice(name)
    except ValueError as error:
        return str(error)
    for name in ADDRESSES:
        text = os.environ.get(name, "").strip()
        if text and not text.startswith(("http://", "https://")):
            return f"{name} must be an address that begins with http:// or https://, not {text!r}."
    chosen = os.environ.get("VIT_HOME", "")
    if chosen and Path(chosen).expanduser().is_file():
        return f"VIT_HOME must be a folder, and {chosen} is a file."
    return ""
