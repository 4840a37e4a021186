"""The page: `python app.py`, then open the address it prints."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from vit.cli.needed import missing
from vit.settings import problem
from vit.ui.temporary import Temporary, own_folder

if said := missing() or problem():
    print(said, file=sys.stderr)
    sys.exit(2)
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported
os.environ.setdefault("GRADIO_TEMP_DIR", str(own_folder()))
if not os.environ.get("GRADIO_SERVER_PORT", "7860").isdecimal():  # so is this
    print("GRADIO_SERVER_PORT must be a port, such as 7860.", file=sys.stderr)
    sys.exit(2)

import gradio as gr
from gradio.components import Component
from gradio.utils import get_upload_folder
from PIL import Image
from starlette.middleware import Middleware

from vit.cli.terminal import Parser
from vit.collect import limits
from vit.memory import keep_giving_back
from vit.ui import guard
from vit.ui.api import classify, classify_many, public_endpoints
from vit.ui.attention import attention_tab
from vit.ui.attention_api import attention, explain
from vit.ui.classify import classify_tab
from vit.ui.finetune import LOOK, RUNS, finetune_tab
from vit.ui.grid import scale_url
from vit.ui.header import answer_precision, header, loaded
from vit.ui.links import Links
from vit.ui.model import model_tab
from vit.ui.notices import LARGEST
from vit.ui.page import QUIET, Page, forget, version_of
from vit.ui.patch_api import patches
from vit.ui.patches import patches_tab
from vit.ui.photo import comes_back, fit_choice, photo_input
from vit.ui.theme import CSS, HEAD, THEME
from vit.ui.tour_api import tour
from vit.ui.visitor import browser_key

HOUR = 3600  # seconds
MCP = '"mcp>=1.21,<2"'  # what this Gradio's MCP server is written for
SESSIONS = 150  # open pages and calls whose state is kept; the one used longest ago goes first
TABS: dict[str, Callable[[Page, gr.Tab], dict[str, Component] | None]] = {
    "Classify": classify_tab,
    "Patches": patches_tab,
    "Attention": attention_tab,
    "Fine-tune": finetune_tab,
    "Model": model_tab,
}
ENDPOINTS = (
    classify,
    classify_many,
    patches,
    attention,
    explain,
    tour,
)


def build() -> gr.Blocks:
    with guard.Guarded(
        title="Food ViT", analytics_enabled=False, delete_cache=(HOUR, 24 * HOUR)
    ) as page:
        checkpoint, chosen, fit = header(page), gr.State(), fit_choice()
        links, told = Links(), {}
        shared = Page(
            checkpoint=checkpoint,
            chosen=chosen,
            photo=photo_input(),
            fit=fit,
            opened=gr.Textbox(next(iter(TABS)), visible=False),
            version=version_of(checkpoint, chosen, fit),
            visitor=browser_key(page),
            clock=gr.Timer(LOOK, active=False),
        )
        with gr.Tabs() as tabs:
            for name, draw in TABS.items():
                with gr.Tab(name, id=name) as tab:
                    told |= draw(shared, tab) or {}
                tab.select(None, None, shared.opened, js=f"() => {json.dumps(name)}", **QUIET)
        links.connect(page, shared, tabs, list(TABS), told)
        comes_back(page, shared.photo)
        page.unload(forget)
        public_endpoints(page, ENDPOINTS)
    return page.queue(max_size=64, default_concurrency_limit=8, api_open=False)


demo = build()
TEMPORARY = Temporary(Path(get_upload_folder()).resolve(), demo.temp_file_sets)


def warm_up() -> None:
    """Load the first checkpoint and use it once, so that the first visitor does not wait; and see
    to runs that went on, or wait, since the app was here last."""
    RUNS.keep()
    with suppress(ValueError, OSError):  # visitors are told in the page
        loaded(None).classify(Image.new("RGB", (224, 224)))
    scale_url()  # loads the colour maps


def main() -> None:
    parser = Parser(prog="python app.py", description="Food ViT in the browser.")
    parser.add_argument("--host", help="address to listen on; 0.0.0.0 for the whole network")
    parser.add_argument("--port", type=int, help="port to listen on; else the first free from 7860")
    parser.add_argument("--share", action="store_true", help="also make a public link for a week")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--mcp", action="store_true", help="serve the endpoints as MCP tools too")
    options = parser.parse_args()
    if options.mcp and find_spec("mcp") is None:
        print(f"--mcp needs one more package: pip install {MCP}", file=sys.stderr)
        sys.exit(2)
    try:
        answer_precision()
    except ValueError as error:
        print(f"VIT_PRECISION: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        launch(options)
    except (OSError, OverflowError):  # what Gradio raises when it can have no port or address
        print(cannot_serve(options.host, options.port), file=sys.stderr)
        sys.exit(2)
    print(f"Food ViT is at {demo.local_url} (stop it with Ctrl+C)", flush=True)
    if demo.mcp_error:  # GRADIO_MCP_SERVER=true without the package: the page works all the same
        print(f"The MCP server needs one more package: pip install {MCP}", file=sys.stderr)
    threading.Thread(target=warm_up, daemon=True).start()
    TEMPORARY.keep_bounded()
    keep_giving_back()
    demo.block_thread()


def cannot_serve(host: str | None, port: int | None) -> str:
    if port is None:
        first = os.environ.get("GRADIO_SERVER_PORT", "7860")
        return f"No port from {first} on can be used; choose one up to 65535 with --port."
    if not 0 < port < 65536:
        return f"There is no port {port}; choose one from 1024 to 65535 with --port."
    where = f" of {host}" if host else ""
    return f"Port {port}{where} cannot be used, perhaps because it is taken; choose another --port."


def launch(options: argparse.Namespace) -> None:
    demo.launch(
        server_name=options.host,
        server_port=options.port,
        share=options.share or None,
        inbrowser=options.open,
        theme=THEME,
        css=CSS,
        head=HEAD,
        footer_links=["api"],
        run_history=False,
        i18n=gr.I18n(en={"common.complete": "Done."}),  # Gradio lacks what it tells screen readers
        mcp_server=options.mcp or None,  # None: as GRADIO_MCP_SERVER says
        max_file_size=f"{max(LARGEST, limits().zip_megabytes)}mb",  # of photos the page takes less
        show_error=True,
        quiet=True,
        _frontend=False,  # else it gives up where a busy machine takes 3 s to answer itself
        prevent_thread_lock=True,
        state_session_capacity=SESSIONS,
        app_kwargs={"middleware": [Middleware(guard.Guard, temporary=TEMPORARY)]},
    )


if __name__ == "__main__":
    main()
