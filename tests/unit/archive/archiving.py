"""Runs the archiver, also one whose process ends at any call."""

from typing import TypeVar, cast

from hourwheel.archive.archiver import Archived, Archiver, CommitLimits
from hourwheel.errors import HourwheelError, Unavailable
from hourwheel.ports.storage import Blobs
from tests.support import Bench

T = TypeVar("T")

HOUR = 3_600


def archiver(bench: Bench, archive: Blobs, **limits: int) -> Archiver:
    deployment = bench.another_process()
    return Archiver(deployment.context, deployment.registry, archive, CommitLimits(**limits))


def run(bench: Bench, archive: Blobs, **limits: int) -> Archived:
    return archiver(bench, archive, **limits).run(bench.clock.now_ms() + 600_000)


class Dying:
    """Storage of a process that ends at its ``calls``-th call of these verbs, before or after it takes effect."""

    def __init__(self, inner: object, left: list[int], after: bool, error: type[HourwheelError]) -> None:
        self._inner, self._left, self._after, self._error = inner, left, after, error

    def __getattr__(self, verb: str) -> object:
        call = getattr(self._inner, verb)
        if verb == "transact":
            raise AttributeError(verb)

        def dying(*args: object, **named: object) -> object:
            self._left[0] -= 1
            if self._left[0] == 0 and not self._after:
                raise self._error("the end of the process")
            answer = call(*args, **named)
            if self._left[0] == 0:
                raise self._error("the end of the process")
            return answer

        return dying


def dying_at(inner: T, left: list[int], after: bool, error: type[HourwheelError] = Unavailable) -> T:
    return cast(T, Dying(inner, left, after, error))
