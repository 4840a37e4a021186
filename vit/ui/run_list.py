"""The table of all runs: open one, lay curves over one another, rename, delete, download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from vit.runfolder import Visitor
from vit.runs import Runs
from vit.runstate import RunError
from vit.ui.curves import curves, whole
from vit.ui.files import keep_copy
from vit.ui.page import QUIET, sent_with
from vit.ui.run_form import reason
from vit.ui.visitor import visitor_of
from vit.ui.words import trouble_html

MOST = 8  # runs over one another, as many as there are colours
CLICKS = """
element.addEventListener("click", (event) => {
  const run = event.target.closest("[data-run]")?.dataset.run;
  if (run) trigger("click", { run });
});
element.addEventListener("change", () => {
  const boxes = [...element.querySelectorAll("[data-compare]:checked")];
  trigger("select", { runs: boxes.map((box) => box.dataset.compare) });
});
"""
# A file that has just been made is fetched by a click on its own, hidden button.
FETCH = """() => setTimeout(() => {
  const button = document.querySelector("#run-file");
  (button.matches("a, button") ? button : button.querySelector("a, button")).click();
}, 100)"""


class RunList:
    """Its handlers act on the run that the tab shows, then look again with the tab's `look`."""

    def __init__(self, runs: Runs, chosen: gr.State) -> None:
        self.runs, self.chosen = runs, chosen
        self.table = gr.HTML(js_on_load=CLICKS, elem_id="run-table")
        self.compared = curves("compare-curves")
        with gr.Row(visible=False, elem_id="run-manage") as self.manage:
            self.name = gr.Textbox(
                label="New name for the run that is open",
                max_length=60,
                min_width=200,
                elem_id="run-rename",
            )
            self.rename = gr.Button("Rename", size="sm", scale=0, min_width=110)
            self.download = gr.Button("Download model", size="sm", scale=0, min_width=150)
            self.delete = gr.Button("Delete …", size="sm", scale=0, min_width=110)
            self.sure = gr.Button(
                "Delete it and its model for good",
                variant="stop",
                size="sm",
                visible=False,
                scale=0,
                min_width=250,
            )
        self.said = gr.HTML(elem_id="run-said")
        self.file = gr.DownloadButton("File", elem_id="run-file", elem_classes="fetched")

    def connect(
        self, look: Callable[..., dict], state: list, shown: list, ask: dict[str, Any]
    ) -> None:
        self.look = look
        ask = ask | {"concurrency_limit": None}
        quiet: dict[str, Any] = {**QUIET, "concurrency_limit": None}
        more = [*shown, self.said, self.name, self.delete, self.sure]
        self.table.click(self.open, state, more, trigger_mode="multiple", **ask)
        self.table.select(
            self.compare, None, [self.chosen, self.compared], trigger_mode="multiple", **quiet
        )
        gr.on(
            [self.rename.click, self.name.submit],
            self.do_rename,
            [self.name, *state],
            more,
            **quiet,
        )
        self.delete.click(
            lambda: (gr.update(visible=False), gr.update(visible=True)),
            None,
            [self.delete, self.sure],
            queue=False,
            **QUIET,
        )
        self.sure.click(self.do_delete, state, more, **quiet)
        self.download.click(self.fetch, state, [self.file, self.said], **quiet).success(
            None, None, None, js=FETCH, **QUIET
        )

    def open(self, click: gr.EventData, *state: Any) -> dict:
        seen = state[3]._replace(run=("another",), active=False)
        return self.look(*state[:2], str(sent_with(click, "run")), seen, *state[4:]) | self._after()

    def compare(self, select: gr.EventData) -> tuple[list[str], str]:
        runs = sent_with(select, "runs")
        ids = [str(id) for id in runs][:MOST] if isinstance(runs, list) else []
        return ids, whole([run for run in self.runs.all() if run.id in ids])

    def do_rename(self, name: str, *state: Any) -> dict:
        return self._doing(state, lambda visitor: self.runs.rename(state[2], name, visitor))

    def do_delete(self, *state: Any) -> dict:
        return self._doing(state, lambda visitor: self.runs.delete(state[2], visitor))

    def _doing(self, state: tuple, act: Callable[[Visitor], None]) -> dict:
        try:
            act(visitor_of(*state[:2]))
        except Exception as error:
            return {self.said: trouble_html(reason(error))}
        return self.look(*state) | self._after()

    def _after(self) -> dict:
        return {
            self.said: "",
            self.name: "",
            self.delete: gr.update(visible=True),
            self.sure: gr.update(visible=False),
        }

    def fetch(self, *state: Any) -> dict:
        try:
            file = self._model(state[2], visitor_of(*state[:2]))
        except Exception as error:
            return {self.said: trouble_html(reason(error))}
        return {self.file: file, self.said: ""}

    def _model(self, id: str, visitor: Visitor) -> str:
        run = self.runs.get(id)
        if not visitor.may_look(run):
            raise RunError(f"Only who started {run.title} may download it here.")
        if run.told.finished is None or not run.told.finished.path:
            raise RunError(f"{run.title} has no model to download yet.")
        return keep_copy(run.checkpoint or run.folder / f"{run.recipe.name}.safetensors")
