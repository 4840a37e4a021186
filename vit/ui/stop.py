"""Stop: what a page has running ends at its next step, and says so itself.

Gradio's own way, `cancels`, cuts the page's whole stream of answers, also those of other events,
and what is said afterwards by a second event may be overtaken by progress that was on its way. Here
the event that runs is told, and its last answer is that it was stopped: one event's answers stay in
order.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency

from vit.ui.page import QUIET

MOST = 1000  # presses that are remembered, of all visitors
NOW = "() => performance.now()"  # milliseconds since the page was loaded, by the browser's clock
PRESSED = """() => ({ __type__: "update", value: "Stopping …", interactive: false })"""

Outputs = tuple | dict
Steps = Callable[..., Iterator[Outputs]]


class Stop:
    """A Stop button, seen while something runs that it can end.

    What runs is a generator. Pressed, the button ends all that its page asked for before: at the
    next step of what runs, and at once what still waits for its turn. A press when all has ended
    does nothing, and other pages, also of the same visitor, do not hear of it.

    said: gives what an ended event shows: a tuple for its outputs, or a dict by component.
    """

    def __init__(self, said: Callable[[], Outputs], **look: Any) -> None:
        self.said = said
        self.button = gr.Button("Stop", size="sm", visible=False, elem_classes="ends", **look)
        self._pressed: OrderedDict[str, float] = OrderedDict()  # session → when, by its clock
        self._lock = threading.Lock()
        self.button.click(None, None, self.button, js=PRESSED, **QUIET)
        self.also(self.button.click)

    def also(self, event: Callable[..., Dependency]) -> None:
        """This event is a press, too."""
        moment = gr.JSON(visible=False)
        event(self._press, moment, None, js=NOW, queue=False, **QUIET)

    def ends(
        self,
        event: Callable[..., Dependency],
        steps: Steps,
        inputs: Sequence | Component | None,
        outputs: Sequence,
        **settings: Any,
    ) -> Dependency:
        """Listen to `event` with a generator that the button ends; one with a parameter `request`
        gets Gradio's. As with `page.follow`, what is asked for while it runs comes afterwards,
        once, unless the button is pressed."""
        asked = gr.JSON(visible=False)  # when
        given = list(inputs) if isinstance(inputs, Sequence) else [inputs] if inputs else []
        return event(None, None, asked, js=NOW, **QUIET).then(
            self._endable(steps, len(outputs)),
            [*given, asked],
            [*outputs, self.button],
            trigger_mode="always_last",
            **settings,
        )

    def _press(self, moment: object, request: gr.Request) -> None:
        session = str(request.session_hash)
        with self._lock:
            self._pressed[session] = max(_time(moment), self._pressed.pop(session, 0.0))
            while len(self._pressed) > MOST:
                self._pressed.popitem(last=False)

    def _endable(self, steps: Steps, outputs: int) -> Callable[..., Iterator[Outputs]]:
        asks_who = "request" in signature(steps).parameters

        def run(request: gr.Request, *values: Any) -> Iterator[Outputs]:
            *given, asked = values
            session = str(request.session_hash)

            def ended() -> bool:
                return _time(asked) <= self._pressed.get(session, -1.0)

            who = {"request": request} if asks_who else {}
            running = iter(steps(*given, **who))
            shown = gr.update(visible=True, value="Stop", interactive=True)
            last: Outputs = (gr.skip(),) * outputs
            try:
                while not ended() and (step := next(running, None)) is not None:
                    last = step
                    if not ended():
                        yield self._with(last, shown)
                        shown = gr.update(visible=True)  # it may have been pressed meanwhile
                # The last answer again: a browser that is still drawing what came right before it
                # may have missed it.
                last = self.said() if ended() else last
                yield self._with(last, gr.update(visible=False, value="Stop", interactive=True))
            finally:
                if close := getattr(running, "close", None):
                    close()

        run.__name__ = getattr(steps, "__name__", "run")  # by which logs and programs know it
        return run

    def _with(self, outputs: Outputs, button: dict) -> Outputs:
        if isinstance(outputs, dict):
            return {part: _whole(value) for part, value in outputs.items()} | {self.button: button}
        return *map(_whole, outputs), button


def _whole(value: object) -> object:
    """A copy, because Gradio takes the mark out of an update that it sends."""
    return dict(value) if isinstance(value, dict) else value


def _time(sent: object) -> float:
    """When something was asked, as the browser says; it may say anything."""
    return float(sent) if isinstance(sent, int | float) and abs(sent) < 1e15 else 0.0
