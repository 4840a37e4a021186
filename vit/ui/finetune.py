"""The Fine-tune tab: bring photos, say how, watch it learn, see what came out, and all runs."""

from __future__ import annotations

import time
from html import escape
from typing import Any, NamedTuple

import gradio as gr
from gradio.context import Context

from vit.names import plain
from vit.runfolder import ACTIVE, RESUMABLE, Run, Visitor
from vit.ui.curves import HAS, added, curves
from vit.ui.header import all_names
from vit.ui.page import QUIET, Page
from vit.ui.photos_in import photos_in
from vit.ui.results import results
from vit.ui.run_form import NO_PHOTOS, RUNS, Form, reason, recipe_of, starts, teachers
from vit.ui.run_list import RunList
from vit.ui.run_words import status_html, table_html
from vit.ui.visitor import Who, owner_field, token_of_address, visitor_of
from vit.ui.words import trouble_html

TAB = "Fine-tune"
LOOK = 1.0  # seconds between two looks at a run


class Seen(NamedTuple):
    """What a page shows already, so that a look changes only what changed."""

    run: tuple = ()
    table: tuple = ()
    active: bool = False  # whether the run was under way when this page looked last
    ticks: bool = False  # whether the page looks by itself


def finetune_tab(page: Page, tab: gr.Tab) -> None:
    FinetuneTab(page, tab)


class FinetuneTab:
    """Its methods are what happens in the tab; each returns new values by component."""

    def __init__(self, page: Page, tab: gr.Tab) -> None:
        self.page = page
        self.opened = gr.State()  # the id of the run that is shown
        self.seen = gr.State(Seen())
        self.result = gr.State()  # the folder of a run that has ended
        self.chosen = gr.State([])  # ids of the runs that are compared
        self.has = gr.Textbox(visible=False)  # filled by the browser, see `curves.HAS`
        with gr.Column(elem_id="finetune"):
            gr.HTML("<h2><b>1</b> Photos</h2>")
            data = photos_in(page)
            gr.HTML("<h2><b>2</b> How</h2>")
            self.form = Form(data)
            gr.HTML("<h2><b>3</b> Go</h2>")
            with gr.Row(elem_id="run-go"):
                self.go = gr.Button("Start", variant="primary", interactive=False, scale=0)
                self.about = gr.HTML(f"<p>{NO_PHOTOS}</p>", elem_id="run-about")
            self.command = gr.Textbox(
                label="The same as",
                interactive=False,
                lines=1,
                max_lines=4,
                buttons=["copy"],
                visible=False,
                elem_id="run-command",
            )
            self.problem = gr.HTML(elem_id="run-problem")
            with gr.Column(visible=False, elem_id="run-live") as self.live:
                self.status = gr.HTML(elem_id="run-status")
                self.curves = curves("run-curves")
                with gr.Row(elem_id="run-buttons"):
                    self.stop = gr.Button("Stop and keep the best", size="sm", visible=False)
                    self.resume = gr.Button("Go on", size="sm", visible=False)
            with gr.Column(visible=False, elem_id="run-result") as self.outcome:
                self.title = gr.HTML("<h2><b>4</b> Result</h2>")
                results(page, self.result)
            gr.HTML("<h2>Runs</h2>")
            self.list = RunList(RUNS, self.chosen)
            self.token = owner_field()
        self.who = Who(page.visitor, self.token)
        self._connect(tab)

    def _connect(self, tab: gr.Tab) -> None:
        page, form, who = self.page, self.form, self.who.inputs
        form.connect(self.command, self.go, self.about)
        state = [*who, self.opened, self.seen, self.chosen, page.opened, self.has]
        shown: list[Any] = [self.live, self.status, self.curves, self.stop, self.resume]
        shown += [self.opened, self.seen, self.result, self.outcome, self.title, page.clock]
        shown += [self.list.table, self.list.manage, page.checkpoint]
        has = len(state) - 1
        ask = {"js": f"(...all) => {{ all[{has}] = {HAS}; return all; }}", **QUIET}

        page.clock.tick(self.look, state, shown, concurrency_limit=None, **ask)
        tab.select(self.enter, state, shown, concurrency_limit=None, **ask)
        self.go.click(
            self.begin,
            [*state, *form.inputs],
            [*shown, self.problem, form.name],
            concurrency_limit=None,
            **ask,
        ).then(None, None, None, js=SHOW, **QUIET)
        for button, act in ((self.stop, RUNS.stop), (self.resume, RUNS.resume)):
            button.click(
                self.acting(act), state, [*shown, self.problem], concurrency_limit=None, **ask
            )
        self.list.connect(self.look, state, shown, ask)
        root = Context.root_block
        assert root is not None
        root.load(token_of_address, None, self.token, **QUIET).then(
            self.find, state, shown, concurrency_limit=None, **ask
        )
        root.load(
            lambda: (gr.update(choices=starts()), gr.update(choices=teachers())),
            None,
            [form.start, form.advanced["teacher"]],
            **QUIET,
        )

    # --- looking ------------------------------------------------------------------------------

    def find(self, *state: Any) -> dict:
        """After a load of the page: the visitor's run that is under way, or else their last one."""
        visitor = visitor_of(*state[:2])
        RUNS.keep()
        own = [run for run in RUNS.all() if visitor.started(run)]
        if under_way := next((run for run in own if not run.over), None):
            return self.look(*state[:2], under_way.id, *state[3:])
        return {self.opened: own[0].id if own else None}  # shown when the tab is entered

    def enter(self, *state: Any) -> dict:
        """The tab was opened: everything is shown anew, for what was sent before may be lost.
        Whether `Page.opened` knows already is a matter of chance."""
        seen = state[3]._replace(run=(), table=())
        return self.look(*state[:3], seen, state[4], TAB, state[6])

    def look(self, *state: Any) -> dict:
        """What changed since this page looked last."""
        key, token, opened, seen, chosen, tab, has = state
        visitor = visitor_of(key, token)
        runs = RUNS.all()
        run = next((run for run in runs if run.id == opened), None)
        updates: dict = {self.seen: seen}
        table = (visitor, opened, *((r.id, r.state, r.title) for r in runs))
        if table != seen.table:
            updates[self.list.table] = table_html(runs, visitor, opened, chosen)
        if run is None:
            now = ()
            if seen.run:
                updates |= self._nothing()
        else:
            ahead = RUNS.ahead(run) if run.state == "waiting" else 0
            now = (visitor, run.id, run.state, run.title, run.told.bytes, ahead, _clock(run))
            if now != seen.run:
                updates |= self._shown(run, visitor, ahead, has)
            if seen.active and run.over and run.checkpoint and visitor.started(run):
                updates |= self._choose(run)
        active = run is not None and not run.over
        if active:
            RUNS.keep()  # one that another program started, say
        if run is None and opened:
            updates[self.opened] = None
        elif run is not None and seen.run[1:2] != (run.id,):
            updates[self.opened] = run.id
        ticks = active or tab == TAB
        if ticks != seen.ticks:
            updates[self.page.clock] = gr.update(active=ticks)
        updates[self.seen] = Seen(now, table, active, ticks)
        return updates

    def _shown(self, run: Run, visitor: Visitor, ahead: int, has: object) -> dict:
        may = visitor.may_change(run)
        ended = run.told.finished
        whole = run.state in ("finished", "stopped") and ended is not None and bool(ended.path)
        result = str(run.folder) if whole and visitor.may_look(run) else None
        stop = "Take it out of the queue" if run.state == "waiting" else "Stop and keep the best"
        return {
            self.live: gr.update(visible=True),
            self.status: status_html(run, visitor, ahead),
            self.curves: added(run, has),
            self.stop: gr.update(
                value=stop, visible=may and not run.over, interactive=run.state != "stopping"
            ),
            self.resume: gr.update(visible=may and run.state in RESUMABLE),
            self.result: result,
            self.outcome: gr.update(visible=result is not None),
            self.title: f"<h2><b>4</b> Result of {escape(plain(run.title, 40))}</h2>",
            self.list.manage: gr.update(visible=may and run.state not in ACTIVE),
        }

    def _nothing(self) -> dict:
        return {
            self.live: gr.update(visible=False),
            self.result: None,
            self.outcome: gr.update(visible=False),
            self.list.manage: gr.update(visible=False),
        }

    def _choose(self, run: Run) -> dict:
        """The new model is the page's, for who taught it."""
        name = run.title
        return {
            self.page.checkpoint: gr.update(choices=all_names(), value=name),
        }

    # --- doing --------------------------------------------------------------------------------

    def begin(self, *values: Any) -> dict:
        """Start a run as the form says, and show it."""
        state, form = values[:7], values[7:]
        try:
            run = RUNS.start(recipe_of(*form), visitor_of(*state[:2]))
        except Exception as error:
            return {self.problem: trouble_html(reason(error))}
        seen = state[3]._replace(run=(), active=True)
        shown = self.look(*state[:2], run.id, seen, *state[4:])
        return shown | {self.problem: "", self.form.name: ""}

    def acting(self, act: Any):
        """A handler that does something to the run that is shown, then looks again."""

        def handler(*state: Any) -> dict:
            said = ""
            try:
                act(state[2], visitor_of(*state[:2]))
            except Exception as error:
                said = trouble_html(reason(error))
            return self.look(*state) | {self.problem: said}

        return handler


def _clock(run: Run) -> int:
    """Seconds, while nothing else shows that a run is alive."""
    return int(time.time()) if run.state in ACTIVE and run.told.step is None else 0


# The run that was started comes into view.
SHOW = """() => setTimeout(() =>
  document.querySelector("#run-live")?.scrollIntoView({ behavior: "smooth", block: "nearest" }),
  300)
"""
