"""Hybrids, DeiT's distilled models, DINOv2, and models with a representation layer: the logits of
timm, at native size and others, and everything that the plain model can do."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from small import TINY, photos, run, tiny_start
from torch import Tensor, nn

from vit import checkpoint
from vit.attention import attend, class_relevance
from vit.card import CheckpointError
from vit.explain import predictions_after_each_block, without_heads, without_patches
from vit.hybrid import StdConv2d
from vit.inside import inside
from vit.looking import Question, look_at
from vit.maps import speaks_for
from vit.model import PRESETS, ViT, ViTConfig
from vit.patches import filters, most_trusted, principal_filters, read
from vit.readings import heat_of, relevance_of
from vit.recipe import Recipe
from vit.relatives import adopted
from vit.reports import Finished
from vit.start import read_start
from vit.summary import ledger, multiply_adds, prefix_names, table

DISTILLED = replace(PRESETS["Ti/16"], class_tokens=2)
DINO = replace(PRESETS["S/16"], image_size=(518, 518), patch_size=(14, 14), layer_scale=True)
BASE = PRESETS["B/16"]
LARGE_DINO = replace(
    PRESETS["L/16"], image_size=(518, 518), patch_size=(14, 14), layer_scale=True, registers=4
)


def timm_model(name: str, **changes: Any) -> nn.Module:
    """timm's model of this name with random weights, none of them zero, one or as small as a new
    LayerScale's, and few blocks."""
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, dynamic_img_size=True, **changes).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in name or "gamma" in name:
                weight.copy_(1 + 0.1 * noise if name.endswith("weight") else 0.1 * noise)
            elif "backbone" not in name:
                weight.copy_(0.02 * noise)  # as timm draws them
            if "gamma" in name:
                weight.add_(0.5)
    return model


def filled(config: ViTConfig, weights: dict[str, Tensor]) -> ViT:
    with torch.device("meta"):
        model = ViT(config)
    model.load_state_dict(weights, strict=True, assign=True)
    return model.eval()


def pixels(count: int, height: int, width: int) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(2))


def same_logits(ours: ViT, theirs: nn.Module, images: Tensor) -> None:
    with torch.inference_mode():
        expected = theirs(images)
        assert expected.std() > 0.1
        torch.testing.assert_close(ours(images), expected, atol=1e-4, rtol=0)


SMALL = {
    "hybrid": replace(TINY, stem=(1,)),
    "root": replace(TINY, stem=()),
    "distilled": replace(TINY, class_tokens=2),
    "dinov2": replace(TINY, layer_scale=True, registers=4),
    "representation": replace(TINY, representation=10),
    "patch mean": replace(TINY, patch_mean=True, registers=1),
}
KINDS = pytest.mark.parametrize("kind", SMALL)


def small(kind: str) -> ViT:
    """A small model of the kind, with none of its weights at a value it starts from."""
    torch.manual_seed(5)
    model = ViT(SMALL[kind])
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) / 5)
    return model.eval()


# --- Hybrids ----------------------------------------------------------------------------------

HYBRIDS = {
    "R+Ti/16": "vit_tiny_r_s16_p8_224",
    "R26+S/32": "vit_small_r26_s32_224",
    "R50+B/16": "vit_base_r50_s16_224",
    "R50+L/32": "vit_large_r50_s32_224",
}


@pytest.fixture(scope="module", params=HYBRIDS)
def hybrid(request: pytest.FixtureRequest) -> tuple[ViT, nn.Module]:
    """Ours and timm's, with the whole ResNet and one block."""
    theirs = timm_model(HYBRIDS[request.param], depth=1, num_classes=5)
    config = replace(PRESETS[request.param], depth=1, classes=5)
    return filled(config, dict(theirs.state_dict())), theirs


@pytest.mark.parametrize("size", [(224, 224), (384, 384), (96, 160)])
def test_logits_of_hybrids_are_those_of_timm(
    hybrid: tuple[ViT, nn.Module], size: tuple[int, int]
) -> None:
    same_logits(*hybrid, pixels(1, *size))


def test_in_double_precision_hybrids_are_timm_s_to_the_last_digits(
    hybrid: tuple[ViT, nn.Module],
) -> None:
    """What is left in single precision is rounding: constants and padding are the same."""
    ours, theirs = (copy.deepcopy(model).double() for model in hybrid)
    images = pixels(1, 64, 96).double()
    with torch.inference_mode():
        torch.testing.assert_close(ours(images), theirs(images), atol=1e-10, rtol=0)


def test_filters_are_standardised_where_they_are_used() -> None:
    torch.manual_seed(0)
    conv = StdConv2d(3, 5, 7, stride=2)
    with torch.no_grad():
        conv.weight.mul_(torch.tensor([1, 3, 10, 0.1, 0])[:, None, None, None]).add_(2)
    used = conv.standardised()
    variance, mean = torch.var_mean(used, (1, 2, 3), correction=0)
    torch.testing.assert_close(mean, torch.zeros(5), atol=1e-4, rtol=0)
    torch.testing.assert_close(variance, torch.tensor([1.0, 1, 1, 1, 0]), atol=1e-3, rtol=0)
    conv(torch.randn(1, 3, 8, 8)).square().sum().backward()
    assert conv.weight.grad is not None
    assert conv.weight.grad.isfinite().all()  # also of the filter that is constant


def test_a_new_hybrid_starts_as_its_shortcuts() -> None:
    torch.manual_seed(0)
    embed = ViT(replace(SMALL["hybrid"], stem=(2,))).patch_embed
    shorter = ViT(SMALL["hybrid"]).patch_embed
    missing, surplus = shorter.load_state_dict(embed.state_dict(), strict=False)
    assert not missing and {name.split(".")[4] for name in surplus} == {"1"}
    images = pixels(1, 16, 16)
    torch.testing.assert_close(embed(images), shorter(images))


# --- DeiT, distilled --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def distilled() -> tuple[ViT, nn.Module]:
    theirs = timm_model("deit_tiny_distilled_patch16_224", depth=2, num_classes=7)
    return filled(replace(DISTILLED, depth=2, classes=7), adopted(theirs.state_dict())), theirs


@pytest.mark.parametrize("size", [(224, 224), (384, 384), (80, 240)])
def test_logits_of_distilled_models_are_those_of_timm(
    distilled: tuple[ViT, nn.Module], size: tuple[int, int]
) -> None:
    same_logits(*distilled, pixels(2, *size))


# --- DINOv2 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[0, 4])
def dino(request: pytest.FixtureRequest) -> tuple[ViT, nn.Module]:
    name = f"vit_small_patch14_{'reg4_' if request.param else ''}dinov2"
    theirs = timm_model(name, depth=2, num_classes=7)
    config = replace(DINO, depth=2, classes=7, registers=request.param)
    return filled(config, adopted(theirs.state_dict())), theirs


@pytest.mark.parametrize("size", [(518, 518), (224, 224), (378, 140)])
def test_logits_of_dinov2_are_those_of_timm(
    dino: tuple[ViT, nn.Module], size: tuple[int, int]
) -> None:
    same_logits(*dino, pixels(1, *size))


def test_registers_with_positions_of_their_own_are_timm_s_too() -> None:
    theirs = timm_model(
        "vit_tiny_patch16_224", depth=1, img_size=32, reg_tokens=3, global_pool="token"
    )
    assert theirs.get_parameter("pos_embed").shape[1] == 1 + 3 + 2 * 2
    config = replace(PRESETS["Ti/16"], image_size=(32, 32), depth=1, registers=3)
    same_logits(filled(config, adopted(theirs.state_dict())), theirs, pixels(2, 32, 32))


@KINDS
def test_what_is_ours_needs_no_change(kind: str) -> None:
    weights = small(kind).state_dict()
    same = adopted(weights)
    assert same.keys() == weights.keys()
    assert all(same[name] is weights[name] for name in weights)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("deit_tiny_distilled_patch16_224", DISTILLED),
        ("deit_base_distilled_patch16_384", replace(BASE, image_size=(384, 384), class_tokens=2)),
        ("vit_small_patch14_dinov2", DINO),
        ("vit_small_patch14_reg4_dinov2", replace(DINO, registers=4)),
        ("vit_large_patch14_reg4_dinov2", LARGE_DINO),
    ],
)
def test_full_sizes_are_those_of_timm(name: str, config: ViTConfig) -> None:
    with torch.device("meta"):
        ours, theirs = ViT(config), timm.create_model(name, num_classes=1000)
        expected = adopted(theirs.state_dict())
    shapes = {name: weight.shape for name, weight in ours.state_dict().items()}
    assert shapes == {name: weight.shape for name, weight in expected.items()}


# --- What a plain model can do, they all can --------------------------------------------------


@KINDS
@pytest.mark.parametrize("size", [(32, 32), (16, 40)])
def test_every_parameter_gets_a_gradient(kind: str, size: tuple[int, int]) -> None:
    model = small(kind).train()
    nn.functional.cross_entropy(model(pixels(3, *size)), torch.tensor([0, 4, 2])).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().max() > 0, name


@KINDS
def test_a_new_one_learns(kind: str) -> None:
    torch.manual_seed(0)
    model, images, targets = ViT(SMALL[kind]), pixels(4, 32, 32), torch.tensor([0, 1, 2, 3])
    assert torch.equal(model(images), torch.zeros(4, 5))  # a head of zeros
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(25):
        loss = nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model(images).argmax(1).tolist() == [0, 1, 2, 3]


@KINDS
@pytest.mark.parametrize("size", [(32, 32), (16, 40)])
def test_attention_and_questions(kind: str, size: tuple[int, int]) -> None:
    model, images = small(kind), pixels(2, *size)
    grid, prefix, K = (size[0] // 8, size[1] // 8), model.num_prefix_tokens, len(model.cls_token[0])
    N = prefix + grid[0] * grid[1]
    with torch.no_grad():
        logits = model(images)
    answers, maps = attend(model, images)
    assert torch.equal(answers, logits)
    assert maps.shape == (2, 2, 3, N, N)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 3, N))
    explained, relevance = class_relevance(model, images, 3)
    torch.testing.assert_close(explained, logits)
    heat = speaks_for(relevance, K, prefix, grid)
    assert heat.shape == (2, *grid)
    assert heat.flatten(1).std(1).min() > 0
    torch.testing.assert_close(predictions_after_each_block(model, images)[-1], logits)
    everything = torch.ones(grid, dtype=torch.bool)
    torch.testing.assert_close(without_patches(model, images, everything), logits)
    few = everything.clone()
    few[0] = False
    assert not torch.allclose(without_patches(model, images, few), logits, atol=1e-3)
    with torch.no_grad():
        assert not torch.allclose(without_heads(model, [(0, 1)])(images), logits, atol=1e-3)
    assert len(most_trusted(model, images[:1], 0.25)) == max(1, round(grid[0] * grid[1] / 4))


def test_two_class_tokens_speak_together() -> None:
    """Relevance of a distilled model is that of both tokens; swapped, with the head, it stays."""
    model, images = small("distilled"), pixels(1, 32, 32)
    _, relevance = class_relevance(model, images, 1)
    heat = speaks_for(relevance, 2, 2, (4, 4))
    torch.testing.assert_close(heat.flatten(), relevance[0, :2, 2:].mean(0))
    assert not torch.allclose(heat.flatten(), relevance[0, 0, 2:], rtol=1e-2)
    with torch.no_grad():
        model.cls_token.copy_(model.cls_token.flip(1))
        model.pos_embed[:, :2] = model.pos_embed[:, :2].flip(1)
        halves = model.head.weight.chunk(2, 1)
        model.head.weight.copy_(torch.cat([halves[1], halves[0]], 1))
    swapped = speaks_for(class_relevance(model, images, 1)[1], 2, 2, (4, 4))
    torch.testing.assert_close(swapped, heat, atol=1e-5, rtol=1e-4)


@KINDS
@pytest.mark.parametrize("size", [(32, 32), (16, 40)])
def test_patches_are_read(kind: str, size: tuple[int, int]) -> None:
    model, images = small(kind), pixels(1, *size)
    reading, prefix = read(model, images), model.num_prefix_tokens
    assert (reading.prefix, reading.grid) == (prefix, (size[0] // 8, size[1] // 8))
    with torch.no_grad():
        tokens = model.embed(images)
        torch.testing.assert_close(reading.embedded + reading.positions, tokens[0, prefix:])
        torch.testing.assert_close(reading.encoded, model.encode(tokens)[0, prefix:])


@pytest.mark.parametrize("kind", ["hybrid", "root"])
def test_the_first_layer_of_a_hybrid_is_its_root(kind: str) -> None:
    model = small(kind)
    numbers, pictures = filters(model)
    assert numbers.tolist() == list(range(64))
    assert pictures.shape == (64, 7, 7, 3)
    name = "backbone.stem.conv" if kind == "hybrid" else "backbone.conv"
    root = model.patch_embed.get_submodule(name)
    assert isinstance(root, StdConv2d)
    shown = (pictures.permute(0, 3, 1, 2) - 0.5).flatten(1)
    angles = nn.functional.cosine_similarity(shown, root.standardised().flatten(1))
    torch.testing.assert_close(angles, torch.ones(64))
    assert principal_filters(model, 28)[0].shape == (28, 7, 7, 3)


# --- Numbers and words about them -------------------------------------------------------------


def shapes(config: ViTConfig) -> dict[str, tuple[int, ...]]:
    return {entry.name: entry.shape for entry in ledger(config)}


def test_ledger_of_a_hybrid() -> None:
    found = shapes(PRESETS["R50+B/16"])
    assert found["photo"] == (3, 224, 224)
    assert found["feature map"] == (1024, 14, 14)
    assert found["patches"] == (196, 1024)
    assert found["patch embedding"] == (196, 768)
    assert list(found).index("feature map") == 1
    assert shapes(PRESETS["R+Ti/16"])["patches"] == (49, 64 * 8 * 8)
    said = {entry.name: entry.what for entry in ledger(PRESETS["R+Ti/16"])}
    assert said["patches"] == "cut into 7 × 7 patches of 8 × 8 places of the map"
    assert "feature map" not in shapes(PRESETS["Ti/16"])


def test_ledger_of_the_others() -> None:
    found = shapes(DISTILLED)
    assert (found["tokens"], found["pooled"]) == ((198, 192), (384,))
    found = shapes(replace(PRESETS["Ti/16"], representation=99, registers=4))
    assert (found["tokens"], found["pooled"], found["representation"]) == (
        (201, 192), (192,), (99,),
    )  # fmt: skip
    assert "representation" not in shapes(PRESETS["Ti/16"])
    assert shapes(replace(DINO, patch_mean=True))["pooled"] == (768,)
    assert prefix_names(DINO) == "class token"
    assert prefix_names(replace(DINO, registers=1)) == "class token and 1 register"
    assert prefix_names(replace(DISTILLED, registers=4)) == (
        "class token, distillation token and 4 registers"
    )


def test_multiply_adds() -> None:
    """R+Ti/16 on paper: the root's 64 filters of 7 × 7 × 3 at 112 × 112 places, then a patch of
    8 × 8 × 64 numbers to 192 at 7 × 7; the rest is ViT-Ti's with 50 tokens in place of 197."""
    hybrid, plain = PRESETS["R+Ti/16"], PRESETS["Ti/16"]
    root, patches = 112**2 * 64 * 7 * 7 * 3, 7 * 7 * 192 * 8 * 8 * 64
    rest = multiply_adds(replace(plain, patch_size=(32, 32))) - 224 * 224 * 3 * 192
    assert multiply_adds(hybrid) == root + patches + rest
    head = replace(plain, class_tokens=2)
    more = multiply_adds(head) - multiply_adds(replace(plain, registers=1))
    assert more == 192 * 1000  # the head reads twice as much
    assert multiply_adds(replace(plain, patch_mean=True)) - multiply_adds(plain) == 192 * 1000
    one = replace(plain, representation=50)
    assert multiply_adds(one) - multiply_adds(plain) == 192 * 50 + (50 - 192) * 1000


@KINDS
def test_table_counts_every_parameter(kind: str) -> None:
    count = sum(weight.numel() for weight in ViT(SMALL[kind]).parameters())
    assert f"Total params: {count:,}" in table(SMALL[kind])


# --- Files, and training on from them ---------------------------------------------------------


@KINDS
def test_checkpoints_keep_them(kind: str, tmp_path: Path) -> None:
    path = tiny_start(tmp_path / "one.safetensors", SMALL[kind])
    model, card = checkpoint.load(path)
    assert card.config == model.config == SMALL[kind]
    again = checkpoint.save(tmp_path / "two.safetensors", small(kind), card, torch.float32)
    images = pixels(1, 32, 32)
    assert torch.equal(checkpoint.load(again)[0](images), small(kind)(images))


@pytest.mark.parametrize(
    ("claimed", "problem"),
    [
        ({"stem": [1]}, "missing (patch_embed.backbone"),
        ({"class_tokens": 2}, "cls_token is (1, 1, 48), expected (1, 2, 48)"),
        ({"layer_scale": True}, "4 missing (blocks.0.ls1.gamma"),
        ({"representation": 10}, "2 missing (pre_logits.fc.bias"),
        ({"layer_scale": 1}, "layer_scale must be true or false"),
        ({"stem": [1, 1]}, "patch_size must be a multiple of 8"),
    ],
)
def test_a_header_that_claims_too_much_is_refused(
    claimed: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    config = replace(TINY, image_size=(36, 36), patch_size=(4, 4)) if "stem" in claimed else TINY
    plain = tiny_start(tmp_path / "plain.safetensors", config)
    card = checkpoint.read_card(plain).to_json()
    card["model"] |= claimed
    path = tmp_path / "claims.safetensors"
    checkpoint.write_safetensors(
        path, checkpoint.load(plain)[0].state_dict(), {"vit": json.dumps(card)}
    )
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(path)
    assert problem in str(caught.value) and path.name in str(caught.value)


@pytest.fixture(scope="module")
def food(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos(tmp_path_factory.mktemp("food") / "photos", 6)


@KINDS
def test_a_new_head_is_taught_on_top(kind: str, food: Path, tmp_path: Path) -> None:
    """The head alone; what lies below, the representation layer too, stays as it was."""
    start = tiny_start(tmp_path / "start.safetensors", SMALL[kind])
    recipe = Recipe(
        str(food), start=str(start), mode="head", epochs=2, batch=4, rate=1e-2, val_fraction=0.25
    )
    finished = run(recipe, tmp_path / "run")[-1]
    assert isinstance(finished, Finished)
    model, card = checkpoint.load(finished.path)
    assert card.config == replace(SMALL[kind], classes=2)
    before = checkpoint.load(start)[0].half().float().state_dict()  # as the result is stored
    after = model.state_dict()
    assert {name for name in after if "head" not in name} == {
        name for name in before if "head" not in name and torch.equal(before[name], after[name])
    }
    assert model.head.weight.any()


@KINDS
def test_corners_are_relieved(kind: str, food: Path, tmp_path: Path) -> None:
    """Registers for a start that has none, or other ones."""
    start = tiny_start(tmp_path / "start.safetensors", SMALL[kind])
    recipe = Recipe(str(food), start=str(start), mode="all", registers=2)
    model = read_start(recipe)[0].new_model(("beans", "tomato"), recipe)
    K = model.config.class_tokens
    old = checkpoint.load(start)[0].pos_embed
    moved = (model.pos_embed != old).any(-1)[0].nonzero().flatten().tolist()
    assert moved == [K, K + 3]  # the upper corners of 4 × 4 patches, and no class token
    assert model(pixels(1, 32, 32)).shape == (1, 2)


@KINDS
def test_the_page_reads_and_explains_them(kind: str, food: Path, tmp_path: Path) -> None:
    path = tiny_start(tmp_path / "one.safetensors", SMALL[kind])
    photo = str(food / "tomato" / "000.png")
    this = inside(photo, path)
    assert this.grid == (4, 4)
    look = look_at(photo, path)
    config = SMALL[kind]
    for question in (Question(), Question("rollout", token=5), Question("mean", layer=1, by=True)):
        assert heat_of(look, question).shape == (4, 4)
    rows = relevance_of(look, look.predicted)[:, look.prefix :]
    read = rows[: config.class_tokens]
    if config.patch_mean:
        read = torch.stack([rows[0], rows[look.prefix :].mean(0)])
    expected = read.mean(0)
    torch.testing.assert_close(heat_of(look, Question()).flatten(), expected)


@KINDS
def test_what_the_page_says_of_patches_is_true(kind: str, food: Path, tmp_path: Path) -> None:
    from vit.ui.patch_words import brush_html, filters_html, grid_html, ledger_html, patch_html

    path = tiny_start(tmp_path / "one.safetensors", SMALL[kind])
    this = inside(str(food / "tomato" / "000.png"), path)
    hybrid = SMALL[kind].stem is not None
    words = grid_html(this, 5), patch_html(this, 5, "embedded"), brush_html(this, [1], 5)
    assert [("ResNet" in text) for text in words] == [hybrid] * 3
    assert ("192 numbers" in words[1]) != hybrid  # 8 × 8 pixels of three colours
    front = {
        "distilled": "token 7 of 0 to 17 (the class token and distillation token are 0 to 1)",
        "dinov2": "token 10 of 0 to 20 (the class token and 4 registers are 0 to 4)",
        "patch mean": "token 7 of 0 to 17 (the class token and 1 register are 0 to 1)",
    }
    assert front.get(kind, "token 6 of 0 to 16 (the class token is 0)") in words[1]
    filters = filters_html(path)
    assert ("All 64 filters" in filters and "ResNet's first layer" in filters) == hybrid
    assert ("feature map" in ledger_html(SMALL[kind], (32, 32))) == hybrid
