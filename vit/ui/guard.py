"""What a stranger can send to the server beyond what the page sends: refused before it is handled.

Gradio serves more than this page needs. Closed are its routes that fetch addresses of the web,
write down a visitor's session, or are for developers; bounded is what one request may bring; and
an address in the place of a file, which Gradio would fetch, is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import gradio as gr
from gradio import route_utils
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vit.ui.temporary import Temporary, most_bytes
from vit.ui.words import DISK

MOST_JSON = 4_000_000  # bytes of a call; that of 200 photos has a hundredth
CLOSED = re.compile(
    r"/(gradio_api/)?(proxy=|file/|file=\s*\w+:|stream/|component_server|process_recording|"
    r"custom_component/|deep_link|monitoring|profiling|run-history|runs\b|vibe-|undo-vibe-|dev/)",
    re.IGNORECASE,
)
OWN = re.compile(r"https?://[^/?#]+/(?:[^?#]*/)?gradio_api/file=([^?#]+)$")
ROOM = "There is no room for more files just now; try again in some minutes."
LARGE = "That is more than the page takes at once; send less, or smaller photos."
WEB = "Send the photo as a file; addresses of the web are not fetched."


class Guarded(gr.Blocks):
    """`gr.Blocks` that fetches no address that a visitor sends; that of an upload here, as programs
    that went through the web have it, stands for its file."""

    def preprocess_data(self, block_fn: Any, inputs: list, *more: Any, **named: Any) -> Any:
        for file in _files(inputs):
            if own := OWN.match(file["path"]):
                file["path"] = unquote(own[1])
            elif re.match(r"\s*\w+://", file["path"]):
                raise gr.Error(WEB, print_exception=False)
        return super().preprocess_data(block_fn, inputs, *more, **named)


def _files(value: object) -> Iterator[dict]:
    """What has a path, anywhere in the inputs of a call."""
    waiting = [value]
    while waiting:
        this = waiting.pop()
        if isinstance(this, dict):
            if isinstance(this.get("path"), str):
                yield this
            waiting.extend(this.values())
        elif isinstance(this, list | tuple):
            waiting.extend(this)


class _Tidy(route_utils.GradioMultiPartParser):
    """Gradio's reader of uploads leaves the beginning of a file behind when the browser goes, or
    the disk is full, in the middle of it."""

    async def parse(self) -> FormData:
        try:
            return await super().parse()
        except BaseException:
            for file in self._files_to_close_on_error:
                with suppress(OSError):
                    file.close()
                with suppress(OSError):
                    os.unlink(file.name)
            raise


route_utils.GradioMultiPartParser = _Tidy


class _TooMuch(Exception):
    pass


class Guard:
    """ASGI middleware around the whole server."""

    def __init__(self, app: ASGIApp, temporary: Temporary) -> None:
        self.app, self.temporary = app, temporary

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if CLOSED.match(path):
            return await _answer(scope, send, 404, "There is nothing here.")
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return await self.app(scope, receive, send)
        if path.rstrip("/").endswith("/upload"):
            return await self._upload(scope, receive, send)
        await self._bounded(scope, receive, send, MOST_JSON)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = int(most_bytes() / 2)
        size = _length(scope, otherwise=most)
        if size > most:
            return await _answer(scope, send, 413, LARGE)
        if not await run_in_threadpool(self.temporary.reserve, size):
            while (await receive()).get("more_body"):  # or the browser would not read the answer
                pass
            return await _answer(scope, send, 503, ROOM)
        try:
            await self._bounded(scope, receive, send, size)
        finally:
            self.temporary.release(size)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        """Hand on at most so many bytes of the request; what then goes wrong is one sentence."""
        came, answered = 0, False

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                raise _TooMuch
            return message

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        if _length(scope, otherwise=0) > most:
            return await _answer(scope, send, 413, LARGE)
        try:
            await self.app(scope, counted, noted)
        except ClientDisconnect:  # the browser has gone in the middle: nobody listens
            return
        except _TooMuch:
            status, said = 413, LARGE
        except OSError as error:
            if error.errno not in DISK:
                raise
            status, said = 507, DISK[error.errno]
        else:
            return
        if not answered:
            await _answer(scope, send, status, said)


def _length(scope: Scope, otherwise: int) -> int:
    """What the request says of its size."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return otherwise


async def _answer(scope: Scope, send: Send, status: int, said: str) -> None:
    """As Gradio says it, for that is what its clients show: uploads as text, all else as JSON."""
    text = scope["path"].rstrip("/").endswith("/upload")
    body, kind = (
        (said, b"text/plain") if text else (json.dumps({"detail": said}), b"application/json")
    )
    headers = [(b"content-type", kind), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
