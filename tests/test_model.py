"""The model: parity with torch's own modules and with timm, shapes, gradients, bad configs."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from vit.attention import explicit_attention
from vit.model import PRESETS, Attention, Block, ViT, ViTConfig, resize_positions

TINY = ViTConfig(
    image_size=(32, 48), patch_size=(8, 16), width=12, depth=2, heads=3, mlp_width=20, classes=5
)  # 4 rows of 3 patches


def random_weights(module: nn.Module, seed: int = 0) -> None:
    """Every weight random, so that none hides behind a zero or a one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.normal_(1.0 if "norm" in name else 0.0, 0.05, generator=generator)


def tiny(**changes: Any) -> ViT:
    model = ViT(replace(TINY, **changes))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) / 5)
    return model.eval()


def photos(count: int, height: int = 32, width: int = 48, seed: int = 2) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(seed))


def filled(config: ViTConfig, weights: dict[str, Tensor]) -> ViT:
    with torch.device("meta"):
        model = ViT(config)
    model.load_state_dict(weights, strict=True, assign=True)
    return model.eval()


# --- The same numbers as others ---------------------------------------------------------------


def test_attention_is_that_of_torch() -> None:
    ours, theirs = Attention(48, 4), nn.MultiheadAttention(48, 4, batch_first=True)
    random_weights(ours)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(ours.qkv.bias)
        theirs.out_proj.weight.copy_(ours.proj.weight)
        theirs.out_proj.bias.copy_(ours.proj.bias)
    tokens = 10 * torch.randn(3, 7, 48)
    expected, _ = theirs(tokens, tokens, tokens, need_weights=False)
    assert expected.std() > 0.1
    torch.testing.assert_close(ours(tokens), expected, atol=1e-5, rtol=0)


def test_block_is_that_of_torch() -> None:
    ours = Block(ViTConfig(width=48, heads=4, mlp_width=100))
    random_weights(ours)
    theirs = nn.TransformerEncoderLayer(
        48, 4, 100, 0.0, "gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )
    names = {
        "attn.qkv.weight": "self_attn.in_proj_weight",
        "attn.qkv.bias": "self_attn.in_proj_bias",
        "attn.proj": "self_attn.out_proj",
        "mlp.fc1": "linear1",
        "mlp.fc2": "linear2",
    }

    def renamed(name: str) -> str:
        return next((name.replace(a, b) for a, b in names.items() if name.startswith(a)), name)

    theirs.load_state_dict({renamed(name): value for name, value in ours.state_dict().items()})
    tokens = torch.randn(3, 7, 48)
    torch.testing.assert_close(ours(tokens), theirs(tokens), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("preset", "name"), [("Ti/16", "vit_tiny_patch16_224"), ("B/16", "vit_base_patch16_224")]
)
def test_logits_are_those_of_timm(preset: str, name: str) -> None:
    with torch.device("meta"):
        theirs = timm.create_model(name, pretrained=False)
    theirs = theirs.to_empty(device="cpu").eval()
    random_weights(theirs)
    ours = filled(PRESETS[preset], dict(theirs.state_dict()))
    images = photos(2 if preset == "Ti/16" else 1, 224, 224)
    with torch.inference_mode():
        expected = theirs(images)
        assert expected.std() > 0.1
        torch.testing.assert_close(ours(images), expected, atol=1e-4, rtol=0)


@pytest.fixture(scope="module")
def timm_any_size() -> nn.Module:
    model = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=7, dynamic_img_size=True)
    random_weights(model)
    return model.eval()


@pytest.mark.parametrize("size", [(224, 224), (160, 288), (400, 80), (16, 16), (384, 384)])
def test_other_sizes_are_those_of_timm(timm_any_size: nn.Module, size: tuple[int, int]) -> None:
    ours = filled(replace(PRESETS["Ti/16"], depth=2, classes=7), timm_any_size.state_dict())
    images = photos(1, *size)
    with torch.inference_mode():
        torch.testing.assert_close(ours(images), timm_any_size(images), atol=1e-4, rtol=0)


def test_representation_adds_its_names_only_when_there_is_one() -> None:
    assert not any("pre_logits" in name for name in ViT(TINY).state_dict())
    names = ViT(replace(TINY, representation=9)).state_dict()
    assert names["pre_logits.fc.weight"].shape == (9, 12)
    assert names["head.weight"].shape == (5, 9)


@pytest.mark.parametrize(
    ("preset", "parameters", "name"),
    [
        ("Ti/16", 5_717_416, "vit_tiny_patch16_224"),
        ("S/16", 22_050_664, "vit_small_patch16_224"),
        ("B/16", 86_567_656, "vit_base_patch16_224"),
        ("B/32", 88_224_232, "vit_base_patch32_224"),
        ("L/16", 304_326_632, "vit_large_patch16_224"),
        ("H/14", 632_045_800, "vit_huge_patch14_224"),
        ("R+Ti/16", 6_337_704, "vit_tiny_r_s16_p8_224"),
        ("R26+S/32", 36_431_912, "vit_small_r26_s32_224"),
        ("R50+B/16", 98_659_112, "vit_base_r50_s16_224"),
        ("R50+L/32", 328_994_856, "vit_large_r50_s32_224"),
    ],
)
def test_presets_have_the_published_sizes(preset: str, parameters: int, name: str) -> None:
    with torch.device("meta"):
        ours, theirs = ViT(PRESETS[preset]), timm.create_model(name, num_classes=1000)
    assert sum(weight.numel() for weight in ours.parameters()) == parameters
    shapes = {name: weight.shape for name, weight in ours.state_dict().items()}
    assert shapes == {name: weight.shape for name, weight in theirs.state_dict().items()}
    heads = {module.heads for module in ours.modules() if isinstance(module, Attention)}
    assert heads == {theirs.get_submodule("blocks.0.attn").num_heads}


def test_every_preset_is_tested() -> None:
    plain = {"Ti/16", "S/16", "B/16", "B/32", "L/16", "H/14"}
    assert set(PRESETS) == plain | {"R+Ti/16", "R26+S/32", "R50+B/16", "R50+L/32"}


# --- Worked out on paper ----------------------------------------------------------------------


def test_by_hand() -> None:
    """One block of width 2 on a picture of two pixels.

    LayerNorm of two numbers is (1, -1) or (-1, 1), by which is larger (to 1e-5 or so).
    tokens     class token (2, 0); red 3 green 1 -> (3, 1); red 0 green 2, moved by (1, 0) -> (1, 2)
    norm1      (1, -1), (1, -1), (-1, 1)
    scores     q k / sqrt(2) with q = (ln 2 / sqrt(2)) x, k = x: (ln 2 / 2) · (1, 1, -1)
    weights    in proportion to sqrt(2), sqrt(2), 1 / sqrt(2): 2/5, 2/5, 1/5
    values     (x, 5): mixed to (2/5 + 2/5 - 1/5, 5) = (0.6, 5)
    proj       (5 · 0.6, 5 - 1) = (3, 4), so the class token is (5, 4)
    norm2      scaled by (2, 1), moved by (0, 1): (2, 0)
    MLP        fc1: 2 / 2 = 1; GELU(1) = 0.8413447, the normal distribution up to 1;
               fc2: (8.413447, 1), so the class token is (13.413447, 5)
    norm       scaled by (3, 1), moved by (0, 4): (3, 3)
    head       (3 + 2 · 3 + 0.5, -3) = (9.5, -3)
    """
    model = ViT(ViTConfig((1, 2), (1, 1), width=2, depth=1, heads=1, mlp_width=1, classes=2))
    hand: dict[str, list] = {
        "cls_token": [[[2, 0]]],
        "pos_embed": [[[0, 0], [0, 0], [1, 0]]],
        "patch_embed.proj.weight": [[[[1]], [[0]], [[0]]], [[[0]], [[1]], [[0]]]],
        "patch_embed.proj.bias": [0, 0],
        "blocks.0.norm1.weight": [1, 1],
        "blocks.0.norm1.bias": [0, 0],
        "blocks.0.attn.qkv.weight": [
            [math.log(2) / math.sqrt(2), 0], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0],
        ],
        "blocks.0.attn.qkv.bias": [0, 0, 0, 0, 0, 5],
        "blocks.0.attn.proj.weight": [[5, 0], [0, 1]],
        "blocks.0.attn.proj.bias": [0, -1],
        "blocks.0.norm2.weight": [2, 1],
        "blocks.0.norm2.bias": [0, 1],
        "blocks.0.mlp.fc1.weight": [[0.5, 7]],
        "blocks.0.mlp.fc1.bias": [0],
        "blocks.0.mlp.fc2.weight": [[10], [0]],
        "blocks.0.mlp.fc2.bias": [0, 1],
        "norm.weight": [3, 1],
        "norm.bias": [0, 4],
        "head.weight": [[1, 2], [-1, 0]],
        "head.bias": [0.5, 0],
    }  # fmt: skip
    model.load_state_dict({k: torch.tensor(v, dtype=torch.float32) for k, v in hand.items()})
    picture = torch.tensor([[[[3.0, 0.0]], [[1.0, 2.0]], [[8.0, 9.0]]]])  # red, green, blue
    tokens = model.eval().embed(picture)
    assert tokens.tolist() == [[[2, 0], [3, 1], [1, 2]]]
    after = model.blocks[0](tokens)[0, 0]
    torch.testing.assert_close(after, torch.tensor([13.413447, 5.0]), atol=5e-4, rtol=0)
    torch.testing.assert_close(model(picture), torch.tensor([[9.5, -3.0]]), atol=1e-4, rtol=0)


# --- Batches, tokens, steps -------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"registers": 3}, {"representation": 6}])
def test_one_photo_and_many(changes: dict) -> None:
    model, images = tiny(**changes), photos(5)
    together = model(images)
    assert together.shape == (5, 5)
    assert together.std(0).min() > 1e-3  # the photos do differ
    for row, image in zip(together, images, strict=True):
        torch.testing.assert_close(model(image[None])[0], row, atol=1e-5, rtol=1e-5)
    assert model(images[:0]).shape == (0, 5)
    torch.testing.assert_close(model(images.flip(0)), together.flip(0), atol=1e-5, rtol=1e-5)


def test_class_token_is_one_for_any_batch() -> None:
    model = tiny()
    assert model.cls_token.shape == (1, 1, 12)
    firsts = model.embed(photos(4))[:, 0]
    assert torch.equal(firsts, (model.cls_token + model.pos_embed[:, :1])[0].expand(4, -1))


def test_tokens_lie_by_rows() -> None:
    """Only the patch whose pixels change gives another token."""
    model, image = tiny(), photos(1)
    changed = image.clone()
    changed[:, :, 8:16, 32:48] += 1  # second row, third column
    differs = (model.embed(image) != model.embed(changed)).any(-1)[0]
    assert differs.nonzero().flatten().tolist() == [1 + 1 * 3 + 2]


def test_registers_stand_behind_the_class_token() -> None:
    model = tiny(registers=2)
    assert model.num_prefix_tokens == 3
    assert model.grid == (4, 3)
    tokens = model.embed(photos(2))
    assert tokens.shape == (2, 3 + 12, 12)
    assert model.reg_token is not None
    assert torch.equal(tokens[1, 1:3], model.reg_token[0])
    plain = tiny()
    plain.load_state_dict(model.state_dict(), strict=False)
    same = plain.embed(photos(2))
    assert torch.equal(tokens[:, :1], same[:, :1])
    assert torch.equal(tokens[:, 3:], same[:, 1:])
    assert not torch.allclose(model(photos(2)), plain(photos(2)), atol=1e-3)  # they do take part


def test_three_steps_are_forward_and_patches_may_be_left_out() -> None:
    model, images = tiny(registers=1), photos(2)
    tokens = model.embed(images)
    everything = torch.arange(tokens.shape[1])
    assert torch.equal(model.classify(model.encode(tokens[:, everything])), model(images))
    some = tokens[:, [0, 1, 2, 5, 9]]
    assert model.encode(some).shape == (2, 5, 12)
    assert not torch.allclose(model.classify(model.encode(some)), model(images), atol=1e-3)
    # the order of the patches does not matter once their positions are added
    shuffled = torch.cat([torch.arange(2), 2 + torch.randperm(12)])
    logits = model.classify(model.encode(tokens[:, shuffled]))
    torch.testing.assert_close(logits, model(images), atol=1e-5, rtol=1e-5)


def test_the_last_norm_belongs_to_encode() -> None:
    model = tiny()
    with torch.no_grad():
        model.norm.weight.fill_(1)
        model.norm.bias.fill_(0)
    encoded = model.encode(model.embed(photos(2)))
    torch.testing.assert_close(encoded.mean(-1), torch.zeros(2, 13), atol=1e-5, rtol=0)


def test_representation_is_tanh() -> None:
    model = tiny(representation=6)
    tokens = model.encode(model.embed(photos(2)))
    fc = model.get_submodule("pre_logits.fc")
    torch.testing.assert_close(model.pool(tokens), torch.tanh(fc(tokens[:, 0])))


def test_explicit_attention_is_the_same_and_leaves_nothing_behind() -> None:
    model, images = tiny(), photos(2)
    places = [module for module in model.modules() if isinstance(module, Attention)]
    before, cores = model(images), [place.core for place in places]
    assert len(places) == TINY.depth
    with explicit_attention(model), explicit_attention(model):
        assert not any(place.core in cores for place in places)
        torch.testing.assert_close(model(images), before, atol=1e-5, rtol=1e-5)
    assert [place.core for place in places] == cores
    with pytest.raises(KeyError), explicit_attention(model):
        raise KeyError
    assert [place.core for place in places] == cores


# --- Training ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"registers": 2}, {"representation": 6}, {"registers": 1, "representation": 6}]
)
@pytest.mark.parametrize("size", [(32, 48), (16, 64)])
def test_every_parameter_gets_a_gradient(changes: dict, size: tuple[int, int]) -> None:
    model = tiny(**changes).train()
    targets = torch.tensor([0, 4, 2])
    nn.functional.cross_entropy(model(photos(3, *size)), targets).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert torch.isfinite(weight.grad).all(), name
        assert weight.grad.abs().max() > 0, name


def test_a_new_head_of_zeros_answers_uniformly() -> None:
    torch.manual_seed(0)
    model = ViT(TINY).eval()
    images = photos(3)
    assert torch.equal(model(images), torch.zeros(3, 5))
    tokens = model.encode(model.embed(images))
    assert tokens.std() > 0.1  # and it is the head alone
    assert model.pos_embed.std().item() == pytest.approx(0.02, rel=0.3)


def test_a_new_model_learns() -> None:
    torch.manual_seed(0)
    model, images, targets = ViT(TINY), photos(4), torch.tensor([0, 1, 2, 3])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model(images).argmax(1).tolist() == [0, 1, 2, 3]


def test_randomness_in_training_only() -> None:
    torch.manual_seed(0)
    model, images = tiny(dropout=0.5), photos(8)
    assert torch.equal(model(images), model(images))
    plain = ViT(TINY).eval()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(images), plain(images))
    model.train()
    assert not torch.equal(model(images), model(images))


# --- Positions for other grids ----------------------------------------------------------------


def positions(h: int, w: int, width: int = 4) -> Tensor:
    return torch.randn(1, 1 + h * w, width, generator=torch.Generator().manual_seed(3))


def test_equal_grids_return_the_same_tensor() -> None:
    learned = positions(3, 5)
    assert resize_positions(learned, (3, 5), (3, 5)) is learned


@pytest.mark.parametrize("grid", [(3, 5), (7, 7), (14, 14)])
@pytest.mark.parametrize("new", [(1, 1), (5, 3), (7, 11), (29, 13), (1, 31)])
def test_positions_for_any_rectangle(grid: tuple[int, int], new: tuple[int, int]) -> None:
    learned = positions(*grid)
    resized = resize_positions(learned, grid, new)
    assert resized.shape == (1, 1 + new[0] * new[1], 4)
    assert torch.equal(resized[:, 0], learned[:, 0])


def test_positions_keep_rows_and_columns_apart() -> None:
    """A slope along the rows stays one along the rows, and is flat along the columns."""
    slope = torch.arange(6.0)[:, None].expand(6, 4).reshape(1, 24, 1)
    learned = torch.cat([torch.full((1, 1, 1), 99.0), slope], dim=1)
    resized = resize_positions(learned, (6, 4), (11, 9))[0, 1:, 0].view(11, 9)
    assert (resized.diff(dim=0) > 0).all()
    torch.testing.assert_close(resized, resized[:, :1].expand(11, 9), atol=1e-5, rtol=0)
    assert resized.max() < 10  # the class token's 99 has not leaked in


def test_gradient_flows_through_resized_positions() -> None:
    learned = positions(4, 4).requires_grad_()
    resize_positions(learned, (4, 4), (7, 3)).square().sum().backward()
    assert learned.grad is not None
    assert (learned.grad.abs().sum(-1) > 0).all()


def test_half_precision_positions_keep_their_type() -> None:
    assert resize_positions(positions(4, 4).half(), (4, 4), (5, 5)).dtype == torch.float16


def test_positions_of_another_grid_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1 \+ 3 × 3 = 10 position embeddings, got 17"):
        resize_positions(positions(4, 4), (3, 3), (5, 5))


def test_other_sizes_than_the_native_one() -> None:
    model = tiny()
    assert model(photos(2, 16, 96)).shape == (2, 5)
    assert model.embed(photos(1, 56, 16)).shape == (1, 1 + 7 * 1, 12)


# --- What cannot be ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((1, 3, 33, 48), "33×48 pixels, which patches of 8×16"),
        ((1, 3, 32, 40), "32×40"),
        ((1, 3, 0, 48), "0×48"),
        ((1, 4, 32, 48), r"\(B, 3, H, W\), got \(1, 4, 32, 48\)"),
        ((3, 32, 48), r"\(B, 3, H, W\)"),
    ],
)
def test_pictures_that_do_not_fit(shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tiny()(torch.zeros(shape))


BAD_CONFIGS: list[tuple[str, object]] = [
    ("image_size", (225, 224)),
    ("image_size", (224,)),
    ("image_size", [224, 224]),
    ("image_size", 224),
    ("image_size", (224, -224)),
    ("image_size", (224.0, 224.0)),
    ("patch_size", (0, 16)),
    ("patch_size", ("16", "16")),
    ("width", 0),
    ("width", 191),
    ("width", "192"),
    ("width", True),
    ("width", 10**9),
    ("depth", -1),
    ("depth", 10**6),
    ("depth", 1.0),
    ("heads", 0),
    ("heads", 5),
    ("heads", None),
    ("mlp_width", 0),
    ("mlp_width", 10**12),
    ("classes", 0),
    ("classes", 10**9),
    ("representation", 0),
    ("representation", "tanh"),
    ("registers", -1),
    ("registers", 1.5),
    ("registers", False),
    ("stem", [3, 4, 9]),
    ("stem", (3, 0)),
    ("stem", (3, 4.0)),
    ("stem", (1, 1, 1, 1, 1)),
    ("stem", 50),
    ("class_tokens", 0),
    ("class_tokens", 3),
    ("class_tokens", True),
    ("layer_scale", 1e-5),
    ("layer_scale", None),
    ("patch_mean", 1),
    ("dropout", 1.0),
    ("dropout", -0.1),
    ("dropout", math.nan),
    ("dropout", "0.1"),
]


@pytest.mark.parametrize(("field", "value"), BAD_CONFIGS)
def test_bad_configs_name_the_field(field: str, value: object) -> None:
    bad: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"\\b{field}\\b"):
        ViTConfig(**bad)
    stored = ViTConfig().to_json() | bad
    if not isinstance(value, list):  # JSON has lists where the config has tuples
        with pytest.raises(ValueError, match=f"\\b{field}\\b"):
            ViTConfig.from_json(stored)


NEEDED = {"image_size", "patch_size", "width", "depth", "heads", "mlp_width", "classes"}


def test_config_through_json() -> None:
    config = replace(
        PRESETS["R26+S/32"],
        registers=2,
        representation=4,
        class_tokens=2,
        layer_scale=True,
        patch_mean=True,
    )
    assert ViTConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    older = {**config.to_json(), "drop_path": 0.1}  # files of before it was training's alone
    assert ViTConfig.from_json(older) == config
    with pytest.raises(ValueError, match="colour is unknown"):
        ViTConfig.from_json({**config.to_json(), "colour": 1})
    for field in config.to_json():
        rest = {k: v for k, v in config.to_json().items() if k != field}
        if field not in NEEDED:  # files of before there was such a field go on being read
            plain = getattr(ViTConfig(), field)
            assert ViTConfig.from_json(rest) == replace(config, **{field: plain})
            continue
        with pytest.raises(ValueError, match=f"{field} is missing"):
            ViTConfig.from_json(rest)
    not_an_object: list[object] = [None, [], "x", 3]
    for value in not_an_object:
        with pytest.raises(ValueError, match="must be an object"):
            ViTConfig.from_json(value)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("stem", "step"), [((), 4), ((1,), 4), ((1, 1), 8), ((3, 4, 6, 3), 32)])
def test_patches_must_fill_the_map_behind_a_stem(stem: tuple[int, ...], step: int) -> None:
    fits = ViTConfig(image_size=(step, 2 * step), patch_size=(step, 2 * step), stem=stem)
    assert fits.grid == (1, 1)
    half = step // 2, step // 2
    with pytest.raises(ValueError, match=f"patch_size must be a multiple of {step} behind"):
        ViTConfig(image_size=half, patch_size=half, stem=stem)


def test_presets_are_fixed() -> None:
    with pytest.raises(TypeError):
        PRESETS["Ti/16"] = TINY  # pyright: ignore[reportIndexIssue]
    with pytest.raises(AttributeError):
        PRESETS["Ti/16"].width = 3  # pyright: ignore[reportAttributeAccessIssue]
