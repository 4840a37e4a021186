"""What is made for the browser: files, where Gradio serves and later clears them, and pictures that
travel in the page itself."""

from __future__ import annotations

import io
import os
import shutil
from base64 import b64encode
from hashlib import file_digest, sha256
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from gradio.utils import get_upload_folder
from PIL import Image


def keep_file(data: bytes, name: str, folder: str = "") -> str:
    """Path of a file with these bytes, in `folder` of the uploads' folder.

    The path follows from the bytes, as with uploads. Gradio's own `save_bytes_to_cache` writes a
    file anew that is there already, perhaps while another visitor is reading it.
    """
    place = Path(get_upload_folder()).resolve() / folder / sha256(data).hexdigest()
    path = place / Path(name).name
    if not _used_again(path):
        place.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=place, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    return str(path)


def _used_again(path: Path) -> bool:
    """Whether a temporary file is there; then it stays, for files go by the time of their use."""
    try:
        linked = path.stat().st_nlink > 1  # with a file of the user's, whose time is its own
        os.utime(path.parent if linked else path)
    except OSError:
        return False
    return True


def keep_copy(source: Path) -> str:
    """Path of a copy of a file that may be large, under the same name: a link where that works.

    What is linked is never written to: files of ours are replaced as a whole.
    """
    with open(source, "rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    path = Path(get_upload_folder()).resolve() / digest / source.name
    if not _used_again(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / source.name
            try:
                os.link(source, new)
            except OSError:
                shutil.copyfile(source, new)
            os.replace(new, path)
    return str(path)


def data_url(picture: Image.Image, kind: str = "PNG", **settings: object) -> str:
    """The picture as the address of itself: nothing of a visitor's photo is left in a file."""
    data = io.BytesIO()
    picture.save(data, kind, **settings)
    return f"data:image/{kind.lower()};base64,{b64encode(data.getvalue()).decode()}"
