"""Names that somebody else chose: of classes, files and models. Which can be used, and how any of
them is shown on one line."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

LONGEST = 200  # characters of a class's name
_TURNS = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # around them, text turns
_JOINERS = "\u200c\u200d"  # of letters in Persian, and of people in an emoji
_CONTROLS = ("Cc", "Cs", "Zl", "Zp")  # Unicode's: controls, half a sign, ends of lines
_DISH_NAMES = {  # where replacing underscores is not enough
    "creme_brulee": "Crème brûlée",
    "cup_cakes": "Cupcakes",
    "eggs_benedict": "Eggs Benedict",
}


def name_fault(name: str) -> str:
    """Why this cannot be the name of a class, such as "is longer than 200 characters"; "" when it
    can. Names of every script and all their signs can."""
    if len(name) > LONGEST:
        return f"is longer than {LONGEST} characters"
    if not name.isprintable() and any(
        c in _TURNS or unicodedata.category(c) in _CONTROLS for c in name
    ):
        return "has signs that cannot be seen, such as a line break"
    return "" if name.strip() else "is empty"


def one_line(text: str) -> str:
    """The text with a question mark for every sign that is not shown, or that turns others round:
    so it stays on its line, and cannot steer a terminal."""
    return "".join(c if c.isprintable() or c in _JOINERS else _instead(c) for c in text)


def _instead(sign: str) -> str:
    return " " if unicodedata.category(sign) == "Zs" else "?"  # such as a space that never breaks


def plain(text: str, longest: int = 120) -> str:
    """A name or sentence on one line, its middle left out when it is long."""
    text = one_line(text)
    if len(text) > longest:
        text = f"{text[: longest - 21]}…{text[-20:]}"
    return text


def plain_sentence(text: str) -> str:
    """A sentence in which a long name is shortened but the words stay."""
    text = re.sub(r"\S{101,}", lambda match: plain(match[0], 80), one_line(text))
    return plain(text, 600)


def dish_names(folders: Sequence[str]) -> tuple[str, ...]:
    """The names of all, each another one: where two would read alike, as "Ramen" and "ramen" do,
    they stay as they are."""
    names = [dish_name(folder) for folder in folders]
    times = Counter(names)
    return tuple(f if times[n] > 1 else n for f, n in zip(folders, names, strict=True))


def dish_name(folder: str) -> str:
    """A class folder's name as a person writes it: "pad_thai" gives "Pad thai"."""
    if folder in _DISH_NAMES:
        return _DISH_NAMES[folder]
    words = " ".join(folder.replace("_", " ").split())
    return words[:1].upper() + words[1:]
