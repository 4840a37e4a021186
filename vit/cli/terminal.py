"""What the commands share: how one is added and read, and how they speak to a terminal."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

# Adds a command by its name and the function that does it, whose docstring is its description.
Command = Callable[[str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]


class Parser(argparse.ArgumentParser):
    """Bad options get one sentence, and not the list of all."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message}; see {self.prog} --help\n")


def percent(value: float) -> str:
    """A probability for people."""
    return "< 1 %" if value < 0.01 else f"{100 * value:.0f} %"


def progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total} photos", end="\n" if done == total else "", file=sys.stderr)


def megabytes(done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        of = f" of {total / 1e6:.1f}" if total else ""
        end = "\n" if done == total else ""
        print(f"\r{done / 1e6:.1f}{of} MB", end=end, file=sys.stderr)
