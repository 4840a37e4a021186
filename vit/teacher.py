"""A trained model whose answers another one learns from: distillation (Hinton, Vinyals and Dean
2015, arXiv:1503.02531)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vit.images import Preprocess
from vit.recipe import Stage
from vit.start import check_sizes, trained
from vit.top import answer

SOFTENING = 2.0  # what logits are divided by, so that unlikely classes count too


class Teacher:
    """The checkpoint called `name`, frozen, answering for photos as `preprocess` makes them.

    Raises CheckpointError when there is no such thing, and ValueError when its patches do not fill
    the pictures of the `stages`.
    """

    def __init__(
        self, name: str, stages: Sequence[Stage], preprocess: Preprocess, device: torch.device
    ) -> None:
        self.name, self.start = name, trained(name)
        check_sizes(stages, self.start, name)
        assert self.start.model is not None
        self.model = self.start.model.eval().requires_grad_(False).to(device)
        own = self.start.card.preprocess
        given = (preprocess.mean, preprocess.std, own.mean, own.std)
        mean, std, own_mean, own_std = (torch.tensor(v, device=device).view(3, 1, 1) for v in given)
        self.scale, self.shift = std / own_std, (mean - own_mean) / own_std

    @property
    def fingerprint(self) -> str:
        return self.start.fingerprint

    def check(self, classes: Sequence[str]) -> None:
        """ValueError, in one sentence, unless the teacher knows these very classes."""
        if not self.start.answers(classes):
            raise ValueError(
                f"The teacher {self.name} must have been trained for the classes of the photos, in "
                f"the same order: choose one that was, or leave it out."
            )

    @torch.no_grad()
    def answer(self, images: Tensor) -> Tensor:
        """Logits (B, C) of photos (B, 3, H, W), which the student's rules have normalised."""
        return answer(self.model, images * self.scale + self.shift)

    def record(self) -> dict[str, Any]:
        """For the card of what comes out."""
        return {"taught_by": self.start.card.title, "teacher_fingerprint": self.fingerprint}


def disagreement(logits: Tensor, wanted: Tensor) -> Tensor:
    """How far softened answers (B, C) are from the wanted ones: Kullback-Leibler divergence in
    nats, summed over photos, times SOFTENING² so that its gradients match those of the labels."""
    ours, theirs = ((each / SOFTENING).log_softmax(1) for each in (logits, wanted))
    return F.kl_div(ours, theirs, reduction="sum", log_target=True) * SOFTENING**2
