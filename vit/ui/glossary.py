"""The words of the Attention tab, for who meets them for the first time."""

from __future__ import annotations

WORDS = {
    "patch": "A square of the grid that the photo is cut into. The model knows nothing smaller.",
    "class token": "Stands for no patch. Layer by layer it gathers from all of them, and at the "
    "end it alone is read to name the dish. So the question is mostly where it looks.",
    "layer, head": "The photo goes through the layers one after another. In each, every head looks "
    "at the patches in a way of its own, which it learned.",
    "attention": "How a head shares out its looks: what one token gives to all of them, itself "
    "included, adds up to 1. The scale under the photo shows these shares.",
    "relevance": "Which patches speak for a dish: attention, weighted by how much more of it would "
    "raise that dish's score (its gradient), and of that only what raises it. It has no unit; "
    "brighter is more.",
    "rollout": "Attention followed from the answer back through all layers to the patches.",
    "sink": "A patch that is looked at whatever it shows. It tells nothing of the photo.",
    "faithful": "A map is faithful when hiding what it marks changes the answer more than hiding "
    "patches at random.",
}


def glossary_html() -> str:
    rows = "".join(f"<dt>{word}</dt><dd>{meaning}</dd>" for word, meaning in WORDS.items())
    tour = '<button type="button" data-opens="Model">the guided tour</button>'
    return f'<dl class="words">{rows}</dl><p>With the numbers of your photo: {tour}.</p>'
