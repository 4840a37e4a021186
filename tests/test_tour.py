"""The guided tour: every number that it shows is the model's own."""

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from small import TINY
from torch import Tensor

from vit import checkpoint, guide
from vit.attention import attend
from vit.card import Card
from vit.classifier import Classifier
from vit.compared import ComparisonError, read_comparison
from vit.guide import Choice, Guided, first_choice
from vit.images import Preprocess, open_photo
from vit.lesson import Lesson, Table, decimal, excerpt, markdown, products
from vit.model import ViT, ViTConfig
from vit.tour import STOPS, as_markdown, stop
from vit.ui.compared import compared_html
from vit.ui.mathml import mathml
from vit.ui.tour_pictures import picture_html, stage_html
from vit.ui.tour_words import coloured, nav_html, numbers_html, words_html

REGISTERS = replace(TINY, image_size=(24, 40), registers=4)
MODELS: dict[str, tuple[ViTConfig, tuple[int, int]]] = {
    "plain": (TINY, (32, 32)),
    "registers, a rectangle": (REGISTERS, (24, 40)),
    "another grid than learned": (replace(TINY, registers=1), (48, 24)),
    "two class tokens": (replace(TINY, class_tokens=2, registers=2), (32, 32)),
    "layer scale": (replace(TINY, layer_scale=True), (32, 32)),
    "hybrid": (replace(TINY, stem=()), (32, 32)),
    "representation layer, one head": (replace(TINY, heads=1, representation=20), (32, 32)),
}


@pytest.fixture(scope="module", params=list(MODELS))
def this(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Guided:
    config, size = MODELS[request.param]
    return guided(tmp_path_factory.mktemp("tour"), config, size)


def guided(folder: Path, config: ViTConfig, size: tuple[int, int], **card: object) -> Guided:
    """A model with random weights, all of them, and a photo of noise."""
    torch.manual_seed(3)
    model = ViT(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    names = tuple(f"<i>dish_{number}" for number in range(config.classes))
    settings: dict = {"title": "random", "temperature": 1.7} | card
    made = Card(config, Preprocess(size, crop=0.8), names, **settings)
    path = checkpoint.save(folder / "random.safetensors", model, made, dtype=torch.float32)
    photo = folder / "noise.png"
    noise = torch.randint(0, 256, (60, 80, 3), dtype=torch.uint8)
    Image.fromarray(noise.numpy()).save(photo)
    return guide.guide(str(photo), path)


def photo_of(this: Guided) -> str:
    return str(this.inside.path.with_name("noise.png"))


class Watched:
    """What the model itself does with the photo, noted by torch's own hooks."""

    def __init__(self, this: Guided, block: int) -> None:
        self.model = this.model
        self.pixels = this.inside.preprocess.batch([this.inside.view])
        place = self.model.blocks[block]
        names = ("norm1", "norm2", "attn", "attn.core", "attn.proj", "mlp", "mlp.act", "")
        self.taken: dict[str, tuple[Tensor, ...]] = {}
        self.given: dict[str, Tensor] = {}
        hooks = [
            place.get_submodule(name).register_forward_hook(self._note(name)) for name in names
        ]
        with torch.no_grad():
            self.logits = self.model(self.pixels)[0]
        for hook in hooks:
            hook.remove()

    def _note(self, name: str):
        def hook(_module: object, taken: tuple[Tensor, ...], given: Tensor) -> None:
            self.taken[name], self.given[name] = taken, given

        return hook


CHOICES = [
    Choice(patch=4, block=0, head=1, number=3, neuron=7, dish=2),
    Choice(patch=7, block=1, head=2, number=40, neuron=90, dish=4, patch_asks=True),
]


def value(text: str) -> float:
    return float(text.replace("−", "-").replace(",", "").removesuffix(" %"))


def shown(lesson: Lesson, table: int, row: int, column: int = -1) -> float:
    return value(lesson.tables[table].rows[row][column])


def close(expected: Tensor | float, digits: int) -> object:
    return pytest.approx(float(expected), abs=0.6 * 10**-digits)


@pytest.mark.parametrize("choice", CHOICES, ids=["class token asks", "patch asks"])
def test_numbers_before_the_blocks(this: Guided, choice: Choice) -> None:
    at = choice.fitted(this)
    model, i, p, prefix = this.model, at.number, at.patch, this.walk.prefix
    size = this.inside.preprocess.size
    view = this.inside.preprocess.view(open_photo(photo_of(this)).image)
    pixels = this.inside.preprocess.batch([view])
    h, w = size[0] // model.config.patch_size[0], size[1] // model.config.patch_size[1]
    row, column = divmod(p, w)
    lesson = stop("crop").lesson(this, at)
    for channel in range(3):
        corner = pixels[0, channel, 8 * row, 8 * column]
        assert shown(lesson, 0, channel) == close(corner, 3)
    with torch.no_grad():
        features, tokens = model.patch_embed(pixels)[0], model.embed(pixels)[0]
    assert this.walk.grid == (h, w) and features.shape[1:] == (h, w)
    lesson = stop("patches").lesson(this, at)
    patch = pixels[0, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
    assert this.walk.pictured == (model.config.stem is None) != ("hybrid" in lesson.words[0])
    if this.walk.pictured:
        assert torch.equal(this.walk.pieces[p], patch.flatten())
        assert shown(lesson, 0, 1) == close(patch.min(), 3)
    lesson = stop("convolution").lesson(this, at)
    for line in (0, 1):  # matrix, convolution
        assert shown(lesson, 0, line) == close(features[i, row, column], 4)
    assert shown(lesson, 1, 0, 0) < 1e-4
    lesson = stop("flatten").lesson(this, at)
    assert shown(lesson, 0, 0) == shown(lesson, 0, 1) == close(features[i, row, column], 5)
    assert f"= [{p}, {i}]" in lesson.tables[0].rows[1][1]
    lesson = stop("positions").lesson(this, at)
    patch, place, total = lesson.tables[0].rows[0]
    assert value(patch) == close(features[i, row, column], 3)
    assert value(patch) + value(place) == pytest.approx(float(tokens[prefix + p, i]), abs=2e-3)
    assert value(total.split(" = ")[1]) == close(tokens[prefix + p, i], 3)
    assert dict(lesson.shapes)["tokens for the first block"] == tuple(tokens.shape)


@pytest.mark.parametrize("choice", CHOICES, ids=["class token asks", "patch asks"])
def test_numbers_in_a_block(this: Guided, choice: Choice) -> None:
    at = choice.fitted(this)
    seen = Watched(this, at.block)
    config, token, other = this.model.config, at.asks(this), at.asked(this)
    d, i, m, head = config.width // config.heads, at.number, at.neuron, at.head
    assert (token == 0) != at.patch_asks
    lesson = stop("norm").lesson(this, at)
    assert shown(lesson, 0, 2) == close(seen.given["norm1"][0, token, i], 4)
    q, k, v = (vectors[0, head] for vectors in seen.taken["attn.core"])
    lesson = stop("queries").lesson(this, at)
    assert lesson.tables[0].rows[0][1].startswith(decimal(q[token, 0].item()))
    assert shown(lesson, 1, 0) == close(q[token, i % d], 4)
    lesson = stop("scores").lesson(this, at)
    assert shown(lesson, 0, 2) == close(q[token] @ k[other], 4)
    assert shown(lesson, 0, 3) == close(q[token] @ k[other] / d**0.5, 4)
    maps = attend(this.model, seen.pixels)[1][at.block, 0, head, token]
    lesson = stop("softmax").lesson(this, at)
    best = maps.topk(5).values
    for rank, row in enumerate(lesson.tables[0].rows[:5]):
        assert value(row[3]) == close(100 * best[rank], 2)
    assert sum(value(row[3]) for row in lesson.tables[0].rows[:-1]) == pytest.approx(100, abs=0.05)
    lesson = stop("weighted").lesson(this, at)
    mixed = seen.given["attn.core"][0, head, token]
    parts = [value(row[2]) for row in lesson.tables[0].rows]
    assert parts[-1] == close(mixed[i % d], 4)
    assert sum(parts[:-1]) == pytest.approx(parts[-1], abs=1e-3)
    assert shown(lesson, 1, 0, 0) == close(mixed[i % d], 4) and shown(lesson, 1, 0) < 1e-5
    lesson = stop("heads").lesson(this, at)
    parts = [value(row[2]) for row in lesson.tables[0].rows]
    assert len(parts) == config.heads + 2
    assert parts[-1] == close(seen.given["attn"][0, token, i], 4)
    assert sum(parts[:-1]) == pytest.approx(parts[-1], abs=1e-3)
    lesson = stop("mlp").lesson(this, at)
    assert shown(lesson, 0, 0) == close(seen.taken["mlp.act"][0][0, token, m], 4)
    assert shown(lesson, 0, 1) == close(seen.given["mlp.act"][0, token, m], 4)
    lesson = stop("residual").lesson(this, at)
    assert shown(lesson, 0, 0) == close(seen.taken["norm2"][0][0, token, i], 3)
    assert shown(lesson, 0, 1) == close(seen.given[""][0, token, i], 3)


def test_numbers_of_the_answer(this: Guided) -> None:
    at = CHOICES[0].fitted(this)
    seen = Watched(this, 0)
    lesson = stop("blocks").lesson(this, at)
    assert len(lesson.tables[0].rows) == this.walk.depth
    for block, row in enumerate(lesson.tables[0].rows):
        leaving = Watched(this, block).given[""][0, 0]
        assert value(row[1]) == close(leaving.norm(), 1)
    lesson = stop("logits").lesson(this, at)
    assert shown(lesson, 1, 0) == close(seen.logits[at.dish or 0], 3)
    for rank, row in enumerate(lesson.tables[2].rows):
        if rank < 5:
            assert value(row[1]) == close(seen.logits.topk(5).values[rank], 4)
    prediction = Classifier.load(this.inside.path).classify(photo_of(this))
    lesson = stop("probabilities").lesson(this, at)
    for row, share in zip(lesson.tables[0].rows, prediction.probabilities, strict=False):
        assert value(row[3]) == close(100 * share, 2)
    assert shown(lesson, 1, 0) < 1e-5
    hot = stop("probabilities").lesson(this, replace(at, temperature=5.0))
    assert shown(hot, 0, 0) < shown(lesson, 0, 0)


def test_a_control_changes_what_is_shown(this: Guided) -> None:
    """Every control of every stop, where the model has more than one of its kind."""
    at = CHOICES[0].fitted(this)
    other = replace(
        at, patch=5, patch_asks=True, block=1, head=at.head - 1, number=9, neuron=11, dish=1,
        softness=0.5, temperature=3.0, batch=3,
    ).fitted(this)  # fmt: skip
    for each in STOPS:
        for name in each.controls:
            changed = replace(at, **{name: getattr(other, name)})
            if changed == at:  # one head
                continue
            if name == "patch" and "patch_asks" in each.controls and each.key != "scores":
                changed = replace(changed, patch_asks=True)
            before, after = (
                (each.lesson(this, a), stage_html(this, a, each), picture_html(this, a, each))
                for a in (at, changed)
            )
            assert before != after, (each.key, name)


def test_every_stop_in_words_pictures_and_code(this: Guided) -> None:
    for at in (first_choice(this), CHOICES[1].fitted(this)):
        for number, each in enumerate(STOPS, 1):
            lesson = each.lesson(this, at)
            assert lesson.words and lesson.equations and lesson.shapes and lesson.code
            for piece in lesson.code:
                assert any(meant for _, meant in piece.lines), (each.key, piece.where)
                text = html.unescape(re.sub("<[^>]+>", "", coloured(piece.text)))
                assert text == piece.text
            page = words_html(each, lesson) + numbers_html(lesson)
            page += stage_html(this, at, each) + picture_html(this, at, each)
            assert f"Stop {number} of {len(STOPS)}" in page and "<math" in page
            assert "nan" not in page.replace("banana", "").lower().split()
            assert "<i>dish" not in page.lower()  # a class may be called anything
            assert (each.key in page) and f'data-stop="{each.key}" aria-current' in nav_html(each)


def test_markdown(this: Guided) -> None:
    text = as_markdown(this, first_choice(this))
    for number, each in enumerate(STOPS, 1):
        assert f"## {number}. {each.title}" in text
    assert "$$" in text and "```python" in text and "<i>" not in text
    lesson = Lesson((), (), (), (Table("t", ("a",), (("x|y *z*",),)),), ())
    assert "x\\|y \\*z\\*" in markdown("1", "t", lesson)


def test_the_common_fault_is_shown_with_torchs_own_words(this: Guided) -> None:
    lesson = stop("class").lesson(this, replace(first_choice(this), batch=32))
    learned, _, alone = lesson.tables[0].rows
    width = this.model.cls_token.numel()
    assert value(learned[1]) == width and value(learned[2]) == 32 * width
    assert alone[1] == "works" and "Expected size 32 but got size 1" in alone[2]
    assert "batch_size" in lesson.aside[0] and "config" in lesson.aside[1]


def test_a_photo_is_walked_once(this: Guided, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*_: object) -> None:
        raise AssertionError("the model ran again")

    this.block(1)
    monkeypatch.setattr(guide, "walk", again)
    monkeypatch.setattr(guide, "walk_block", again)
    assert guide.guide(photo_of(this), this.inside.path) is this
    assert this.block(1) is this.block(1)


def test_a_backbone_names_no_dishes(tmp_path: Path) -> None:
    this = guided(tmp_path, TINY, (32, 32), trained_head=False)
    at = first_choice(this)
    for each in STOPS:
        page = numbers_html(each.lesson(this, at)) + picture_html(this, at, each)
        assert "%" not in page or each.part != "to the answer"
    assert "no trained head" in stop("probabilities").lesson(this, at).words[0]


def test_choices_are_made_to_fit(this: Guided) -> None:
    far = Choice(10**6, True, 99, 99, 10**6, 10**6, 99, 0.0, 1e9, 10**6).fitted(this)
    config = this.model.config
    assert far.patch == this.walk.patches - 1 and far.block == config.depth - 1
    assert far.head == config.heads - 1 and far.dish == config.classes - 1
    for each in STOPS:
        each.lesson(this, far)


def test_code_is_read_from_the_source() -> None:
    piece = excerpt(ViT.pool, "self.pre_logits(")
    assert piece.where == "vit/model.py, ViT.pool" and '"""' not in piece.text
    assert [line for line, meant in piece.lines if meant] == [piece.lines[1][0]]
    with pytest.raises(ValueError, match="no longer says 'nowhere'"):
        excerpt(ViT.pool, "nowhere")
    long = excerpt(ViT.__init__, "self.cls_token")
    assert long.lines[0][0].startswith("def __init__")
    assert len(long.lines) < 12


def test_products_are_written_out() -> None:
    one, other = torch.tensor([1.0, -2, 3, 4]), torch.tensor([0.5, 1, -1, 2])
    assert products(one, other) == (
        "1.000 × 0.500 + (−2.000) × 1.000 + 3.000 × (−1.000) + … 1 more"
    )


def test_equations() -> None:
    made = mathml(r"a_{j} = \frac{e^{s_{j}}}{\sum_{m} \sqrt{m}} \text{ or so}")
    assert "<mfrac>" in made and "<munder>" in made and "<msqrt>" in made
    assert made.count("<mrow>") == made.count("</mrow>")
    # Without a font for mathematics a browser stretches one bracket of a pair and not the other.
    assert mathml("f(x)").count('<mo stretchy="false">') == 2
    for wrong in (r"\unheard", r"\frac{1}", "a}"):
        with pytest.raises(ValueError):
            mathml(wrong)


COMPARISON = """{"title": "The same 225 photos", "note": "Why <b>data</b> matters.",
 "why": ["A photo has 196 patches."], "guess": 0.333, "rows": [
 {"name": "from scratch", "what": "no weights before", "parameters": 5500000,
  "right": {"test photos": [{"correct": 31, "total": 75}, {"correct": 29, "total": 75}]},
  "command": "python train.py",
  "curve": [{"epoch": 1, "train": 1.1, "validation": 1.2},
            {"epoch": 2, "train": 1.0, "validation": 1.1}]},
 {"name": "pretrained", "what": "", "parameters": 5500000, "command": "python train.py --from",
  "right": {"test photos": [{"correct": 73, "total": 75}]}, "curve": []}]}"""


def test_comparison(tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    assert read_comparison(path) is None
    path.write_text(COMPARISON)
    found = read_comparison(path)
    assert found and found.rows[0].right["test photos"][1].correct == 29
    html = compared_html(found)
    assert "31/75" in html and "with other seeds 29" in html and "196 patches" in html
    assert "&lt;b&gt;" in html and html.count("<polyline") == 2
    path.write_text(COMPARISON.replace('[{"correct": 73, "total": 75}]', "[]"))
    with pytest.raises(ComparisonError, match="pretrained has no count"):
        read_comparison(path)
    path.write_text(COMPARISON.replace('"total": 75', '"total": 7'))
    with pytest.raises(ComparisonError, match="cannot be shown"):
        read_comparison(path)
