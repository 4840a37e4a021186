"""How much runs started from the page may take; every limit is an environment variable."""

import os
from dataclasses import dataclass

from vit.settings import amount, count, number


@dataclass(frozen=True)
class Limits:
    """What runs started from the page are held to; a Space is shared, so it gets the lower ones."""

    at_once: int  # runs under way, the others wait
    waiting: int  # runs in the queue
    each: int  # runs of one visitor that wait or are under way
    minutes: float  # that one run may take
    photos: int  # that one run may use
    gigabytes: float  # of all runs and checkpoints together
    threads: int  # processor threads of one run


def limits() -> Limits:
    """The limits of this machine now. ValueError names a variable that is no number above 0."""
    return Limits(
        at_once=count("VIT_RUNS_AT_ONCE"),
        waiting=count("VIT_RUNS_WAITING"),
        each=count("VIT_RUNS_EACH"),
        minutes=amount("VIT_RUN_MINUTES"),
        photos=count("VIT_RUN_PHOTOS"),
        gigabytes=amount("VIT_RUNS_GB"),
        threads=int(number("VIT_RUN_THREADS") or os.cpu_count() or 1),
    )
