"""The photo input and the photo shown. Uploads reach `vit.images`, the only decoder, unopened."""

from __future__ import annotations

import io
import re
from abc import ABCMeta
from pathlib import Path

import gradio as gr
from gradio.data_classes import FileData, ImageData, ListFiles
from gradio.utils import get_upload_folder
from PIL import Image

from vit.classifier import Prediction
from vit.drawing import outline_box
from vit.images import open_photo
from vit.ui.files import keep_file
from vit.ui.page import QUIET

FITS = [("square crop", "crop"), ("whole photo", "letterbox")]
SHOWN = "shown"  # folder of the photos that we drew
ENOUGH = 440  # pixels of the short side that make a photo pleasant to look at
LONGEST = 1600  # pixels of the long side of a shown photo

# Of what the photo input holds, what we drew, and the path of the photo it was drawn from: our
# drawing takes the place of that photo and of older drawings, never of another photo, nor of the
# emptiness after one was removed, that came while the model was still at work. The browser notes
# the path for as long as the page's window is open, so that the photo is there after a reload.
IN_PLACE = r"""(now, drawn, source) => {
  const ours = /[\\/]SHOWN[\\/]/.test(now?.path);
  try {
    if (now && drawn) sessionStorage.setItem("food-vit-photo", source);
    else sessionStorage.removeItem("food-vit-photo");
  } catch {} // a browser that keeps nothing
  if (now && (ours || now.path === source) && now.path !== drawn?.path) return [drawn];
}""".replace("SHOWN", SHOWN)

# A photo that was chosen since the page began to load is newer than the one from before.
COMES_BACK = """(now, before) => {
  if (!now && before && !document.documentElement.dataset.chose) return [before];
}"""
CHOSEN = """
for (const kind of ["change", "drop"]) document.addEventListener(kind, ({ target }) => {
  if (target.closest?.("#photo")) document.documentElement.dataset.chose = "yes";
}, true);
"""

NOTED = """() => {
  try { return sessionStorage.getItem("food-vit-photo") ?? ""; } catch { return ""; }
}"""


class _Unwritten(type(gr.Image)):
    """For a component class that only overrides a method: Gradio's own metaclass writes a .pyi file
    beside the source of every component class, and a program must not write into its source."""

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, object]):
        return ABCMeta.__new__(cls, name, bases, members)


class PhotoInput(gr.Image, metaclass=_Unwritten):
    """`gr.Image` that passes the file on as it came.

    `gr.Image` opens, turns and converts an upload with Pillow before any handler sees it, and so
    fails in its own words on what is no picture, or is one too large.
    """

    is_template = True  # the browser draws it as a plain Image

    def preprocess(self, payload: ImageData | None) -> str | None:
        return None if payload is None else payload.path


class PhotoFiles(gr.File, metaclass=_Unwritten):
    """Many files as (name, path): the name as the visitor knows it, in the order chosen."""

    is_template = True

    def preprocess(self, payload: ListFiles | FileData | None) -> list[tuple[str, str]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if payload is None:
            return []
        files = payload.root if isinstance(payload, ListFiles) else [payload]
        return [(file.orig_name or Path(file.path).name, file.path) for file in files]


def photo_input() -> PhotoInput:
    return PhotoInput(
        label="Photo",
        show_label=False,
        sources=["upload", "clipboard", "webcam"],
        type="filepath",
        placeholder="# Drop a photo of a dish here\nor click to choose one",
        alt_text="Your photo. What the model sees is outlined.",
        buttons=["fullscreen"],
        height=400,
        elem_id="photo",
        render=False,
    )


def comes_back(blocks: gr.Blocks, photo: gr.Image) -> None:
    """After a reload of the page its photo is there again, as long as its file is."""
    before = PhotoInput(visible=False)
    blocks.load(sent_before, gr.Textbox(visible=False), before, js=NOTED, **QUIET).then(
        None, [photo, before], photo, js=COMES_BACK, **QUIET
    )


def sent_before(path: str) -> str | dict:
    """`path` if it is that of a file as visitors send them, which nobody knows who does not have
    that file: its folder is called by the hash of what is in it."""
    file = Path(path)
    try:
        folder = Path(get_upload_folder()).resolve()
        known = file.resolve() == folder / file.parent.name / file.name and file.is_file()
    except (OSError, ValueError):  # no path at all
        known = False
    return path if known and re.fullmatch("[0-9a-f]{64}", file.parent.name) else gr.skip()


def fit_choice() -> gr.Radio:
    return gr.Radio(FITS, value="crop", label="The model sees", min_width=200, render=False)


def outlined_photo(source: str, prediction: Prediction) -> Image.Image:
    """The upright photo, of a size to look at, with what the model saw outlined."""
    photo = prediction.photo.copy()
    if min(photo.size) < min(ENOUGH, *prediction.photo_size):  # a small model read a small copy
        photo = open_photo(source, at_least=ENOUGH).image
    photo.thumbnail((LONGEST, LONGEST))
    scale = photo.width / prediction.photo_size[0]
    left, top, right, bottom = prediction.box
    return outline_box(photo, (scale * left, scale * top, scale * right, scale * bottom))


def keep_jpeg(picture: Image.Image) -> str:
    """Path of `picture` as a file that Gradio serves and later clears; no EXIF goes along."""
    data = io.BytesIO()
    picture.convert("RGB").save(data, "JPEG", quality=88, exif=b"")
    return keep_file(data.getvalue(), "photo.jpg", SHOWN)


def is_shown(path: str) -> bool:
    """Whether `path` is a picture of `keep_jpeg`, not a file of a visitor's."""
    return Path(path).is_relative_to(_shown_folder())


def _shown_folder() -> Path:
    # Uploads lie beside it, each in a folder named by 64 hexadecimal digits.
    return Path(get_upload_folder()).resolve() / SHOWN
