"""Nothing is fetched from anywhere: importing all of it, starting the page, and asking it."""

import subprocess
import sys
from pathlib import Path

import pytest
from bad_photos import drawn, saved
from gradio_client import Client, handle_file
from serving import ROOT, serving

# Connections to other machines, and questions for their addresses, are told and refused.
WATCH = """
import runpy, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        host = arguments[1][0] if isinstance(arguments[1], tuple) else None  # or a file's name
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    else:
        return
    if host not in (None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0"):
        print(f"ASKED THE NETWORK: {event} {host}", file=sys.stderr, flush=True)
        raise OSError("there is no network")

sys.addaudithook(watch)
"""
START = f"{WATCH}\nimport train, vit.__main__\nrunpy.run_path('app.py', run_name='__main__')"


def test_the_app_starts_and_answers_without_a_network(tmp_path: Path) -> None:
    start = serving(tmp_path, tmp_path / "home")
    start.command[1:2] = ["-c", START]
    for name in ("HF_HUB_OFFLINE", "VIT_PHOTOS_URL", "VIT_MODELS_URL"):
        start.environment.pop(name)
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(saved(drawn(size=(320, 240)), "JPEG"))
    with start as server:
        client = Client(server.url, verbose=False, download_files=False)
        assert client.predict(handle_file(str(photo)), api_name="/classify")["labels"]
        log = server.log.read_text()
    assert "Food ViT is at" in log and "ASKED THE NETWORK" not in log, log[-2000:]


@pytest.mark.parametrize(
    "line",
    [
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)",
        "import requests; requests.get('http://example.org', timeout=1)",
    ],
)
def test_that_would_be_seen(line: str) -> None:
    command = [sys.executable, "-c", f"{WATCH}\n{line}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "ASKED THE NETWORK" in done.stderr
