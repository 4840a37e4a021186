"""Batches made ahead by threads."""

import threading
import time

import pytest
import torch
from small import photos

from vit.batches import plain_batches, prefetch, shuffled
from vit.data import open_photos
from vit.images import Preprocess


def photo_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("photos")]


def test_results_come_in_order_however_long_each_takes():
    def job(number: int):
        def work() -> int:
            time.sleep(0.01 * (number % 3))
            return number

        return work

    assert list(prefetch(map(job, range(20)), threads=4)) == list(range(20))
    assert not photo_threads()


def test_only_a_few_are_made_ahead():
    begun = []
    jobs = (lambda n=n: begun.append(n) for n in range(100))
    batches = prefetch(jobs, threads=2, ahead=3)
    next(batches)
    time.sleep(0.05)
    assert len(begun) <= 5
    batches.close()


def test_an_exception_is_raised_where_its_result_is_due():
    def fail() -> int:
        raise OSError("no such photo")

    batches = prefetch([lambda: 1, lambda: 2, fail, lambda: 4])
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(OSError, match="no such photo"):
        next(batches)
    assert not photo_threads()


def test_closing_early_leaves_no_threads():
    batches = prefetch((lambda: time.sleep(0.01) for _ in range(1000)), threads=3)
    next(batches)
    assert photo_threads()
    began = time.perf_counter()
    batches.close()
    assert not photo_threads()
    assert time.perf_counter() - began < 1


def test_no_jobs_give_no_batches():
    assert list(prefetch([])) == []


def test_plain_batches_are_what_the_model_sees_in_the_order_of_the_set(tmp_path):
    found = open_photos(photos(tmp_path / "set", 5))
    preprocess = Preprocess((24, 32))
    batches = list(plain_batches(found, preprocess, size=4))
    assert [len(images) for images, _ in batches] == [4, 4, 2]
    assert torch.cat([labels for _, labels in batches]).tolist() == found.targets
    everything = torch.cat([images for images, _ in batches])
    expected = torch.stack([preprocess(found.photo(i)) for i in range(len(found))])
    torch.testing.assert_close(everything, expected)


def test_the_order_depends_on_seed_and_epoch_alone():
    assert sorted(shuffled(50, 3, 1)) == list(range(50))
    assert list(shuffled(50, 3, 1)) == list(shuffled(50, 3, 1))
    assert list(shuffled(50, 3, 1)) != list(shuffled(50, 3, 2))
    assert list(shuffled(50, 3, 1)) != list(shuffled(50, 4, 1))
