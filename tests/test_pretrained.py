"""Weights of others: timm's files become our model; whatever else is refused in one sentence."""

import json
import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torchvision.models import ViT_B_16_Weights

from vit import checkpoint, weightfile
from vit.card import CheckpointError
from vit.classifier import Classifier, UntrainedHead
from vit.conventions import CONVENTIONS, preprocess_for
from vit.images import Preprocess
from vit.model import PRESETS, ViT, ViTConfig
from vit.pretrained import infer_config, read_weights
from vit.sources import read_from


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    """timm's ViT-Ti, two blocks deep, with random weights."""
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=7, img_size=32)
    nn.init.normal_(model.get_parameter("head.weight"))
    return model.eval()


@pytest.fixture
def state(theirs: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in theirs.state_dict().items()}


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_weights(path)
    text = str(caught.value)
    assert path.name in text
    assert "\n" not in text and len(text) < 700
    return text


def stored(path: Path, state: dict[str, Any], how: str) -> Path:
    if how == "safetensors":
        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=how == "zip")
    return path


@pytest.mark.parametrize("how", ["safetensors", "zip", "legacy"])
def test_timm_files_give_timm_logits(
    tmp_path: Path, theirs: nn.Module, state: dict[str, Tensor], how: str
) -> None:
    model, card = read_weights(stored(tmp_path / "tiny.v1.bin", state, how))
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(model(images), theirs(images), atol=1e-4, rtol=0)
    assert not model.training
    assert card.config == model.config
    assert (card.config.depth, card.config.heads, card.config.image_size) == (2, 3, (32, 32))
    assert card.classes == tuple(f"class_{number}" for number in range(7))
    assert card.trained_head
    assert card.title == "tiny"
    assert card.preprocess == Preprocess(size=(32, 32))
    assert all(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "module."])
def test_wrappings_of_training_programs(
    tmp_path: Path, state: dict[str, Tensor], wrapper: str
) -> None:
    if wrapper == "module.":
        wrapped: dict[str, Any] = {f"module.{name}": value for name, value in state.items()}
    else:
        wrapped = {wrapper: state, "epoch": 3}
    model, _ = read_weights(stored(tmp_path / "a.pth", wrapped, "zip"))
    assert torch.equal(model.head.weight, state["head.weight"])


def test_half_precision_becomes_single(tmp_path: Path, state: dict[str, Tensor]) -> None:
    half = {name: value.half() for name, value in state.items()}
    model, _ = read_weights(stored(tmp_path / "a.safetensors", half, "safetensors"))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert torch.equal(model.head.weight, half["head.weight"].float())


def test_length_of_the_header_is_not_taken_for_a_pickle(
    tmp_path: Path, state: dict[str, Tensor]
) -> None:
    """One length in 32 starts with the byte 0x80, as pickles do."""
    path = tmp_path / "a.safetensors"
    for filler in range(0, 264, 4):
        save_file(state, path, metadata={"note": "x" * filler})
        if path.read_bytes()[0] == 0x80:
            break
    assert path.read_bytes()[0] == 0x80
    model, _ = read_weights(path)
    assert torch.equal(model.head.weight, state["head.weight"])


def test_weights_share_no_memory(tmp_path: Path, state: dict[str, Tensor]) -> None:
    """Two names for one tensor, as torch.save keeps them, are two weights once read."""
    state["blocks.1.norm1.weight"] = state["blocks.0.norm1.weight"]
    model, _ = read_weights(stored(tmp_path / "a.pth", state, "zip"))
    with torch.no_grad():
        model.get_parameter("blocks.0.norm1.weight").add_(1)
    assert torch.equal(model.get_parameter("blocks.1.norm1.weight"), state["blocks.1.norm1.weight"])


def test_preprocessing_may_be_given(tmp_path: Path, state: dict[str, Tensor]) -> None:
    rules = Preprocess(size=(224, 224), mean=(0.4, 0.4, 0.4), interpolation="bilinear")
    _, card = read_weights(stored(tmp_path / "a.pth", state, "zip"), rules)
    assert card.preprocess == Preprocess((32, 32), mean=(0.4, 0.4, 0.4), interpolation="bilinear")


def test_without_a_head_it_cannot_answer(tmp_path: Path, state: dict[str, Tensor]) -> None:
    del state["head.weight"], state["head.bias"]
    model, card = read_weights(stored(tmp_path / "a.safetensors", state, "safetensors"))
    assert not card.trained_head
    path = checkpoint.save(tmp_path / "backbone.safetensors", model, card)
    with pytest.raises(UntrainedHead, match="fine-tune it first.*--from backbone"):
        Classifier.load(path).classify(b"")


def test_a_head_of_zeros_cannot_answer(tmp_path: Path, state: dict[str, Tensor]) -> None:
    state["head.weight"].zero_()
    model, card = read_weights(stored(tmp_path / "a.safetensors", state, "safetensors"))
    assert not card.trained_head
    assert len(card.classes) == 7
    path = checkpoint.save(tmp_path / "backbone.safetensors", model, card)
    with pytest.raises(UntrainedHead):
        Classifier.load(path).classify_many([b""])


def test_representation_layer_is_kept(tmp_path: Path, state: dict[str, Tensor]) -> None:
    state |= {
        "pre_logits.fc.weight": torch.randn(5, 192),
        "pre_logits.fc.bias": torch.randn(5),
        "head.weight": torch.randn(7, 5),
    }
    model, card = read_weights(stored(tmp_path / "a.safetensors", state, "safetensors"))
    assert card.config.representation == 5
    assert torch.equal(model.get_parameter("pre_logits.fc.bias"), state["pre_logits.fc.bias"])


@pytest.mark.parametrize("preset", ["Ti/16", "S/16", "B/16", "B/32", "L/16", "H/14"])
def test_config_from_shapes(preset: str) -> None:
    shapes = checkpoint.empty(PRESETS[preset]).state_dict()
    assert infer_config(shapes, "x") == PRESETS[preset]


# --- Refused ----------------------------------------------------------------------------------


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.mark,)


@pytest.mark.parametrize("how", ["zip", "legacy", "plain"])
def test_pickles_with_code_run_nothing(tmp_path: Path, state: dict[str, Tensor], how: str) -> None:
    path, mark = tmp_path / "a.pth", tmp_path / "it ran"
    held = {**state, "trap": Trap(mark)}
    if how == "plain":
        path.write_bytes(pickle.dumps({"trap": Trap(mark)}))
    else:
        stored(path, held, how)
    assert "neither a whole .safetensors file nor a torch file" in refusal(path)
    assert not mark.exists()


def test_a_whole_pickled_model_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "a.pth")
    assert "save the model's state dict" in refusal(tmp_path / "a.pth")


def test_pickles_inside_npz_run_nothing(tmp_path: Path) -> None:
    """Neither as an array of objects, nor beside arrays, nor under an array's name."""
    path, mark = tmp_path / "a.npz", tmp_path / "it ran"
    np.savez(path, cls=np.array([Trap(mark)], dtype=object))
    assert "allow_pickle=False" in refusal(path)
    np.savez(path, cls=np.ones(3))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a/data.pkl", pickle.dumps(Trap(mark)))
    refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cls.npy", pickle.dumps(Trap(mark)))
    refusal(path)
    assert not mark.exists()


def test_an_npz_that_unpacks_to_far_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weightfile, "MAX_BYTES", 10_000)
    np.savez_compressed(tmp_path / "a.npz", cls=np.zeros(10**5))
    assert "it unpacks to" in refusal(tmp_path / "a.npz")


def test_brain_floats_in_an_npz(tmp_path: Path) -> None:
    values = torch.randn(3, 4).bfloat16()
    raw = values.view(torch.int16).numpy().view("V2")
    np.savez(tmp_path / "a.npz", cls=raw)
    assert torch.equal(weightfile.read_tensors(tmp_path / "a.npz")["cls"], values)


@pytest.mark.parametrize("how", ["safetensors", "zip", "legacy"])
def test_truncated(tmp_path: Path, state: dict[str, Tensor], how: str) -> None:
    data = stored(tmp_path / "a.pth", state, how).read_bytes()
    for length in [0, 1, 3, 8, 9, 50, len(data) // 2, len(data) - 1]:
        (tmp_path / "a.pth").write_bytes(data[:length])
        refusal(tmp_path / "a.pth")


@pytest.mark.parametrize(
    "held", [[], {}, 3, {"a": 1}, {1: torch.ones(2)}, {"model": None}, torch.ones(2)]
)
def test_torch_files_without_weights(tmp_path: Path, held: object) -> None:
    torch.save(held, tmp_path / "a.pth")
    refusal(tmp_path / "a.pth")


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Pizza, pho and crème brûlée are three dishes. " * 20)
    refusal(tmp_path / "a.txt")
    np.savez(tmp_path / "a.npz", weights=np.ones(3))
    assert "no patch_embed.proj.weight" in refusal(tmp_path / "a.npz")
    refusal(tmp_path)
    assert "check the path" in refusal(tmp_path / "none.pth")


def changed(state: dict[str, Tensor], name: str, value: Tensor | None) -> dict[str, Tensor]:
    rest = {key: tensor for key, tensor in state.items() if key != name}
    return rest if value is None else rest | {name: value}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("pos_embed", None, "no pos_embed of 3 axes"),
        ("pos_embed", torch.ones(5, 192), "no pos_embed of 3 axes"),
        ("pos_embed", torch.ones(1, 8, 192), "8 position embeddings"),
        ("pos_embed", torch.ones(1, 0, 192), "0 position embeddings"),
        ("pos_embed", torch.ones(1, 1, 192), "image_size"),
        ("patch_embed.proj.weight", torch.ones(192, 768), "of 4 axes"),
        ("patch_embed.proj.weight", torch.ones(192, 1, 16, 16), "expected (192, 3, 16, 16)"),
        ("patch_embed.proj.weight", torch.ones(200, 3, 16, 16), "multiple of heads"),
        ("blocks.0.mlp.fc1.weight", None, "blocks.0.mlp.fc1.weight"),
        ("blocks.1.attn.qkv.bias", None, "1 missing (blocks.1.attn.qkv.bias)"),
        ("blocks.999999999.norm1.bias", torch.ones(192), "surplus"),
        ("blocks.0.ls1.gamma", torch.ones(192), "3 missing (blocks.0.ls2.gamma, blocks.1.ls1.gamm"),
        ("fc_norm.weight", torch.ones(192), "1 surplus (fc_norm.weight)"),
        ("blocks.0.mlp.w12.weight", torch.ones(8, 192), "gated linear layers (SwiGLU)"),
        ("dist_token", torch.ones(3), "do not go together"),
        ("head_dist.weight", torch.ones(3, 192), "do not go together"),
        ("head.bias", None, "1 missing (head.bias)"),
        ("head.bias", torch.ones(8), "head.bias is (8,), expected (7,)"),
        ("head.bias", torch.ones(7, dtype=torch.int64), "whole or sparse"),
        ("norm.bias", torch.full((192,), torch.nan), "norm.bias has values that are not finite"),
        ("reg_token", torch.ones(3), "registers or heads have shapes that do not go together"),
        ("head.weight", torch.ones(0, 192), "classes"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, state: dict[str, Tensor], name: str, value: Tensor | None, text: str
) -> None:
    path = stored(tmp_path / "a.safetensors", changed(state, name, value), "safetensors")
    assert text in refusal(path)


def test_a_sparse_weight_is_refused(tmp_path: Path, state: dict[str, Tensor]) -> None:
    path = stored(
        tmp_path / "a.pth", changed(state, "head.weight", torch.eye(7, 192).to_sparse()), "zip"
    )
    refusal(path)


# --- Heads, names and preprocessing --------------------------------------------------------------


def test_heads_may_be_stated(tmp_path: Path, state: dict[str, Tensor]) -> None:
    path = stored(tmp_path / "a.pth", state, "zip")
    model, card = read_weights(path, heads=6)
    assert model.config.heads == card.config.heads == 6
    with pytest.raises(CheckpointError, match="multiple of heads"):
        read_weights(path, heads=5)
    odd = changed(state, "patch_embed.proj.weight", torch.ones(200, 3, 16, 16))
    assert "state their number with --heads" in refusal(stored(tmp_path / "b.pth", odd, "zip"))


def beside(folder: Path, name: str = "config.json", **values: Any) -> None:
    (folder / name).write_text(json.dumps(values))


def test_config_beside_the_file_names_classes_heads_and_preprocessing(
    tmp_path: Path, state: dict[str, Tensor]
) -> None:
    path = stored(tmp_path / "model.safetensors", state, "safetensors")
    dishes = {str(number): f"dish {number}" for number in range(7)}
    ours: dict[str, Any] = {"model_type": "vit", "hidden_size": 192, "num_hidden_layers": 2}
    beside(tmp_path, **ours, num_attention_heads=6, id2label=dishes)
    beside(
        tmp_path,
        "preprocessor_config.json",
        size={"shortest_edge": 40},
        crop_size={"height": 32, "width": 32},
        do_center_crop=True,
        resample=2,
        image_mean=[0.4, 0.4, 0.4],
        image_std=[0.2, 0.2, 0.2],
    )
    _, card = read_weights(path)
    assert card.classes == tuple(dishes.values()) and card.config.heads == 6
    assert card.preprocess == Preprocess(
        (32, 32), 0.8, interpolation="bilinear", mean=(0.4, 0.4, 0.4), std=(0.2, 0.2, 0.2)
    )
    wider: dict[str, Any] = ours | {"hidden_size": 768}
    beside(tmp_path, **wider, id2label=dishes)
    _, card = read_weights(path)
    assert card.classes[0] == "class_0" and "of another model" in card.training["notes"][0]
    beside(tmp_path, **ours, hidden_act="quick_gelu")
    with pytest.raises(CheckpointError, match="only GELU can be read"):
        read_weights(path)
    beside(tmp_path, model_type="bert", hidden_act="relu", id2label=dishes)
    assert read_weights(path)[1].classes[0] == "class_0"


def test_timm_config_beside_the_file(tmp_path: Path, state: dict[str, Tensor]) -> None:
    path = stored(tmp_path / "model.safetensors", state, "safetensors")
    said = {"input_size": [3, 32, 32], "crop_pct": 1.0, "mean": [0.1] * 3, "std": [0.2] * 3}
    beside(tmp_path, architecture="vit_tiny_patch16_224", pretrained_cfg=said)
    expected = Preprocess((32, 32), 1.0, mean=(0.1, 0.1, 0.1), std=(0.2, 0.2, 0.2))
    assert read_weights(path)[1].preprocess == expected
    assert read_from(str(tmp_path))[1].preprocess == expected  # the folder stands for its weights


@pytest.mark.parametrize("text", ["", "[", "[1]", '"x"', '{"model_type": []}', '{"id2label": 3}'])
def test_a_config_that_is_none_is_passed_over(
    tmp_path: Path, state: dict[str, Tensor], text: str
) -> None:
    path = stored(tmp_path / "model.safetensors", state, "safetensors")
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "preprocessor_config.json").write_text(text)
    assert read_weights(path)[1].classes[0] == "class_0"


@pytest.mark.parametrize(
    ("convention", "size", "expected"),
    [
        ("augreg", (224, 224), Preprocess()),
        ("augreg", (384, 384), Preprocess((384, 384), 1.0)),
        ("dinov2", (518, 518), replace(CONVENTIONS["deit"], size=(224, 224))),
        ("swag", (384, 384), replace(CONVENTIONS["swag"], size=(384, 384), crop=1.0)),
    ],
)
def test_ways_to_see_photos(convention: str, size: tuple[int, int], expected: Preprocess) -> None:
    assert preprocess_for(convention, size) == expected


def test_many_classes_get_numbers(tmp_path: Path, state: dict[str, Tensor]) -> None:
    state |= {"head.weight": torch.ones(21843, 192), "head.bias": torch.ones(21843)}
    _, card = read_weights(stored(tmp_path / "a.pth", state, "zip"))
    assert card.classes[0] == "class_0" and card.classes[-1] == "class_21842"


# --- ImageNet ---------------------------------------------------------------------------------


def test_imagenet_names_are_a_thousand_and_all_different(tmp_path: Path) -> None:
    theirs = timm.create_model("vit_tiny_patch16_224", depth=1, img_size=16)
    nn.init.ones_(theirs.get_parameter("head.weight"))
    _, card = read_weights(stored(tmp_path / "a.pth", theirs.state_dict(), "zip"))
    assert len(card.classes) == len(set(card.classes)) == 1000
    assert card.classes == tuple(ViT_B_16_Weights.IMAGENET1K_V1.meta["categories"])
    assert card.classes[963] == "pizza"
    assert card.classes[134] != card.classes[517]
    assert card.classes[0] == "tench" and card.classes[999] == "toilet tissue"


def test_real_weights_give_timm_logits(imagenet_weights: Path) -> None:
    ours, card = read_weights(imagenet_weights)
    assert card.config == PRESETS["Ti/16"]
    assert card.trained_head
    assert card.classes[963] == "pizza"
    with torch.device("meta"):
        theirs = timm.create_model("vit_tiny_patch16_224")
    weights = {name: value.float() for name, value in load_file(imagenet_weights).items()}
    theirs.load_state_dict(weights, strict=True, assign=True)
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = theirs.eval()(images)
        assert expected.std() > 0.5
        torch.testing.assert_close(ours(images), expected, atol=1e-4, rtol=0)


def test_a_torch_file_named_safetensors_is_read_by_its_content(tmp_path: Path) -> None:
    model = ViT(ViTConfig((32, 32), (16, 16), width=64, depth=1, heads=1, mlp_width=64, classes=2))
    torch.nn.init.normal_(model.head.weight)
    path = tmp_path / "saved.safetensors"
    torch.save(model.state_dict(), path)
    read, _ = read_weights(path)
    assert torch.equal(read.head.weight, model.head.weight)
