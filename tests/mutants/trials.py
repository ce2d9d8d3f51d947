"""Runs the checks of many mutants, each in a process of its own that ends after some time."""

import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.mutants.mutations import Mutant
from tests.mutants.planting import plant

SURVIVED, NOT_PLANTED, TOO_LONG = "", "not planted", "too long"
UNCHANGED = Mutant("", "", 0, "no change", "", -1, 1)
"""Passes all checks, or the checks say nothing about mutants."""


class Trial(NamedTuple):
    """How a mutant fared: ``finder`` is the check that found it; "" if it survived all of them."""

    mutant: Mutant
    finder: str
    seconds: float


@dataclass
class _Child:
    mutant: Mutant
    pid: int
    began: float


def sampled(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Returns this many of the mutants, drawn by the seed: the kinds take turns, so that rare ones are not missed."""
    rng = Random(seed)
    kinds: dict[str, list[Mutant]] = {}
    for mutant in found:
        kinds.setdefault(mutant.kind, []).append(mutant)
    for each in kinds.values():
        rng.shuffle(each)
    turns = [(at, kind) for kind in sorted(kinds) for at in range(len(kinds[kind]))]
    return [kinds[kind][at] for at, kind in sorted(turns)[:count]]


def trials(
    chosen: Sequence[Mutant],
    finder: Callable[[], str],
    *,
    processes: int,
    longest_seconds: float,
    until: float = math.inf,
) -> Iterator[Trial]:
    """Yields how each mutant fared as soon as it is known. A mutant whose checks take longer than this is found:
    the checks of the unchanged code must take much less. No mutant is begun after ``until``, in monotonic time."""
    waiting, running = list(reversed(chosen)), selectors.DefaultSelector()
    while running.get_map() or (waiting and time.monotonic() < until):
        while waiting and len(running.get_map()) < processes and time.monotonic() < until:
            child, answers = _start(waiting.pop(), finder)
            running.register(answers, selectors.EVENT_READ, child)
        children = [key.data for key in running.get_map().values()]
        left = min(child.began for child in children) + longest_seconds - time.monotonic()
        for key, _ in running.select(max(0.0, left)):
            running.unregister(key.fileobj)
            yield _end(key.data, key.fd, "")
        for key in list(running.get_map().values()):
            if time.monotonic() - key.data.began >= longest_seconds:
                running.unregister(key.fileobj)
                yield _end(key.data, key.fd, TOO_LONG)


def _start(mutant: Mutant, finder: Callable[[], str]) -> tuple[_Child, int]:
    answers, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(answers)
        _live(mutant, finder, writing)
    os.close(writing)
    return _Child(mutant, pid, time.monotonic()), answers


def _live(mutant: Mutant, finder: Callable[[], str], writing: int) -> None:
    """Is the child process: runs the checks, tells the result, and ends."""
    result = "an error outside of the checks"
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        result = finder() if mutant is UNCHANGED or plant(mutant) else NOT_PLANTED
    except BaseException as error:
        result = repr(error)[:200]
    finally:
        os.write(writing, b"+" + result.encode()[:1_000])
        os._exit(0)


def _end(child: _Child, answers: int, result: str) -> Trial:
    """Ends the processes of the mutant, and returns how it fared."""
    if not result:
        answer = os.read(answers, 4_096).decode(errors="replace")
        result = answer[1:] if answer else "the process ended"
    os.close(answers)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    return Trial(child.mutant, result, time.monotonic() - child.began)
