"""What a click in the Attention tab takes, in the app and in the browser: another head or another
patch drawn large, and the wall of every head.

    python -m tests.benchmarks.clicks [CHECKPOINT] [--clicks 30] [--photo FILE] [--cpu]

"drawing" is the work of the app in a redraw of the large picture (HTML with the picture in it),
"wall" that of the wall when another patch asks, so that every thumbnail is new. "in the browser"
runs from the click to the frame in which the new picture is on the screen, by the browser's own
clock: the way to the app and back, Gradio's queue, and the browser's own work besides. No click
runs the model. Target: drawing in under 30 ms.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.benchmarks.timing import clock, milliseconds, percentile, spread, verdict, versions
from tests.benchmarks.visitors import ROOT, app
from tests.serving import CHROMIUM_FLAGS, find_chromium
from vit.checkpoint import resolve
from vit.classifier import DEFAULT
from vit.looking import Question, look_at
from vit.ui.seen import photo_html, wall_html

TARGET = 30.0  # milliseconds
PHOTO = ROOT / "examples" / "pizza_margherita.jpg"

# Answers with the milliseconds from the click to the frame after the one with the new picture.
CLICK = """([target, x, y]) => new Promise((done, fail) => {
  setTimeout(() => fail(new Error("no other picture came")), 30000);
  const now = () => document.querySelector("#look-photo .frame img")?.src;
  const before = now(), place = target.getBoundingClientRect();
  const began = performance.now();
  const seen = new MutationObserver(() => {
    if (!now() || now() === before) return;
    seen.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  });
  seen.observe(document.querySelector("#look-photo"), {
    subtree: true, childList: true, attributes: true, characterData: true });
  target.dispatchEvent(new MouseEvent("click", { bubbles: true,
    clientX: place.left + x * place.width, clientY: place.top + y * place.height }));
})"""


def drawing(checkpoint: str, photo: Path, clicks: int, by: Callable[[], float]) -> None:
    look = look_at(str(photo), resolve(checkpoint))
    heads = product(range(look.depth), range(look.heads))
    large, walls = [], []
    for number, (layer, head) in enumerate(islice(cycle(heads), clicks + 1)):
        question = Question("head", layer, head, token=number % (look.grid[0] * look.grid[1]))
        large.append(milliseconds(partial(photo_html, look, question, "inferno", 0.6, True), by))
        walls.append(milliseconds(partial(wall_html, look, question), by))
    for what, times in (("drawing", large), ("wall", walls)):
        middle, low, high = spread(times[1:])  # the first loads the colours
        print(f"{what}: {middle:.1f} ms [{low:.1f}, {high:.1f}]  {verdict(middle, TARGET)}")


def in_the_browser(page: Page, photo: Path, clicks: int) -> None:
    page.locator("#photo input[type=file]").set_input_files(photo)
    page.wait_for_selector("#result .note")
    page.get_by_role("tab", name="Attention").click()
    page.wait_for_selector("#look-photo .frame img")
    page.wait_for_selector("#wall button[data-head]")
    page.wait_for_timeout(2000)  # milliseconds: the blocks are still computed

    def click(selector: str, number: int, x: float = 0.5, y: float = 0.5) -> float:
        target = page.locator(selector).nth(number).element_handle()
        page.wait_for_timeout(150)  # milliseconds: nobody clicks faster
        return page.evaluate(CLICK, [target, x, y])

    heads = page.locator("#wall button[data-head]").count()
    works = {
        "another head": [click("#wall button[data-head]", n % heads) for n in range(clicks)],
        "another patch": [  # here and there in the crop
            click("#look-photo .frame", 0, 0.2 + 0.6 * (0.37 * n % 1), 0.1 + 0.8 * (0.61 * n % 1))
            for n in range(clicks)
        ],
    }
    for what, times in works.items():
        middle, low, high = spread(times)
        print(f"in the browser, {what}: {middle:.0f} ms [{low:.0f}, {high:.0f}]", end=", ")
        print(f"99th percentile {percentile(times, 99):.0f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("checkpoint", nargs="?", default=DEFAULT)
    parser.add_argument("--photo", type=Path, default=PHOTO)
    parser.add_argument("--clicks", type=int, default=30)
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    asked = parser.parse_args()
    print(versions("torch", "gradio", "playwright"), flush=True)
    drawing(asked.checkpoint, asked.photo, asked.clicks, clock(asked.cpu))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["VIT_HOME"] = str(Path(folder) / "home")
        with app(Path(folder)) as (url, _), sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=find_chromium(), args=CHROMIUM_FLAGS
            )
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            page.goto(url)
            page.wait_for_selector("#facts strong")
            in_the_browser(page, asked.photo, asked.clicks)
            browser.close()


if __name__ == "__main__":
    main()
