"""Each family of published models: made by its own library, read by ours, the same logits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import transformers
from homes import agree, google_file, imported, pictures, scatter
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models import vision_transformer as tv

from vit.model import resize_positions
from vit.pretrained import read_weights
from vit.top import Top, below

SMALL: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 192,
    "image_size": 64,
    "patch_size": 16,
    "num_labels": 7,
}


NARROW = {"depth": 1, "embed_dim": 64, "num_heads": 1}


def timm_model(name: str, **changes: Any) -> nn.Module:
    settings = {"depth": 2, "num_classes": 7, "img_size": 64, "dynamic_img_size": True} | changes
    return scatter(timm.create_model(name, pretrained=False, **settings))


def saved(path: Path, model: nn.Module) -> Path:
    save_file({name: value.clone() for name, value in model.state_dict().items()}, path)
    return path


# --- timm ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        "vit_base_patch32_224",
        "deit_tiny_patch16_224",
        "deit_tiny_distilled_patch16_224",
    ],
)
def test_timm(tmp_path: Path, name: str) -> None:
    theirs = timm_model(name)
    agree(imported(saved(tmp_path / "a.safetensors", theirs)), theirs, (64, 64), (96, 64))


@pytest.mark.parametrize("name", ["vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"])
def test_dinov2_of_timm(tmp_path: Path, name: str) -> None:
    theirs = timm_model(name, img_size=70)
    model, card = read_weights(saved(tmp_path / "a.safetensors", theirs))
    assert card.preprocess.mean == (0.485, 0.456, 0.406)
    agree(model, theirs, (70, 70), (56, 84))


@pytest.mark.parametrize("name", ["vit_tiny_r_s16_p8_224", "vit_small_r26_s32_224"])
def test_hybrids_of_timm(tmp_path: Path, name: str) -> None:
    theirs = timm_model(name, **NARROW)
    agree(imported(saved(tmp_path / "a.safetensors", theirs)), theirs, (64, 64), (96, 64))


# --- Google -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "vit_tiny_r_s16_p8_224", "vit_base_r50_s16_224"]
)
def test_google_files_as_timm_reads_them(tmp_path: Path, name: str) -> None:
    path = google_file(tmp_path / "a.npz", timm_model(name, **NARROW))
    theirs = scatter(timm_model(name, **NARROW), seed=9)
    theirs.load_pretrained(path)  # pyright: ignore[reportCallIssue]
    model, card = read_weights(path)
    agree(model, theirs, (64, 64), (96, 64))
    assert card.training["layout"] == "Google's Flax files"
    assert "no representation layer" in " ".join(card.training["notes"])


def test_representation_layer_of_google_files(tmp_path: Path) -> None:
    """timm drops it; the expected logits are worked out by hand from timm's features."""
    theirs = timm_model("vit_tiny_patch16_224")
    path = google_file(tmp_path / "a.npz", theirs, pre_logits=24)
    held = {name: torch.from_numpy(value) for name, value in np.load(path).items()}

    def logits(images: Tensor) -> Tensor:
        token = theirs.forward_features(images)[:, 0]  # pyright: ignore[reportCallIssue]
        hidden = torch.tanh(token @ held["pre_logits/kernel"] + held["pre_logits/bias"])
        return hidden @ held["head/kernel"] + held["head/bias"]

    model, card = read_weights(path)
    agree(model, logits, (64, 64), (64, 96))
    assert card.config.representation == 24
    assert "is kept" in " ".join(card.training["notes"])


# --- Hugging Face -------------------------------------------------------------------------------


def huggingface(config: Any, kind: Any) -> Any:
    return scatter(kind(config))


@pytest.mark.parametrize("how", ["folder", "state dict"])
@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("ViTForImageClassification", transformers.ViTConfig),
        ("DeiTForImageClassification", transformers.DeiTConfig),
        ("DeiTForImageClassificationWithTeacher", transformers.DeiTConfig),
    ],
)
def test_transformers(tmp_path: Path, name: str, config: Any, how: str) -> None:
    theirs = huggingface(config(**SMALL), getattr(transformers, name))
    path = tmp_path / "model.safetensors"
    if how == "folder":
        theirs.save_pretrained(tmp_path)
    else:
        saved(path, theirs)
    model, card = read_weights(path)
    assert (card.config.depth, card.config.heads, card.config.classes) == (3, 2, 7)
    agree(model, lambda images: theirs(images).logits, (64, 64))


def test_transformers_at_another_size(tmp_path: Path) -> None:
    """Given the same positions: transformers resizes them by a rule of its own, ours is timm's."""
    theirs = huggingface(transformers.ViTConfig(**SMALL), transformers.ViTForImageClassification)
    model = imported(saved(tmp_path / "model.safetensors", theirs))
    settings: dict[str, Any] = SMALL | {"image_size": 96}
    larger = transformers.ViTForImageClassification(transformers.ViTConfig(**settings))
    weights = theirs.state_dict()
    resized = resize_positions(model.pos_embed.detach(), (4, 4), (6, 6))
    larger.load_state_dict(weights | {"vit.embeddings.position_embeddings": resized})
    agree(model, lambda images: larger.eval()(images).logits, (96, 96))


def test_pooler_of_transformers_is_the_representation_layer(tmp_path: Path) -> None:
    theirs = huggingface(transformers.ViTConfig(**SMALL), transformers.ViTModel)
    theirs.save_pretrained(tmp_path)
    model, card = read_weights(tmp_path / "model.safetensors")
    assert not card.trained_head and card.config.representation == 128
    images = pictures(64, 64)
    with torch.inference_mode():
        expected = theirs(images)
        tokens = model.encode(model.embed(images))
        torch.testing.assert_close(tokens, expected.last_hidden_state, atol=1e-4, rtol=0)
        torch.testing.assert_close(model.pool(tokens), expected.pooler_output, atol=1e-4, rtol=0)


@pytest.mark.parametrize("registers", [0, 4])
def test_dinov2_backbone_of_transformers(tmp_path: Path, registers: int) -> None:
    if registers:
        config = transformers.Dinov2WithRegistersConfig(**SMALL, num_register_tokens=registers)
        theirs = huggingface(config, transformers.Dinov2WithRegistersModel)
    else:
        theirs = huggingface(transformers.Dinov2Config(**SMALL), transformers.Dinov2Model)
    theirs.save_pretrained(tmp_path)
    model, card = read_weights(tmp_path / "model.safetensors")
    assert card.config.registers == registers and card.config.layer_scale
    assert not card.trained_head
    assert "mask token is left out" in " ".join(card.training["notes"])
    for height, width in [(64, 64), (96, 64)] if registers else [(64, 64)]:
        images = pictures(height, width)
        with torch.inference_mode():
            expected = theirs(images).last_hidden_state
            tokens = model.encode(model.embed(images))
            torch.testing.assert_close(tokens, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("registers", [0, 4])
def test_dinov2_classifiers_read_the_mean_of_the_patches_too(
    tmp_path: Path, registers: int
) -> None:
    if registers:
        config = transformers.Dinov2WithRegistersConfig(**SMALL, num_register_tokens=registers)
        theirs = huggingface(config, transformers.Dinov2WithRegistersForImageClassification)
    else:
        config = transformers.Dinov2Config(**SMALL)
        theirs = huggingface(config, transformers.Dinov2ForImageClassification)
    theirs.save_pretrained(tmp_path)
    model, card = read_weights(tmp_path / "model.safetensors")
    assert card.config.patch_mean and card.trained_head
    sizes = [(64, 64), (96, 64)] if registers else [(64, 64)]
    agree(model, lambda images: theirs(images).logits, *sizes)
    images = pictures(64, 64)
    above = Top(model, 2)(below(model, images, 2))  # what the mode `last` trains
    torch.testing.assert_close(above, model(images))
    alone = model.embed(torch.zeros(1, 3, 64, 64))[:, : model.num_prefix_tokens]
    assert model.classify(model.encode(alone)).isfinite().all()


# --- torchvision --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"),
    [("vit_b_16", 32), ("vit_b_32", 64), ("vit_h_14", 28), ("vit_b_16", 48)],
)
def test_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    full: Any = tv.VisionTransformer

    def small(**settings: Any) -> nn.Module:
        return full(**settings | {"num_layers": 1, "mlp_dim": 64})

    monkeypatch.setattr(tv, "VisionTransformer", small)
    theirs = scatter(getattr(tv, name)(weights=None, image_size=size, num_classes=7))
    model, card = read_weights(saved(tmp_path / "a.safetensors", theirs))
    assert card.config.image_size == (size, size)
    agree(model, theirs, (size, size))
