"""Published weights, in other libraries' files, into our model.

Google's `.npz`, timm, Hugging Face's transformers (ViT, DeiT, DINOv2), DINOv2's authors and
torchvision: whose a file is shows in its names. All become a state dict with timm's names first
(`vit.flax`, `vit.naming`), then that of our one model (`vit.relatives`), whose config is read off
the shapes.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from vit.card import Card, CheckpointError
from vit.checkpoint import compare_shapes, empty, is_ours, not_finite
from vit.conventions import class_names, preprocess_for
from vit.flax import from_flax, is_flax
from vit.hubconfig import HubConfig, read_beside
from vit.hybrid import pixels_per_step
from vit.images import Preprocess
from vit.model import ViT, ViTConfig
from vit.naming import (
    from_hugging_face,
    from_meta,
    from_torchvision,
    is_hugging_face,
    is_torchvision,
)
from vit.relatives import adopted
from vit.weightfile import read_tensors

HEAD_WIDTH = {1280: 80}  # of ViT-H; every other published model has heads 64 wide
_WANTED = {  # axes
    "patch_embed.proj.weight": 4,
    "cls_token": 3,
    "pos_embed": 3,
    "blocks.0.mlp.fc1.weight": 2,
}
_OPTIONAL = {"reg_token": 3, "dist_token": 3, "pre_logits.fc.weight": 2, "head.weight": 2}
_BACKBONE = "patch_embed.backbone."


@dataclass
class _Found:
    """Weights on their way: whose they are, what shows about them, what was done to them."""

    state: dict[str, Tensor]
    layout: str
    heads: int | None = None
    notes: list[str] = field(default_factory=list)


def read_weights(
    path: str | os.PathLike[str],
    preprocess: Preprocess | None = None,
    heads: int | None = None,
) -> tuple[ViT, Card]:
    """A model from a file of weights: `.safetensors`, torch's own format, or Google's `.npz`.

    No code in the file is run. The config is inferred from the shapes; `heads`, which may leave no
    trace there, is what is given, else what the file or the config.json beside it says, else that
    of the published models. `preprocess` likewise, else that of the library the file comes from;
    its size is the model's own. 1,000 outputs get ImageNet's names. A head of zeros, or none, is
    recorded as untrained; what was left out is in `card.training["notes"]`.
    Raises CheckpointError, naming file, what was expected and what was found.
    """
    path = Path(path)
    if is_ours(path):
        raise CheckpointError(
            f"{path.name} is a checkpoint of ours already; use it as it is, by its path."
        )
    try:
        found = _recognised(read_tensors(path))
    except (RuntimeError, IndexError, KeyError, TypeError):  # tokens or heads of odd shapes
        raise CheckpointError(
            f"{path.name} is no Vision Transformer that can be read: its class token, distillation "
            f"token, registers or heads have shapes that do not go together."
        ) from None
    said = _said_beside(path, found)
    found.heads = heads or found.heads or (said.heads if said else None)
    config = infer_config(found.state, path.name, found.heads)
    model = empty(config)
    if headless := "head.weight" not in found.state:
        found.state |= {
            name: torch.zeros_like(model.get_parameter(name), device="cpu")
            for name in ("head.weight", "head.bias")
        }
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    shapes = {name: tuple(value.shape) for name, value in found.state.items()}
    if problem := compare_shapes(expected, shapes):
        raise CheckpointError(
            f"{path.name} does not fit the Vision Transformer it seems ({found.layout}): {problem}"
        )
    # Copied, because two names may share memory, and safetensors gives views of the file.
    state = {n: value.detach().to(torch.float32, copy=True) for n, value in found.state.items()}
    if broken := not_finite(state):
        raise CheckpointError(f"{path.name} is damaged: {broken} has values that are not finite.")
    half = {value.dtype for value in found.state.values()} == {torch.float16}
    model.load_state_dict(state, strict=True, assign=True)
    names = said.classes if said else None
    card = Card(
        config=config,
        preprocess=_preprocess(preprocess, said, found, config, path.name),
        classes=names if names and len(names) == config.classes else class_names(config.classes),
        title=path.name.split(".")[0],
        training={
            "imported_from": path.name,
            "layout": found.layout,
            "precision": "float16" if half else "float32",
            "notes": found.notes,
        },
        trained_head=not headless and bool(model.head.weight.any()),
    )
    return model.eval(), card


def _recognised(tensors: dict[str, Tensor]) -> _Found:
    """The weights with our names, and whose they were."""
    if is_flax(tensors):
        state, heads = from_flax(tensors)
        found = _Found(state, "Google's Flax files", heads)
        if "pre_logits.fc.weight" in state:
            found.notes.append("Its representation layer (pre_logits) is kept.")
        else:
            found.notes.append(
                "It has no representation layer (pre_logits), as fine-tuned files do, so the model "
                "has none."
            )
    elif is_hugging_face(tensors):
        found = _Found(from_hugging_face(tensors), "Hugging Face transformers")
        if "pre_logits.fc.weight" in found.state:
            found.notes.append("Its pooler is kept, as the representation layer (pre_logits).")
    elif is_torchvision(tensors):
        found = _Found(from_torchvision(tensors), "torchvision")
    else:
        found = _Found(from_meta(tensors), "timm")
    if found.state.pop("mask_token", None) is not None:
        found.notes.append("Its mask token is left out: it serves pretraining alone.")
    if "dist_token" in found.state and "head_dist.weight" not in found.state:
        _read_the_class_token_alone(found.state)
    found.state = adopted(found.state)
    return found


def _read_the_class_token_alone(state: dict[str, Tensor]) -> None:
    """Let what reads class and distillation token side by side ignore the second one, as
    transformers' `DeiTForImageClassification` does."""
    for name in ("pre_logits.fc.weight", "head.weight"):
        if name in state and state[name].ndim == 2:
            state[name] = F.pad(state[name], (0, state[name].shape[1]))
            return


def _said_beside(path: Path, found: _Found) -> HubConfig | None:
    """The hub's config beside the file, if it is this model's."""
    said = read_beside(path)
    if said is None:
        return None
    width, depth = found.state.get("norm.weight", torch.empty(0)).shape[0], _depth(found.state)
    if (said.width or width, said.depth or depth) != (width, depth):
        found.notes.append(
            f"The config.json beside it is of another model ({said.depth} blocks, {said.width} "
            f"wide), so it was not used."
        )
        return None
    return said


def _preprocess(
    given: Preprocess | None,
    said: HubConfig | None,
    found: _Found,
    config: ViTConfig,
    name: str,
) -> Preprocess:
    if given is not None:
        return replace(given, size=config.image_size)
    if said is not None and said.preprocess is not None:
        fits = not any(s % p for s, p in zip(said.preprocess.size, config.patch_size, strict=True))
        return said.preprocess if fits else replace(said.preprocess, size=config.image_size)
    return preprocess_for(_convention(found, config, name.lower()), config.image_size)


def _convention(found: _Found, config: ViTConfig, name: str) -> str:
    """Whose way of looking at photos goes with these weights."""
    if config.layer_scale and config.patch_size == (14, 14):
        return "dinov2"
    if config.class_tokens == 2 or "deit" in name:
        return "deit"
    if found.layout == "torchvision":
        swag = config.image_size > (224, 224) or config.width == 1280 or "swag" in name
        return "swag" if swag else "torchvision"
    return "huggingface" if found.layout.startswith("Hugging Face") else "augreg"


def infer_config(state: Mapping[str, Tensor], name: str, heads: int | None = None) -> ViTConfig:
    """The config that the shapes of `ViT`'s state dict imply; CheckpointError when they do not.

    The number of heads leaves no trace in the shapes: unless given, it is that of the published
    models.
    """
    if any(".mlp.w12." in key for key in state):
        raise CheckpointError(
            f"{name} has gated linear layers (SwiGLU), as DINOv2's giant model does; only plain "
            f"ones can be read, which its smaller models have."
        )
    present = {key: axes for key, axes in _OPTIONAL.items() if key in state}
    for wanted, axes in (_WANTED | present).items():
        if wanted not in state or state[wanted].ndim != axes:
            raise CheckpointError(
                f"{name} is not a Vision Transformer that can be read: it has no {wanted} of "
                f"{axes} axes (the name is timm's). Google's .npz files, timm, Hugging Face "
                f"transformers and torchvision are known."
            )
    stem = _stem(state)
    width, _, *patch = state["patch_embed.proj.weight"].shape
    if stem is not None:
        patch = [side * pixels_per_step(stem) for side in patch]
    prefix = state["cls_token"].shape[1]
    positions = state["pos_embed"].shape[1] - prefix
    side = math.isqrt(max(0, positions))
    if side * side != positions:
        raise CheckpointError(
            f"{name} has {positions + prefix} position embeddings, which is no square grid and "
            f"{prefix} class token{'s' if prefix > 1 else ''}."
        )
    representation, head = state.get("pre_logits.fc.weight"), state.get("head.weight")
    registers = state.get("reg_token")
    try:
        return ViTConfig(
            image_size=(side * patch[0], side * patch[1]),
            patch_size=(patch[0], patch[1]),
            width=width,
            depth=_depth(state),
            heads=heads or max(1, width // HEAD_WIDTH.get(width, 64)),
            mlp_width=state["blocks.0.mlp.fc1.weight"].shape[0],
            classes=1 if head is None else head.shape[0],
            representation=None if representation is None else representation.shape[0],
            registers=0 if registers is None else registers.shape[1],
            stem=stem,
            class_tokens=prefix,
            layer_scale="blocks.0.ls1.gamma" in state,
            patch_mean=_reads_patches(state, prefix, width),
        )
    except ValueError as error:
        hint = "" if heads else " (heads are taken to be 64 wide; state their number with --heads)"
        raise CheckpointError(
            f"{name} does not describe a Vision Transformer: {str(error).rstrip('.')}{hint}."
        ) from None


def _reads_patches(state: Mapping[str, Tensor], prefix: int, width: int) -> bool:
    """Whether the head reads the mean of the patches beside the class tokens, as DINOv2's do."""
    first = state.get("pre_logits.fc.weight", state.get("head.weight"))
    return first is not None and first.shape[1] == (prefix + 1) * width


def _depth(state: Mapping[str, Tensor]) -> int:
    return len({match[1] for key in state if (match := re.match(r"blocks\.(\d+)\.", key))})


def _stem(state: Mapping[str, Tensor]) -> tuple[int, ...] | None:
    """The blocks in each stage of a hybrid's ResNet; None for a plain model."""
    if not any(key.startswith(_BACKBONE) for key in state):
        return None
    pattern = re.compile(re.escape(_BACKBONE) + r"stages\.(\d+)\.blocks\.(\d+)\.conv1\.weight")
    units = [(int(m[1]), int(m[2])) for key in state if (m := pattern.fullmatch(key))]
    stages = sorted({stage for stage, _ in units})
    return tuple(sum(stage == each for each, _ in units) for stage in stages)
