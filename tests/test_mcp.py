"""The endpoints as tools of an assistant: the real MCP client and the real server, over HTTP."""

import json
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from serving import Server

pytest_plugins = ["serving"]

ROOT = Path(__file__).resolve().parents[1]
PIZZA = ROOT / "examples" / "pizza_margherita.jpg"
T = TypeVar("T")


def ask(server: Server, question: Callable[[ClientSession], Awaitable[T]]) -> T:
    async def asked() -> T:
        address = f"{server.url}gradio_api/mcp/"
        async with (
            streamable_http_client(address) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await question(session)

    with ThreadPoolExecutor(1) as elsewhere:  # Playwright has a loop running in this thread
        return elsewhere.submit(anyio.run, asked).result()


def call(server: Server, tool: str, **arguments: object) -> CallToolResult:
    return ask(server, lambda session: session.call_tool(tool, arguments))


def text_of(result: CallToolResult) -> str:
    (only,) = result.content
    assert isinstance(only, TextContent)
    return only.text


@pytest.fixture(scope="module")
def pizza() -> str:
    return "data:image/jpeg;base64," + b64encode(PIZZA.read_bytes()).decode()


def test_tools_are_the_endpoints_and_explain_themselves(server: Server) -> None:
    tools = {tool.name: tool for tool in ask(server, lambda s: s.list_tools()).tools}
    with urllib.request.urlopen(f"{server.url}gradio_api/info") as answer:
        endpoints = json.load(answer)["named_endpoints"]
    assert {f"/{name}" for name in tools} == set(endpoints) and "/tour" in endpoints
    for name, tool in tools.items():
        assert tool.description and "?" in tool.description and "Returns:" in tool.description
        schema = tool.inputSchema
        assert schema["required"] == ["photos" if name == "classify_many" else "photo"]
        for parameter, what in schema["properties"].items():
            assert what["description"], f"{name} {parameter}"
            assert {"type", "enum", "oneOf"} & set(what), f"{name} {parameter}"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("classify", {"top": 1, "checkpoint": "pizza-steak-sushi"}, "'labels': ['Pizza']"),
        ("patches", {"row": 7, "column": 8}, "'token': "),
        ("attention", {"method": "head", "layer": 9, "head": 2}, "Layer 9, head 2"),
        ("explain", {"checkpoint": "pizza-steak-sushi"}, "'dish': 'Pizza'"),
        ("tour", {"stop": "softmax"}, "11. Softmax"),
    ],
)
def test_a_call(server: Server, pizza: str, tool: str, arguments: dict, said: str) -> None:
    result = call(server, tool, photo=pizza, **arguments)
    assert not result.isError, result
    assert said in text_of(result)


def test_many_photos_are_sent_one_by_one(server: Server, pizza: str) -> None:
    """Gradio's MCP server makes no files of the items of a list; so the tool says what to do."""
    result = call(server, "classify_many", photos=[pizza, pizza])
    assert result.isError and "over MCP, call classify for each" in text_of(result)


@pytest.mark.parametrize(
    ("photo", "said"),
    [
        ("/etc/passwd", "Invalid file data format"),
        ("data:image/jpeg;base64,AAAA", "photo"),
        ("http://127.0.0.1:1/photo.jpg", ""),  # nothing of the server's own network is fetched
    ],
)
def test_what_is_no_photo(server: Server, photo: str, said: str) -> None:
    result = call(server, "classify", photo=photo)
    assert result.isError and said in text_of(result)


def test_without_the_package_it_is_one_sentence() -> None:
    code = "import sys; sys.modules['mcp'] = None; sys.argv[1:] = ['--mcp']; import app; app.main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == '--mcp needs one more package: pip install "mcp>=1.21,<2"\n'
