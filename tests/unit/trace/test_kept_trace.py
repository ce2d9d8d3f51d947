"""The trace of a message that a pull row keeps for its consumer: nobody has pulled it before it is handed out."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.model.traces import GroupTrace
from hourwheel.pull_log.records import AHEAD_KEPT_MS
from hourwheel.times import rfc3339
from hourwheel.trace.messages import SearchSpan
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.pull_log.claiming.test_ahead import met
from tests.unit.pull_log.claiming.test_growth import Consumer


@pytest.fixture
def bench() -> Bench:
    return Bench(CallByCall(MemoryStore()), settings=Settings(retry=AT_ONCE, registry_seconds=0))


def of_group(bench: Bench, offset: int) -> GroupTrace:
    (found,) = bench.deployment.messages.trace("orders", f"0:{offset}", SearchSpan(), "billing").messages
    (group,) = found.groups
    return group


def events(found: GroupTrace) -> list[tuple[str, str | None]]:
    return [(event.event, event.at) for event in found.events]


def now(bench: Bench) -> str:
    return rfc3339(bench.clock.ms)


def test_a_kept_message_waits_and_has_no_events(bench: Bench) -> None:
    met(bench)
    assert of_group(bench, 3).state == "in_flight"
    assert of_group(bench, 4) == GroupTrace("billing", "waiting", [], complete=True)


@pytest.mark.parametrize("how", ["settled", "silent"])
def test_a_kept_message_that_was_released_was_pulled_once(bench: Bench, how: str) -> None:
    consumer = met(bench)
    if how == "settled":
        assert consumer.held is not None
        consumer.settle(consumer.held.receipt)
        assert of_group(bench, 4) == GroupTrace("billing", "retrying", [], complete=True)
    else:
        bench.clock.pass_time(AHEAD_KEPT_MS / 1_000 + 0.1)
    while "m3" not in Consumer(bench, "c2").pull():
        pass
    found = of_group(bench, 4)
    assert (found.state, events(found)) == ("in_flight", [("pulled", now(bench))])
    assert [(event.consumer, event.attempt) for event in found.events] == [("c2", 1)]


def test_a_kept_message_is_pulled_when_it_is_handed_out(bench: Bench) -> None:
    consumer = met(bench)
    bench.clock.pass_time(1)
    assert consumer.pull() == ["m3"]
    found = of_group(bench, 4)
    assert (found.state, events(found)) == ("in_flight", [("pulled", now(bench))])


@pytest.mark.parametrize("closed", [False, True])
def test_a_row_does_not_tell_when_it_handed_out_messages_before_its_last_pull(bench: Bench, closed: bool) -> None:
    consumer = met(bench)
    for _ in range(3):
        bench.clock.pass_time(1)
        consumer.pull()
    pulled_at = now(bench)
    if closed:
        assert consumer.held is not None
        consumer.settle(consumer.held.receipt)
    for offset in (3, 4, 5):
        found = of_group(bench, offset)
        assert (found.state, events(found)) == ("acknowledged", [("pulled", None), ("acknowledged", None)])
        assert [event.lease_until for event in found.events] == [None, None]
    last = [("pulled", pulled_at), ("acknowledged", pulled_at)] if closed else [("pulled", pulled_at)]
    assert events(of_group(bench, 6)) == last
