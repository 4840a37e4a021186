"""Equations for the browser: the small part of LaTeX that our tour uses, as MathML.

MathML is drawn by the browser with its own fonts, so that nothing is fetched, and is read aloud by
screen readers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|[{}^_&]|\s+|.")
SYMBOLS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "epsilon": "ε",
    "mu": "μ",
    "sigma": "σ",
    "tau": "τ",
    "Phi": "Φ",
    "cdot": "·",
    "times": "×",
    "in": "∈",
    "sum": "∑",
    "dots": "…",
    "top": "⊤",
    "quad": "\u2003",
    "leftarrow": "←",
    "to": "→",
    "R": "ℝ",
}
LETTERS = set("αβγεμστΦℝ")  # the rest are operators


@lru_cache(maxsize=256)
def mathml(latex: str) -> str:
    """One equation on a line of its own. Raises ValueError for what is not understood."""
    tokens = TOKEN.findall(latex)
    body = _row(tokens, None)
    if tokens:
        raise ValueError(f"A {tokens[0]} too many in the equation {latex}.")
    return f'<math display="block"><mrow>{body}</mrow></math>'


def _row(tokens: list[str], end: str | None) -> str:
    """Everything up to `end`, which is taken as well."""
    parts: list[str] = []
    while tokens and tokens[0] != end:
        if tokens[0] == "}":
            break
        if tokens[0].isspace():
            tokens.pop(0)
        elif tokens[0] in "^_":
            low, high = "", ""
            base = parts.pop() if parts else "<mrow></mrow>"
            while tokens and tokens[0] in ("^", "_"):
                if tokens.pop(0) == "_":
                    low = _one(tokens)
                else:
                    high = _one(tokens)
            parts.append(_scripts(base, low, high))
        else:
            parts.append(_one(tokens))
    if end is not None and tokens and tokens[0] == end:
        tokens.pop(0)
    return "".join(parts)


def _scripts(base: str, low: str, high: str) -> str:
    over = "∑" in base
    if low and high:
        name = "munderover" if over else "msubsup"
        return f"<{name}>{base}{low}{high}</{name}>"
    name = ("munder" if over else "msub") if low else ("mover" if over else "msup")
    return f"<{name}>{base}{low or high}</{name}>"


def _one(tokens: list[str]) -> str:
    """The next thing: a letter, a number, a group, a fraction."""
    while tokens and tokens[0].isspace():
        tokens.pop(0)
    if not tokens:
        raise ValueError("The equation ends too early.")
    token = tokens.pop(0)
    if token == "{":
        return f"<mrow>{_row(tokens, '}')}</mrow>"
    if token == r"\frac":
        return f"<mfrac>{_one(tokens)}{_one(tokens)}</mfrac>"
    if token == r"\sqrt":
        return f"<msqrt>{_one(tokens)}</msqrt>"
    if token in (r"\text", r"\mathrm"):
        return f"<mtext>{_text(tokens)}</mtext>"
    if token.startswith("\\") and token[1:].isalpha():
        if token[1:] not in SYMBOLS:
            raise ValueError(f"{token} is not among the equations' signs; add it.")
        token = SYMBOLS[token[1:]]
        return f"<mi>{token}</mi>" if token in LETTERS else f"<mo>{token}</mo>"
    if token.isalpha():
        return f"<mi>{escape(token)}</mi>"
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    sign = token.removeprefix("\\").replace("-", "−")
    # Without a font for mathematics, browsers stretch one bracket of a pair and not the other.
    how = ' stretchy="false"' if sign in "()[]{}|" else ""
    return f"<mo{how}>{escape(sign)}</mo>"


def _text(tokens: list[str]) -> str:
    if not tokens or tokens.pop(0) != "{":
        raise ValueError("\\text needs braces in the equation.")
    end = tokens.index("}")
    words, tokens[: end + 1] = tokens[:end], []
    return escape("".join(words)).replace(" ", "\N{NO-BREAK SPACE}")
