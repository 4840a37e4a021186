"""How sure may a model be: its temperature, and below what it says that no dish looks right.

Both are chosen on one half of the validation photos and judged on the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vit.card import Card
from vit.evaluate import evaluate
from vit.images import Source, open_photo
from vit.metrics import Calibration, Count, calibration_error, fit_temperature
from vit.model import ViT
from vit.photoset import PhotoSet


@dataclass(frozen=True)
class Calibrated:
    """A card with its temperature and threshold, and what they did on photos that chose neither.

    before, after: calibration at temperature 1 and at the chosen one. known: photos of the model's
    dishes that are called unsure, though they should not be. unknown: the same photos asked with
    their own dish struck from the answers, as a dish never taught would be, that are called unsure,
    as they should be. strangers: pictures of no dish that are called unsure.
    """

    card: Card
    before: Calibration
    after: Calibration
    known: Count
    unknown: Count
    strangers: Count


def calibrate(
    model: ViT,
    card: Card,
    photos: PhotoSet,
    strangers: Sequence[Source] = (),
    share: float = 0.1,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Calibrated:
    """Fit the temperature and the threshold under which `share` of known photos are called unsure.
    The temperature stays 1 where the photos that judge find it worse.

    Half of `photos` (validation photos, never test photos) chooses, drawn by `seed`; the other half
    and `strangers` judge. DataError and PhotoError as in `evaluate`.
    """
    if not 0 < share < 1:
        raise ValueError(f"The share of known photos must be between 0 and 1, got {share}.")
    answers = evaluate(model, photos, card.preprocess, card.classes, progress=progress)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(photos)))
    choose, judge = order[::2], order[1::2]
    logits, targets = answers.logits, answers.targets
    temperature = round(fit_temperature(logits[choose], targets[choose]), 4)
    before = calibration_error(logits[judge].softmax(1), targets[judge])
    after = calibration_error((logits[judge] / temperature).softmax(1), targets[judge])
    if after.ece > before.ece:  # as with photos that the model learnt by heart
        temperature, after = 1.0, before
    sure = (logits / temperature).softmax(1).amax(1)
    threshold = round(float(sure[choose].quantile(share)), 4)

    struck = logits[judge].scatter(1, targets[judge, None], -torch.inf)
    unknown = (struck / temperature).softmax(1).amax(1)
    foreign = _confidences(model, card, strangers, temperature)
    known, unknown_count, strangers_count = (
        Count(int((values < threshold).sum()), len(values))
        for values in (sure[judge], unknown, foreign)
    )
    record: dict[str, Any] = {
        "photos": {"choosing": len(choose), "judging": len(judge)},
        "ece_before": round(before.ece, 4),
        "ece_after": round(after.ece, 4),
        "bins_before": before.to_json(),
        "bins_after": after.to_json(),
        "known_called_unsure": known.to_json(),
        "unknown_dishes_called_unsure": unknown_count.to_json(),
        "strangers_called_unsure": strangers_count.to_json(),
    }
    card = replace(
        card,
        temperature=temperature,
        unsure_below=threshold,
        training={**card.training, "calibration": record},
    )
    return Calibrated(card, before, after, known, unknown_count, strangers_count)


def _confidences(
    model: ViT, card: Card, sources: Sequence[Source], temperature: float, batch: int = 32
) -> Tensor:
    """The probability of the best answer for each source (N,)."""
    found = [torch.empty(0)]
    device = model.pos_embed.device
    for start in range(0, len(sources), batch):
        views = [
            card.preprocess.view(open_photo(source).image)
            for source in sources[start : start + batch]
        ]
        with torch.inference_mode():
            logits = model(card.preprocess.batch(views).to(device)).float().cpu()
        found.append((logits / temperature).softmax(1).amax(1))
    return torch.cat(found)
