"""The page with one tab more, which shows the results of the runs in $RESULTS_RUNS, one a button:
`python -m tests.results_page`."""

import os

import gradio as gr

import app
from vit.ui.page import Page
from vit.ui.results import results


def results_tab(page: Page, tab: gr.Tab) -> None:
    run = gr.State()
    with gr.Row():
        for number, folder in enumerate(os.environ["RESULTS_RUNS"].split(os.pathsep)):
            gr.Button(f"Run {number}").click(lambda folder=folder: folder, None, run)
        gr.Button("No run").click(lambda: None, None, run)
    results(page, run)


if __name__ == "__main__":
    app.TABS["Result"] = results_tab
    app.demo = app.build()
    app.main()
