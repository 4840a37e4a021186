"""The Attention tab in a real browser, and the endpoints /attention and /explain."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image
from playwright.sync_api import Page, expect
from serving import Server, Visit

pytest_plugins = ["serving"]
expect.set_options(timeout=15_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
WIDTHS = [1280, 390]
THREE = "pizza-steak-sushi"
PIZZA = Path(__file__).parents[1] / "examples" / "pizza_margherita.jpg"
STEAK = PIZZA.with_name("steak_frites.jpg")


# in the browser


def opened(page: Page, photo: Path = PIZZA) -> None:
    """A photo chosen in Classify, and the tab open on it."""
    page.locator("#photo input[type=file]").set_input_files(photo)
    page.wait_for_selector("#result .note")
    open_tab(page)
    expect(page.locator("#wall button").first).to_be_visible()
    expect(said(page)).to_contain_text("Relevance")


def open_tab(page: Page) -> None:
    page.get_by_role("tab", name="Attention").click()


def choose(page: Page, model: str) -> None:
    page.locator("#checkpoint input").click()
    page.get_by_role("option", name=model, exact=True).click()


def said(page: Page):
    return page.locator("#look-photo figcaption p").first


def picture(page: Page) -> str:
    return str(page.locator("#look-photo .frame img").get_attribute("src"))


def expect_other_picture(page: Page, before: str) -> None:
    now = "document.querySelector('#look-photo .frame img')?.src"
    page.wait_for_function(f"before => {now} && {now} !== before", arg=before)


def fits_the_window(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def click_patch(page: Page, row: int, column: int) -> None:
    """The middle of a patch, both counted from 1."""
    frame = page.locator("#look-photo .frame")
    box = [float(edge) for edge in str(frame.get_attribute("data-box")).split()]
    rows, columns = (int(count) for count in str(frame.get_attribute("data-grid")).split())
    size = frame.bounding_box()
    assert size
    x = box[0] + (column - 0.5) * (box[2] - box[0]) / columns
    y = box[1] + (row - 0.5) * (box[3] - box[1]) / rows
    frame.click(position={"x": x * size["width"], "y": y * size["height"]})


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_opens_with_the_relevance_of_the_predicted_dish(visit: Visiting, width: int) -> None:
    page = visit(width).page
    opened(page)
    expect(said(page)).to_contain_text("how much each patch speaks for Pizza")
    expect(page.locator("#look-photo .scale")).to_contain_text("Brightest:")
    expect(page.locator("#wall button")).to_have_count(36)
    expect(page.locator("#sinks")).to_contain_text("layers 9 to 12")
    shown = page.locator("#look-photo .frame img").evaluate(
        "i => i.decode().then(() => [i.naturalWidth / i.naturalHeight, i.width / i.height])"
    )
    with Image.open(PIZZA) as original:
        assert shown == pytest.approx([original.width / original.height] * 2, rel=0.01)
    assert page.locator("#look-photo .frame img").get_attribute("alt")
    assert fits_the_window(page)
    parts = [page.locator(f"#look-{name}").bounding_box() for name in ("photo", "method", "wall")]
    photo, method, wall = (part for part in parts if part)
    if width == 390:  # one column, the photo first
        assert photo["y"] < method["y"] < wall["y"] and wall["x"] + wall["width"] <= 390
    else:
        assert method["x"] > photo["x"] + photo["width"] and abs(method["y"] - photo["y"]) < 3


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_prediction_after_each_block(visit: Visiting, width: int) -> None:
    page = visit(width).page
    opened(page)
    page.get_by_role("button", name="Prediction after each block").click()
    rows = page.locator("#blocks tr:has(.stack)")
    expect(rows).to_have_count(12)
    expect(rows.last).to_contain_text("Pizza")
    first = page.locator("#result .dishes .share").first.text_content()
    expect(rows.last).to_contain_text(str(first))  # the last block's is the model's own answer
    assert fits_the_window(page)


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_the_result_leads_to_where_it_looked(visit: Visiting, width: int) -> None:
    page = visit(width).page
    page.locator("#photo input[type=file]").set_input_files(PIZZA)
    page.get_by_role("button", name="see where it looked").click()
    expect(said(page)).to_contain_text("speaks for Pizza")
    expect(page.get_by_role("tab", name="Attention")).to_have_attribute("aria-selected", "true")


@pytest.mark.browser
def test_without_a_photo_an_example_leads_on(visit: Visiting) -> None:
    page = visit().page
    open_tab(page)
    expect(page.locator("#attention-empty")).to_contain_text("to see where the model looks")
    page.locator("#attention-empty button").first.click()
    expect(said(page)).to_contain_text("Relevance")
    expect(page.locator("#wall button")).to_have_count(36)


@pytest.mark.browser
def test_nothing_is_computed_before_the_tab_is_opened(visit: Visiting) -> None:
    page = visit().page
    page.locator("#photo input[type=file]").set_input_files(PIZZA)
    page.wait_for_selector("#result .note")
    page.wait_for_timeout(500)  # milliseconds
    assert page.locator("#wall button").count() == 0


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_click_a_thumbnail(visit: Visiting, width: int) -> None:
    page = visit(width).page
    opened(page)
    before = picture(page)
    head = page.get_by_label("Layer 9, head 3")
    head.click()
    expect(said(page)).to_contain_text("Layer 9, head 3, one of 3: how much the class token looks")
    assert picture(page) != before
    expect(head).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("One head")).to_be_checked()
    expect(page.locator("#look-method").get_by_label("Head", exact=True)).to_have_value("3")
    page.get_by_label("Mean of a layer").check()
    expect(said(page)).to_contain_text("Layer 9, the mean of its 3 heads")
    page.get_by_label("Rollout").check()
    expect(said(page)).to_contain_text("Rollout")
    assert fits_the_window(page)


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_click_a_patch(visit: Visiting, width: int) -> None:
    page = visit(width).page
    opened(page)
    page.get_by_label("Layer 5, head 1").click()
    expect(said(page)).to_contain_text("Layer 5, head 1")
    before = picture(page)
    click_patch(page, 9, 5)
    expect(said(page)).to_contain_text("the patch in row 9, column 5 looks at each patch")
    assert picture(page) != before
    expect(page.get_by_label("Row")).to_have_value("9")
    expect(page.get_by_label("Column")).to_have_value("5")
    expect(page.locator("#wall .note, #wall + .note").first).to_contain_text("row 9, column 5")
    page.get_by_label("who looks at it").check()
    expect(said(page)).to_contain_text("each patch looks at the patch in row 9, column 5")
    page.get_by_label("Row").fill("10")  # by keyboard, without the photo
    expect(said(page)).to_contain_text("row 10, column 5")
    for typed, row in (("99", 14), ("-3", 1), ("2", 2)):
        page.get_by_label("Row").fill(typed)
        expect(said(page)).to_contain_text(f"row {row}, column 5")
        expect(page.get_by_label("Row")).to_have_value(str(row))
    page.get_by_label("Row").fill("")  # on the way to another number
    expect(said(page)).to_contain_text("row 1, column 5")
    expect(page.get_by_label("Row")).to_have_value("")
    expect(page.locator(".toast-body")).to_have_count(0)
    page.get_by_label("the class token").check()
    expect(said(page)).to_contain_text("each patch looks at the class token")
    expect(page.get_by_label("Row")).to_have_count(0)


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_switch_a_head_off(visit: Visiting, width: int) -> None:
    page = visit(width).page
    opened(page)
    page.get_by_label("switches it off").check()
    page.get_by_label("Layer 12, head 1").click()
    result = page.locator("#heads-off-result")
    expect(result).to_contain_text("Without L12 H1 it ")
    expect(result.locator("tr")).to_have_count(5)
    expect(result).to_contain_text("→")
    expect(page.get_by_label("Layer 12, head 1")).to_have_class("off")
    page.get_by_label("Layer 11, head 2").click()
    expect(result).to_contain_text("Without L11 H2, L12 H1 it ")
    page.get_by_label("Layer 12, head 1").click()
    page.get_by_label("Layer 11, head 2").click()
    expect(result).to_have_text("")
    assert fits_the_window(page)


@pytest.mark.browser
def test_is_the_map_faithful(visit: Visiting) -> None:
    page = visit().page
    opened(page)
    page.get_by_role("button", name="Is this map faithful?").click()
    result = page.locator("#faithful")
    expect(result).to_contain_text("Pizza: hide its top 20 %")
    expect(result).to_contain_text("hide random 20 %")
    expect(result).to_contain_text("than chance")
    page.get_by_label("Rollout").check()  # the figure belonged to another map
    expect(result).to_have_text("")


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_deletion_and_insertion_curves(visit: Visiting, width: int) -> None:
    page = visit(width).page
    opened(page)
    page.get_by_role("button", name="Deletion and insertion curves").click()
    page.get_by_role("button", name="in the map's order").click()
    plots = page.locator("#curves figure")
    expect(plots).to_have_count(2, timeout=60_000)
    for plot in (plots.first, plots.last):
        expect(plot).to_contain_text("Area 0.")
        expect(plot).to_contain_text("by chance 0.")
        expect(plot.locator("path.map")).to_have_count(1)
        expect(plot.locator("path.chance")).to_have_count(4)
        assert "Pizza as patches" in str(plot.locator("svg").get_attribute("aria-label"))
    assert fits_the_window(page)
    page.get_by_label("Rollout").check()  # the curves belonged to another map
    expect(page.locator("#curves")).to_have_text("")


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_compare(visit: Visiting, width: int) -> None:
    page = visit(width).page
    opened(page)
    page.get_by_role("button", name="Compare the ways of looking").click()
    page.get_by_role("button", name="Compare them on this photo").click()
    figures = page.locator("#compared figure")
    expect(figures).to_have_count(4)
    expect(figures.locator("strong")).to_have_count(4)
    expect(figures.first).to_contain_text("True maximum:")
    expect(page.locator("#compared")).to_contain_text("One scale for all")
    assert fits_the_window(page)


@pytest.mark.browser
def test_another_dish_sinks_order_and_colours(visit: Visiting) -> None:
    page = visit().page
    opened(page)
    before = picture(page)
    page.get_by_label("For the dish").click()
    page.get_by_role("option", name="Steak").click()
    expect(said(page)).to_contain_text("speaks for Steak")
    assert picture(page) != before
    page.get_by_label("Every head, ordered by").click()
    page.get_by_role("option", name="distance").click()
    expect(page.locator("#wall .flat button small")).to_have_count(36)
    numbers = [int(text.split()[0]) for text in page.locator("#wall small").all_inner_texts()]
    assert numbers == sorted(numbers)
    page.get_by_role("button", name="Colours").click()
    before = picture(page)
    page.get_by_label("viridis").check()
    expect_other_picture(page, before)
    before = picture(page)
    page.get_by_label("bare patches").check()
    expect_other_picture(page, before)


@pytest.fixture
def plain_vit(server: Server, imagenet_weights: Path) -> Iterator[str]:
    """Name of a model without registers, in the picker for the length of a test."""
    name = "plain-vit"
    command = [sys.executable, "-m", "vit", "import", str(imagenet_weights), "--name", name]
    environment = os.environ | {"VIT_HOME": str(server.home)}
    subprocess.run(command, check=True, cwd=PIZZA.parents[1], env=environment)
    yield name
    (server.home / "checkpoints" / f"{name}.safetensors").unlink()


@pytest.mark.browser
def test_sinks_set_aside(visit: Visiting, plain_vit: str, shared_data: Path) -> None:
    page = visit().page
    choose(page, plain_vit)
    expect(page.locator("#facts")).to_contain_text("1,000 ")
    opened(page, shared_data / "pizza_steak_sushi" / "test" / "pizza" / "1152100.jpg")
    expect(page.locator("#sinks")).to_contain_text("corner patches take")
    expect(page.locator("#sinks")).to_contain_text("an even share would be 2 %")
    expect(page.locator("#wall em").first).to_be_visible()
    page.get_by_label("Set the sinks aside").check()
    expect(said(page)).to_contain_text("sinks are set aside: drawn as zero")


@pytest.mark.browser
def test_download_picture_and_numbers(visit: Visiting, tmp_path: Path) -> None:
    page = visit().page
    opened(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the picture").click()
    download.value.save_as(tmp_path / "attention.png")
    with Image.open(tmp_path / "attention.png") as saved, Image.open(PIZZA) as original:
        assert saved.width / saved.height == pytest.approx(original.width / original.height, 0.01)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the numbers").click()
    download.value.save_as(tmp_path / "attention.npz")
    with np.load(tmp_path / "attention.npz") as numbers:  # opens without pickle
        assert numbers["maps"].shape == (12, 3, 201, 201)
        assert numbers["maps"].dtype == np.float16
        assert numbers["maps"].sum(-1) == pytest.approx(1, abs=0.01)
        assert len(numbers["classes"]) == 101 and numbers["classes"][76] == "pizza"
        assert numbers["logits"].argmax() == 76 and numbers["shown"].shape == (14, 14)
        assert {"maps", "logits", "shown"} <= set(json.loads(str(numbers["README"])))


@pytest.mark.browser
def test_follows_the_photo_and_the_fit(visit: Visiting) -> None:
    page = visit().page
    opened(page)
    page.get_by_label("Layer 9, head 3").click()
    expect(said(page)).to_contain_text("Layer 9, head 3")
    first = picture(page)
    page.get_by_role("tab", name="Classify").click()
    page.get_by_label("Remove Image").click()
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    page.locator("#photo input[type=file]").set_input_files(STEAK)
    page.wait_for_selector("#result .note")
    open_tab(page)
    expect_other_picture(page, first)
    expect(said(page)).to_contain_text("Layer 9, head 3")  # what one looked at stays
    page.get_by_label("Relevance for a dish").check()
    expect(said(page)).to_contain_text("speaks for Steak")


@pytest.mark.browser
def test_visitors_see_their_own(visit: Visiting) -> None:
    mine, theirs = visit().page, visit().page
    opened(mine, PIZZA)
    opened(theirs, STEAK)
    expect(said(mine)).to_contain_text("speaks for Pizza")
    expect(said(theirs)).to_contain_text("speaks for Steak")
    mine.get_by_label("Layer 9, head 3").click()
    expect(said(mine)).to_contain_text("Layer 9, head 3")
    expect(said(theirs)).to_contain_text("speaks for Steak")
    assert picture(mine) != picture(theirs)


@pytest.mark.browser
def test_a_bad_photo_leads_back_to_what_to_do(visit: Visiting) -> None:
    page = visit().page
    opened(page)
    page.get_by_role("tab", name="Classify").click()
    page.get_by_label("Remove Image").click()
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    open_tab(page)
    expect(page.locator("#attention-empty")).to_contain_text("to see where the model looks")
    expect(page.locator("#wall")).to_be_hidden()


@pytest.mark.browser
def test_by_keyboard(visit: Visiting) -> None:
    page = visit().page
    opened(page)
    page.get_by_label("Layer 1, head 1").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("Layer 4, head 2")  # three layers stand side by side
    page.keyboard.press("Enter")
    expect(said(page)).to_contain_text("Layer 4, head 2")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("Layer 4, head 2")  # though the wall was drawn anew


# the endpoints


@pytest.fixture(scope="module")
def client(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    started = Client(server.url, verbose=False, download_files=str(tmp_path_factory.mktemp("got")))
    yield started
    started.close()


def ask(client: Client, endpoint: str, **settings: Any) -> dict:
    return client.predict(handle_file(str(PIZZA)), api_name=endpoint, **settings)


def test_attention(client: Client) -> None:
    answer = ask(client, "/attention")
    assert answer["dish"] == "Pizza" and answer["grid"] == [14, 14]
    values = np.array(answer["values"])
    assert values.shape == (14, 14) and values.min() >= 0 and values.max() > 0
    left, top, right, bottom = answer["box"]
    assert 0 <= left < right <= answer["photo_size"][0]
    assert 0 <= top < bottom <= answer["photo_size"][1]
    assert answer["drawn"].startswith("Relevance: how much each patch speaks for Pizza.")
    assert answer["sinks"]["layers"] == [9, 10, 11, 12]
    assert answer["checkpoint"] == "food101"
    other = ask(client, "/attention", dish="steak")
    assert other["dish"] == "Steak" and other["values"] != answer["values"]


def test_attention_of_a_head_a_patch_and_a_direction(client: Client) -> None:
    one = ask(client, "/attention", method="head", layer=9, head=3, token=20)
    assert one["drawn"].startswith("Layer 9, head 3, one of 3: how much the patch in row 2, colum")
    assert np.sum(one["values"]) <= 1.001
    by = ask(
        client, "/attention", method="head", layer=9, head=3, token=20, direction="looked at by"
    )
    assert by["values"] != one["values"]
    # the patch's own weight is the same from both sides
    assert by["values"][1][6] == pytest.approx(one["values"][1][6])
    whole = ask(client, "/attention", method="rollout", fit="letterbox")
    assert whole["box"][0] < 0 or whole["box"][1] < 0


def test_explain(client: Client) -> None:
    answer = ask(client, "/explain", heads_off=[[12, 1], [9, 3]], curves=True, checkpoint=THREE)
    assert answer["dish"] == "Pizza" and answer["classes"] == ["pizza", "steak", "sushi"]
    assert sum(answer["probabilities"]) == pytest.approx(1, abs=1e-4)
    blocks = answer["after_each_block"]
    assert [each["block"] for each in blocks] == list(range(1, 13))
    assert blocks[-1]["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-4)
    test = answer["faithfulness"]
    assert test["before"] == pytest.approx(answer["probabilities"][0], abs=1e-3)
    assert test["draws"] == 10 and 0 <= test["after"] <= 1
    assert sum(answer["without_heads"]) == pytest.approx(1, abs=1e-4)
    assert answer["without_heads"] != answer["probabilities"]
    for name in ("deletion", "insertion"):
        curve = answer[name]
        assert curve["shares"][0] == 0 and curve["shares"][-1] == 1
        assert len(curve["shares"]) == len(curve["probabilities"]) == 11
        assert 0 < curve["area"] < 1 and 0 < curve["random_area"] < 1 and curve["draws"] == 4
    assert answer["deletion"]["probabilities"][0] == pytest.approx(test["before"], abs=1e-3)
    assert "deletion" not in ask(client, "/explain", checkpoint=THREE)


@pytest.mark.parametrize(
    ("endpoint", "settings", "words"),
    [
        ("/attention", {"layer": 13, "method": "head"}, "There is no layer 13; the last is 12."),
        ("/attention", {"layer": 0, "method": "head"}, "There is no layer 0; the last is 12."),
        ("/attention", {"head": 9, "method": "head"}, "There is no head 9; the last is 3."),
        ("/attention", {"token": 196}, "There is no patch 196; they are 0 to 195."),
        ("/attention", {"token": "7"}, "token must be a whole number."),
        ("/attention", {"method": "guess"}, "method must be one of relevance, head, mean"),
        ("/attention", {"direction": "up"}, "direction must be one of looks at, looked at by."),
        ("/attention", {"dish": "soup"}, "knows no dish of that name; it knows apple_pie"),
        ("/attention", {"fit": "half"}, 'fit must be "crop", "letterbox" or None.'),
        ("/attention", {"checkpoint": "../x"}, "There is no checkpoint of that name"),
        ("/explain", {"heads_off": [[1]]}, "heads_off must be a list of [layer, head]."),
        ("/explain", {"heads_off": [[1, 4]]}, "There is no head 4; the last is 3."),
    ],
)
def test_what_cannot_be_asked(client: Client, endpoint: str, settings: dict, words: str) -> None:
    with pytest.raises(AppError) as caught:
        ask(client, endpoint, **settings)
    assert words in str(caught.value)


def test_a_photo_must_be_sent(client: Client, tmp_path: Path) -> None:
    (tmp_path / "notes.jpg").write_text("two eggs")
    with pytest.raises(AppError, match="not a photo that can be read"):
        client.predict(handle_file(str(tmp_path / "notes.jpg")), api_name="/attention")
