"""The page in a real browser, the way a visitor uses it, at desktop and phone width."""

import csv
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import FilePayload, Locator, Page, expect
from serving import BAD_PHOTOS, ROOT, Server, Visit, jpeg, save_small
from test_download import course_zip

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=15_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
WIDTHS = [1280, 390]
MORE = "More: real photos of pizza, steak and sushi"


@pytest.fixture
def pizza(shared_data: Path) -> Path:
    return shared_data / "pizza_steak_sushi" / "test" / "pizza" / "1152100.jpg"


def payload(name: str, kind: str, data: bytes) -> FilePayload:
    return {"name": name, "mimeType": kind, "buffer": data}


def send(page: Page, photo: Path | FilePayload) -> None:
    page.locator("#photo input[type=file]").set_input_files(photo)


def first_dish(page: Page) -> Locator:
    return page.locator("#result .dishes li").first


def fits_the_window(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def shown_picture(page: Page, but_not: str = "") -> str:
    """Address of the photo with its outline, once it is there."""
    now = "document.querySelector('#photo img')?.src ?? ''"
    page.wait_for_function(f"s => ({now}).includes('/shown/') && ({now}) !== s", arg=but_not)
    return page.evaluate(now)


@pytest.mark.parametrize("width", WIDTHS)
def test_upload(visit: Visiting, pizza: Path, width: int) -> None:
    page = visit(width).page
    expect(page).to_have_title("Food ViT")
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    assert fits_the_window(page)
    send(page, pizza)
    expect(first_dish(page)).to_contain_text("Pizza")
    expect(first_dish(page)).to_contain_text("%")
    expect(page.locator("#result")).to_contain_text(" ms on ")
    assert first_dish(page).get_by_role("meter").get_attribute("aria-valuetext")
    assert fits_the_window(page)
    photo, result, controls, examples = (
        page.locator(name).bounding_box()
        for name in ("#photo", "#result", "#controls", "#examples")
    )
    assert photo and result and controls and examples
    if width == 390:  # one column: photo, result, settings, examples
        tops = [box["y"] for box in (photo, result, controls, examples)]
        assert tops == sorted(tops)
        assert result["y"] - (photo["y"] + photo["height"]) < 20
        assert all(box["x"] + box["width"] <= 390 for box in (photo, result, controls, examples))
    else:
        assert abs(photo["y"] - result["y"]) < 2 and result["x"] > photo["x"] + photo["width"]


def test_the_upload_icon_opens_the_dialog_and_keeps_the_photo(visit: Visiting) -> None:
    page = visit().page
    icon = page.get_by_role("button", name="Upload file")
    seen = ""
    for dish in ("pizza_margherita", "steak_frites"):
        with page.expect_file_chooser() as chooser:
            icon.click()
        assert shown_picture(page) == seen if seen else not page.locator("#photo img").count()
        chooser.value.set_files(ROOT / "examples" / f"{dish}.jpg")
        seen = shown_picture(page, but_not=seen)


def test_header_comes_from_the_file(visit: Visiting) -> None:
    page = visit().page
    facts = page.locator("#facts")
    expect(facts).to_contain_text("101 dishes")
    expect(facts).to_contain_text("5.5 M parameters")
    expect(facts).to_contain_text("/6,060 validation photos right")
    choose(page, "pizza-steak-sushi")
    expect(facts).to_contain_text("3 dishes")
    expect(facts).to_contain_text("/150 test photos right")
    expect(facts.get_by_text("started from", exact=True)).to_be_hidden()
    facts.locator("summary").click()
    expect(facts.get_by_text("licence", exact=True)).to_be_visible()
    expect(facts.get_by_text("command", exact=True)).to_be_visible()


def test_examples_one_after_another(visit: Visiting) -> None:
    page = visit(390).page
    choose(page, "pizza-steak-sushi")
    expect(page.locator("#facts")).to_contain_text("3 dishes")
    buttons = page.locator("#examples button")
    expect(buttons).to_have_count(9)  # six of its dishes, three of others
    picture = ""
    for index in range(buttons.count()):
        name = str(buttons.nth(index).get_attribute("aria-label")).removeprefix("Example: ")
        buttons.nth(index).click()
        picture = shown_picture(page, picture)
        expect(page.locator("#photo")).to_be_in_viewport()
        expect(first_dish(page)).to_be_in_viewport()
        dish = name.split()[0]
        if dish in ("Pizza", "Steak", "Sushi"):  # there are some that the model does not know
            expect(first_dish(page)).to_contain_text(dish)


def test_whole_photo_and_number_of_dishes(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    choose(page, "pizza-steak-sushi")
    send(page, pizza)
    expect(page.locator("#result .dishes li")).to_have_count(3)
    cropped = shown_picture(page)
    page.get_by_label("whole photo").check()
    shown_picture(page, but_not=cropped)
    page.get_by_label("Dishes to show").fill("1")
    page.keyboard.press("Enter")
    expect(page.locator("#result .dishes li")).to_have_count(1)
    for number, count in (("999", 3), ("-3", 1), ("2.7", 3), ("0", 1), ("", 3)):
        page.get_by_label("Dishes to show").fill(number)
        expect(page.locator("#result .dishes li")).to_have_count(count)
    expect(page.locator(".toast-body")).to_have_count(0)


def test_photo_is_upright(visit: Visiting, tmp_path: Path) -> None:
    """A phone's photo lies on its side in the file; the page shows and judges it upright."""
    path = tmp_path / "phone.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (400, 300), "peru").save(path, exif=exif)
    page = visit().page
    send(page, path)
    shown_picture(page)
    size = page.locator("#photo img").evaluate(
        "i => i.decode().then(() => [i.naturalWidth, i.naturalHeight])"
    )
    assert size == [300, 400]


def test_next_photo_dropped_pasted_or_after_removal(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    send(page, payload("first.jpg", "image/jpeg", jpeg()))
    first = shown_picture(page)
    data = list(pizza.read_bytes())
    page.evaluate(
        """data => {
            const clipboardData = new DataTransfer();
            const file = new File([new Uint8Array(data)], "p.jpg", {type: "image/jpeg"});
            clipboardData.items.add(file);
            document.dispatchEvent(new ClipboardEvent("paste", {clipboardData}));
        }""",
        data,
    )
    shown_picture(page, but_not=first)
    expect(first_dish(page)).to_contain_text("Pizza")
    page.get_by_label("Remove Image").click()
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    send(page, payload("third.jpg", "image/jpeg", jpeg(colour="green")))
    expect(page.locator("#result .note")).to_contain_text("ms")


def test_camera(visit: Visiting) -> None:
    page = visit().page
    page.get_by_label("Capture from camera").click()
    page.get_by_text("Click to Access Webcam").click()
    page.wait_for_function("document.querySelector('#photo video')?.currentTime > 0")
    page.get_by_label("capture photo").click()
    expect(page.locator("#result .note")).to_contain_text("ms")


def test_what_holds_no_photo_is_said_and_takes_none_away(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    send(page, pizza)
    first = shown_picture(page)
    trouble = page.locator("#result .trouble")
    page.evaluate("navigator.clipboard.writeText('two eggs')")
    page.keyboard.press("Control+v")
    expect(trouble).to_contain_text("no photo in what was pasted")
    page.evaluate("navigator.mediaDevices.enumerateDevices = async () => []")
    page.get_by_label("Capture from camera").click()
    expect(trouble).to_contain_text("no camera")
    page.get_by_label("Paste from clipboard").click()
    expect(trouble).to_contain_text("no photo in what was pasted")
    assert shown_picture(page) == first
    page.evaluate(
        """async () => {
            const canvas = Object.assign(document.createElement("canvas"), {width: 90, height: 60});
            canvas.getContext("2d").fillRect(0, 0, 9, 9);
            const png = await new Promise((done) => canvas.toBlob(done));
            await navigator.clipboard.write([new ClipboardItem({"image/png": png})]);
        }"""
    )
    page.get_by_label("Paste from clipboard").click()
    shown_picture(page, but_not=first)
    expect(trouble).to_have_count(0)


def test_a_file_too_large_to_send(visit: Visiting, tmp_path: Path) -> None:
    large = tmp_path / "large.jpg"
    with large.open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)
    page = visit().page
    send(page, payload("good.jpg", "image/jpeg", jpeg()))
    first = shown_picture(page)
    send(page, large)
    expect(page.locator("#result .trouble")).to_contain_text("large.jpg is larger than 50 MB")
    assert shown_picture(page) == first
    page.get_by_text("Many photos at once").click()
    page.locator("#many input[type=file]").set_input_files(large)
    expect(page.locator("#many-status")).to_contain_text("large.jpg is larger than 50 MB")
    expect(page.locator(".toast-body")).to_have_count(0)


@pytest.mark.parametrize("kind", BAD_PHOTOS)
def test_bad_photo(visit: Visiting, kind: str) -> None:
    name, mime, make = BAD_PHOTOS[kind]
    page = visit(390).page
    send(page, payload(name, mime, make()))
    trouble = page.locator("#result .trouble")
    expect(trouble).to_be_visible()
    said = trouble.inner_text()
    assert said.endswith(".") and "\n" not in said and "/" not in said
    expect(page.locator("#photo img")).to_have_count(0)
    send(page, payload("good.jpg", "image/jpeg", jpeg()))
    expect(page.locator("#result .note")).to_contain_text("ms")
    expect(trouble).to_have_count(0)


def test_a_dropped_file_that_is_no_photo(visit: Visiting) -> None:
    page = visit().page
    page.evaluate(
        """() => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File(["two eggs"], "notes.txt", {type: "text/plain"}));
            const drop = new DragEvent("drop", {dataTransfer, bubbles: true, cancelable: true});
            document.querySelector("#photo .upload-container").dispatchEvent(drop);
        }"""
    )
    expect(page.locator("#result .trouble")).to_contain_text("notes.txt is not a photo")
    expect(page.get_by_text("Invalid file type")).to_have_count(0)


def test_real_photos_are_downloaded_once_for_all(visit: Visiting, server: Server) -> None:
    one, two = visit().page, visit(390).page
    for page in (one, two):
        page.get_by_role("button", name=MORE).click()
        expect(page.locator("#more .trouble")).to_contain_text("cannot be reached")
    try:
        with photo_server(server.photos_port) as source:
            one.get_by_role("button", name=MORE).click()
            expect(one.locator("#more-status")).to_contain_text("0.1 of 0.2 MB downloaded")
            two.get_by_role("button", name=MORE).click()
            expect(two.locator("#more-status")).to_contain_text("downloaded")
            one.get_by_role("button", name="Stop").click()  # which does not stop the other
            expect(one.locator("#more-status")).to_have_text("Stopped.")
            source.go_on.set()
            expect(two.get_by_label("Real photo: pizza")).to_have_count(2)
            assert source.asked == 1
        assert fits_the_window(two)
        two.get_by_label("Real photo: sushi").first.click()
        shown_picture(two)
        later = visit().page
        expect(later.get_by_label("Real photo: steak")).to_have_count(2)
    finally:
        shutil.rmtree(server.home / "data", ignore_errors=True)


class PhotoServer(ThreadingHTTPServer):
    """Sends the first half of the course's zip, and the second once `go_on` is set."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), HalfAndHalf)
        self.body = course_zip()
        self.go_on = threading.Event()
        self.asked = 0


class HalfAndHalf(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, PhotoServer)
        self.server.asked += 1
        body = self.server.body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.server.go_on.wait(20)
        self.wfile.write(body[len(body) // 2 :])

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def photo_server(port: int) -> Iterator[PhotoServer]:
    with PhotoServer(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_unsure(visit: Visiting) -> None:
    page = visit().page
    send(page, payload("any.jpg", "image/jpeg", jpeg()))
    expect(page.locator("#result .dishes li")).to_have_count(5)
    choose(page, "Sure of nothing")
    expect(page.locator("#facts")).to_contain_text("2 dishes")
    expect(page.locator("#result .unsure")).to_have_text("None of my 2 dishes looks right.")
    expect(page.locator("#result")).to_contain_text("reaches only")
    expect(page.locator("#result")).to_contain_text("this model is sure from 100 %")
    page.get_by_text("Why?").click()
    expect(page.locator("#result details")).to_contain_text("it was taught")


def test_classes_of_others_are_not_called_dishes(visit: Visiting, server: Server) -> None:
    new = server.home / "checkpoints" / "imported.safetensors"
    save_small(
        new, classes=[f"thing_{n}" for n in range(1200)], training={"imported_from": "others.npz"}
    )
    try:
        page = visit(390).page
        choose(page, "imported")
        expect(page.locator("#facts")).to_contain_text("1,200 classes")
        expect(page.locator("#result h3")).to_have_text("Which class is it?")
        send(page, payload("any.jpg", "image/jpeg", jpeg()))
        expect(page.locator("#result .unsure")).to_have_text(
            "None of my 1,200 classes looks right."
        )
        page.get_by_role("button", name="see where it looked").click()
        expect(page.get_by_label("Relevance for a class")).to_be_checked()
        expect(page.get_by_label("For the class")).to_be_visible()
    finally:
        new.unlink()


def choose(page: Page, title: str) -> None:
    page.locator("#checkpoint input").click()
    name = title.lower().replace(" ", "-")  # of the file
    page.get_by_role("option", name=name, exact=True).click()


def test_a_new_checkpoint_is_there_when_the_page_is_opened_anew(
    visit: Visiting, server: Server
) -> None:
    source = server.home / "checkpoints" / "sure-of-nothing.safetensors"
    new = source.with_name("yesterdays-run.safetensors")
    try:
        for count in (3, 4):
            page = visit().page
            page.locator("#checkpoint input").click()
            expect(page.get_by_role("option")).to_have_count(count)
            new.write_bytes(source.read_bytes())
    finally:
        new.unlink(missing_ok=True)


def test_visitors_do_not_see_each_others_photos(visit: Visiting, pizza: Path) -> None:
    mine, theirs = visit().page, visit().page
    send(mine, pizza)
    shown_picture(mine)
    theirs.get_by_label("whole photo").check()
    theirs.wait_for_timeout(1000)  # milliseconds
    expect(theirs.locator("#result")).to_contain_text("Which dish is it?")
    expect(theirs.locator("#photo img")).to_have_count(0)


@pytest.mark.parametrize("width", WIDTHS)
def test_many_photos(visit: Visiting, pizza: Path, tmp_path: Path, width: int) -> None:
    page = visit(width).page
    page.get_by_text("Many photos at once").click()
    files = [
        payload("=cmd.jpg", "image/jpeg", pizza.read_bytes()),
        payload("notes.jpg", "image/jpeg", b"not a photo"),
        payload("b.jpg", "image/jpeg", jpeg()),
    ]
    page.locator("#many input[type=file]").set_input_files(files)
    expect(page.locator("#many-status")).to_contain_text("3 photos in")
    expect(page.locator("#many-status")).to_contain_text("1 could not be read")
    captions = page.locator("#many-gallery .caption-label")
    expect(captions).to_have_count(3)
    expect(captions.first).to_contain_text("Pizza")
    expect(captions.first).to_contain_text("cmd.jpg")
    expect(captions.nth(1)).to_contain_text("notes.jpg")
    page.wait_for_timeout(300)  # milliseconds; pictures arrive
    assert fits_the_window(page)
    with page.expect_download() as download:
        page.get_by_text("Download as a table").click()
    table = tmp_path / "table.csv"
    download.value.save_as(table)
    rows = list(csv.DictReader(table.read_text(encoding="utf-8-sig").splitlines()))
    assert [row["file"] for row in rows] == ["'=cmd.jpg", "notes.jpg", "b.jpg"]
    assert rows[0]["dish 1"] == "Pizza" and 0 < float(rows[0]["probability 1"]) <= 1
    assert rows[1]["problem"] and not rows[1]["dish 1"]
    assert {row["checkpoint"] for row in rows} == {"food101"}
    choose(page, "Sure of nothing")
    expect(page.locator("#many-status")).to_contain_text("by sure-of-nothing")
    expect(captions.nth(2)).to_contain_text("unsure, perhaps")
    expect(page.locator("#many-status")).to_contain_text("notes.jpg is not a photo")


def test_too_many_photos(visit: Visiting) -> None:
    page = visit().page
    page.get_by_text("Many photos at once").click()
    files = [payload(f"{index}.jpg", "image/jpeg", jpeg(64, 64)) for index in range(13)]
    page.locator("#many input[type=file]").set_input_files(files)
    expect(page.locator("#many-status")).to_contain_text("13 photos are too many at once")


@pytest.mark.parametrize("width", WIDTHS)
def test_dark(visit: Visiting, width: int) -> None:
    page = visit(width, "?__theme=dark").page
    background = page.evaluate(
        "getComputedStyle(document.querySelector('.gradio-container')).backgroundColor"
    )
    text = page.locator("#facts strong").first.evaluate("e => getComputedStyle(e).color")
    assert brightness(background) < 60 < 180 < brightness(text)


def brightness(colour: str) -> float:
    """0 to 255 of a "rgb(r, g, b)"."""
    numbers = colour[colour.index("(") + 1 : colour.index(")")].split(",")[:3]
    return sum(float(number) for number in numbers) / 3


def test_fonts_are_the_systems_own(visit: Visiting) -> None:
    page = visit().page
    fonts = page.evaluate("getComputedStyle(document.querySelector('h1')).fontFamily")
    assert fonts.startswith("system-ui")
    assert page.evaluate("[...document.fonts].filter(f => f.status === 'loaded').length") == 0


def test_keyboard_reaches_an_example(visit: Visiting) -> None:
    page = visit().page
    page.locator("#examples button").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#result .note")).to_contain_text("ms")
