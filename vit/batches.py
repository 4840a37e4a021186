"""Batches made by threads while the model works, and the order in which photos come."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vit.images import Preprocess
from vit.photoset import PhotoSet

T = TypeVar("T")


def prefetch(
    jobs: Iterable[Callable[[], T]], threads: int = 2, ahead: int = 4
) -> Generator[T, None, None]:
    """The results of `jobs` in order, up to `ahead` of them made before they are asked for.

    Threads, not processes: Pillow decodes and resizes without holding the interpreter's lock, and
    processes hang on some platforms. An exception of a job is raised where its result is due.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="photos")
    pending: deque[Future[T]] = deque()
    try:
        for job in jobs:
            pending.append(pool.submit(job))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def plain_batches(
    photos: PhotoSet, preprocess: Preprocess, size: int = 32, threads: int = 2
) -> Generator[tuple[Tensor, Tensor], None, None]:
    """Photos (B, 3, H, W) as the model sees them and their labels (B,), in the set's order."""

    def job(indices: Sequence[int]) -> Callable[[], tuple[Tensor, Tensor]]:
        def make() -> tuple[Tensor, Tensor]:
            shortest = min(preprocess.size)
            views = [preprocess.view(photos.photo(i, at_least=2 * shortest)) for i in indices]
            return preprocess.batch(views), torch.tensor([photos.samples[i].label for i in indices])

        return make

    starts = range(0, len(photos), size)
    jobs = (job(range(start, min(start + size, len(photos)))) for start in starts)
    return prefetch(jobs, threads)


def shuffled(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of `count` photos in one epoch: from the seed alone, so that a run can resume."""
    return np.random.default_rng((seed, epoch)).permutation(count)
