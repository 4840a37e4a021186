"""A model and photos whose every name is HTML, Markdown, a formula, very long or turned round, in
every tab of the page: each is shown as text, nothing of it runs, and no element is made of it."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import torch
from bad_photos import drawn, saved
from playwright.sync_api import Browser, Page, expect
from serving import Server, note_foreign, serving
from serving import Visit as Behind
from small import photos
from test_bad_zips import NASTY

import train
from vit import checkpoint
from vit.card import Card
from vit.images import Preprocess
from vit.metrics import Count
from vit.model import ViT, ViTConfig

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=60_000)  # milliseconds; the machine may be busy

HTML = NASTY["html"]
MODEL = "'><img src=x onerror=window.ran=1> **b** `c`"  # the file's own name
RUN = "=1+1 __bold__ `code` &lt;i&gt; [a](b)"
SET = "<b>bold<i>i `code`"  # of test photos
LONG = "m" * 200
CLASSES = (*NASTY.values(), "</style></script><script>window.ran=1</script>", LONG)
# Of these words an element would be made, were one of the names taken for HTML or Markdown.
MADE = """() => {
  const made = [...document.querySelectorAll("*")].filter((element) =>
    ["onerror", "onmouseover"].some((name) => element.hasAttribute(name))
    || element.matches('img[src="x"], img[src^="http:evil"], a[href="b"]')
    || element.matches("script, style") && /^.{0,30}window\\.ran/.test(element.textContent)
    || element.matches("b, strong, em, i, code") && /^(b|c|i|bold|code)$/.test(element.innerText));
  return [window.ran, ...made.map((element) => element.outerHTML.slice(0, 300))];
}"""


def save_evil(home: Path) -> None:
    torch.manual_seed(1)
    config = ViTConfig((32, 32), (16, 16), 12, 2, 2, 12, len(CLASSES))
    model = ViT(config)
    torch.nn.init.normal_(model.head.weight, std=0.02)
    pair = [CLASSES[0], CLASSES[1], 3]
    counts = {HTML: {"top5": {"correct": 1, "total": 2}, "confused": [pair]}}
    training = {name: [*NASTY.values()] for name in ("command", "photos", "notes", "versions")}
    card = Card(
        config,
        Preprocess((32, 32)),
        CLASSES,
        title=HTML,
        training=training | {"counts": counts, "seconds": HTML, "url": {HTML: HTML}},
        metrics={HTML: Count(1, 2)},
        unsure_below=0.99,
        licence=" ".join(NASTY.values()),
        attribution=HTML,
    )
    checkpoint.save(home / "checkpoints" / f"{MODEL}.safetensors", model, card)


def train_evil(base: Path, home: Path) -> None:
    """A run whose classes, photos and test set have such names, too."""
    for split in ("train", "test"):
        photos(base / "data" / split, 6)
        os.rename(base / "data" / split / "beans", base / "data" / split / HTML)
        for path in (base / "data" / split / HTML).iterdir():
            path.rename(path.with_name(f"{NASTY['markdown']} {path.stem} {HTML}.png"))
    words = [str(base / "data" / "train"), "--from", MODEL, "--name", RUN, "--epochs", "1"]
    words += ["--test", f"{SET}={base / 'data' / 'test'}", "--folder", str(home / "runs" / "evil")]
    assert train.main(words) == 0


@pytest.fixture(scope="module")
def page(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Page, Server]]:
    """The page, on which this model is chosen and a photo lies; in the end nothing has been made of
    any name, and nothing went wrong behind it."""
    base = tmp_path_factory.mktemp("names")
    home = base / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIT_HOME", str(home))
        save_evil(home)
        train_evil(base, home)
    with serving(base, home) as server:
        context = chromium.new_context(viewport={"width": 1280, "height": 844})
        page = context.new_page()
        behind = Behind(page)
        page.on("pageerror", lambda error: behind.errors.append(str(error)))
        page.on("console", lambda m: behind.errors.append(m.text) if m.type == "error" else None)
        page.on("request", lambda request: note_foreign(behind, request.url))
        page.goto(server.url)
        choose(page, MODEL)
        send(page, drawn(size=(320, 240)))
        yield page, server
        unmade(page)
        assert not behind.errors and not behind.foreign, (behind.errors, behind.foreign)
        context.close()
        log = server.log.read_text()
    assert "Traceback" not in log, log[-3000:]


def send(page: Page, picture, name: str = f"{HTML}.jpg") -> None:
    data = saved(picture, "JPEG")
    page.locator("#photo input[type=file]").set_input_files(
        {"name": name, "mimeType": "image/jpeg", "buffer": data}
    )
    expect(page.locator("#result .note")).to_contain_text("ms")


def choose(page: Page, model: str) -> None:
    page.wait_for_selector("#facts strong")
    page.locator("#checkpoint input").click()
    page.get_by_role("option", name=model, exact=True).click()
    expect(page.locator("#checkpoint input")).to_have_value(model)


def open_tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def unmade(page: Page) -> None:
    ran, *made = page.evaluate(MADE)
    assert ran is None and not made, made


def shown(page: Page, selector: str, name: str) -> None:
    """`name` comes to be among the words of what `selector` finds, as it is or as a dish's."""
    wanted = {" ".join(text.split())[1:] for text in (name, name.replace("_", " "))}
    texts = ""
    for _ in range(300):
        texts = " ".join(" ".join(page.locator(selector).all_inner_texts()).split())
        if any(each in texts for each in wanted):
            return
        page.wait_for_timeout(200)  # milliseconds
    raise AssertionError((name, texts[:2000]))


def test_classify(page: tuple[Page, Server]) -> None:
    tab, _ = page
    open_tab(tab, "Classify")
    tab.locator("#top input").fill("20")
    expect(tab.locator("#result .dishes li")).to_have_count(len(CLASSES))
    for name in CLASSES:
        shown(tab, "#result .dishes", name)
    tab.locator("#result summary").click()
    tab.locator("#facts summary").first.click()
    for name in (HTML, NASTY["markdown"], NASTY["formula"]):
        shown(tab, "#facts", name)
    tab.locator("#facts summary").first.click()
    unmade(tab)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_many_and_their_table(page: tuple[Page, Server], tmp_path: Path) -> None:
    tab, _ = page
    open_tab(tab, "Classify")
    tab.get_by_text("Many photos at once").click()
    names = [f"{name.replace('/', '')}.jpg" for name in NASTY.values()]
    good = saved(drawn(), "JPEG")
    tab.locator("#many input[type=file]").set_input_files(
        [
            {"name": name, "mimeType": "image/jpeg", "buffer": good if number % 2 else b"dough"}
            for number, name in enumerate(names)
        ]
    )
    expect(tab.locator("#many-status")).to_contain_text(f"{len(names)} photos in")
    expect(tab.locator("#many-gallery .caption-label")).to_have_count(len(names))
    unmade(tab)
    with tab.expect_download() as download:
        tab.get_by_text("Download as a table").click()
    download.value.save_as(tmp_path / "table.csv")
    text = (tmp_path / "table.csv").read_text("utf-8-sig")
    for delimiter in ",;":  # as spreadsheets read it where a comma marks decimals
        for row in csv.reader(text.splitlines(), delimiter=delimiter):
            assert not [cell for cell in row if cell.lstrip().startswith(tuple("=+-@\t\r"))]
    assert len(list(csv.DictReader(text.splitlines()))) == len(names)


def test_patches_and_attention(page: tuple[Page, Server]) -> None:
    tab, _ = page
    open_tab(tab, "Patches")
    tab.locator("#away button").first.click()
    tab.get_by_role("button", name="it trusts most").click()
    expect(tab.locator("#away-result .moves li")).not_to_have_count(0)
    expect(tab.locator("#away-result p").first).to_contain_text("patches gone")
    unmade(tab)
    open_tab(tab, "Attention")
    expect(tab.locator("#look-photo figcaption p").first).to_contain_text("Relevance")
    tab.locator("#blocks-more > button").click()
    expect(tab.locator("#attention table.blocks tr")).to_have_count(1 + 2)
    tab.get_by_label("For the dish").click()
    expect(tab.get_by_role("option")).to_have_count(len(CLASSES))
    tab.get_by_role("option", name=HTML, exact=True).click()
    shown(tab, "#look-photo", HTML)
    unmade(tab)


def test_the_tour_and_the_model(page: tuple[Page, Server]) -> None:
    tab, _ = page
    open_tab(tab, "Model")
    for stop in ("photos", "blocks", "logits", "probabilities"):  # those that name dishes
        tab.locator(f'#tour-nav [data-stop="{stop}"]').click()
        expect(tab.locator(f'#tour-words [data-at="{stop}"]')).to_be_visible()
        unmade(tab)
    for part, there in (("Architecture", "#architecture svg"), ("What it learned", "#places img")):
        tab.get_by_label(part, exact=True).click()
        expect(tab.locator(there).first).to_be_visible()
        unmade(tab)


def test_a_run_and_its_result(page: tuple[Page, Server]) -> None:
    tab, _ = page
    open_tab(tab, "Fine-tune")
    tab.locator("#run-table [data-run]").first.click()
    expect(tab.locator("#results-confusion table")).to_be_visible()
    expect(tab.locator("#results-attention figure")).not_to_have_count(0)
    for place in ("#run-status", "#run-table"):
        shown(tab, place, RUN)
    for place in ("#results-confusion", "#results-dishes", "#results-photos"):
        shown(tab, place, HTML)
    for place in ("#results-verdict", "#run-table"):
        shown(tab, place, SET)
    shown(tab, "#results-attention", MODEL)
    unmade(tab)
    tab.locator("#run-table [data-compare]").first.check()
    expect(tab.locator("#compare-curves svg").first).to_be_visible()
    tab.get_by_role("button", name="Use it in Classify").click()
    expect(tab.locator("#checkpoint input")).to_have_value(RUN)
    expect(tab.locator("#result .note")).to_contain_text("ms")
    unmade(tab)
    choose(tab, MODEL)


def test_photos_to_learn_from(page: tuple[Page, Server], tmp_path: Path) -> None:
    from test_bad_zips import photos as files
    from test_bad_zips import zipped

    tab, _ = page
    open_tab(tab, "Fine-tune")
    names = [name for name in NASTY.values() if "/" not in name]
    bad = {f"{HTML}/{name}.png": b"no photo" for name in names}
    data = zipped(files(*names) | bad)
    tab.locator("#photos-file input[type=file]").set_input_files(
        {"name": f"{HTML}.zip", "mimeType": "application/zip", "buffer": data}
    )
    expect(tab.locator("#photos-lines li")).to_have_count(3)
    tab.get_by_role("button", name="The doctor's report").click()
    for name in names:
        shown(tab, "#photos-report .doctor", name)
    expect(tab.locator("#run-command textarea")).not_to_have_value("")
    unmade(tab)
    tab.get_by_label("collect them here").click()
    for name in ("__b__ `code`", NASTY["right to left"]):
        tab.locator("#collect-name input, #collect-name textarea").fill(name)
        tab.get_by_role("button", name="Add class").click()
        expect(tab.locator("#collect-classes [aria-pressed=true]")).to_contain_text(
            name.replace("_", " ").strip()[1:]
        )
    unmade(tab)


def test_errors_with_names_in_them(page: tuple[Page, Server]) -> None:
    """What Gradio puts into a corner of the page is HTML to it; and what an address asks for may be
    anything."""
    tab, server = page
    open_tab(tab, "Attention")
    expect(tab.locator("#look-photo figcaption p").first).to_contain_text("Relevance")
    file = server.home / "checkpoints" / f"{MODEL}.safetensors"
    other = file.with_name(f"{HTML}.safetensors")
    # or the page would notice, and choose another model
    tab.evaluate("() => { for (let timer = 1; timer < 1e5; timer++) clearInterval(timer); }")
    file.rename(other)  # the message lists the models that there are
    tab.get_by_role("button", name="Download the picture").click()
    corner = tab.get_by_test_id("toast-text")
    expect(corner.first).to_contain_text("There is no checkpoint of that name")
    assert HTML in corner.first.inner_text()
    unmade(tab)
    other.rename(file)
    tab.goto(f"{server.url}?model={quote(HTML)}&tab={quote(NASTY['quotes'])}&stop=%3Cb%3Eb")
    tab.wait_for_selector("#facts strong")
    expect(tab.locator("#link-note")).to_be_visible()
    unmade(tab)
