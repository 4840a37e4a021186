"""A visitor without a browser: the same requests that the page's own script sends, and any others.

A `Session` keeps the values of all components as the page does and runs no JavaScript: what hangs
on an event, `run` runs, and nothing more.
"""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

API = "gradio_api"
File = dict[str, Any]


class Refused(Exception):
    """The server's answer to a call was an error; its text is what the page would show."""


class Session:
    """One open page. `values` are those of its components, by their number."""

    def __init__(self, url: str, query: str = "") -> None:
        self.url, self.query = url, query
        self.hash = secrets.token_hex(8)
        self.heard = ""  # all that the last call said, also on its way
        self.http = httpx.Client(base_url=url, timeout=120)
        self.config = self.http.get("config").raise_for_status().json()
        self.functions = {each["id"]: each for each in self.config["dependencies"]}
        self.components = {each["id"]: each for each in self.config["components"]}
        self.values = {id: each["props"].get("value") for id, each in self.components.items()}

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what is where ------------------------------------------------------------------------

    def component(self, name: str) -> int:
        """The component with this elem_id, or else with this label or text."""
        for what in ("elem_id", "label", "value"):
            for id, each in self.components.items():
                if each["props"].get(what) == name:
                    return id
        raise KeyError(name)

    def browser_key(self) -> int:
        """The component that holds the visitor's key."""
        return next(id for id, each in self.components.items() if each["type"] == "browserstate")

    def named(self, name: str) -> int:
        """The first function whose endpoint would have this name; private ones have names too."""
        return next(id for id, each in self.functions.items() if each["api_name"] == name)

    def on(self, component: str, event: str) -> int:
        """The first function of the server that hangs on an event of a component."""
        target = [self.component(component), event]
        return next(
            id
            for id, each in self.functions.items()
            if target in [list(pair) for pair in each["targets"]] and each["backend_fn"]
        )

    def set(self, component: str, value: object) -> None:
        self.values[self.component(component)] = value

    # --- requests -----------------------------------------------------------------------------

    def upload(self, *files: tuple[str, bytes] | Path) -> list[File]:
        """Send files as the page does; what it then puts into its calls."""
        pairs = [(f.name, f.read_bytes()) if isinstance(f, Path) else f for f in files]
        sent = [("files", pair) for pair in pairs]
        answer = self.http.post(f"{API}/upload", files=sent)
        if answer.status_code != 200:
            raise Refused(answer.text)
        return [
            file(path, orig_name=name, size=len(data))
            for path, (name, data) in zip(answer.json(), pairs, strict=True)
        ]

    def join(self, function: int, data: list, event: object = None) -> httpx.Response:
        """Put a call into the queue."""
        body = {"data": data, "fn_index": function, "session_hash": self.hash, "event_data": event}
        return self.http.post(f"{API}/queue/join{self.query}", json=body)

    def call(self, function: int, data: list, event: object = None) -> list:
        """A call through the queue, to its end; Refused when it fails."""
        answer = self.join(function, data, event)
        if answer.status_code != 200:
            raise Refused(answer.text)
        wanted, output, self.heard = answer.json()["event_id"], [], ""
        stream = self.http.stream("GET", f"{API}/queue/data", params={"session_hash": self.hash})
        with stream as lines:
            for line in lines.iter_lines():
                message = json.loads(line.removeprefix("data: ")) if line else {}
                if message.get("event_id") != wanted:
                    continue
                given = message.get("output") or {}
                self.heard += line
                if message["msg"] == "process_generating" and message["success"]:
                    output = _patched(output, given.get("data", []))
                if message["msg"] == "process_completed":
                    if not message["success"]:
                        raise Refused(str(given.get("error")))
                    return given.get("data") or output
        raise Refused("the stream broke off")

    def run(
        self, function: int, event: object = None, changes: Mapping[str, object] | None = None
    ) -> list:
        """Call a function with the values of its inputs, and keep what it gives for its outputs."""
        for name, value in (changes or {}).items():
            self.set(name, value)
        about = self.functions[function]
        output = self.call(function, [self.values.get(id) for id in about["inputs"]], event)
        for id, value in zip(about["outputs"], output, strict=False):
            if isinstance(value, dict) and value.get("__type__") == "update":
                if "value" in value:
                    self.values[id] = value["value"]
            else:
                self.values[id] = value
        return output


def bring(session: Session, key: str, photos: bytes, name: str = "dishes.zip") -> list:
    """The first step of fine-tuning: a zip, sent by the visitor who holds `key`."""
    session.values[session.browser_key()] = key
    session.set("photos-file", session.upload((name, photos))[0])
    return session.run(session.named("take_zip"))


def teach(
    session: Session, key: str, photos: bytes, name: str, start: str = "tiny", **settings: str
) -> list:
    """Bring photos and start a run of every weight from the checkpoint `start`; `settings` are
    fields of the form, such as epochs."""
    bring(session, key, photos)
    form = {"run-start": start, "run-mode": "all", "run-name": name}
    form |= {f"set-{field}": value for field, value in settings.items()}
    return session.run(session.on("Start", "click"), changes=form)


def file(path: str, **more: object) -> File:
    """What stands for a file in a call."""
    return {"path": path, "meta": {"_type": "gradio.FileData"}, **more}


def _patched(before: list, given: list) -> list:
    """A generator's next values; after the first they come as changes to the last."""
    if before and all(_is_change(each) for each in given):
        return [_changed(old, change) for old, change in zip(before, given, strict=True)]
    return given


def _is_change(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list)
        and len(each) == 3
        and each[0] in ("replace", "append", "add", "delete")
        for each in value
    )


def _changed(value: Any, changes: list) -> Any:
    for action, path, new in changes:
        if not path:
            value = value + new if action == "append" else new
            continue
        inside = value
        for step in path[:-1]:
            inside = inside[step]
        if action == "delete":
            del inside[path[-1]]
        elif action == "append":
            inside[path[-1]] += new
        elif action == "add" and isinstance(inside, list):
            inside.insert(int(path[-1]), new)
        else:
            inside[path[-1]] = new
    return value
