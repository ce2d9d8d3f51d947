"""What the names of logs say.

{subject}~{generation}/{queue}                    a queue
{subject}~{generation}/retry/{group}~{number}     what a group is to try again
{subject}~{generation}/dead/{group}~{number}      what it gave up
{subject}~{generation}/dead                       what came due after its subject was deleted
schedule/{bucket}                                 what is due at a time
"""

import re
from functools import lru_cache
from typing import NamedTuple, Self

from hourwheel.errors import Corrupt
from hourwheel.logs.notes import Plan
from hourwheel.logs.rows import SCHEDULES
from hourwheel_pipeline.schemas import DEAD, ORPHAN, QUEUE, RETRY, SCHEDULE

_NAME = r"[A-Za-z0-9._-]+"
_LOG = re.compile(rf"({_NAME})~(\d+)/(?:(\d+)|(retry|dead)(?:/({_NAME})~(\d+))?)", re.ASCII)
_MEMBER = re.compile(rf"({_NAME})~(\d+)", re.ASCII)
_KINDS = {"retry": RETRY, "dead": DEAD}


class Place(NamedTuple):
    """Where messages are, and whose they are."""

    log: str
    kind: str
    subject: str = ""
    generation: int | None = None
    queue: int | None = None
    group: str | None = None
    group_generation: int | None = None

    def planned(self, plan: Plan) -> Self:
        """A place in a schedule log, for messages with that plan; raises ``Corrupt``."""
        group = number = None
        if plan.member is not None:
            found = _MEMBER.fullmatch(plan.member)
            if found is None:
                raise Corrupt(f"{plan.member!r} is not the name of a group and its generation")
            group, number = found[1], int(found[2])
        return self._replace(subject=plan.subject, generation=plan.generation, group=group, group_generation=number)


@lru_cache(maxsize=10_000)
def place_of(log: str) -> Place:
    """Raises ``Corrupt``."""
    if log.startswith(SCHEDULES):
        return Place(log, SCHEDULE)
    found = _LOG.fullmatch(log)
    if found is None:
        raise Corrupt(f"{log!r} is not the name of a log")
    subject, generation, queue, kind, group, number = found.groups()
    if queue is not None:
        return Place(log, QUEUE, subject, int(generation), queue=int(queue))
    if group is None and kind == RETRY:
        raise Corrupt(f"{log!r} is not the name of a log")
    return Place(
        log,
        ORPHAN if group is None else _KINDS[kind],
        subject,
        int(generation),
        group=group,
        group_generation=None if number is None else int(number),
    )


class PullPlace(NamedTuple):
    """A pull log: whose it is, and of which source."""

    group: str
    group_generation: int
    source: Place


@lru_cache(maxsize=10_000)
def pull_place_of(partition: str) -> PullPlace:
    """Of ``{group}~{generation}@{source log}``. Raises ``Corrupt``."""
    member, _, source = partition.partition("@")
    found = _MEMBER.fullmatch(member)
    place = place_of(source)
    if found is None or place.generation is None:
        raise Corrupt(f"{partition!r} is not the name of a pull log")
    return PullPlace(found[1], int(found[2]), place)
