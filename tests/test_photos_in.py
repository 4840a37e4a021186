"""The photos step of fine-tuning in a real browser: zip, collection, the course's photos."""

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect
from serving import CHROMIUM_FLAGS, Server, jpeg, serving
from test_browser import fits_the_window, payload
from test_data import Files, zipped
from test_doctor import photo, photos

from vit.data import open_data
from vit.ui.collecting import EACH, sent_files

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # milliseconds; the machine may be busy

Opening = Callable[..., Page]
COURSE = "pizza, steak, sushi"
COLLECT = "collect them here"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The photos step by itself, in a process of its own."""
    folder = tmp_path_factory.mktemp("photos")
    start = serving(folder, folder / "home")
    port = start.command[start.command.index("--port") + 1]
    start.command = [sys.executable, "-m", "tests.photos_page", "--port", port]
    start.environment |= {"VIT_COLLECT_PHOTOS": str(EACH + 10), "VIT_ZIP_MB": "5"}
    with start as server:
        yield server
    assert "Traceback" not in (log := server.log.read_text()), log[-3000:]


@pytest.fixture
def browse(chromium: Browser, alone: Server) -> Iterator[Opening]:
    """Opens the page, each time as another visitor unless a `context` is given; afterwards nothing
    may have gone wrong behind it."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def open_page(
        width: int = 1280, context: BrowserContext | None = None, way: str = COLLECT
    ) -> Page:
        if context is None:
            size = {"width": width, "height": 844}
            context = chromium.new_context(viewport=size, accept_downloads=True)  # pyright: ignore[reportArgumentType]
            contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.goto(alone.url)
        page.wait_for_function("Object.keys(localStorage).length > 0")  # the visitor has a key
        if way:
            page.get_by_label(way).check()
        return page

    assert "--use-fake-device-for-media-stream" in CHROMIUM_FLAGS
    yield open_page
    for context in contexts:
        context.close()
    assert not errors, errors


def chosen(page: Page) -> Locator:
    return page.locator("#chosen textarea, #chosen input")


def said(page: Page) -> Locator:
    return page.locator("#photos-lines .said li")


def new_class(page: Page, name: str) -> None:
    page.get_by_label("New class").fill(name)
    page.keyboard.press("Enter")


def chip(page: Page, text: str) -> Locator:
    return page.locator(".classes button", has_text=re.compile(f"^{re.escape(text)}$"))


def add(page: Page, *seeds: object) -> None:
    files = [payload(f"{seed}.jpg", "image/jpeg", photo(seed)) for seed in seeds]
    page.locator("#collect-add input[type=file]").set_input_files(files)


def thumbnails(page: Page) -> Locator:
    return page.locator(".collected li")


def send_zip(page: Page, path: Path) -> None:
    page.locator("#photos-file input[type=file]").set_input_files(path)


# --- A zip ------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 390])
def test_a_zip_is_kept_and_examined(
    browse: Opening, alone: Server, tmp_path: Path, width: int
) -> None:
    files: Files = photos("train/") | photos("test/", 3)
    files |= {"train/a/<b>half.jpg": photo("h")[:900], "train/a/copy.jpg": photo("train/a0")}
    files |= {"train/.DS_Store": b"x", "train/b/again.jpg": photo("test/b1", quality=30)}
    page = browse(width, way="")
    send_zip(page, zipped(tmp_path / "my dishes.zip", files))
    expect(said(page)).to_have_count(3)
    expect(said(page).nth(0)).to_contain_text("29 photos of 2 classes (A 14, B 15)")
    expect(said(page).nth(1)).to_contain_text("1 cut short; 1 copy; 1 hidden or system file.")
    expect(said(page).nth(2)).to_contain_text("1 picture both learnt from and counted on")
    expect(chosen(page)).to_have_value(
        re.compile(r"visitors/[0-9a-f]{24}/zips/\w+/my_dishes\.zip$")
    )
    kept = Path(chosen(page).input_value())
    assert kept.is_relative_to(alone.home / "data") and open_data(kept).classes == ("a", "b")
    page.get_by_role("button", name="The doctor's report").click()
    report = page.locator(".doctor")
    expect(report.get_by_text("train/a/<b>half.jpg")).to_be_visible()
    expect(report.locator("section", has_text="Copies of a photo").locator("img")).to_have_count(2)
    assert fits_the_window(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the report").click()
    html = Path(saved.value.path()).read_text("utf-8")
    assert "&lt;b&gt;half.jpg" in html and "<script" not in html
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save it as JSON").click()
    report_json = json.loads(Path(saved.value.path()).read_text("utf-8"))
    assert report_json["trainable"] and len(report_json["findings"]) == 4
    # Taken away, nothing is chosen.
    page.locator("#photos-file").get_by_label("Clear").click()
    expect(chosen(page)).to_have_value("nothing")
    expect(page.locator("#photos-report")).to_be_hidden()
    # After a reload it is still there to be chosen.
    page.reload()
    page.get_by_role("button", name="Use my_dishes.zip again").click()
    expect(chosen(page)).to_have_value(str(kept))
    expect(said(page)).to_have_count(3)


def test_what_cannot_be_trained_on_is_said_and_not_chosen(browse: Opening, tmp_path: Path) -> None:
    page = browse(390, way="")
    status = page.locator("#photos-status .trouble")
    send_zip(page, zipped(tmp_path / "good.zip", photos()))
    expect(chosen(page)).to_have_value(re.compile("good.zip$"))
    for name, content, sentence in (
        ("one.zip", zipped(tmp_path / "1.zip", photos(names="a")).read_bytes(), "one class only"),
        ("evil.zip", zipped(tmp_path / "2.zip", {"../x.jpg": b"x"}).read_bytes(), "outside it"),
        ("half.zip", (tmp_path / "good.zip").read_bytes()[:5000], "neither a folder nor a"),
        ("photo.jpg", jpeg(), "neither a folder nor a complete zip"),
    ):
        page.locator("#photos-file").get_by_label("Clear").click()
        page.locator("#photos-file input[type=file]").wait_for(state="attached")
        page.locator("#photos-file input[type=file]").set_input_files(
            payload(name, "application/zip", content)
        )
        expect(status).to_contain_text(sentence)
        expect(page.locator("#photos-in")).not_to_contain_text("visitors/")  # where it is kept
        expect(chosen(page)).to_have_value("nothing")
        expect(page.locator("#photos-progress").get_by_text("Stop")).to_be_hidden()
        assert fits_the_window(page)


def test_a_zip_that_is_too_large_is_not_sent(browse: Opening, tmp_path: Path) -> None:
    page = browse(way="")
    big = tmp_path / "big.zip"
    big.write_bytes(bytes(5_100_000))
    send_zip(page, big)
    expect(page.locator("#photos-refused .trouble")).to_contain_text(
        "big.zip is larger than the page takes"
    )
    expect(chosen(page)).to_have_value("nothing")
    send_zip(page, zipped(tmp_path / "good.zip", photos()))
    expect(chosen(page)).to_have_value(re.compile("good.zip$"))
    expect(page.locator("#photos-refused .trouble")).to_have_count(0)


# --- The course's photos ----------------------------------------------------------------------


def test_the_courses_photos(browse: Opening, alone: Server, shared_data: Path) -> None:
    """Nothing listens where this page would download them."""
    page = browse(way=COURSE)
    button = page.get_by_role("button", name="Use pizza, steak and sushi")
    button.click()
    trouble = page.locator("#photos-status .trouble")
    expect(trouble).to_contain_text("cannot be reached")
    expect(chosen(page)).to_have_value("nothing")
    target = alone.home / "data" / "pizza_steak_sushi"
    shutil.copytree(shared_data / "pizza_steak_sushi", target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755)
    button.click()
    expect(said(page).nth(0)).to_contain_text("300 photos of 3 classes")
    expect(said(page).nth(2)).to_contain_text("Nothing else stands out.")
    expect(chosen(page)).to_have_value(str(target))
    expect(trouble).to_be_hidden()


# --- Collected in the page --------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 390])
def test_collect_see_delete_rename_balance_and_use(browse: Opening, width: int) -> None:
    page = browse(width)
    expect(page.locator("#collect-classes")).to_contain_text("No class yet")
    new_class(page, "Mac & <cheese>")
    expect(page.locator("#collect-said .trouble")).to_contain_text("A name has none of")
    new_class(page, "Mac & cheese")
    expect(chip(page, "Mac & cheese 0")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#collect-said .trouble")).to_have_count(0)
    expect(page.get_by_label("New class")).to_have_value("")
    add(page, *(f"m{n}" for n in range(8)))
    expect(thumbnails(page)).to_have_count(8)
    page.get_by_role("button", name="Use these photos").click()
    expect(page.locator("#photos-status .trouble")).to_contain_text("Mac & cheese alone")
    new_class(page, "soup")
    expect(chip(page, "Soup 0")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".balance")).to_have_text(
        "More photos would help: 10 more of Soup, 2 more of Mac & cheese."
    )
    add(page, "s1", "s2", "s3", "s1")
    expect(thumbnails(page)).to_have_count(3)
    expect(chip(page, "Soup 3")).to_be_visible()
    chip(page, "Mac & cheese 8").click()
    expect(thumbnails(page)).to_have_count(8)
    page.get_by_role("button", name="Delete photo 2 of Mac & cheese").click()
    expect(thumbnails(page)).to_have_count(7)
    page.get_by_role("button", name="Rename or remove this class").click()
    page.get_by_label("Its name").fill("Macaroni")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(chip(page, "Macaroni 7")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Use these photos").click()
    expect(said(page).nth(0)).to_contain_text("10 photos of 2 classes (Macaroni 7, Soup 3)")
    expect(chosen(page)).to_have_value(re.compile(r"/sets/collected-\w+$"))
    path = Path(chosen(page).input_value())
    assert open_data(path).classes == ("Macaroni", "soup")
    assert fits_the_window(page)
    # Once the collection changes, what was chosen is not what is shown; the files stay.
    page.get_by_role("button", name="Delete photo 1 of Macaroni").click()
    expect(chosen(page)).to_have_value("nothing")
    expect(page.locator("#photos-status")).to_contain_text("The photos changed")
    expect(page.locator("#photos-report")).to_be_hidden()
    assert len(list((path / "Macaroni").iterdir())) == 7
    page.get_by_role("button", name="Remove with 6 photos").click()
    expect(page.locator(".classes button")).to_have_count(1)
    expect(chip(page, "Soup 3")).to_have_attribute("aria-pressed", "true")


def test_a_reload_finds_the_collection_and_others_do_not(browse: Opening) -> None:
    page = browse()
    new_class(page, "ramen")
    expect(chip(page, "Ramen 0")).to_be_visible()
    add(page, 1, 2)
    expect(thumbnails(page)).to_have_count(2)
    again = browse(context=page.context)
    expect(chip(again, "Ramen 2")).to_be_visible()
    expect(thumbnails(again)).to_have_count(2)
    stranger = browse()
    expect(stranger.locator("#collect-classes")).to_contain_text("No class yet")
    # Whatever the browser holds instead of a key, it opens no collection.
    kept = page.evaluate("JSON.stringify(localStorage)")
    assert "food-vit-visitor" in kept and "ramen" not in kept.lower()


def test_bad_photos_are_named_and_the_rest_is_kept(browse: Opening) -> None:
    page = browse(390)
    new_class(page, "pho")
    expect(chip(page, "Pho 0")).to_be_visible()
    bad = [payload(f"<i>{n}.jpg", "image/jpeg", b"two eggs") for n in range(7)]
    good = [payload("good.jpg", "image/jpeg", photo("good"))]
    page.locator("#collect-add input[type=file]").set_input_files([*bad[:3], *good, *bad[3:5]])
    expect(chip(page, "Pho 1")).to_be_visible()
    trouble = page.locator("#collect-said .trouble")
    expect(trouble.locator("li")).to_have_count(5)
    expect(trouble).to_contain_text("<i>0.jpg: The picture is not a photo that can be read")
    assert fits_the_window(page)
    add(page, "good")  # it is there already
    expect(page.locator("#collect-said")).to_contain_text("1 photo was in Pho already.")
    page.evaluate(
        """([name, size]) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([new Uint8Array(size)], name, { type: "image/jpeg" }));
          document.querySelector("#collect-add .drop").dispatchEvent(
            new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        ["large.jpg", 51 * 2**20],
    )
    expect(page.locator("#collect-add .sent")).to_contain_text("One photo is larger than 50 MB")
    expect(chip(page, "Pho 1")).to_be_visible()


def test_photos_with_the_camera_one_after_another(browse: Opening) -> None:
    page = browse(390)
    new_class(page, "snaps")
    page.get_by_role("button", name="Open the camera").click()
    snap = page.get_by_role("button", name="Take a photo")
    expect(snap).to_be_visible()
    page.wait_for_function("document.querySelector('#collect-add video').videoWidth > 0")
    for count in (1, 2):
        snap.click()
        expect(thumbnails(page)).to_have_count(count)
        expect(snap).to_be_visible()  # the camera stays open for the next one
    assert fits_the_window(page)
    page.get_by_role("button", name="Close the camera").click()
    expect(snap).to_be_hidden()
    live = "document.querySelector('#collect-add video').srcObject?.active"
    assert not page.evaluate(live)


def test_many_photos_page_by_page_up_to_the_bound(browse: Opening) -> None:
    page = browse()
    new_class(page, "many")
    expect(chip(page, "Many 0")).to_be_visible()
    add(page, *range(EACH + 12))
    expect(chip(page, f"Many {EACH + 10}")).to_be_visible()
    expect(thumbnails(page)).to_have_count(EACH)
    expect(page.locator("#collect-said .trouble")).to_contain_text("photos already, the most here")
    page.get_by_role("button", name="older").click()
    expect(thumbnails(page)).to_have_count(10)
    expect(page.get_by_role("button", name="older")).to_be_disabled()
    page.get_by_role("button", name=f"Delete photo {EACH + 1} of Many").click()
    expect(thumbnails(page)).to_have_count(9)
    page.get_by_role("button", name="newer").click()
    expect(thumbnails(page)).to_have_count(EACH)


def test_photos_go_where_they_were_dropped(browse: Opening) -> None:
    """Also when another class is chosen before all of them are sent."""
    page = browse()
    for name in ("one", "two"):
        new_class(page, name)
        expect(chip(page, f"{name.capitalize()} 0")).to_have_attribute("aria-pressed", "true")
    held: list[Route] = []
    later = threading.Event()
    page.route(
        "**/gradio_api/upload*", lambda r: r.continue_() if later.is_set() else held.append(r)
    )
    add(page, *(f"w{n}" for n in range(7)), "w0")  # two batches
    page.wait_for_timeout(200)  # milliseconds
    assert held
    chip(page, "One 0").click()
    expect(page.locator("#collect-photos")).to_contain_text("No photos of One yet")
    later.set()
    for route in held:
        route.continue_()
    expect(chip(page, "Two 7")).to_be_visible()
    expect(page.locator("#collect-said")).to_contain_text("1 photo was in Two already.")
    expect(chip(page, "One 0")).to_have_attribute("aria-pressed", "true")
    # What one batch had to say stays while the others come, and goes with the next sending.
    bad = payload("<i>.jpg", "image/jpeg", b"two eggs")
    good = [payload(f"{n}.jpg", "image/jpeg", photo(f"g{n}")) for n in range(12)]
    page.locator("#collect-add input[type=file]").set_input_files([bad, *good])
    expect(chip(page, "One 12")).to_be_visible()
    expect(page.locator("#collect-said .trouble li")).to_have_count(1)
    page.get_by_role("button", name="Rename or remove this class").click()
    page.get_by_label("Its name").fill("half typed")
    add(page, "g12")
    expect(chip(page, "One 13")).to_be_visible()
    expect(page.locator("#collect-said .trouble")).to_have_count(0)
    expect(page.get_by_label("Its name")).to_have_value("half typed")


def test_what_is_chosen_stays_while_the_collection_does(browse: Opening) -> None:
    page = browse()
    for name in ("one", "two"):
        new_class(page, name)
        expect(chip(page, f"{name.capitalize()} 0")).to_have_attribute("aria-pressed", "true")
        add(page, *(f"{name}{n}" for n in range(8)))
        expect(thumbnails(page)).to_have_count(8)
    page.get_by_role("button", name="Use these photos").click()
    expect(chosen(page)).to_have_value(re.compile(r"/sets/collected-\w+$"))
    new_class(page, "three")  # has nothing to learn from yet
    expect(chip(page, "Three 0")).to_be_visible()
    expect(chosen(page)).to_have_value(re.compile(r"/sets/collected-\w+$"))
    add(page, "one more")
    expect(chosen(page)).to_have_value("nothing")


def test_by_keyboard_alone(browse: Opening) -> None:
    page = browse()
    for name in ("one", "two"):
        page.get_by_label("New class").focus()
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        expect(chip(page, f"{name.capitalize()} 0")).to_be_visible()
    add(page, "k1", "k2")
    expect(thumbnails(page)).to_have_count(2)
    chip(page, "One 0").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#collect-photos")).to_contain_text("No photos of One yet")
    chip(page, "Two 2").focus()
    page.keyboard.press("Space")
    delete = page.get_by_role("button", name="Delete photo 1 of Two")
    delete.focus()
    page.keyboard.press("Enter")
    expect(thumbnails(page)).to_have_count(1)


# --- Without a browser ------------------------------------------------------------------------


def test_only_files_that_were_sent_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    there = tmp_path / "uploads" / ("a" * 64) / "x.jpg"
    ours = tmp_path / "uploads" / "shown" / ("b" * 64) / "y.jpg"
    outside = tmp_path / ("c" * 64) / "z.jpg"
    for path in (there, ours, outside):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    assert sent_files([{"path": str(there), "name": "x.jpg"}]) == [(str(there), "x.jpg")]
    link = there.with_name("link.jpg")
    link.symlink_to(outside)
    for path in (ours, outside, link, there.parent, there.with_name("gone.jpg"), "", "/etc/passwd"):
        with pytest.raises(ValueError, match="did not arrive"):
            sent_files([{"path": str(path), "name": "x.jpg"}])
    traversal = os.path.join(there.parent, "..", "..", "c" * 64, "z.jpg")
    with pytest.raises(ValueError, match="did not arrive"):
        sent_files([{"path": traversal}])
    assert sent_files(None) == sent_files("x") == []
