"""A page with nothing but the photos step: `python -m tests.photos_page --port PORT`."""

import argparse
from dataclasses import fields
from typing import Any

import gradio as gr

from vit.collect import limits
from vit.ui.page import QUIET, Page
from vit.ui.photos_in import photos_in
from vit.ui.theme import CSS, HEAD, THEME
from vit.ui.visitor import browser_key

with gr.Blocks(title="Photos", analytics_enabled=False) as demo:
    hidden: dict[str, Any] = {
        "checkpoint": gr.Dropdown(visible=False),
        "photo": gr.Image(visible=False),
        "fit": gr.Radio(visible=False),
        "visitor": browser_key(demo),
    }
    others: dict[str, Any] = {
        field.name: gr.State() for field in fields(Page) if field.name not in hidden
    }
    chosen = photos_in(Page(**hidden, **others))
    said = gr.Textbox("nothing", label="chosen", elem_id="chosen", container=False)
    chosen.change(lambda path: path or "nothing", chosen, said, **QUIET)
demo.queue(max_size=64, default_concurrency_limit=8)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    demo.launch(
        server_port=parser.parse_args().port,
        theme=THEME,
        css=CSS,
        head=HEAD,
        max_file_size=f"{limits().zip_megabytes}mb",
        show_error=True,
        quiet=True,
    )
