"""How the page looks: one warm accent on quiet greys, the system's own fonts, light and dark."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from gradio.themes import Base, sizes
from gradio.themes.utils.colors import Color

from vit.ui.links import MOVES
from vit.ui.notices import NOTICES
from vit.ui.photo import CHOSEN

SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

EMBER = Color(
    name="ember",
    c50="#fff5ee",
    c100="#ffe7d9",
    c200="#fdccb0",
    c300="#fba87e",
    c400="#f0702c",
    c500="#d9480f",
    c600="#bf3f0d",
    c700="#9c340c",
    c800="#7c2d12",
    c900="#5f2410",
    c950="#331208",
)
CRUST = Color(
    name="crust",
    c50="#fbf8f4",
    c100="#f4efe8",
    c200="#e7dfd4",
    c300="#d3c8ba",
    c400="#a2968a",
    c500="#776c62",
    c600="#5c534b",
    c700="#433c36",
    c800="#2c2723",
    c900="#221e1b",
    c950="#191614",
)

THEME = Base(
    primary_hue=EMBER,
    secondary_hue=EMBER,
    neutral_hue=CRUST,
    radius_size=sizes.radius_lg,
    font=SANS,
    font_mono=MONO,
).set(
    body_background_fill="*neutral_50",
    body_background_fill_dark="*neutral_950",
    body_text_color="*neutral_800",
    body_text_color_dark="*neutral_100",
    body_text_color_subdued="*neutral_500",
    body_text_color_subdued_dark="*neutral_400",
    background_fill_primary="white",
    background_fill_primary_dark="*neutral_900",
    background_fill_secondary="*neutral_100",
    background_fill_secondary_dark="*neutral_800",
    block_background_fill="white",
    block_background_fill_dark="*neutral_900",
    block_border_color_dark="*neutral_800",
    block_label_text_color="*neutral_600",
    block_title_text_color="*neutral_600",
    block_title_text_size="*text_sm",
    border_color_primary_dark="*neutral_700",
    input_background_fill="white",
    input_background_fill_dark="*neutral_800",
    input_border_width="1px",
    input_border_color_focus="*primary_400",
    input_border_color_focus_dark="*primary_400",
    button_secondary_background_fill="*neutral_100",
    button_secondary_background_fill_hover="*neutral_200",
    button_secondary_background_fill_dark="*neutral_800",
    button_secondary_background_fill_hover_dark="*neutral_700",
    button_secondary_text_color="*neutral_800",
    checkbox_background_color="white",
    checkbox_border_color_dark="*neutral_500",
    checkbox_border_color_hover_dark="*neutral_400",
    color_accent_soft="*primary_50",
    link_text_color="*primary_600",
    link_text_color_dark="*primary_300",
    link_text_color_visited="*primary_600",
    link_text_color_visited_dark="*primary_300",
)

# page.css and one file for each tab that needs more
CSS = "\n".join(p.read_text(encoding="utf-8") for p in sorted(Path(__file__).parent.glob("*.css")))

PAGE = Path(__file__).with_name("page.js").read_text(encoding="utf-8")

_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    '<rect width="32" height="32" rx="7" fill="#d9480f"/>'
    '<circle cx="16" cy="16" r="10" fill="#fbf8f4"/>'
    '<path d="M16 6v20M6 16h20M9 9l14 14M23 9L9 23" stroke="#d9480f" stroke-width="1.6"/></svg>'
)

HEAD = (
    f'<link rel="icon" href="data:image/svg+xml;base64,{b64encode(_ICON.encode()).decode()}">'
    '<meta name="description" content="See what a Vision Transformer thinks a dish is.">'
    f"<script>{NOTICES}{PAGE}{CHOSEN}{MOVES}</script>"
)
