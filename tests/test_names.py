"""Names that somebody else chose: which can be used, and how any of them is shown."""

import pytest

from vit.lesson import markdown_text, quoted
from vit.names import LONGEST, dish_names, name_fault, one_line, plain, plain_sentence


@pytest.mark.parametrize(
    "name",
    [
        "Pad thai",
        "crème brûlée",
        "פיצה",
        "寿司",
        "👩\u200d🍳",
        "می\u200cخواهم",
        "<b>",
        "=1+1",
        "x" * LONGEST,
    ],
)
def test_names_of_every_script_can_be(name: str) -> None:
    assert name_fault(name) == "" and one_line(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "a\nb",
        "a\rb",
        "\x1b[31m",
        "a\0b",
        "\ud800",
        "\u202eab",
        "a\u2067",
        "x" * 201,
        "\u2028",
    ],
)
def test_names_that_cannot_be_shown_cannot_be(name: str) -> None:
    fault = name_fault(name)
    assert fault and fault.isprintable()


def test_shown_on_one_line() -> None:
    assert one_line("a\nb\x1b[0m\u202ec\ud800") == "a?b?[0m?c?"
    assert one_line("94\N{NO-BREAK SPACE}%") == "94 %"
    assert plain("x" * 500, 80) == "x" * 59 + "…" + "x" * 20
    sentence = plain_sentence(f"There is no class {'y' * 10_000}; rename\nit.")
    assert sentence.startswith("There is no class y") and sentence.endswith("; rename?it.")
    assert len(sentence) < 200


def test_dishes_that_read_alike_stay_apart() -> None:
    assert dish_names(("pad_thai", "ramen", "Ramen", "soup")) == (
        "Pad thai",
        "ramen",
        "Ramen",
        "Soup",
    )


def test_markdown_shows_a_name_as_it_is() -> None:
    name = "![x](http:evil) **b** _c_ <i> `d` | # $e$ \\"
    shown = markdown_text(name)
    assert shown.replace("\\", "").replace("&lt;", "<").replace("&gt;", ">") == name.replace(
        "\\", ""
    )
    for sign in "[]*_`|#$!":
        assert shown.count(sign) == shown.count(f"\\{sign}") > 0
    assert "<" not in shown and "`" not in quoted(name)
