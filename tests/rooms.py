"""Finds a room, which is a folder of the library, with its tests. ``python -m tests.rooms NAME`` checks it: format and
lint of its code and its tests, types, and which folders may import which. Exit status 1: something is wrong."""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIBRARY = Path("layers/hourwheel/python/hourwheel")


@dataclass(frozen=True)
class Room:
    name: str
    code: tuple[Path, ...]
    """Folders and modules of the library with this name; empty for a folder of tests only."""
    tests: tuple[Path, ...]
    """Folders and modules: unit tests if there are any with this name, otherwise those of other folders."""

    def checks(self, root: Path) -> Iterator[list[str]]:
        """Yields the commands that check the room. Types are checked in the whole library, from the cache of mypy."""
        paths = [str(path.relative_to(root)) for path in (*self.code, *self.tests)]
        tools = Path(sys.executable).parent
        yield [str(tools / "ruff"), "format", "--check", *paths]
        yield [str(tools / "ruff"), "check", *paths]
        yield [str(tools / "mypy")]
        yield [str(tools / "lint-imports")]


def names(root: Path) -> list[str]:
    """Returns the names of the rooms: the folders of the library that hold modules."""
    return sorted({path.parent.name for path in (root / LIBRARY).rglob("*.py") if path.parent != root / LIBRARY})


def find(name: str, root: Path) -> Room:
    """Returns the room with this name. Raises ``SystemExit`` if neither a room nor a test is named so."""
    code, tests = named(root / LIBRARY, name, f"{name}.py"), root / "tests"
    found = named(tests / "unit", name, f"test_{name}.py") or named(tests, name, f"test_{name}.py")
    if not (code or found):
        raise SystemExit(f"no room and no folder of tests is named {name}; the rooms are {', '.join(names(root))}")
    return Room(name, code, found)


def named(folder: Path, *patterns: str) -> tuple[Path, ...]:
    paths = (path for pattern in patterns for path in folder.rglob(pattern))
    return tuple(sorted(path for path in paths if "__pycache__" not in path.parts))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rooms", description="Checks a room.")
    parser.add_argument("name", metavar="NAME", help="a folder of the library")
    commands = list(find(parser.parse_args(arguments).name, ROOT).checks(ROOT))
    failed = [command for command in commands if subprocess.run(command, cwd=ROOT, check=False).returncode]
    for command in failed:
        sys.stderr.write(f"failed: {Path(command[0]).name} {' '.join(command[1:])}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
