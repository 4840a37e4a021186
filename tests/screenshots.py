"""Pictures of the page: `python -m tests.screenshots FOLDER`.

Starts the app, drives it with our own example pictures, and writes one PNG for every state, width
and theme, such as `classify-1280-light.png`.
"""

import argparse
import io
import random
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.serving import CHROMIUM_FLAGS, ROOT, find_chromium, open_tab, save_unsure, serving

ASSETS = ROOT / ".assets"  # the README's pictures
PHOTO: list[Path] = []  # a photo to show instead of our example
EXAMPLES = sorted((ROOT / "examples").glob("*.jpg"))


def empty(page: Page) -> None:
    page.wait_for_selector("#examples img")


def classify(page: Page) -> None:
    if PHOTO:
        page.locator("#photo input[type=file]").set_input_files(PHOTO[0])
    else:
        page.locator("#examples button").first.click()
    page.wait_for_selector("#result .note")
    page.wait_for_function("document.querySelector('#photo img')?.src.includes('/shown/')")


def whole(page: Page) -> None:
    classify(page)
    before = page.locator("#photo img").get_attribute("src")
    page.get_by_label("whole photo").check()
    page.wait_for_function("s => document.querySelector('#photo img')?.src !== s", arg=before)


def details(page: Page) -> None:
    page.locator("#facts summary").first.click()


def unsure(page: Page) -> None:
    page.locator("#checkpoint input").click()
    page.get_by_role("option", name="sure-of-nothing").click()
    page.wait_for_function("document.querySelector('#facts').innerText.includes('2 dishes')")
    classify(page)
    page.get_by_text("Why?").click()


def trouble(page: Page) -> None:
    page.locator("#photo input[type=file]").set_input_files(
        {"name": "recipe.jpg", "mimeType": "image/jpeg", "buffer": b"two eggs"}
    )
    page.wait_for_selector("#result .trouble")


def many(page: Page) -> None:
    page.get_by_text("Many photos at once").click()
    bad = {"name": "recipe.jpg", "mimeType": "image/jpeg", "buffer": b"two eggs"}
    good = [
        {"name": path.name, "mimeType": "image/jpeg", "buffer": path.read_bytes()}
        for path in EXAMPLES[-9:]
    ]
    page.locator("#many input[type=file]").set_input_files([*good, bad])  # pyright: ignore[reportArgumentType]
    page.wait_for_function("document.querySelector('#many-status').innerText.includes(' in ')")


def offline(page: Page) -> None:
    page.get_by_text("More: real photos").click()
    page.wait_for_selector("#more .trouble")


def patches_first(page: Page) -> None:
    open_tab(page, "Patches")
    page.wait_for_selector("#patches-empty img")


def patches(page: Page) -> None:
    classify(page)
    open_tab(page, "Patches")
    page.wait_for_selector("#patch-grid svg")
    grid = page.locator("#patch-grid svg")
    box = grid.bounding_box()
    assert box
    grid.click(position={"x": 0.46 * box["width"], "y": 0.36 * box["height"]})
    page.wait_for_selector("#patch-about svg")


def patches_input(page: Page) -> None:
    patches(page)
    page.get_by_label("as it comes in").check()
    page.get_by_text("as it comes in. Most alike").wait_for()


def patches_whole(page: Page) -> None:
    whole(page)
    open_tab(page, "Patches")
    page.wait_for_selector("#patch-about svg")


def patches_away(page: Page) -> None:
    patches(page)
    page.get_by_text("Take patches away").click()
    page.get_by_text("it trusts most").click()
    page.get_by_text("patches gone").wait_for()


def filters(page: Page) -> None:
    patches(page)
    page.get_by_text("What the first layer learned").click()
    page.wait_for_selector(".filters img")


def attention_first(page: Page) -> None:
    open_tab(page, "Attention")
    page.wait_for_selector("#attention-empty img")


def attention(page: Page) -> None:
    classify(page)
    open_tab(page, "Attention")
    page.wait_for_selector("#wall button")
    page.wait_for_selector("#look-photo figcaption")


def attention_head(page: Page) -> None:
    attention(page)
    page.locator("#wall button[data-layer='8']").first.click()
    page.locator("#look-photo").get_by_text("Layer 9, head 1").wait_for()
    page.get_by_label("a patch: click the photo").check()
    page.locator("#look-photo").get_by_text("the patch in row").first.wait_for()


def attention_order(page: Page) -> None:
    attention(page)
    page.get_by_label("Every head, ordered by").click()
    page.get_by_role("option", name="distance").click()
    page.wait_for_selector("#wall .flat")
    page.get_by_label("switches it off").check()
    page.locator("#wall button").nth(2).click()
    page.wait_for_selector("#heads-off-result table")


def attention_tests(page: Page) -> None:
    attention(page)
    page.get_by_role("button", name="Is this map faithful?").click()
    page.locator("#faithful strong").wait_for()
    page.get_by_role("button", name="Deletion and insertion curves").click()
    page.get_by_role("button", name="in the map's order").click()
    page.locator("#curves svg").last.wait_for()


def attention_compared(page: Page) -> None:
    attention(page)
    page.get_by_role("button", name="Compare the ways of looking").click()
    page.get_by_role("button", name="Compare them on this photo").click()
    page.locator("#compared strong").last.wait_for()


def attention_blocks(page: Page) -> None:
    attention(page)
    page.get_by_role("button", name="Prediction after each block").click()
    page.wait_for_selector("#blocks table")
    page.get_by_role("button", name="Colours").click()


def model_first(page: Page) -> None:
    open_tab(page, "Model")
    page.wait_for_selector("#tour-empty img")


def tour(page: Page) -> None:
    classify(page)
    open_tab(page, "Model")
    page.wait_for_selector("#tour-words h3")
    page.locator("#tour-nav [data-stop=softmax]").click()
    page.wait_for_selector("#tour-words [data-at=softmax]")


def model_part(page: Page, name: str, ready: str) -> None:
    open_tab(page, "Model")
    page.locator("#model-part").get_by_text(name, exact=True).click()
    page.wait_for_selector(ready)


def architecture(page: Page) -> None:
    model_part(page, "Architecture", "#layers table")


def calculator(page: Page) -> None:
    model_part(page, "Calculator", "#calculated table")


def learned(page: Page) -> None:
    model_part(page, "What it learned", "#model-filters img")


def compared(page: Page) -> None:
    model_part(page, "Compared", "#compared-models li")


def finetune(page: Page) -> None:
    open_tab(page, "Fine-tune")
    page.wait_for_selector("#run-table")


def taught(page: Page) -> None:
    """A run on crops of our drawn dishes, to its end."""
    open_tab(page, "Fine-tune")
    page.locator("#finetune input[type=file]").first.set_input_files(
        {"name": "pizza-and-sushi.zip", "mimeType": "application/zip", "buffer": drawn_dishes()}
    )
    page.get_by_label("Name of the new model").fill("pizza-or-sushi")
    start = page.get_by_role("button", name="Start", exact=True)
    page.wait_for_function("b => !b.disabled", arg=start.element_handle())
    start.click()
    page.locator("#run-status").get_by_text("finished").wait_for(timeout=300_000)
    page.locator("#results-verdict").get_by_text("right").wait_for()
    page.evaluate("document.querySelector('#run-status').scrollIntoView()")


def drawn_dishes(crops: int = 12) -> bytes:
    """A zip of class folders: crops of our drawn pizzas and sushi, half of them mirrored."""
    draw, file = random.Random(0), io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for path in (p for p in EXAMPLES if p.stem.startswith(("pizza", "sushi"))):
            with Image.open(path) as picture:
                picture.load()
            for number in range(crops):
                side = int(min(picture.size) * draw.uniform(0.6, 0.9))
                left = draw.randrange(picture.width - side)
                top = draw.randrange(picture.height - side)
                crop = picture.crop((left, top, left + side, top + side))
                if number % 2:
                    crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
                data = io.BytesIO()
                crop.save(data, "JPEG")
                archive.writestr(
                    f"{path.stem.split('_')[0]}/{path.stem}{number}.jpg", data.getvalue()
                )
    return file.getvalue()


README = {
    "classify": classify,
    "patches": patches,
    "attention": attention,
    "fine-tune": taught,
    "model": tour,
}
STATES: list[Callable[[Page], None]] = [
    empty,
    classify,
    whole,
    details,
    unsure,
    trouble,
    many,
    offline,
    patches_first,
    patches,
    patches_input,
    patches_whole,
    patches_away,
    filters,
    model_first,
    tour,
    architecture,
    calculator,
    learned,
    compared,
    finetune,
    attention_first,
    attention,
    attention_head,
    attention_order,
    attention_tests,
    attention_compared,
    attention_blocks,
]


def take(
    browser: Browser,
    url: str,
    state: Callable[[Page], None],
    width: int,
    height: int,
    theme: str,
    file: Path,
    whole: bool = True,
) -> None:
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(f"{url}?__theme={theme}")
    page.wait_for_selector("#facts strong")
    state(page)
    page.mouse.move(0, 0)
    page.wait_for_timeout(700)  # for what fades in
    file.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=file, full_page=whole)
    page.close()
    print(file)


def make_small(picture: Path) -> None:
    """At most 150 kB: as many colours as fit, which are enough for a page."""
    with Image.open(picture) as image:
        page = image.convert("RGB")
    for colours in (256, 128, 64, 48, 32):
        page.quantize(colours, dither=Image.Dither.FLOYDSTEINBERG).save(picture, optimize=True)
        if picture.stat().st_size < 150_000:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of the page.")
    parser.add_argument("folder", type=Path, nargs="?", help="where the pictures go")
    parser.add_argument("--readme", action="store_true", help="take the README's pictures alone")
    parser.add_argument("--home", type=Path, help="folder with checkpoints/ to show besides ours")
    parser.add_argument("--only", nargs="+", choices=[state.__name__ for state in STATES])
    parser.add_argument("--photo", type=Path, help="a photo of yours to send, not our example")
    options = parser.parse_args()
    if not options.folder and not options.readme:
        parser.error("name a folder, or --readme")
    PHOTO.extend([options.photo] if options.photo else [])
    states = [s for s in STATES if not options.only or s.__name__ in options.only]
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        if options.home:
            shutil.copytree(options.home, home)
        save_unsure(home)
        with serving(Path(name), home) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=find_chromium(), args=CHROMIUM_FLAGS
            )
            if options.readme:
                for name, state in README.items():
                    file = ASSETS / f"{name}.png"
                    take(browser, server.url, state, 1120, 780, "light", file, whole=False)
                    make_small(file)
            elif options.folder:
                for state in states:
                    for width, height in ((1280, 800), (390, 844)):
                        for theme in ("light", "dark"):
                            file = options.folder / f"{state.__name__}-{width}-{theme}.png"
                            take(browser, server.url, state, width, height, theme, file)
            browser.close()


if __name__ == "__main__":
    main()
