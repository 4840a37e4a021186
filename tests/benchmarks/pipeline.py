"""transformers' image-classification pipeline with our weights, in a process of its own."""

import multiprocessing
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image, ImageOps
from torch import Tensor

from tests.benchmarks.timing import clock, milliseconds
from vit import checkpoint
from vit.card import Card
from vit.model import LAYER_NORM_EPS, ViT
from vit.naming import from_hugging_face

Clock = Callable[[], float]


def pipeline(model: ViT, card: Card) -> Any:
    """transformers' pipeline with these weights, class names and preprocessing."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    preprocess = card.preprocess
    (height, width), crop = preprocess.size, preprocess.crop
    processor = transformers.ViTImageProcessor(
        size={"shortest_edge": round(min(height, width) / crop)},
        crop_size={"height": height, "width": width},
        do_center_crop=True,
        resample={"bicubic": 3, "bilinear": 2, "lanczos": 1}[preprocess.interpolation],
        image_mean=list(preprocess.mean),
        image_std=list(preprocess.std),
    )
    with tempfile.TemporaryDirectory() as folder:
        hugging_face(model, card).save_pretrained(folder)
        processor.save_pretrained(folder)
        made: Any = transformers.pipeline("image-classification", model=folder, device="cpu")
    return made


class Elsewhere:
    """The pipeline in a process of its own."""

    def __init__(self, checkpoint_path: Path, threads: int, cpu: bool) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.ours, theirs = spawn.Pipe()
        arguments = (theirs, checkpoint_path, threads, cpu)
        spawn.Process(target=answer_elsewhere, args=arguments, daemon=True).start()

    def time(self, path: Path) -> tuple[float, dict[str, float]]:
        """Milliseconds of a whole answer, and of the steps of another."""
        self.ours.send(path)
        return self.ours.recv()


def answer_elsewhere(asked: Connection, checkpoint_path: Path, threads: int, cpu: bool) -> None:
    torch.set_num_threads(threads)
    other, by = pipeline(*checkpoint.load(checkpoint_path)), clock(cpu)
    with suppress(EOFError):  # nobody asks any more
        while True:
            path = asked.recv()
            whole = milliseconds(partial(other, str(path), top_k=5), by)
            asked.send((whole, their_steps(other, path, by)))


def their_steps(other: Any, path: Path, by: Clock) -> dict[str, float]:
    done, took = dict[str, Any](), dict[str, float]()

    def step(name: str, work: Callable[[], object]) -> None:
        took[name] = milliseconds(lambda: done.update({name: work()}), by)

    # as transformers.image_utils.load_image does
    step("read", lambda: ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    step("preprocess", lambda: other.image_processor(images=done["read"], return_tensors="pt"))
    with torch.inference_mode():
        step("model", lambda: other.model(**done["preprocess"]))
        step("top 5", lambda: other.postprocess(done["model"], top_k=5))
    return took


def hugging_face(model: ViT, card: Card) -> Any:
    """The same weights in transformers' own model: its ViT, or, for registers, which that lacks,
    its DINOv2 without the LayerScale and the mean that our models do not have."""
    config = model.config
    settings: dict[str, Any] = {
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "layer_norm_eps": LAYER_NORM_EPS,
        "image_size": config.image_size[0],
        "patch_size": config.patch_size[0],
        "id2label": dict(enumerate(card.classes)),
        "label2id": {name: number for number, name in enumerate(card.classes)},
    }
    if config.registers:
        ratio = config.mlp_width // config.width
        theirs: Any = transformers.Dinov2WithRegistersForImageClassification(
            transformers.Dinov2WithRegistersConfig(
                **settings, mlp_ratio=ratio, num_register_tokens=config.registers
            )
        )
    else:
        theirs = transformers.ViTForImageClassification(
            transformers.ViTConfig(**settings, intermediate_size=config.mlp_width)
        )
    weights = split_qkv(model.state_dict())
    for their, value in theirs.state_dict().items():
        ours = next(iter(from_hugging_face({their: value})))  # what we call it
        if ours in weights:
            value.zero_()  # for the head of DINOv2 also reads the mean of the patches
            given = weights.pop(ours)
            value[..., : given.shape[-1]] = given
    if weights:
        raise SystemExit(f"transformers' model has no place for {', '.join(weights)}")
    return theirs.eval()


def split_qkv(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values as a matrix each."""
    parts: dict[str, Tensor] = {}
    for name, value in state.items():
        if ".attn.qkv." in name:
            names = [name.replace("qkv", part) for part in ("query", "key", "value")]
            parts |= dict(zip(names, value.chunk(3), strict=True))
        else:
            parts[name] = value
    return parts
