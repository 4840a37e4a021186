"""The command line: `python -m vit COMMAND`; `python -m vit --help` lists the commands."""

import argparse
import sys
from collections.abc import Callable

from vit.cli.needed import missing
from vit.cli.terminal import Parser
from vit.names import one_line


def main(arguments: list[str] | None = None) -> int:
    if said := missing():
        print(said, file=sys.stderr)
        return 2
    from vit.cli import answers, models, photos

    parser = Parser(prog="python -m vit", description=__doc__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        text = (run.__doc__ or "").split("\n")[0]
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    for kind in (answers, photos, models):
        kind.add_to(command)
    given = parser.parse_args(arguments)
    try:
        return given.run(given)
    except (ValueError, OSError) as error:
        print(one_line(str(error)), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
