"""Runs a program again and again that one of its messages ends, until that message is a dead letter and all others are
handled."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from hourwheel.client import Api

POISON = "poison"
SECONDS = 120.0


def handled(journal: Path) -> set[str]:
    return set(journal.read_text().split()) if journal.exists() else set()


def run_until_dead(
    command: Sequence[str],
    api: Api,
    where: tuple[str, str],
    done: Callable[[], bool],
    env: Mapping[str, str] | None = None,
) -> int:
    """Returns how often the program was ended by the message."""
    give_up_at, ended = monotonic() + SECONDS, 0

    def finished() -> bool:
        return done() and bool(api.list_dead(*where).messages)

    while True:
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while process.poll() is None and not finished():
                assert monotonic() < give_up_at, (ended, api.lag(*where))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.1)
        finally:
            was_ended = process.poll() is not None
            process.kill()
            process.wait()
        if not was_ended:
            return ended
        assert process.returncode == 9
        ended += 1
