"""Plants bugs that show only where two rare states meet: see ``rarescenes.py``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hourwheel.groups import progress
from hourwheel.groups.progress import SeekTarget
from hourwheel.logs.cas import Versioned
from hourwheel.ordered.key_states import KeyStates
from hourwheel.producing import batch_writer
from hourwheel.producing.later_routes import LaterRoute
from hourwheel.producing.routing import BatchPart
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import PullRow
from hourwheel.push.pusher import Pusher, PusherEnd
from hourwheel.settling.settle import Settler


@contextmanager
def a_repeat_remembers_the_first_part_that_it_has_divided() -> Iterator[None]:
    def routes(parts: Sequence[BatchPart], left: Sequence[int]) -> list[LaterRoute]:
        return [LaterRoute(route.parts[:1], route.queues) for route in real(parts, left)]

    real = batch_writer.later_routes
    with patch.object(batch_writer, "later_routes", routes):
        yield


@contextmanager
def a_repeat_divides_each_part_alone() -> Iterator[None]:
    def routes(parts: Sequence[BatchPart], left: Sequence[int]) -> list[LaterRoute]:
        return [route for number in reversed(left) for route in real(parts, [number])]

    real = batch_writer.later_routes
    with patch.object(batch_writer, "later_routes", routes):
        yield


@contextmanager
def nobody_but_its_operator_finishes_a_decision() -> Iterator[None]:
    def finish(self: Settler, row_no: int, current: Versioned[PullRow]) -> Versioned[PullRow]:
        clock: Any = self.context.clock
        if not current.value.consumer and clock.verb.name != "decide":
            return current
        return real(self, row_no, current)

    real = Settler.finish
    with patch.object(Settler, "finish", finish):
        yield


@contextmanager
def a_seek_to_an_offset_leaves_the_parts_behind_it_alone() -> Iterator[None]:
    def to_start(log: PullLog) -> SeekTarget:
        if log.mapping.start == 0:
            return real(log)
        tail = log.tail()
        return SeekTarget(tail.position, tail.seq)

    real = progress.to_start
    with patch.object(progress, "to_start", to_start):
        yield


@contextmanager
def the_last_look_of_a_pusher_is_at_the_queues_that_it_knew() -> Iterator[None]:
    def look(self: Pusher) -> PusherEnd | None:
        with patch.object(type(self.deployment.registry), "forget", lambda *_: None):
            return real(self)

    real = Pusher._look
    with patch.object(Pusher, "_look", look):
        yield


@contextmanager
def the_first_block_behind_a_key_is_taken_for_its_last() -> Iterator[None]:
    def empty(self: KeyStates, digest: bytes) -> None:
        real(self, digest)
        self.later.pop(digest, None)

    real = KeyStates._empty
    with patch.object(KeyStates, "_empty", empty):
        yield


RARE_BUGS = {
    a_repeat_remembers_the_first_part_that_it_has_divided: "rows filled before queues were added",
    a_repeat_divides_each_part_alone: "rows filled before queues were added",
    nobody_but_its_operator_finishes_a_decision: "stopped keys",
    a_seek_to_an_offset_leaves_the_parts_behind_it_alone: "parts behind a group",
    the_last_look_of_a_pusher_is_at_the_queues_that_it_knew: "a target, and queues that are added",
    the_first_block_behind_a_key_is_taken_for_its_last: "a key with blocks behind",
}
"""The scenes that find each bug, by the beginning of their names."""
