"""Models of other libraries, small and with random weights: what imports are compared with."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vit.model import ViT
from vit.pretrained import read_weights

Logits = Callable[[Tensor], Tensor]


def scatter(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every weight a random value of a size that keeps tokens lively; none stays zero."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=draw)
            if weight.ndim == 1 and ("norm" in name or ".ln" in name) and "weight" in name:
                weight.copy_(1 + 0.2 * noise)
            elif weight.ndim == 1:
                weight.copy_(0.3 * noise)
            elif weight.ndim == 3:  # tokens and positions
                weight.copy_(noise)
            else:
                weight.copy_(noise / math.sqrt(weight[0].numel()))
    return model.eval()


def pictures(height: int, width: int) -> Tensor:
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(height))


def agree(ours: ViT, theirs: Logits, *sizes: tuple[int, int]) -> None:
    """Both give the same logits, to 1e-4 in float32, for random pictures of each size."""
    for height, width in sizes:
        images = pictures(height, width)
        with torch.inference_mode():
            expected = theirs(images)
            assert expected.std() > 0.1
            torch.testing.assert_close(ours(images), expected, atol=1e-4, rtol=0)


def google_file(path: Path, model: nn.Module, pre_logits: int | None = None) -> Path:
    """The weights of one of timm's models, as Google's Flax code lays them out in an .npz."""
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    heads = model.get_submodule("blocks.0.attn").num_heads
    arrays: dict[str, np.ndarray] = {}

    def norm(theirs: str, name: str) -> None:
        arrays[f"{theirs}/scale"] = state[f"{name}.weight"]
        arrays[f"{theirs}/bias"] = state[f"{name}.bias"]

    def linear(theirs: str, name: str) -> None:
        arrays[f"{theirs}/kernel"] = state[f"{name}.weight"].T
        arrays[f"{theirs}/bias"] = state[f"{name}.bias"]

    def conv(theirs: str, name: str) -> None:
        arrays[f"{theirs}/kernel"] = state[f"{name}.weight"].transpose(2, 3, 1, 0)
        if f"{name}.bias" in state:
            arrays[f"{theirs}/bias"] = state[f"{name}.bias"]

    def group_norm(theirs: str, name: str) -> None:
        for kind, of_name in (("scale", "weight"), ("bias", "bias")):
            arrays[f"{theirs}/{kind}"] = state[f"{name}.{of_name}"].reshape(1, 1, 1, -1)

    arrays["cls"] = state["cls_token"]
    conv("embedding", "patch_embed.proj")
    arrays["Transformer/posembed_input/pos_embedding"] = state["pos_embed"]
    norm("Transformer/encoder_norm", "norm")
    linear("head", "head")
    width = state["cls_token"].shape[-1]
    for name in state:
        if not name.startswith("blocks.") or not name.endswith("norm1.weight"):
            continue
        number = name.split(".")[1]
        ours, block = f"blocks.{number}", f"Transformer/encoderblock_{number}"
        norm(f"{block}/LayerNorm_0", f"{ours}.norm1")
        norm(f"{block}/LayerNorm_2", f"{ours}.norm2")
        linear(f"{block}/MlpBlock_3/Dense_0", f"{ours}.mlp.fc1")
        linear(f"{block}/MlpBlock_3/Dense_1", f"{ours}.mlp.fc2")
        attention = f"{block}/MultiHeadDotProductAttention_1"
        for part, what in enumerate(("query", "key", "value")):
            rows = slice(part * width, (part + 1) * width)
            weight = state[f"{ours}.attn.qkv.weight"][rows].T
            arrays[f"{attention}/{what}/kernel"] = weight.reshape(width, heads, -1)
            arrays[f"{attention}/{what}/bias"] = state[f"{ours}.attn.qkv.bias"][rows].reshape(
                heads, -1
            )
        out = state[f"{ours}.attn.proj.weight"].T
        arrays[f"{attention}/out/kernel"] = out.reshape(heads, -1, width)
        arrays[f"{attention}/out/bias"] = state[f"{ours}.attn.proj.bias"]
    backbone = "patch_embed.backbone"
    root = f"{backbone}.stem" if f"{backbone}.stem.conv.weight" in state else backbone
    if f"{root}.conv.weight" in state:
        conv("conv_root", f"{root}.conv")
        group_norm("gn_root", f"{root}.norm")
    for name in state:
        if name.startswith(f"{backbone}.stages.") and name.endswith("conv1.weight"):
            unit = name.removesuffix(".conv1.weight")
            _, _, _, stage, _, block = unit.split(".")
            theirs = f"block{int(stage) + 1}/unit{int(block) + 1}"
            for number in "123":
                conv(f"{theirs}/conv{number}", f"{unit}.conv{number}")
                group_norm(f"{theirs}/gn{number}", f"{unit}.norm{number}")
            if f"{unit}.downsample.conv.weight" in state:
                conv(f"{theirs}/conv_proj", f"{unit}.downsample.conv")
                group_norm(f"{theirs}/gn_proj", f"{unit}.downsample.norm")
    if pre_logits is not None:
        draw = np.random.default_rng(5)
        arrays["pre_logits/kernel"] = draw.normal(0, width**-0.5, (width, pre_logits)).astype("f4")
        arrays["pre_logits/bias"] = draw.normal(0, 0.3, pre_logits).astype("f4")
        classes = len(arrays["head/bias"])
        arrays["head/kernel"] = draw.normal(0, 0.5, (pre_logits, classes)).astype("f4")
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
    return path


def imported(path: Path) -> ViT:
    return read_weights(path)[0]
