"""What only the browser knows of: a file too large to send, pasted text, a camera that is missing.

Gradio says it in words of its own or not at all, and may take away the photo that is there. So a
script looks first and tells the page, which shows our sentence where the result would be.
"""

from __future__ import annotations

import gradio as gr

from vit.ui.page import QUIET, sent_with
from vit.ui.words import trouble_html

LARGEST = 50  # MB of a file; Gradio counts 1024 × 1024 bytes as one

SENTENCES = {
    "large": f"{{name}} is larger than {LARGEST} MB; make it smaller, or choose another.",
    "large zip": "{name} is larger than the page takes; make its photos smaller, 1,000 pixels do.",
    "text": "There is no photo in what was pasted; copy a photo, then paste again.",
    "clipboard": "Your browser does not show the page what was copied; press Ctrl+V (⌘V on a Mac).",
    "camera": "There is no camera that the page may use; choose a photo instead.",
}


def takes_notices(html: gr.HTML) -> None:
    """What was made with `on_notice` shows the sentences."""
    html.submit(sentence, None, html, **QUIET)


def on_notice(about: str) -> str:
    """For `js_on_load` of the HTML component that tells of `about`: "photo", "many" or
    "photos-zip"."""
    return (
        f'document.addEventListener("notice-{about}", ({{ detail }}) => trigger("submit", detail));'
    )


def sentence(notice: gr.EventData) -> str:
    text = SENTENCES.get(str(sent_with(notice, "said")), "")
    return trouble_html(text.replace("{name}", str(sent_with(notice, "name"))[:80]))


NOTICES = """
const tell = (about, said, name = "") =>
  document.dispatchEvent(new CustomEvent(`notice-${about}`, { detail: { said, name } }));
const refuseLarge = (event, files) => {
  const place = event.target.closest?.("#photo, #many, #photos-zip");
  const zip = place?.id === "photos-zip";
  const most = zip ? place.querySelector("[data-most]")?.dataset.most : LARGEST * 1024 * 1024;
  const large = [...(files ?? [])].find((file) => file.size > most);
  if (!place || !large) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  if (event.type === "change") event.target.value = "";
  else event.target.dispatchEvent(new DragEvent("dragleave", { bubbles: true }));
  tell(place.id, zip ? "large zip" : "large", large.name);
};
document.addEventListener("change", (event) => refuseLarge(event, event.target.files), true);
document.addEventListener("drop", (event) => refuseLarge(event, event.dataTransfer?.files), true);

// A photo pasted anywhere on the page goes where a dropped one goes.
const drop = (photo) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(photo);
  document.querySelector("#photo .upload-container")?.dispatchEvent(
    new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
};
document.addEventListener("paste", (event) => {
  const photo = [...(event.clipboardData?.files ?? [])].find((f) => f.type.startsWith("image/"));
  if (photo) drop(photo);
  else if (!event.target.closest?.("input, textarea, [contenteditable]")
    && document.querySelector("#result")?.offsetParent) tell("photo", "text");
});
const pasteCopied = async () => {
  try {
    for (const item of await navigator.clipboard.read()) {
      const type = item.types.find((type) => type.startsWith("image/"));
      if (type) return drop(new File([await item.getType(type)], "pasted photo", { type }));
    }
    tell("photo", "text");
  } catch {
    tell("photo", "clipboard");
  }
};
const openCamera = async (button) => {
  const devices = await navigator.mediaDevices?.enumerateDevices().catch(() => []) ?? [];
  if (!devices.some((device) => device.kind === "videoinput")) return tell("photo", "camera");
  cameraFound = true;
  button.click();
};
let cameraFound = false;
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("#photo [data-testid=source-select] button");
  const place = button ? [...button.parentElement.children].indexOf(button) : 0;
  if (!place || place === 1 && cameraFound) return; // the first is for files
  event.preventDefault();
  event.stopImmediatePropagation();
  if (place === 1) openCamera(button);
  else pasteCopied();
}, true);
""".replace("LARGEST", str(LARGEST))
