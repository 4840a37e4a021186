"""What the benchmarks share: competitors that take turns, and ratios within each round.

Whatever else the machine does falls on all competitors, for each comes once in every round and the
order turns. A ratio is the median of the ratios within the rounds, with their quartiles; beside it
stands the ratio of the fastest times, which a busy machine blurs least.
"""

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

LEAST = 8  # rounds

Times = dict[str, list[float]]  # milliseconds of every round, by competitor


def milliseconds(
    work: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """What `work` takes by `clock`. `time.process_time` counts the processor's work for this
    process alone, in all threads: for one thread the same on a busy machine as on a quiet one."""
    began = clock()
    work()
    return 1000 * (clock() - began)


def clock(cpu: bool) -> Callable[[], float]:
    return time.process_time if cpu else time.perf_counter


def used(process: int) -> float:
    """Seconds of the processor that another process has used, in steps of 10 milliseconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def take_turns(
    works: Mapping[str, Callable[[], object]],
    rounds: int,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Each of `works` once a round, the first round begun by the first, the next by the second.

    After `seconds` no new round is begun, but not before the `LEAST`th.
    """
    times: Times = {name: [] for name in works}
    names, end = list(works), time.monotonic() + seconds
    for number in range(rounds):
        if number >= LEAST and time.monotonic() > end:
            break
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(milliseconds(works[name], clock))
    return times


@dataclass(frozen=True)
class Ratio:
    """How long one takes for each unit of the other: median and quartiles of the rounds' ratios,
    and the ratio of the fastest times."""

    median: float
    low: float
    high: float
    fastest: float

    @classmethod
    def of(cls, one: Sequence[float], other: Sequence[float]) -> "Ratio":
        median, low, high = spread([a / b for a, b in zip(one, other, strict=True)])
        return cls(median, low, high, min(one) / min(other))

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}], fastest {self.fastest:.3f}"


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and the two quartiles."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4)
    return middle, low, high


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which so many per cent of them lie, the nearest that was measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share / 100 * len(ordered)))]


def verdict(value: float, target: float) -> str:
    return f"{'meets' if value <= target else 'misses'} {target:g}"


def versions(*packages: str) -> str:
    """Of Python and these packages, the processor, its cores, and how much else is going on."""
    found = [f"Python {platform.python_version()}", *(f"{p} {version(p)}" for p in packages)]
    return f"{', '.join(found)}; {processor()}, {os.cpu_count()} cores, load {load()}"


def load() -> str:
    """Processes that wanted to run in the last minute, this one among them, on average."""
    return f"{os.getloadavg()[0]:.1f}"


def processor() -> str:
    with Path("/proc/cpuinfo").open() as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
