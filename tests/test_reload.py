"""A page that is loaded anew shows what it showed: its tab, its model and its photo."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gradio.utils import get_upload_folder
from playwright.sync_api import Browser, Page, expect
from serving import Server, open_tab
from test_browser import choose, first_dish, send
from test_every_tab import LEFT

from vit.ui.files import keep_file
from vit.ui.photo import sent_before

pytest_plugins = ["serving"]
expect.set_options(timeout=60_000)  # milliseconds; the machine may be busy

EXAMPLES = Path(__file__).parents[1] / "examples"
SHOWN = {
    "Classify": "#result .dishes li",
    "Patches": "#patch-about h3",
    "Attention": "#look-photo .frame img",
    "Fine-tune": "#finetune",
    "Model": "#tour-words h3",
}


@pytest.fixture(params=[1280, 390])
def page(chromium: Browser, server: Server, request: pytest.FixtureRequest) -> Iterator[Page]:
    errors = list[str]()
    page = chromium.new_page(viewport={"width": request.param, "height": 844})
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.goto(server.url)
    page.wait_for_selector("#facts strong")
    yield page
    page.close()
    assert not [said for said in errors if not any(word in said for word in LEFT)], errors


@pytest.mark.browser
def test_every_tab_survives_a_reload(page: Page) -> None:
    choose(page, "pizza-steak-sushi")
    send(page, EXAMPLES / "pizza_margherita.jpg")
    expect(first_dish(page)).to_contain_text("Pizza")
    for name, shown in SHOWN.items():
        open_tab(page, name)
        expect(page.locator(shown).first).to_be_visible()
        if name != "Classify":
            expect(page).to_have_url(re.compile(f"tab={name.lower()}"))
        page.reload()
        expect(page.locator("#facts")).to_contain_text("3 dishes")
        tab = page.get_by_role("tab", name=name, exact=True)
        expect(tab).to_have_attribute("aria-selected", "true")
        expect(page.locator(shown).first).to_be_visible()
    open_tab(page, "Classify")
    expect(first_dish(page)).to_contain_text("Pizza")
    page.locator("#photo button[aria-label*=emove], #photo button[aria-label*=lear]").first.click()
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    page.reload()
    expect(page.locator("#result")).to_contain_text("Which dish is it?")
    expect(page.locator("#photo img")).to_have_count(0)


def test_only_what_was_sent_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    assert get_upload_folder() == str(tmp_path)
    sent = Path(keep_file(b"photo", "photo.jpg"))
    assert sent_before(str(sent)) == str(sent)
    drawn = keep_file(b"drawn", "photo.jpg", "shown")
    link = sent.with_name("link.jpg")
    link.symlink_to("/etc/hostname")
    outside = tmp_path / "secret.jpg"
    outside.write_bytes(b"secret")
    others = (
        "",
        "x",
        "\0",
        str(outside),
        str(link),
        drawn,
        "/etc/hostname",
        f"{sent.parent}/../{sent.parent.name}/none.jpg",
        str(sent.parent),
        "x" * 100_000,
    )
    for other in others:
        assert isinstance(sent_before(other), dict), other
