"""What a Vision Transformer costs, worked out on paper: parameters, multiply-adds, memory.

Every line has its formula in symbols and with the numbers put in, so that a reader can check it;
the tests check the sums against the model itself. The ResNet of a hybrid is not counted: give the
config without its stem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from vit.model import ViTConfig

MEANING = {
    "P": "patches",
    "N": "tokens",
    "p": "numbers in a patch",
    "D": "width",
    "L": "blocks",
    "A": "heads",
    "M": "MLP width",
    "C": "classes",
}
FLOAT = 4  # bytes of a number in float32


@dataclass(frozen=True)
class Line:
    """One part of a sum. formula: in the letters of `MEANING`; numbers: the same, put in."""

    name: str
    formula: str
    numbers: str
    value: int


@dataclass(frozen=True)
class Cost:
    """A sum and its parts. unit: what is counted."""

    name: str
    unit: str
    lines: tuple[Line, ...]

    @property
    def total(self) -> int:
        return sum(line.value for line in self.lines)


def symbols(config: ViTConfig) -> dict[str, int]:
    """The letters of the formulas with the values that a model of this shape has."""
    patches = config.grid[0] * config.grid[1]
    return {
        "P": patches,
        "N": patches + config.num_prefix_tokens,
        "p": 3 * config.patch_size[0] * config.patch_size[1],
        "D": config.width,
        "L": config.depth,
        "A": config.heads,
        "M": config.mlp_width,
        "C": config.classes,
    }


def parameters(config: ViTConfig) -> Cost:
    """Every learned number, by where it lies."""
    s = Symbols.of(config)
    P, p, D, L, M, C = s.P, s.p, s.D, s.L, s.M, s.C
    K, R, pooled = config.class_tokens, config.registers, config.representation
    many, read = ("", "D") if K == 1 else ("s", f"{K} × D")  # the head reads every class token
    lines = [
        s.line("patch embedding", "p × D + D", p * D + D),
        s.line(f"class token{many}", read, K * D),
        *([s.line("registers", f"{R} × D", R * D)] if R else []),
        s.line("positions", f"({K} + P) × D", (K + P) * D),
        s.line("LayerNorms in the blocks", "L × 4 × D", L * 4 * D),
        s.line("queries, keys, values", "L × (3 × D × D + 3 × D)", L * (3 * D * D + 3 * D)),
        s.line("heads joined", "L × (D × D + D)", L * (D * D + D)),
        s.line("MLPs", "L × (2 × D × M + M + D)", L * (2 * D * M + M + D)),
        *([s.line("LayerScales", "L × 2 × D", L * 2 * D)] if config.layer_scale else []),
        s.line("last LayerNorm", "2 × D", 2 * D),
    ]
    if pooled:
        text = f"{read} × {pooled} + {pooled}"
        lines.append(s.line("representation layer", text, K * D * pooled + pooled))
    lines.append(s.line("head", f"{pooled or read} × C + C", (pooled or K * D) * C + C))
    return Cost("Parameters", "numbers", tuple(lines))


def multiply_adds(config: ViTConfig) -> Cost:
    """Multiplications, each with an addition, in one photo's forward; FLOPs are twice that. Adding
    biases, LayerNorm, softmax and GELU are left out, as is usual."""
    s = Symbols.of(config)
    P, N, p, D, L, M, C = s.P, s.N, s.p, s.D, s.L, s.M, s.C
    K, pooled = config.class_tokens, config.representation
    read = "D" if K == 1 else f"{K} × D"
    lines = [
        s.line("patch embedding", "P × p × D", P * p * D),
        s.line("queries, keys, values", "L × N × 3 × D × D", L * N * 3 * D * D),
        s.line("scores q · k", "L × N × N × D", L * N * N * D),
        s.line("weighted sums of v", "L × N × N × D", L * N * N * D),
        s.line("heads joined", "L × N × D × D", L * N * D * D),
        s.line("MLPs", "L × N × 2 × D × M", L * N * 2 * D * M),
    ]
    if pooled:
        lines.append(s.line("representation layer", f"{read} × {pooled}", K * D * pooled))
    lines.append(s.line("head", f"{pooled or read} × C", (pooled or K * D) * C))
    return Cost("Multiply-adds", "multiply-adds a photo", tuple(lines))


def attention_memory(config: ViTConfig) -> Cost:
    """Bytes of one photo's attention weights in float32, when all of them are written out. Our
    model writes out none where it only answers, one block's at a time where it is watched."""
    s = Symbols.of(config)
    value = s.L * s.A * s.N * s.N * FLOAT
    line = s.line("weights of every head", f"L × A × N × N × {FLOAT}", value)
    return Cost("Memory of attention", "bytes", (line,))


@dataclass(frozen=True)
class Symbols:
    """The letters of the formulas with the values that a model of this shape has."""

    P: int
    N: int
    p: int
    D: int
    L: int
    A: int
    M: int
    C: int

    @classmethod
    def of(cls, config: ViTConfig) -> Self:
        patches = config.grid[0] * config.grid[1]
        return cls(
            P=patches,
            N=patches + config.num_prefix_tokens,
            p=3 * config.patch_size[0] * config.patch_size[1],
            D=config.width,
            L=config.depth,
            A=config.heads,
            M=config.mlp_width,
            C=config.classes,
        )

    def line(self, name: str, formula: str, value: int) -> Line:
        numbers = re.sub("[A-Za-z]", lambda letter: f"{getattr(self, letter[0]):,}", formula)
        return Line(name, formula, numbers, value)
