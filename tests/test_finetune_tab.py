"""The Fine-tune tab in a real browser: teach, watch, stop, find again, use; and who may do what."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Locator, Page, expect
from serving import ROOT, Server, Visit, jpeg, open_tab

from vit.checkpoint import read_card
from vit.runfolder import PROCESS, kill
from vit.runs import Runs

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=60_000)  # milliseconds; the machine may be busy

Visiting = Callable[..., Visit]
SOON = 120_000  # milliseconds for a process to start, on a busy machine
WHOLE = 400_000  # for a run


@pytest.fixture(scope="module")
def photos(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip of real photos: of each dish six to learn from and two to test with."""
    path = tmp_path_factory.mktemp("zip") / "dishes.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for split, count in (("train", 6), ("test", 2)):
            for dish in ("pizza", "steak", "sushi"):
                folder = shared_data / "pizza_steak_sushi" / split / dish
                for photo in sorted(folder.iterdir())[:count]:
                    archive.write(photo, f"{split}/{dish}/{photo.name}")
    return path


@pytest.fixture(autouse=True)
def nothing_goes_on(server: Server) -> Iterator[None]:
    """A run outlives the app, and so would one of a test that failed."""
    yield
    for run in Runs(server.home / "runs").all():
        if run.state == "waiting":
            shutil.rmtree(run.folder, ignore_errors=True)
        kill(run.folder)


def open_finetune(page: Page) -> None:
    page.wait_for_selector("#facts p, #facts strong")
    open_tab(page, "Fine-tune")
    expect(page.locator("#run-table")).to_be_visible()


def bring(page: Page, photos: Path) -> None:
    page.locator("#finetune input[type=file]").first.set_input_files(photos)


def choose_start(page: Page, name: str) -> None:
    page.locator("#run-start input").click()
    page.get_by_role("option", name=name, exact=True).click()


def status(page: Page) -> Locator:
    return page.locator("#run-status")


def start(page: Page, photos: Path, source: str, name: str) -> None:
    """Fill the form and start; leaves the rest of the form as it is."""
    bring(page, photos)
    choose_start(page, source)
    page.get_by_label("Name of the new model").fill(name)
    expect(page.locator("#run-command textarea")).to_have_value(re.compile(f"--name {name}"))
    page.get_by_role("button", name="Start", exact=True).click()


def points(page: Page) -> int:
    """How many steps the live curve shows."""
    curve = page.locator("#run-curves path.raw")
    return str(curve.first.get_attribute("d") or "").count("L") if curve.count() else 0


def learning(page: Page, more_than: int = 0) -> None:
    page.wait_for_function(
        """n => (document.querySelector("#run-curves path.raw")?.getAttribute("d") ?? "")
            .split("L").length > n""",
        arg=more_than + 3,
        timeout=SOON,
    )


def test_teach_watch_and_classify(
    visit: Visiting, server: Server, photos: Path, shared_data: Path, tmp_path: Path
) -> None:
    other = visit().page  # open before, and left alone
    page = visit().page
    open_finetune(page)
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    start(page, photos, "pizza-steak-sushi", "taught")
    command = page.locator("#run-command textarea").input_value()
    expect(status(page)).to_contain_text("taught", timeout=SOON)
    expect(status(page)).to_contain_text("finished", timeout=WHOLE)
    expect(status(page)).to_contain_text("of 6 test photos right")
    assert points(page) > 5
    expect(page.locator("#run-table")).to_contain_text("taught")
    expect(page.locator("#results-verdict")).to_contain_text("right", timeout=SOON)

    # what the copied command gives is what the page says
    typed = shlex.split(command)
    assert typed[:2] == ["python", "train.py"]
    home = os.environ | {"VIT_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *typed[1:], "--quiet"], cwd=ROOT, env=home, check=True)
    typed_card = read_card(tmp_path / "checkpoints" / "taught.safetensors")
    shown = read_card(server.home / "checkpoints" / "taught.safetensors")
    assert dict(typed_card.metrics) == dict(shown.metrics)
    test = shown.metrics["test"]
    expect(status(page)).to_contain_text(f"{test.correct} of {test.total} test photos right")

    # chosen for who taught it; for others it is there, and their choice stays
    expect(page.locator("#checkpoint input")).to_have_value("taught")
    page.get_by_role("tab", name="Classify").click()
    pizza = shared_data / "pizza_steak_sushi" / "test" / "pizza" / "1152100.jpg"
    page.locator("#photo input[type=file]").set_input_files(pizza)
    expect(page.locator("#result .dishes li").first).to_contain_text("Pizza", timeout=SOON)
    expect(page.locator("#facts")).to_contain_text("3 dishes")
    chosen = other.locator("#checkpoint input").input_value()
    assert chosen != "taught"
    other.locator("#checkpoint input").click()
    expect(other.get_by_role("option", name="taught", exact=True)).to_be_visible()
    other.keyboard.press("Escape")
    expect(other.locator("#checkpoint input")).to_have_value(chosen)


def test_reload_kill_resume_stop_and_strangers(
    visit: Visiting, server: Server, photos: Path
) -> None:
    this = visit()
    page = this.page
    open_finetune(page)
    page.get_by_label("everything").check()
    page.locator("#run-advanced").get_by_text("Advanced").click()
    page.locator("#set-epochs textarea").fill("5000")
    start(page, photos, "sure-of-nothing", "long")
    learning(page)
    before = points(page)
    learning(page, more_than=before)  # the curve grows
    expect(page.locator("#run-curves svg").first).to_have_attribute(
        "aria-label", re.compile("Loss over steps")
    )
    stop = page.get_by_role("button", name="Stop and keep the best")
    expect(stop).to_be_visible()

    # a stranger sees that it runs, and can neither stop nor rename nor delete it
    stranger = visit().page
    open_finetune(stranger)
    stranger.locator("#run-table").get_by_role("button", name="long", exact=True).click()
    expect(status(stranger)).to_contain_text("learning", timeout=SOON)
    expect(stranger.get_by_role("button", name="Stop and keep the best")).to_have_count(0)
    expect(stranger.locator("#run-manage")).to_be_hidden()

    # the page is closed and opened again in the same browser
    page.goto("about:blank")
    this.errors.clear()  # of what was under way
    page.goto(server.url)
    again = page
    open_finetune(again)
    expect(status(again)).to_contain_text("long", timeout=SOON)
    learning(again)

    folder = next(run.folder for run in Runs(server.home / "runs").all() if run.title == "long")
    os.killpg(int((folder / PROCESS).read_text()), signal.SIGKILL)
    expect(status(again)).to_contain_text("interrupted", timeout=SOON)
    expect(again.get_by_role("button", name="Stop and keep the best")).to_have_count(0)
    again.get_by_role("button", name="Go on").click()
    expect(status(again)).to_contain_text("learning", timeout=SOON)
    learning(again)
    again.get_by_role("button", name="Stop and keep the best").click()
    expect(status(again)).to_contain_text("the best weights are kept", timeout=WHOLE)
    expect(again.locator("#checkpoint input")).to_have_value("long")

    # curves over one another, another name, and away with it
    again.locator("#run-table").get_by_label("Compare long").check()
    expect(again.locator("#compare-curves")).to_contain_text("long")
    again.get_by_label("New name for the run that is open").fill("other dishes")
    again.get_by_role("button", name="Rename", exact=True).click()
    expect(status(again).locator("h3")).to_contain_text("other dishes")
    assert (server.home / "checkpoints" / "other dishes.safetensors").is_file()
    again.get_by_role("button", name="Delete …").click()
    again.get_by_role("button", name="Delete it and its model for good").click()
    expect(again.locator("#run-live")).to_be_hidden()
    expect(again.locator("#run-table")).not_to_contain_text("other dishes")
    assert not (server.home / "checkpoints" / "other dishes.safetensors").exists()


def test_what_cannot_be_started_is_said(visit: Visiting, tmp_path: Path, photos: Path) -> None:
    page = visit(390).page
    open_finetune(page)
    bring(page, photos)
    choose_start(page, "pizza-steak-sushi")
    page.get_by_label("Name of the new model").fill("pizza-steak-sushi")
    expect(page.locator("#run-about")).to_contain_text("bundled model")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    page.get_by_label("Name of the new model").fill("a/b")
    expect(page.locator("#run-about")).to_contain_text("cannot be a name")
    page.get_by_label("Name of the new model").fill("pasta 'n' more")
    expect(page.locator("#run-command textarea")).to_have_value(re.compile("pasta"))
    choose_start(page, "from scratch: Ti/16")
    expect(page.locator("#run-expect")).to_contain_text("Expect little")
    expect(page.locator("#run-command textarea")).to_have_value(re.compile("--from Ti/16"))
    page.locator("#run-advanced").get_by_text("Advanced").click()
    page.locator("#set-rate textarea").fill("fast")
    expect(page.locator("#run-about")).to_contain_text("Learning rate must be a number, got 'fast'")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_starting_a_run_is_not_public(server: Server) -> None:
    with urllib.request.urlopen(f"{server.url}gradio_api/info") as answer:
        endpoints = json.load(answer)["named_endpoints"]
    assert not [name for name in endpoints if re.search("begin|start|stop|run|delete", name)]


def payload(name: str, data: bytes) -> FilePayload:
    return {"name": name, "mimeType": "image/jpeg", "buffer": data}


def test_a_new_model_answers_for_the_photo_that_is_there(visit: Visiting, photos: Path) -> None:
    page = visit().page
    page.locator("#photo input[type=file]").set_input_files(payload("a.jpg", jpeg()))
    expect(page.locator("#result .dishes li").first).to_be_visible(timeout=SOON)
    open_finetune(page)
    page.get_by_label("everything").check()
    page.locator("#run-advanced").get_by_text("Advanced").click()
    page.locator("#set-epochs textarea").fill("1")
    start(page, photos, "sure-of-nothing", "quick")
    page.get_by_role("tab", name="Classify").click()  # the page goes on looking
    expect(page.locator("#checkpoint input")).to_have_value("quick", timeout=WHOLE)
    expect(page.locator("#result .dishes li")).to_have_count(3, timeout=SOON)
