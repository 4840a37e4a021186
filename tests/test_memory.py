"""Memory that was freed in pieces goes back to the system."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCATTER = """
import ctypes
from pathlib import Path
from vit.memory import give_back

def megabytes():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024

ctypes.CDLL("libc.so.6").mallopt(-3, 2**25)  # what is freed stays in the heap, as after some hours
pieces = [bytearray(100_000) for _ in range(4000)]
kept = pieces[::40]
full = megabytes()
del pieces
freed = megabytes()
assert give_back()
print(full, freed, megabytes())
"""


KEEP = """
import resource
from vit.memory import keep_freed

assert keep_freed()
before = 0
for turn in range(20):
    buffers = [bytearray(20_000_000) for _ in range(5)]
    del buffers
    if turn == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to")
def test_what_is_needed_again_and_again_is_kept() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KEEP], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert int(done.stdout) < 25_000, done  # pages; one turn alone needs 24,400 new ones


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told to")
def test_what_was_freed_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCATTER], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    full, freed, given_back = map(float, done.stdout.split())
    assert full - freed < 100, "nothing was scattered: the test shows nothing"
    assert full - given_back > 300
