"""Each family of published models in the tabs that look inside, with a real browser."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
from homes import scatter
from playwright.sync_api import expect
from safetensors.torch import save_file
from serving import Server, Visit

from vit.pretrained import read_weights
from vit.sources import store

pytest_plugins = ["serving"]
pytestmark = pytest.mark.browser
expect.set_options(timeout=30_000)  # milliseconds; the machine may be busy

PIZZA = Path(__file__).parents[1] / "examples" / "pizza_margherita.jpg"
# name of ours: timm's name, its settings, heads, patches in a row
FAMILIES: dict[str, tuple[str, dict, int, int]] = {
    "hybrid": ("vit_tiny_r_s16_p8_224", {"embed_dim": 64, "num_heads": 1}, 1, 4),
    "distilled": ("deit_tiny_distilled_patch16_224", {}, 3, 8),
    "registers": ("vit_small_patch14_reg4_dinov2", {"img_size": 126}, 6, 9),
}


@pytest.fixture(scope="module")
def families(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Names of small random models of each family, in the picker for the length of this module."""
    paths = []
    for name, (source, settings, _, _) in FAMILIES.items():
        sizes: dict[str, Any] = {"depth": 2, "num_classes": 7, "img_size": 128} | settings
        theirs = scatter(timm.create_model(source, pretrained=False, **sizes))
        file = tmp_path_factory.mktemp(name) / "weights.safetensors"
        save_file({key: value.clone() for key, value in theirs.state_dict().items()}, file)
        model, card = read_weights(file)
        paths.append(server.home / "checkpoints" / f"{name}.safetensors")
        store(paths[-1], model, replace(card, title=name))
    yield list(FAMILIES)
    for path in paths:
        path.unlink()


def test_each_shows_its_patches_and_its_attention(
    visit: Callable[..., Visit], families: list[str]
) -> None:
    page = visit().page
    page.locator("#photo input[type=file]").set_input_files(PIZZA)
    page.wait_for_selector("#result .note")
    for name in families:
        _, _, heads, side = FAMILIES[name]
        page.locator("#checkpoint input").click()
        page.get_by_role("option", name=name, exact=True).click()
        expect(page.locator("#facts")).to_contain_text("7 classes")
        page.get_by_role("tab", name="Attention").click()
        expect(page.locator("#wall button")).to_have_count(2 * heads)
        frame = page.locator("#look-photo .frame")
        expect(frame).to_have_attribute("data-grid", f"{side} {side}")
        page.get_by_role("tab", name="Patches").click()
        expect(page.locator("#patch-grid svg")).to_be_visible()
        expect(page.locator(".trouble:visible")).to_have_count(0)
