"""What a run got right and wrong, in a real browser: real trainings, in a tab of their own."""

import colorsys
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect
from serving import Server, Visit, open_tab, serving
from small import photos, run, tiny_start

from vit import checkpoint
from vit.names import dish_name
from vit.outcome import OUTCOME, Answers, read_outcome
from vit.recipe import Recipe

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
WIDTHS = [1280, 390]
NASTY = "<img src=x onerror=alert(1)>"  # a class folder that would be markup
FEW, MANY, UNCOUNTED, GONE = range(4)  # the runs on the page


class showing(serving):
    """`tests.results_page` as a process of its own."""

    def __init__(self, folder: Path, runs: list[Path]) -> None:
        super().__init__(folder, folder / "home")
        self.command[1:2] = ["-m", "tests.results_page"]
        self.environment["RESULTS_RUNS"] = os.pathsep.join(map(str, runs))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Head-only trainings: three dishes, fourteen, the first without its counts, and one whose
    photos are gone."""
    base = tmp_path_factory.mktemp("results")
    start = str(tiny_start(base / "small-start.safetensors"))
    data = base / "data"
    for split, each in (("train", 12), ("test", 4)):
        photos(data / split, each, ("beans", "tomato", "plum"))
        os.rename(data / split / "plum", data / split / NASTY)
    photos(base / "odd", 2, ["tomato"])  # tomatoes in the folder of beans: sure mistakes
    for path in (base / "odd" / "tomato").iterdir():
        shutil.copy(path, data / "test" / "beans" / f"odd-{path.name}")
    trainings = {
        "few": Recipe(str(data), start=start, name="three-dishes", epochs=6, rate=1e-2, batch=8),
        "many": Recipe(str(many(base / "many-data")), start=start, name="many-dishes", epochs=1),
    }
    for name, recipe in trainings.items():
        run(recipe, base / name)
    shutil.copytree(base / "few", base / "uncounted")
    (base / "uncounted" / OUTCOME).unlink()
    moved = shutil.copytree(base / "few", base / "gone")
    stored = (moved / OUTCOME).read_text("utf-8")
    (moved / OUTCOME).write_text(stored.replace(str(data), str(base / "nowhere")), "utf-8")
    return [base / name for name in ("few", "many", "uncounted", "gone")]


def many(folder: Path) -> Path:
    """Fourteen dishes, a colour each: more than a table of numbers takes."""
    for number in range(14):
        red, green, blue = colorsys.hsv_to_rgb(number / 14, 0.8, 0.8)
        for i in range(4):
            place = folder / f"dish_{number:02}" / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            colour = tuple(round(255 * part) - 9 * i for part in (red, green, blue))
            Image.new("RGB", (40, 32), colour).save(place)
    return folder


@pytest.fixture(scope="module")
def shown(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with showing(tmp_path_factory.mktemp("shown"), runs) as server:
        yield server


@pytest.fixture
def results(visit: Visiting, shown: Server) -> Callable[..., Page]:
    """Opens the page on the result of a run."""

    def open_page(number: int = FEW, width: int = 1280) -> Page:
        page = visit(width, url=shown.url).page
        page.wait_for_selector("#facts p, #facts strong")
        open_tab(page, "Result")
        expect(page.locator("#results-status")).to_contain_text("When a run has ended")
        page.get_by_role("button", name=f"Run {number}").click()
        expect(page.locator("#results-verdict")).to_contain_text("right")
        return page

    return open_page


def known(folder: Path, name: str | None = None) -> Answers:
    outcome = read_outcome(folder)
    assert outcome is not None
    return outcome.named(name)


def cell(page: Page, actual: int, predicted: int) -> Locator:
    return page.locator(f'.confusion [data-actual="{actual}"][data-predicted="{predicted}"]')


def pictures(page: Page) -> Locator:
    return page.locator("#results-attention figure img")


def title(page: Page) -> Locator:
    return page.locator("#results-photos h3")


def fits_the_window(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_cell_shows_its_photos_and_a_photo_where_both_looked(
    results: Callable[..., Page], runs: list[Path], width: int
) -> None:
    page, answers = results(width=width), known(runs[FEW])
    assert answers.name == "test" and answers.count.total == 14
    verdict = page.locator("#results-verdict")
    expect(verdict).to_contain_text(f"{answers.count.correct} of 14 right")
    expect(verdict).to_contain_text("none was trained on")
    expect(page.locator(".confusion tbody tr")).to_have_count(3)
    for actual, row in enumerate(answers.confusion.tolist()):
        for predicted, count in enumerate(row):
            expect(cell(page, actual, predicted)).to_have_count(1 if count else 0)
    expect(title(page)).to_have_text("The most certain mistakes")
    expect(page.locator("#results-photos li")).to_have_count(len(answers.mistakes()))
    expect(pictures(page)).to_have_count(2)  # those of the surest mistake
    before = pictures(page).first.get_attribute("src")

    actual, predicted, count = answers.confused()[0]
    cell(page, actual, predicted).click()
    names = [dish_name(name) for name in answers.classes]
    expect(title(page)).to_have_text(f"{names[actual]} taken for {names[predicted]}: {count}")
    expect(page.locator("#results-photos li")).to_have_count(count)
    expect(cell(page, actual, predicted)).to_have_attribute("aria-pressed", "true")
    photo = page.locator("#results-photos img").first
    assert photo.evaluate("i => i.decode().then(() => i.naturalWidth / i.naturalHeight)") > 1
    expect(page.locator("#results-photos li").first).to_contain_text(
        f"taken for {names[predicted]}"
    )
    assert fits_the_window(page)

    recognised = next(i for i in range(3) if answers.confusion[i, i])
    cell(page, recognised, recognised).click()
    expect(title(page)).to_contain_text("recognised")
    page.locator("#results-photos [data-photo]").last.click()
    page.wait_for_function(
        "s => { const i = document.querySelector('#results-attention figure img');"
        " return i && i.src !== s; }",
        arg=before,
    )
    figures = page.locator("#results-attention figure")
    expect(figures).to_have_count(2)
    expect(figures.first).to_contain_text("Before: small-start")
    expect(figures.last).to_contain_text("After: three-dishes")
    expect(page.locator("#results-attention .scale")).to_contain_text("One scale for both")
    shapes = pictures(page).evaluate_all("all => all.map(i => i.naturalWidth / i.naturalHeight)")
    assert shapes == pytest.approx([44 / 36] * 2, rel=0.01)  # the photo's own, uncropped
    page.get_by_role("button", name="Back to the most certain mistakes").click()
    expect(title(page)).to_have_text("The most certain mistakes")
    assert fits_the_window(page)


def test_by_keyboard(results: Callable[..., Page], runs: list[Path]) -> None:
    page, answers = results(), known(runs[FEW])
    cells = [(int(a), int(p)) for a, p in zip(*answers.confusion.nonzero(), strict=True)]
    actual, predicted = cells[0]
    assert page.locator('.confusion [tabindex="0"]').count() == 1
    cell(page, actual, predicted).focus()
    page.keyboard.press("ArrowDown")
    # The next one down in this column, or else in the nearest column.
    below = min((abs(p - predicted), a, p) for a, p in cells if a > actual)
    focused = page.evaluate(
        "(({ actual, predicted }) => [actual, predicted])(document.activeElement.dataset)"
    )
    assert focused == [str(below[1]), str(below[2])]
    page.keyboard.press("Enter")
    expect(cell(page, below[1], below[2])).to_have_attribute("aria-pressed", "true")
    expect(title(page)).to_contain_text(dish_name(answers.classes[below[1]]))


def test_dishes_and_other_sets(results: Callable[..., Page], runs: list[Path]) -> None:
    page = results()
    answers = known(runs[FEW])
    rows = page.locator("#results-dishes .recall > li")
    expect(rows).to_have_count(3)
    number = answers.classes.index("tomato")
    recall, precision = answers.recalls[number], answers.precisions[number]
    row = rows.filter(has_text="Tomato")
    expect(row).to_contain_text(f"{recall.correct} of {recall.total}")
    expect(row).to_contain_text(f"Said {precision.total} times")
    row.get_by_role("button").click()
    expect(title(page)).to_have_text(f"Tomato: {recall.correct} of {recall.total} recognised")
    expect(page.locator("#results-photos li")).to_have_count(recall.total)
    page.get_by_label("validation photos").check()
    validation = known(runs[FEW], "validation")
    expect(page.locator("#results-verdict")).to_contain_text(
        f"{validation.count.correct} of {validation.count.total} right"
    )
    expect(page.locator("#results-verdict")).to_contain_text("chose which weights were kept")


@pytest.mark.parametrize("width", WIDTHS)
def test_many_dishes(results: Callable[..., Page], runs: list[Path], width: int) -> None:
    page, answers = results(MANY, width), known(runs[MANY])
    names = [dish_name(name) for name in answers.classes]
    expect(page.locator("#results-verdict")).to_contain_text("kept for validation")
    expect(page.locator(".confusion")).to_have_count(0)
    pairs = answers.confused()
    assert pairs
    expect(page.locator(".pairs li")).to_have_count(min(12, len(pairs)))
    actual, predicted, count = pairs[0]
    said = f"{names[actual]} taken for {names[predicted]}: {count}"
    page.locator(".pairs button").first.click()
    expect(title(page)).to_have_text(said)
    assert fits_the_window(page)

    grid = page.locator(".all-cells")
    grid.scroll_into_view_if_needed()
    size = grid.evaluate("e => e.getBoundingClientRect().width") / 14
    actual, predicted, count = pairs[-1]
    grid.click(position={"x": (predicted + 0.5) * size, "y": (actual + 0.5) * size})
    said = f"{names[actual]} taken for {names[predicted]}: {count}"
    expect(page.locator(".readout")).to_have_text(said)
    expect(title(page)).to_have_text(said)
    more = page.locator("#results-dishes details")
    more.locator("summary").click()
    expect(page.locator("#results-dishes li:visible")).to_have_count(14)


def test_many_dishes_by_keyboard(results: Callable[..., Page], runs: list[Path]) -> None:
    page, answers = results(MANY), known(runs[MANY])
    page.locator(".all-cells").focus()
    rows, columns = answers.confusion.nonzero()
    below = [int(r) for r in rows[(columns == columns[0]) & (rows > rows[0])]]
    page.keyboard.press("ArrowDown")
    row = below[0] if below else int(rows[0])
    names = [dish_name(name) for name in answers.classes]
    expect(page.locator(".readout")).to_contain_text(names[row])
    page.keyboard.press("Enter")
    expect(title(page)).to_contain_text(names[row])


def test_the_checkpoint_is_downloaded(
    results: Callable[..., Page], runs: list[Path], tmp_path: Path
) -> None:
    page = results()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the checkpoint").click()
    assert download.value.suggested_filename == "three-dishes.safetensors"
    download.value.save_as(tmp_path / "got.safetensors")
    assert checkpoint.load(tmp_path / "got.safetensors")[1].classes == known(runs[FEW]).classes


def test_it_is_used_in_classify(results: Callable[..., Page], runs: list[Path]) -> None:
    page = results()
    page.get_by_role("tab", name="Classify").click()
    page.locator("#photo input[type=file]").set_input_files(
        runs[FEW].parent / "data" / "test" / "tomato" / "000.png"
    )
    page.wait_for_selector("#result .dishes")
    expect(page.locator("#result")).not_to_contain_text("Tomato")
    page.get_by_role("tab", name="Result").click()
    page.get_by_role("button", name="Use it in Classify").click()
    expect(page.get_by_role("tab", name="Classify")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#checkpoint input")).to_have_value("three-dishes")
    expect(page.locator("#result .dishes")).to_contain_text("Tomato")  # the photo, asked anew
    expect(page.locator("#result .dishes li")).to_have_count(3)


def test_a_run_without_its_counts_is_counted_again(
    results: Callable[..., Page], runs: list[Path]
) -> None:
    page = results(UNCOUNTED)
    count = known(runs[FEW]).count
    expect(page.locator("#results-verdict")).to_contain_text(f"{count.correct} of 14 right")
    assert json.loads((runs[UNCOUNTED] / OUTCOME).read_text("utf-8"))["sets"]
    page.get_by_role("button", name="No run").click()
    expect(page.locator("#results-status")).to_contain_text("When a run has ended")
    expect(page.locator("#results-verdict")).to_be_hidden()


def test_photos_that_are_gone_are_said_to_be(results: Callable[..., Page]) -> None:
    page = results(GONE)
    expect(page.locator("#results-photos .gone").first).to_contain_text("no longer what it was")
    expect(page.locator("#results-attention .trouble")).to_contain_text("no longer what it was")
    assert page.locator("#results-photos img").count() == 0


def test_only_what_is_there_can_be_asked_for(results: Callable[..., Page]) -> None:
    page = results()
    expect(pictures(page)).to_have_count(2)
    forge = (
        "([selector, name, value]) => { document.querySelector(selector).dataset[name] = value }"
    )
    page.evaluate(forge, ["#results-photos [data-photo]", "photo", "999"])
    page.locator('[data-photo="999"]').click()
    expect(page.locator("#results-attention .trouble")).to_contain_text("There is no such photo")
    page.evaluate(forge, [".confusion .ask", "predicted", "-1"])
    page.locator('[data-predicted="-1"]').click()
    expect(page.locator("#results-photos .trouble")).to_contain_text("There is no such dish")
