"""Our answer, photos to logits as the classifier computes them, against the forward of timm,
torchvision and transformers with the same weights, and against the rate at which this machine
multiplies matrices.

    python -m tests.benchmarks.forward [--models Ti/16 S/16 B/16] [--batches 1 8] [--threads 1 2]
                                       [--rounds 40] [--seconds 20] [--alike] [--cpu]

The weights are random; that all four give the same logits, to 1e-4, is checked first. They take
turns, ours with float32 products as `vit.precision.quicken_float32` has them, the others as torch
multiplies by itself; with `--alike` all of them as ours. Freed memory is kept for all alike. A line
gives the milliseconds of each, the ratio of ours to the fastest of the others and to torchvision's,
median and fastest, and which share of the matrix rate ours reaches: its FLOPs (two for each
multiply-add of `vit.calculator`) a second against those of one product of two 1536 × 1536 matrices,
multiplied as ours in the same rounds. After `--seconds` no new round is begun, but eight are there
at least. Targets: never slower than the fastest of them; 0.85 of torchvision's ViT-B/16. `--cpu`
counts processor time, for one thread on a busy machine.
"""

import argparse
from collections.abc import Callable
from functools import partial

import timm
import torch
import transformers
from torch import Tensor
from torchvision.models.vision_transformer import VisionTransformer

from tests.benchmarks.products import plainly
from tests.benchmarks.timing import Ratio, clock, spread, take_turns, verdict, versions
from vit.attention import with_cached_attention
from vit.calculator import multiply_adds
from vit.memory import keep_freed
from vit.model import LAYER_NORM_EPS, PRESETS, ViT
from vit.naming import from_hugging_face, from_torchvision
from vit.precision import quicken_float32
from vit.top import answer

TIMM = {
    "Ti/16": "vit_tiny_patch16_224",
    "S/16": "vit_small_patch16_224",
    "B/16": "vit_base_patch16_224",
}
SIDE = 1536  # of the matrices
TOLERANCE = 1e-4
TARGETS = {"B/16": 0.85}  # of torchvision's time

Model = Callable[[Tensor], Tensor]


def rivals(name: str) -> tuple[ViT, dict[str, Model]]:
    """Our model and theirs, by whose it is, all with the random weights of transformers' model."""
    config = PRESETS[name]
    torch.manual_seed(0)
    hugging_face = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=config.width,
            num_hidden_layers=config.depth,
            num_attention_heads=config.heads,
            intermediate_size=config.mlp_width,
            layer_norm_eps=LAYER_NORM_EPS,
            id2label=dict(enumerate(map(str, range(config.classes)))),
        )
    ).eval()
    with torch.no_grad():
        for weights in hugging_face.parameters():  # none zero or one: a mistake would go unseen
            weights += 0.05 * torch.randn_like(weights)
    ours = ViT(config).eval()
    ours.load_state_dict(from_hugging_face(hugging_face.state_dict()))

    of_timm = timm.create_model(TIMM[name]).eval()
    of_timm.load_state_dict(ours.state_dict())

    torchvision = VisionTransformer(
        image_size=config.image_size[0],
        patch_size=config.patch_size[0],
        num_layers=config.depth,
        num_heads=config.heads,
        hidden_dim=config.width,
        mlp_dim=config.mlp_width,
        num_classes=config.classes,
    ).eval()
    weights, theirs = ours.state_dict(), torchvision.state_dict()
    names = zip(theirs, from_torchvision(theirs), strict=True)  # what they and what we call it
    torchvision.load_state_dict({their: weights[our] for their, our in names})
    return ours, {
        "timm": of_timm,
        "torchvision": torchvision,
        "transformers": lambda images: hugging_face(images).logits,
    }


def measure(name: str, batch: int, threads: int, asked: argparse.Namespace) -> None:
    torch.set_num_threads(threads)
    ours, others = rivals(name)
    with_cached_attention(ours)
    images, square = torch.randn(batch, 3, *ours.config.image_size), torch.randn(SIDE, SIDE)
    with torch.inference_mode():
        logits = answer(ours, images)
        for who, theirs in others.items():
            off = float((theirs(images) - logits).abs().max())
            if off > TOLERANCE:
                raise SystemExit(f"{name}: {who}'s logits differ by {off:.1e}")
        works: dict[str, Callable[[], object]] = {
            who: partial(model, images) for who, model in others.items()
        }
        if not asked.alike:
            works = {who: plainly(work) for who, work in works.items()}
        works = {"ours": partial(answer, ours, images), **works}
        works["matrices"] = lambda: square @ square
        times = take_turns(works, asked.rounds, asked.seconds, clock(asked.cpu))
    print(f"{name:5} batch {batch} threads {threads} ", end="")
    print(", ".join(f"{who} {spread(times[who])[0]:.1f}" for who in times), "ms; ours to", end=" ")
    fastest = min(others, key=lambda who: min(times[who]))
    ratio, torchvision = (Ratio.of(times["ours"], times[who]) for who in (fastest, "torchvision"))
    print(f"{fastest} {ratio}  {verdict(ratio.fastest, 1)}", end="; ")
    print(f"to torchvision {torchvision}", end="")
    if target := TARGETS.get(name):
        print(f"  {verdict(torchvision.fastest, target)}", end="")
    rate = 2 * SIDE**3 / min(times["matrices"])  # FLOPs a millisecond
    reached = 2 * batch * multiply_adds(ours.config).total / min(times["ours"])
    print(f"; {100 * reached / rate:.0f} % of {rate / 1e6:.0f} GFLOP/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=list(TIMM), default=list(TIMM))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--alike", action="store_true", help="others multiply as we do")
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    quicken_float32()
    keep_freed()
    print(versions("torch", "timm", "torchvision", "transformers"))
    for name in asked.models:
        for batch in asked.batches:
            for threads in asked.threads:
                measure(name, batch, threads, asked)


if __name__ == "__main__":
    main()
