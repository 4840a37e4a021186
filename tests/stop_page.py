"""A page with nothing but things that run and their Stop: `python -m tests.stop_page --port PORT`.

What runs goes on until it is stopped or there is a file "finish" in $STOP_NOTES, and notes its end
there.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import gradio as gr

from vit.ui.page import QUIET
from vit.ui.stop import Stop

NOTES = Path(os.environ["STOP_NOTES"])
PACE = 0.1  # seconds between two steps


def counting(name: str, said: str) -> Iterator[tuple[dict]]:
    """Steps that take no time to see, so that some are always on their way."""
    end, step = "closed", 0
    try:
        while not (NOTES / "finish").exists():
            yield (gr.update(value=f"{name}{said}: {step}"),)
            time.sleep(PACE)
            step += 1
        end = "done"
        yield (gr.update(value=f"{name}{said}: done"),)
    finally:
        (NOTES / f"{name}-{end}-{time.monotonic_ns()}").touch()


def echo(said: str) -> str:
    time.sleep(0.3)
    return f"heard {said}"


with gr.Blocks(title="Stop", analytics_enabled=False) as demo:
    said = gr.Textbox("", label="Said", elem_id="said")
    one, other, third = gr.Button("One"), gr.Button("Other"), gr.Button("Third")
    stop = Stop(lambda: ("Stopped.",))
    answer = gr.Textbox(label="Answer", elem_id="answer")
    heard = gr.Textbox(label="Heard", elem_id="heard")
    lines = ((one, "one", "a"), (other, "other", "a"), (third, "third", "b"))
    for button, name, line in lines:
        stop.ends(
            button.click,
            lambda said, name=name: counting(name, said),
            said,
            [answer],
            concurrency_id=line,
            concurrency_limit=1,
            **QUIET,
        )
    gr.Button("Echo").click(echo, said, heard, **QUIET)
demo.queue(max_size=64, default_concurrency_limit=8)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    demo.launch(server_port=parser.parse_args().port, quiet=True)
