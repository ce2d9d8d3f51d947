"""Plants bugs of pushing: the real code with one clause of the protocol left out."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from hourwheel.model.targets import DONE, Outcome
from hourwheel.push.pusher import Pusher
from hourwheel.push.state import PushState
from hourwheel.sweep import looks
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import pushed
from tests.simulation.plan import Plan

PUSHED: list[Bug] = []
planted = registrar(PUSHED)


def _pushed(plan: Plan) -> Plan:
    return pushed(plan, Random(plan.seed))


@planted(sharpen=_pushed)
def what_is_not_reached_is_settled() -> Iterator[None]:
    def settle(self: Pusher, hand: Any, *, release: Any = None, **how: Any) -> str:
        return real(self, hand, **how)

    real = Pusher._settle
    with patch.object(Pusher, "_settle", settle):
        yield


@planted(sharpen=_pushed)
def a_batch_is_settled_before_it_is_delivered() -> Iterator[None]:
    def serve(self: Pusher, hand: Any) -> None:
        self._settle(hand)
        real(self, hand)

    real = Pusher._serve
    with patch.object(Pusher, "_serve", serve):
        yield


@planted(sharpen=_pushed)
def the_sweeper_does_not_look_for_what_nobody_pushes() -> Iterator[None]:
    with patch.object(looks, "start_free", lambda context, group: False):
        yield


@planted(sharpen=_pushed)
def a_pause_has_no_end() -> Iterator[None]:
    with patch.object(PushState, "paused", lambda self, now_ms: self.resumes_ms > 0):
        yield


@planted(sharpen=_pushed)
def a_pusher_that_died_keeps_its_lease() -> Iterator[None]:
    with patch.object(PushState, "alive", lambda self, now_ms: self.until_ms > 0):
        yield


@planted(sharpen=_pushed)
def a_target_that_raises_has_taken_everything() -> Iterator[None]:
    def guarded(self: Pusher, deliver: Callable[[], Outcome], size: int) -> Outcome:
        try:
            return deliver()
        except ConnectionError:
            self.deployment.context.meter.record("Faults", 1)
            return DONE

    with patch.object(Pusher, "_guarded", guarded):
        yield


def _pushed_in_threads(plan: Plan) -> Plan:
    return replace(_pushed(plan), concurrency=3, moves=(), operators=0)


@planted(sharpen=_pushed_in_threads)
def the_threads_of_a_pusher_keep_their_pull_in_one_place() -> Iterator[None]:
    def serve(self: Any, hand: Any) -> None:
        self.hand = hand
        real_serve(self, hand)

    def settle(self: Any, hand: Any, **how: Any) -> str:
        return real_settle(self, self.hand, **how)

    real_serve, real_settle = Pusher._serve, Pusher._settle
    with patch.object(Pusher, "_serve", serve), patch.object(Pusher, "_settle", settle):
        yield
