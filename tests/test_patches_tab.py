"""The Patches tab in a real browser, and its endpoint."""

import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image, ImageDraw
from playwright.sync_api import Locator, Page, expect
from serving import Server, Visit
from test_browser import MORE, choose, fits_the_window, payload, send, shown_picture

from vit.heat import patch_box
from vit.images import Preprocess
from vit.ui.grid import scale, signed, stage

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=15_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
THREE = "pizza-steak-sushi"
WIDTHS = [1280, 390]


@pytest.fixture
def pizza(shared_data: Path) -> Path:
    return shared_data / "pizza_steak_sushi" / "test" / "pizza" / "1152100.jpg"


def open_tab(page: Page) -> None:
    page.get_by_role("tab", name="Patches").click()


def look_inside(page: Page, photo: Path) -> None:
    """Choose the photo in Classify, then open the tab."""
    send(page, photo)
    shown_picture(page)
    open_tab(page)
    expect(page.locator("#patch-about h3")).to_be_visible()


def click_patch(picture: Locator, row: int, column: int) -> None:
    """Click into the middle of a patch, rows and columns counted from 1."""
    box = picture.bounding_box()
    size, frame, grid = (
        [float(n) for n in str(picture.get_attribute(f"data-{name}")).split()]
        for name in ("size", "box", "grid")
    )
    assert box
    left, top, right, bottom = patch_box(
        (frame[0], frame[1], frame[2], frame[3]),
        (int(grid[0]), int(grid[1])),
        (row - 1) * int(grid[1]) + column - 1,
    )
    x, y = (left + right) / 2 / size[0] * box["width"], (top + bottom) / 2 / size[1] * box["height"]
    picture.click(position={"x": x, "y": y})


@pytest.mark.parametrize("width", WIDTHS)
def test_click_a_patch_and_read_it(visit: Visiting, pizza: Path, width: int) -> None:
    page = visit(width).page
    look_inside(page, pizza)
    about = page.locator("#patch-about")
    expect(about).to_contain_text("Row 8, column 8")  # where it begins
    before = about.locator("svg.bars path").last.get_attribute("d")
    click_patch(page.locator("#patch-grid svg"), 5, 7)
    expect(about.locator("h3")).to_have_text("Row 5, column 7")
    expect(about).to_contain_text("Patch 63 of 196 · token 67 of 0 to 200")
    expect(about).to_contain_text("16 × 16 in red, green, blue: 768 numbers")
    expect(page.get_by_label("Row", exact=True)).to_have_value("5")
    expect(page.get_by_label("Column", exact=True)).to_have_value("7")
    assert about.locator("svg.bars path").last.get_attribute("d") != before
    expect(about.locator("svg.stage")).to_have_count(2)
    about.get_by_text("The 192 numbers").click()
    assert len(about.locator(".numbers").inner_text().split()) == 192
    assert fits_the_window(page)
    for part in ("#patch-choice", "#patch-about", "#shapes", "#away", "#learned"):
        box = page.locator(part).bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
    # a click on the picture of what is alike chooses as well
    click_patch(about.locator("svg.stage").first, 2, 3)
    expect(about.locator("h3")).to_have_text("Row 2, column 3")


def test_the_grid_lies_on_the_photo(visit: Visiting, tmp_path: Path) -> None:
    """A white square drawn over one patch of a black photo: clicked where it is seen, the chosen
    patch is white all over."""
    size, path = (640, 400), tmp_path / "square.png"
    photo = Image.new("RGB", size, "black")
    left, top, right, bottom = patch_box(Preprocess(crop=1.0).box(*size), (14, 14), 3 * 14 + 9)
    ImageDraw.Draw(photo).rectangle((left, top, right, bottom), fill="white")
    photo.save(path)
    page = visit().page
    look_inside(page, path)
    box = page.locator("#patch-grid svg").bounding_box()
    assert box
    page.mouse.click(
        box["x"] + (left + right) / 2 / size[0] * box["width"],
        box["y"] + (top + bottom) / 2 / size[1] * box["height"],
    )
    expect(page.locator("#patch-about h3")).to_have_text("Row 4, column 10")
    middle = page.locator("#patch-about img.pixels").evaluate(
        """async image => {
            await image.decode();
            const canvas = document.createElement("canvas");
            const pen = canvas.getContext("2d");
            pen.drawImage(image, 0, 0);
            return pen.getImageData(0, 0, 16, 16).data.filter((_, i) => i % 4 == 1)
              .reduce((sum, green) => sum + green, 0) / 256;
        }"""
    )
    assert middle > 240


def test_keyboard(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    look_inside(page, pizza)
    heading = page.locator("#patch-about h3")
    row = page.get_by_label("Row", exact=True)
    row.fill("2")
    expect(heading).to_have_text("Row 2, column 8")
    row.fill("15")
    expect(page.locator("#patch-about .trouble")).to_have_text(
        "Give a row from 1 to 14 and a column from 1 to 14."
    )
    row.fill("3")
    expect(heading).to_have_text("Row 3, column 8")
    page.locator("#patch-grid [role=group]").focus()
    page.keyboard.press("ArrowLeft")
    expect(heading).to_have_text("Row 3, column 7")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(heading).to_have_text("Row 5, column 7")
    page.get_by_text("Take patches away").click()
    page.locator("#away-grid [role=group]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")  # at once, before the answer
    page.keyboard.press("Space")
    expect(page.locator("#away-result")).to_contain_text("2 of 196 patches gone")


def test_before_and_after_the_blocks(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    look_inside(page, pizza)
    about = page.locator("#patch-about")
    picture = about.locator("svg.stage image").first
    expect(about).to_contain_text("after the last block. Most alike: row")
    after = picture.get_attribute("href")
    page.get_by_label("as it comes in").check()
    expect(about).to_contain_text("as it comes in. Most alike: row")
    assert picture.get_attribute("href") != after


@pytest.mark.parametrize("width", WIDTHS)
def test_take_patches_away(visit: Visiting, pizza: Path, width: int) -> None:
    page = visit(width).page
    look_inside(page, pizza)
    page.get_by_text("Take patches away").click()
    result = page.locator("#away-result")
    expect(result).to_contain_text("Nothing is taken away yet")
    assert percents(result)[0] > 90
    page.get_by_role("button", name="Hide the 20 % it trusts most").click()
    expect(result).to_contain_text("39 of 196 patches gone")
    before, after = percents(result)[:2]
    assert after < before - 10
    assert fits_the_window(page)
    trusted = page.locator("#away-grid svg").get_attribute("data-removed")
    page.get_by_role("button", name="Hide 20 % by chance").click()
    page.wait_for_function(
        "s => document.querySelector('#away-grid svg').dataset.removed !== s", arg=trusted
    )
    page.get_by_role("button", name="Put all back").click()
    expect(result).to_contain_text("Nothing is taken away yet")
    brush = page.locator("#away-grid svg")
    click_patch(brush, 3, 3)
    expect(result).to_contain_text("1 of 196 patches gone")
    if width == 1280:
        brush.scroll_into_view_if_needed()
        box = brush.bounding_box()
        assert box
        y = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.4 * box["width"], y)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.7 * box["width"], y, steps=20)
        page.mouse.up()
        expect(result).to_contain_text(re.compile(r"\b([6-9]|1\d) of 196 patches gone"))
    click_patch(brush, 3, 3)  # given back
    expect(brush).not_to_have_attribute("data-removed", re.compile(r"\b30\b"))


def percents(result: Locator) -> list[int]:
    """Of the first dish: before, and after when something is gone."""
    share = result.locator(".share").first.inner_text()
    return [int(n) for n in re.findall(r"(\d+) %", share)]


def test_shapes_and_filters(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    look_inside(page, pizza)
    shapes = page.locator("#shapes li b")
    expect(shapes.first).to_have_text("3 × 224 × 224")
    expect(shapes.nth(1)).to_have_text("196 × 768")
    expect(shapes.nth(3)).to_have_text("201 × 192")
    expect(shapes.last).to_have_text("101")
    page.get_by_text("What the first layer learned").click()
    expect(page.locator("#filters")).to_contain_text("All 192 filters")
    choose(page, "Sure of nothing")  # another model: other shapes and filters, the same photo
    expect(shapes.first).to_have_text("3 × 32 × 32")
    expect(shapes.last).to_have_text("2")
    expect(page.locator("#filters")).to_contain_text("All 8 filters")
    expect(page.locator("#patch-about")).to_contain_text("of 4 · token")


def test_without_a_photo_an_example_is_enough(visit: Visiting) -> None:
    page = visit(390).page
    open_tab(page)
    expect(page.locator("#patches-empty")).to_contain_text("No photo yet")
    expect(page.locator("#patch-grid")).to_be_hidden()
    example = page.locator("#patches-empty button").first
    dish = str(example.get_attribute("aria-label")).removeprefix("Example: ").split()[0]
    example.click()
    expect(page.locator("#patch-about h3")).to_be_visible()
    expect(page.locator("#patches-empty")).to_be_hidden()
    page.get_by_role("tab", name="Classify").click()  # it is the photo of the whole page
    expect(page.locator("#result .dishes li").first).to_contain_text(dish)
    page.get_by_label("Remove Image").click()
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    open_tab(page)
    expect(page.locator("#patches-empty")).to_be_visible()
    expect(page.locator("#patch-grid")).to_be_hidden()


def test_the_whole_photo_is_shared_with_classify(visit: Visiting, pizza: Path) -> None:
    page = visit().page
    expect(page.get_by_role("button", name=MORE)).to_be_visible()  # the page is ready
    send(page, pizza)
    cropped = shown_picture(page)
    page.get_by_label("whole photo").check()
    shown_picture(page, but_not=cropped)
    open_tab(page)
    size, box = (
        page.locator("#patch-grid svg").get_attribute(f"data-{name}") for name in ("size", "box")
    )
    assert size == "512 512" and box == "0.000 0.000 512.000 512.000"


def test_visitors_look_inside_their_own_photos(visit: Visiting, pizza: Path) -> None:
    mine, theirs = visit().page, visit().page
    look_inside(mine, pizza)
    open_tab(theirs)
    expect(theirs.locator("#patches-empty")).to_be_visible()
    theirs.locator("#patches-empty button").nth(5).click()
    expect(theirs.locator("#patch-about h3")).to_be_visible()
    my_picture, their_picture = (
        page.locator("#patch-about img.pixels").get_attribute("src") for page in (mine, theirs)
    )
    assert my_picture != their_picture
    click_patch(mine.locator("#patch-grid svg"), 5, 7)
    expect(mine.locator("#patch-about h3")).to_have_text("Row 5, column 7")
    assert theirs.locator("#patch-about img.pixels").get_attribute("src") == their_picture


def test_dark(visit: Visiting, pizza: Path) -> None:
    page = visit(1280, "?__theme=dark").page
    look_inside(page, pizza)
    for part in ("#patch-about", "#shapes", "#patch-choice"):
        colour = page.locator(part).evaluate("e => getComputedStyle(e).backgroundColor")
        assert max(int(n) for n in re.findall(r"\d+", colour)[:3]) < 60


def test_a_bad_photo_leaves_the_tab_as_without(visit: Visiting) -> None:
    page = visit().page
    send(page, payload("notes.jpg", "image/jpeg", b"two eggs"))
    expect(page.locator("#result .trouble")).to_be_visible()
    open_tab(page)
    expect(page.locator("#patches-empty")).to_be_visible()


def test_endpoint(server: Server, pizza: Path) -> None:
    client = Client(server.url, verbose=False)
    try:
        answer = client.predict(
            handle_file(str(pizza)), row=5, column=7, checkpoint=THREE, api_name="/patches"
        )
        assert answer["grid"] == [14, 14]
        assert answer["token"] == 1 + 4 + 4 * 14 + 6  # after the class token and the registers
        assert len(answer["embedding"]) == len(answer["encoded"]) == 192
        for name in ("alike", "alike_encoded", "near"):
            assert len(answer[name]) == 14 and len(answer[name][0]) == 14
            assert answer[name][4][6] == pytest.approx(1, abs=1e-4)
        width, height = answer["photo_size"]
        expected = patch_box(Preprocess(crop=1.0).box(width, height), (14, 14), 62)
        assert answer["box"] == pytest.approx(expected, abs=0.01)
        assert answer["shapes"][0]["shape"] == [3, 224, 224]
        assert answer["shapes"][-1]["shape"] == [3]
        json.dumps(answer)
        wrong: list[tuple[dict, str]] = [
            ({"row": 15}, "row must be a whole number from 1 to 14"),
            ({"column": 0}, "column must be"),
            ({"fit": "stretch"}, "fit must be"),
            ({"checkpoint": "/etc/passwd"}, "no checkpoint of that name"),
        ]
        for bad, message in wrong:
            with pytest.raises(AppError, match=message):
                client.predict(handle_file(str(pizza)), **bad, api_name="/patches")
    finally:
        client.close()


def test_no_other_file_of_the_machine(server: Server) -> None:
    file = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    for photo in ("/etc/passwd", file):
        url = f"{server.url}gradio_api/call/patches"
        body = json.dumps({"data": [photo, 1, 1, None, ""]}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            event = json.load(reply)["event_id"]
        with urllib.request.urlopen(f"{url}/{event}") as stream:
            assert "event: error" in stream.read().decode()


def test_scale_and_numbers() -> None:
    heat = torch.tensor([0.1, 1.0, -0.25, 0.6])
    assert scale(heat, 1) == pytest.approx((-0.25, 0.6))
    assert scale(torch.ones(1), 0) == (0, 1)
    assert [signed(value) for value in (-0.004, 0.126, -1.5)] == ["0.00", "0.13", "−1.50"]
    html = stage((30, 20), (5, 0, 25, 20), (2, 2), "<b>", chosen=1, heat=heat)
    assert "&lt;b&gt;" in html and "<b>" not in html
    assert html.count("<title>") == 4 and "row 2, column 1: −0.25" in html
