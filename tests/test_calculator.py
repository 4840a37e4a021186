"""What a model costs on paper, against the model itself; and the rows of its table."""

import re
from dataclasses import replace

import pytest
import torch
from small import TINY
from torch.utils.flop_counter import FlopCounterMode

from vit.calculator import MEANING, Cost, Symbols, attention_memory, multiply_adds, parameters
from vit.model import PRESETS, ViT, ViTConfig
from vit.summary import layers
from vit.summary import multiply_adds as counted
from vit.ui.calculator import RANGES, Sizes, begin, costs_html, result, short, short_bytes

ODD = ViTConfig(
    (48, 32), (8, 4), width=48, depth=3, heads=3, mlp_width=80, classes=7, registers=4,
    representation=20, class_tokens=2, layer_scale=True,
)  # fmt: skip
TWO = replace(TINY, class_tokens=2)
CONFIGS = {
    "two class tokens": TWO,
    **{name: PRESETS[name] for name in ("Ti/16", "B/32")},
    "tiny": TINY,
    "odd": ODD,
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_sums_are_the_models(config: ViTConfig) -> None:
    with torch.device("meta"):
        model = ViT(config).eval()
        photo = torch.empty(1, 3, *config.image_size)
    assert parameters(config).total == sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(photo)
    assert 2 * multiply_adds(config).total == counter.get_total_flops()
    assert multiply_adds(config).total == counted(config)


def test_memory_is_that_of_the_maps() -> None:
    from vit.attention import attend

    model = ViT(ODD).eval()
    maps = attend(model, torch.zeros(1, 3, *ODD.image_size))[1]
    assert attention_memory(ODD).total == maps.nbytes


@pytest.mark.parametrize("cost", [parameters, multiply_adds, attention_memory])
def test_the_formulas_say_what_is_counted(cost) -> None:
    """Each formula, read as arithmetic, gives its number; so does the one with the numbers in."""
    made: Cost = cost(ODD)
    letters = {letter: getattr(Symbols.of(ODD), letter) for letter in MEANING}
    for line in made.lines:
        for text in (line.formula, line.numbers.replace(",", "")):
            assert re.fullmatch(r"[\w() +×]+", text)
            assert eval(text.replace("×", "*"), {}, letters) == line.value, line
        assert not re.search("[A-Za-z]", line.numbers)


def test_sliders() -> None:
    config, said = Sizes(230, 14, 384, 6, 6, 1536, 10).config(PRESETS["Ti/16"])
    assert config.image_size == (224, 224) and config.grid == (16, 16) and "224" in said
    assert "must be a multiple of heads" in result(PRESETS["Ti/16"], 224, 16, 200, 12, 3, 768, 10)
    html = result(PRESETS["Ti/16"], 224, 16, 192, 12, 3, 768, 1000)
    assert "5,717,416" in html and "1,253,683,200" in html  # those of ViT-Ti/16
    like, *updates, html = begin("B/16", ODD)
    assert like == PRESETS["B/16"] and len(updates) == len(RANGES) and "86,567,656" in html
    assert begin("the chosen model", ODD)[0] == ODD
    assert "class token, distillation token and 4 registers" in costs_html(ODD)
    hybrid = PRESETS["R50+B/16"]
    like, *_, html = begin("the chosen model", hybrid)
    assert like == replace(hybrid, stem=None) and "ResNet in front" in html


def test_short_numbers() -> None:
    assert [short(n) for n in (7, 5_717_416, 1.2537e9)] == ["7", "5.72 million", "1.25 billion"]
    assert [short_bytes(n) for n in (12, 5.6e6, 2e9)] == ["12 bytes", "5.6 MB", "2 GB"]


def test_rows_of_the_table() -> None:
    rows = layers(TINY)
    model = ViT(TINY)
    assert rows[0].parameters == sum(p.numel() for p in model.parameters())
    named = {(row.depth, row.name): row for row in rows}
    head = named[1, "head"]
    assert head.input == (1, TINY.width) and head.output == (1, TINY.classes)
    assert all(row.trainable for row in rows if row.parameters)
    frozen = {(row.depth, row.name): row.trainable for row in layers(TINY, head_only=True)}
    assert frozen[1, "head"] is True and frozen[1, "patch_embed"] is False
