"""The app the way a Hugging Face Space starts it: another user, no home, a read-only source."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from gradio_client import Client, handle_file
from serving import SECONDS
from test_layers import imports, product
from test_readme import front_matter, pins

ROOT = Path(__file__).resolve().parents[1]

SPACE = {
    "SYSTEM": "spaces",
    "SPACE_ID": "someone/food-vit",
    "SPACE_HOST": "someone-food-vit.hf.space",
    "GRADIO_SERVER_NAME": "0.0.0.0",
    "GRADIO_NUM_PORTS": "1",  # the port that is named, or none
    "PYTHONUNBUFFERED": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "HOME": "/home/user",
    "PATH": "/usr/bin:/bin",
}

# A machine of its own inside this one, which goes with the process: /app is our source, read-only;
# /home is empty and read-only; /data is there or not; and it has the system, and our Python.
MACHINE = r"""
set -e
mount -t tmpfs tmpfs "$NEW"
for place in /bin /dev /etc /lib /lib64 /proc /sbin /sys /usr "$BASE"; do
    if [ -L "$place" ]; then cp -a "$place" "$NEW$place"
    elif [ -d "$place" ]; then mkdir -p "$NEW$place"; mount --rbind "$place" "$NEW$place"; fi
done
mkdir "$NEW/app" "$NEW/venv" "$NEW/home" "$NEW/tmp"
mount --bind "$PREFIX" "$NEW/venv"
mount --bind "$SOURCE" "$NEW/app"
mount -o remount,bind,ro "$NEW/app"
mount -t tmpfs -o mode=555 tmpfs "$NEW/home"
chmod 1777 "$NEW/tmp"
[ -z "$DISK" ] || { mkdir "$NEW/data"; chmod 777 "$NEW/data"; }
exec chroot "$NEW" setpriv --reuid=1000 --regid=1000 --clear-groups env -i -C /app "$@"
"""


@contextmanager
def machine(tmp_path: Path, disk: bool, port: int, *command: str) -> Iterator[subprocess.Popen]:
    """`command` as an ordinary user of that machine, until the end of the context."""
    able = (
        subprocess.run(["unshare", "--mount", "true"]).returncode if shutil.which("unshare") else 1
    )
    if able != 0 or os.geteuid() != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must be root, and may mount")
        pytest.skip("needs root on Linux, to make a machine with a read-only source")
    (tmp_path / "new").mkdir()
    settings = {
        "NEW": str(tmp_path / "new"),
        "SOURCE": str(ROOT),
        "PREFIX": sys.prefix,
        "BASE": sys.base_prefix,
        "DISK": "yes" if disk else "",
        "PATH": os.environ["PATH"],
    }
    space = SPACE | {"PORT": str(port), "GRADIO_SERVER_PORT": str(port)}
    words = [*(f"{name}={value}" for name, value in space.items()), *command]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(
            ["unshare", "--mount", "bash", "-c", MACHINE, "machine", *words],
            env=settings,
            stdout=log,
            stderr=log,
        )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(30)


WHERE = """
from vit.home import home
home().mkdir(parents=True, exist_ok=True)
(home() / "kept").write_text("")
print("home:", home())
"""


@pytest.mark.parametrize(("disk", "home"), [(True, "/data"), (False, "/tmp/vit-1000")])
def test_a_space_starts_and_answers(tmp_path: Path, disk: bool, home: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python = "/venv/bin/python"
    file = front_matter()["app_file"]
    start = f"{python} -c {shlex.quote(WHERE)} && exec {python} {file}"
    with machine(tmp_path, disk, port, "sh", "-c", start) as running:
        # 127.0.0.2 answers only where every address is listened on
        client = connected(f"http://127.0.0.2:{port}", running, tmp_path / "log")
        photo = handle_file(str(ROOT / "examples" / "pizza_margherita.jpg"))
        answer = client.predict(photo, api_name="/classify")
        client.close()
        with pytest.raises(urllib.error.HTTPError, match="404"):  # not asked for
            urllib.request.urlopen(f"http://127.0.0.2:{port}/gradio_api/mcp/schema")
    assert answer["labels"][0] == "Pizza"
    log = (tmp_path / "log").read_text()
    assert f"home: {home}\n" in log
    assert 'File "/app/' not in log, log  # a traceback out of our own code


def connected(url: str, running: subprocess.Popen, log: Path) -> Client:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and running.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return Client(url, verbose=False)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    pytest.fail(f"no answer: {log.read_text()[-2000:]}")


def test_requirements_hold_all_that_is_imported() -> None:
    """A Space installs requirements.txt and nothing else."""
    optional = {"pillow_heif"}  # vit.images looks whether it is there
    pinned = {name.replace("_", "-").lower() for name in pins("requirements.txt")}
    for name in list(pinned):  # what they need themselves comes along
        needs = [each for each in requires(name) or () if "extra ==" not in each]
        pinned |= {re.split(r"[^\w-]", each)[0].replace("_", "-").lower() for each in needs}
    ours, known = product(), packages_distributions()
    for name, path in ours.items():
        tops = {each.split(".")[0] for each in imports(path.read_text("utf-8"), ours)}
        for top in tops - sys.stdlib_module_names - {"vit", "app", "train"} - optional:
            found = {each.replace("_", "-").lower() for each in known.get(top, [])}
            assert found & pinned, f"{name} imports {top}, which requirements.txt does not bring"
