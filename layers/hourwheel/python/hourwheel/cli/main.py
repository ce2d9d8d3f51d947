"""Runs the command line. Prints the version before it imports anything slow."""

import sys

from hourwheel import __version__


def run() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"hourwheel {__version__}\n")
        return
    from hourwheel.cli.app import app

    app(prog_name="hourwheel")
