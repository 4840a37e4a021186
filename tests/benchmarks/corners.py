"""Where the class token looks late.

    python -m tests.benchmarks.corners MODEL… PHOTOS [--photos 200]

For each model, the share of the class token's attention to patches that falls on the four corner
patches in each layer of the last third (four of 196 patches would fairly get 2 %), the share on the
sinks that `vit.maps.find_sinks` finds, and what the registers take. Means over photos and heads.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from vit import checkpoint
from vit.attention import attend
from vit.checkpoint import resolve
from vit.data import open_photos
from vit.maps import find_sinks
from vit.photoset import few_of_each


def corner_patches(grid: tuple[int, int]) -> list[int]:
    rows, columns = grid
    return [0, columns - 1, (rows - 1) * columns, rows * columns - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the class token looks late.")
    parser.add_argument("models", nargs="+", help="names or files of checkpoints")
    parser.add_argument("place", help="folder or zip of class folders")
    parser.add_argument("--photos", type=int, default=200)
    parser.add_argument("--size", type=int, help="pixels, other than the model's own")
    options = parser.parse_args()
    photos = open_photos(options.place)
    photos = few_of_each(photos, max(1, options.photos // len(photos.classes)), seed=0)
    print(f"{len(photos)} photos of {options.place}; torch {torch.__version__}")
    for name in options.models:
        model, card = checkpoint.load(Path(name) if Path(name).is_file() else resolve(name))
        size = (options.size, options.size) if options.size else card.preprocess.size
        preprocess = replace(card.preprocess, size=size)
        prefix = model.num_prefix_tokens
        rows, columns = (
            s // p for s, p in zip(preprocess.size, card.config.patch_size, strict=True)
        )
        corners = corner_patches((rows, columns))
        late = range(len(model.blocks) * 2 // 3, len(model.blocks))
        shares, registers, sinks, with_sinks = [], [], [], 0
        for index in range(len(photos)):
            pixels = preprocess(photos.photo(index))[None]
            maps = attend(model.eval(), pixels)[1][:, 0]  # (layers, A, N, N)
            row = maps[late.start :, :, 0].mean(1)  # (late layers, N)
            patches = row[:, prefix:]
            shares.append(patches[:, corners].sum(1) / patches.sum(1))
            registers.append(row[:, 1:prefix].sum(1))
            found = find_sinks(maps, prefix)
            with_sinks += bool(found.patches)
            sinks.append(found.share)
        corner, taken = torch.stack(shares).mean(0), torch.stack(registers).mean(0)
        print(
            f"{name}: corners "
            + ", ".join(
                f"{share:.1%} in layer {layer + 1}"
                for layer, share in zip(late, corner.tolist(), strict=True)
            )
            + f"; registers take {taken.mean():.1%} of all attention; sinks in {with_sinks} of "
            f"{len(photos)} photos, {sum(sinks) / len(sinks):.1%} of the attention to patches"
        )


if __name__ == "__main__":
    main()
