"""A pusher whose store fails at one call, or whose target fails at one delivery, delivers every message in the end: no
message waits for ever, and none is delivered again unless the failure hid that it was."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from hourwheel.errors import Unavailable
from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE, Outcome, PushDelivery, failure, unreached
from hourwheel.push.decisions import LONGEST_PAUSE_MS
from tests.support import Bench
from tests.unit.producing.test_failing_once import SETTINGS, Failing
from tests.unit.push.pushing import lag, push

TARGET = PushTarget(kind="lambda", address="arn:aws:lambda:eu-west-1:123456789012:function:bill", batch=2)
BODIES = ["a", "b", "c", "d", "e"]


def _scene() -> tuple[Bench, Failing]:
    store = Failing()
    bench = Bench(store, settings=SETTINGS)
    store.pass_time = bench.clock.pass_time
    bench.deployment.groups.put("orders", "billing", push=TARGET, max_attempts=9)
    for body in BODIES:
        bench.send(body)
    return bench, store


def _finished(bench: Bench) -> None:
    """Pushes as the sweeper starts pushers, until nothing is left."""
    for turn in range(20):
        if not lag(bench).waiting + lag(bench).retrying + lag(bench).in_flight:
            return
        bench.clock.pass_time(LONGEST_PAUSE_MS / 1_000)
        bench.another_process().sweeper.sweep()
        push(bench, f"again {turn}")
    raise AssertionError(f"messages are left: {lag(bench)}")


def _failing_calls(*, after: bool) -> Iterator[Bench]:
    """Yields what became of a push of which each call of the store failed in turn."""
    for at in range(1, 400):
        bench, store = _scene()
        store.fails_at, store.after = at, after
        with suppress(Unavailable):
            push(bench)
        if not store.failed:
            assert at > 20, "a push makes some calls"
            return
        _finished(bench)
        yield bench
    raise AssertionError("a push does not make so many calls")


@pytest.mark.parametrize("after", [False, True])
def test_a_store_that_fails_at_one_call_of_a_pusher_loses_no_message(*, after: bool) -> None:
    twice = 0
    for bench in _failing_calls(after=after):
        assert set(bench.targets.bodies) == set(BODIES)
        again = len(bench.targets.bodies) - len(BODIES)
        assert again in (0, 1, 2), "one batch at most is delivered again: that of which the pusher lost track"
        twice += again > 0
    assert twice, "a settlement that fails after a delivery"


def _raises(_: PushDelivery) -> Outcome:
    raise ConnectionError("the target is gone")


FAILURES: dict[str, Callable[[PushDelivery], Outcome]] = {
    "raises": _raises,
    "is not reached": lambda _: unreached("refused"),
    "fails": lambda delivery: failure(delivery, "500"),
    "fails the first": lambda _: Outcome(failed=frozenset({0}), error="one"),
    "leaves the last untouched": lambda delivery: Outcome(untouched=frozenset({len(delivery.messages) - 1})),
    "finds it too large": lambda _: Outcome(too_large=True),
}


@pytest.mark.parametrize("took", [False, True])
@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_target_that_fails_at_one_delivery_gets_every_message(how: str, at: int, *, took: bool) -> None:
    bench, _ = _scene()
    calls, handled = 0, list[str | None]()

    def answer(delivery: PushDelivery) -> Outcome:
        nonlocal calls
        calls += 1
        bodies = [message.body for message in delivery.messages]
        if calls != at:
            handled.extend(bodies)
            return DONE
        handled.extend(bodies if took else [])
        outcome = FAILURES[how](delivery)
        if not (took or outcome.unreached or outcome.too_large):
            left = outcome.failed | outcome.untouched
            handled.extend(body for index, body in enumerate(bodies) if index not in left)
        return outcome

    bench.targets.answer = answer
    push(bench)
    _finished(bench)
    letters = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    # A message that is too large alone can never be delivered.
    assert len(letters) == (how == "finds it too large" and at == 3)
    assert {*handled, *(letter.body for letter in letters)} == set(BODIES)
    assert len(handled) <= len(BODIES) + TARGET.batch * took
