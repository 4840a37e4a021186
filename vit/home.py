"""Where the product keeps what it makes and downloads: checkpoints, runs, data sets."""

import os
import tempfile
from pathlib import Path

from vit.settings import on_a_space


def home() -> Path:
    """The folder of this user's files: `$VIT_HOME`, else `/data` on a Space, else `~/.cache/vit`,
    else, where nothing can be written there, a folder of the user's among the temporary files.

    `/data` is the persistent disk of a Hugging Face Space (recognised by `SPACE_ID`) and counts
    only when it is writable. The folder is not created by this call.
    """
    if chosen := os.environ.get("VIT_HOME"):
        return Path(chosen).expanduser()
    disk = Path("/data")
    if on_a_space() and disk.is_dir() and _writable(disk):
        return disk
    try:
        own = Path.home() / ".cache" / "vit"
    except RuntimeError:  # a container's user whom nobody knows
        return _temporary()
    there = next(folder for folder in (own, *own.parents) if os.path.exists(folder))
    return own if _writable(there) else _temporary()


def _temporary() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"vit-{user}"


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
