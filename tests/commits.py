"""Checks commit messages: ``python -m tests.commits FILE`` in the hook of a commit, ``--since REVISION`` in CI.

The subject tells one thing in at most 60 characters, begins with a capital letter and has no full stop; an empty line
separates the body. Exit status 1, with a sentence for each fault.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

LONGEST = 60
"""So that a list of subjects can be read in a terminal of 80 columns, behind hash and date."""

_MADE_BY_GIT = ("Merge ", 'Revert "', "fixup! ", "squash! ", "amend! ")


def faults(message: str) -> Iterator[str]:
    """Yields what is wrong with the message, in words. Subjects that git itself makes are not checked."""
    lines = [line for line in message.partition("# ------------------------ >8 ---")[0].splitlines() if line[:1] != "#"]
    subject, *body = "\n".join(lines).strip().split("\n")
    if subject.startswith(_MADE_BY_GIT):
        return
    if not subject:
        yield "has no subject"
        return
    if len(subject) > LONGEST:
        yield f"has a subject of {len(subject)} characters: tell one thing in at most {LONGEST}, the why in the body"
    if subject.endswith("."):
        yield "has a full stop behind its subject"
    if not subject[0].isupper():
        yield "does not begin with a capital letter"
    if body and body[0]:
        yield "has no empty line behind its subject"


def since(revision: str) -> list[str]:
    """Returns the messages of the commits since then. Raises ``SystemExit`` for an unknown revision."""
    command = ["git", "log", "--format=%B%x00", f"{revision}..HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return [message.strip() for message in done.stdout.split("\0") if message.strip()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.commits", description="Checks commit messages.")
    parser.add_argument("file", nargs="?", type=Path, help="holds the message of the commit that begins")
    parser.add_argument("--since", metavar="REVISION", help="check the commits that this revision does not have")
    options = parser.parse_args(arguments)
    messages = since(options.since) if options.since else [options.file.read_text()] if options.file else []
    if not (options.since or options.file):
        parser.error("give a file or --since")
    found = [(message, fault) for message in messages for fault in faults(message)]
    for message, fault in found:
        sys.stderr.write(f"{message.partition(chr(10))[0]!r} {fault}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
