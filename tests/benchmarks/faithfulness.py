"""Which maps are worth believing: the mean areas under the deletion and the insertion curve of
every method, beside maps of chance.

    python -m tests.benchmarks.faithfulness CHECKPOINT FOLDER [--photos 50] [--steps 10]

CHECKPOINT: the name or path of one of ours, or a file of weights with timm's names. FOLDER: photos,
searched in its folders too; of more than asked for, evenly spread ones are taken. The class asked
about is the one the model names. Deletion: lower is better; insertion: higher. Both are made a
second time with the sinks spared: they stay whatever the map says, in the maps of chance as well.
"""

import argparse
import statistics
from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor

from vit import checkpoint
from vit.attention import attend, class_relevance, grid_of
from vit.checkpoint import Card, is_ours
from vit.faithfulness import How, deletion_curve, insertion_curve
from vit.images import open_photo
from vit.maps import find_sinks, looks_at, max_heads, mean_heads, rollout
from vit.model import ViT
from vit.pretrained import read_weights

CHANCES = 5
ENDINGS = {".jpg", ".jpeg", ".png", ".webp"}


def load(name: str) -> tuple[ViT, Card]:
    path = Path(name)
    if path.is_file() and not is_ours(path):
        return read_weights(path)
    return checkpoint.load(checkpoint.resolve(name))


def heats(model: ViT, photo: Tensor, seed: int) -> tuple[dict[str, Tensor], int, tuple[int, ...]]:
    """Every method's map over the patches, the class named, and the sinks."""
    prefix, grid = model.num_prefix_tokens, grid_of(model, photo)
    logits, maps = attend(model, photo)
    target = int(logits.argmax())
    _, relevant = class_relevance(model, photo, target)
    weights = {
        "relevance": relevant,
        "rollout": rollout(maps),
        "rollout, 90 % discarded": rollout(maps, 0.9),
        "mean of all layers": mean_heads(maps).mean(0),
        "mean of the last layer": mean_heads(maps[-1]),
        "max of the last layer": max_heads(maps[-1]),
    }
    found = {name: looks_at(one, 0, prefix, grid)[0] for name, one in weights.items()}
    generator = torch.Generator().manual_seed(seed)
    for number in range(CHANCES):
        found[f"random {number}"] = torch.rand(grid, generator=generator)
    return found, target, find_sinks(maps[:, 0], prefix).patches


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("checkpoint")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photos", type=int, default=50)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    model, card = load(asked.checkpoint)
    model.eval()
    files = sorted(p for p in asked.folder.rglob("*") if p.suffix.lower() in ENDINGS)
    if not files:
        raise SystemExit(f"There are no photos in {asked.folder}.")
    count = min(asked.photos, len(files))
    files = [files[index * len(files) // count] for index in range(count)]

    areas: dict[tuple[str, str], list[float]] = defaultdict(list)
    sunk = 0
    with torch.inference_mode():
        for seed, file in enumerate(files):
            view = card.preprocess.view(open_photo(file, 2 * min(card.preprocess.size)).image)
            photo = card.preprocess.tensor(view)[None]
            found, target, sinks = heats(model, photo, seed)
            sunk += len(sinks)
            for sparing, spared in (("", ()), (", sinks spared", sinks)):
                options = How(spared=spared, steps=asked.steps, temperature=card.temperature)
                gone = deletion_curve(model, photo, found, target, **options)
                shown = insertion_curve(model, photo, found, target, **options)
                for what, curves in (("deletion", gone), ("insertion", shown)):
                    chance = [c.area for n, c in curves.items() if n.startswith("random")]
                    for name, curve in curves.items():
                        if not name.startswith("random"):
                            areas[name, what + sparing].append(curve.area)
                    areas["random", what + sparing].append(statistics.mean(chance))

    columns = ["deletion", "insertion", "deletion, sinks spared", "insertion, sinks spared"]
    print(f"{count} photos, {asked.steps} steps, torch {torch.__version__}; ", end="")
    print(f"{sunk / count:.1f} sinks a photo. Mean area ± standard error.")
    print("| map | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for name in dict.fromkeys(name for name, _ in areas):
        cells = []
        for column in columns:
            values = areas[name, column]
            error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3f} ± {error:.3f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
