"""Learning rates, averaged weights and parameter groups of a training run."""

import copy
import math
import re

import torch
from torch import nn

_TOKENS = ("cls_token", "pos_embed", "reg_token")


def rate_at(step: int, steps: int, warmup: float) -> float:
    """The share of the peak rate at `step` of `steps`: a linear rise, then half a cosine to 0."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def parameter_groups(
    module: nn.Module, depth: int, weight_decay: float, layer_decay: float
) -> list[dict]:
    """Groups for AdamW: the rate shrinks by `layer_decay` a block from the head downwards.

    Registers learn as fast as the head: the weights that training starts from seldom have any.
    Biases, norms, tokens and position embeddings are not decayed. Each group has `scale`, by which
    the step's rate is multiplied. (Clark et al. 2020, https://arxiv.org/abs/2003.10555; BEiT.)
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        block = re.match(r"blocks\.(\d+)\.", name)
        if block:
            level = int(block[1]) + 1
        else:
            level = 0 if name.startswith(("patch_embed", *_TOKENS[:2])) else depth + 1
        plain = parameter.ndim == 1 or name.startswith(_TOKENS)
        decay = 0.0 if plain else weight_decay
        groups.setdefault((layer_decay ** (depth + 1 - level), decay), []).append(parameter)
    return [
        {"params": members, "scale": scale, "weight_decay": decay}
        for (scale, decay), members in groups.items()
    ]


class Average:
    """An exponential moving average of a module's weights, which usually answers better."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(module).requires_grad_(False).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Move towards `module`; the first steps count fully, so that no start value lingers."""
        decay = min(self.decay, (1 + step) / (10 + step)) if self.decay else 0.0
        for mine, theirs in zip(self.module.parameters(), module.parameters(), strict=True):
            mine.lerp_(theirs, 1 - decay)


def moments(optimizer: torch.optim.AdamW, module: nn.Module) -> dict[str, torch.Tensor]:
    """AdamW's two moments by parameter name, for saving."""
    saved = {}
    for name, parameter in module.named_parameters():
        for key in ("exp_avg", "exp_avg_sq"):
            if parameter in optimizer.state:
                saved[f"{key}.{name}"] = optimizer.state[parameter][key]
    return saved


def restore_moments(
    optimizer: torch.optim.AdamW, module: nn.Module, saved: dict[str, torch.Tensor], step: int
) -> None:
    """Put back what `moments` gave, after `step` steps."""
    for name, parameter in module.named_parameters():
        if f"exp_avg.{name}" in saved:
            device = parameter.device
            optimizer.state[parameter] = {
                "step": torch.tensor(float(step), device=device),
                **{key: saved[f"{key}.{name}"].to(device) for key in ("exp_avg", "exp_avg_sq")},
            }
