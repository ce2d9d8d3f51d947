"""A trace tells where a message is and what each group did with it, from a bounded number of reads."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.messages import MessageService
from hourwheel.errors import Corrupt, NotFound, Rejected
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, RetryLater
from hourwheel.model.traces import GroupTrace, MessageTrace, TracePage
from hourwheel.pull_log.records import SETTLED_KEPT_MS
from hourwheel.times import rfc3339
from hourwheel.trace import claims, messages
from hourwheel.trace.history import StoredHistory
from hourwheel.trace.messages import SearchSpan
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.pulling.test_damage import NOISE, remove_large_batches


@pytest.fixture(params=["whole", "by halving"], autouse=True)
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes traces read pull logs as a whole, or search them as long ones are searched."""
    if request.param == "by halving":
        monkeypatch.setattr(claims, "_READ_WHOLE", -1)


def trace(bench: Bench, name: str = "0:0", span: SearchSpan = SearchSpan(), group: str | None = None) -> MessageTrace:  # noqa: B008 - a tuple
    (found,) = bench.deployment.messages.trace("orders", name, span, group).messages
    return found


def of_group(bench: Bench, name: str = "0:0", group: str = "billing") -> GroupTrace:
    (found,) = trace(bench, name, group=group).groups
    return found


def events(found: GroupTrace) -> list[str]:
    return [event.event for event in found.events]


def at(bench: Bench) -> str:
    return rfc3339(bench.clock.ms)


def test_a_message_that_waits_is_shown_with_its_body(bench: Bench) -> None:
    sent_at = at(bench)
    bench.send("a", "b")
    bench.deployment.groups.put("orders", "billing")
    found = trace(bench, "0:1")
    assert (found.state, found.queue, found.offset, found.accepted_at) == ("accepted", 0, 1, sent_at)
    assert found.message is not None
    assert (found.message.body, found.message.attempt, found.id) == ("b", 0, found.message.id)
    assert found.groups == [GroupTrace("billing", "waiting", [], complete=True)]


def test_a_trace_by_offset_does_without_the_secret(bench: Bench) -> None:
    bench.send("a")

    def secret() -> bytes:
        raise AssertionError("the secret signs scheduled ids alone")

    (found,) = MessageService(bench.deployment.registry, secret).trace("orders", "0:0", SearchSpan()).messages
    assert (found.queue, found.offset) == (0, 0)


def test_who_pulled_it_and_when_and_that_it_was_acknowledged(bench: Bench) -> None:
    bench.send("a", "b")
    pulled_at = at(bench)
    (pull,) = bench.pull(lease=30)
    found = of_group(bench, "0:1")
    (event,) = found.events
    assert (found.state, found.complete) == ("in_flight", True)
    assert (event.event, event.at, event.consumer, event.attempt) == ("pulled", pulled_at, "c1", 1)
    assert event.lease_until == pull.lease_until
    bench.clock.pass_time(5)
    bench.settle(pull)
    found = of_group(bench, "0:1")
    assert (found.state, events(found), found.events[-1].at) == ("acknowledged", ["pulled", "acknowledged"], at(bench))


def test_each_group_has_its_own_history(bench: Bench) -> None:
    bench.send("a")
    bench.settle(bench.pull()[0])
    bench.pull(group="mail")
    bench.deployment.groups.put("orders", "audit")
    bench.deployment.groups.put("orders", "late", start="latest")
    found = trace(bench)
    assert [(each.group, each.state) for each in found.groups] == [
        ("audit", "waiting"),
        ("billing", "acknowledged"),
        ("late", "before_start"),
        ("mail", "in_flight"),
    ]
    assert not found.more_groups
    assert [each.group for each in trace(bench, group="mail").groups] == ["mail"]


def test_each_consumer_of_a_broadcast_group_has_a_history(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", broadcast=True)
    bench.send("a")
    for consumer in ("hall", "lobby"):
        bench.deployment.pull("orders", "billing", PullRequest(consumer=consumer))
    found = trace(bench)
    assert [(each.group, each.consumer, each.state) for each in found.groups] == [
        ("billing", "hall", "in_flight"),
        ("billing", "lobby", "in_flight"),
    ]


def test_every_retry_and_its_attempt_until_the_last(bench: Bench) -> None:
    bench.send("a", "b")
    bench.settle(bench.pull()[0], retry=[1])
    bench.settle(bench.pull()[0], release=[0])
    (pull,) = bench.pull(lease=2)
    bench.deployment.sweeper.sweep()
    bench.clock.pass_time(3)
    (pull,) = bench.pull()
    assert [message.attempt for message in pull.messages] == [2]
    bench.settle(pull)
    found = of_group(bench, "0:1")
    assert [(event.event, event.attempt) for event in found.events] == [
        ("pulled", 1),
        ("retried", 1),
        ("pulled", 2),
        ("released", 2),
        ("pulled", 2),
        ("lease_ended", 2),
        ("pulled", 2),
        ("acknowledged", 2),
    ]
    assert (found.state, found.complete) == ("acknowledged", True)
    assert events(of_group(bench, "0:0")) == ["pulled", "acknowledged"]


def test_a_retry_that_can_be_pulled_and_one_that_waits_for_its_time() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("a", "b")
    bench.settle(bench.pull()[0], retry=[0, RetryLater(index=1, delay="60s")])
    due_at = rfc3339(bench.clock.ms + 60_000)
    assert of_group(bench, "0:0").state == "retrying"
    waits = of_group(bench, "0:1")
    assert (waits.state, waits.events[-1].event, waits.events[-1].due_at) == ("backing_off", "retried", due_at)
    bench.turn(70)
    due = of_group(bench, "0:1")
    assert (due.state, events(due)) == ("retrying", ["pulled", "retried", "due"])
    for pull in bench.pull():
        bench.settle(pull)
    done = of_group(bench, "0:1")
    assert (done.state, events(done)[-2:], done.complete) == ("acknowledged", ["pulled", "acknowledged"], True)


def test_dead_letters_redriven_and_dropped(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=1, retry=RetryPolicy(first_seconds=0))
    bench.send("a", "b", "c")
    bench.settle(bench.pull()[0], retry=[0], dead=[1, 2])
    spent, rejected = of_group(bench, "0:0"), of_group(bench, "0:1")
    assert [(each.state, each.events[-1].reason) for each in (spent, rejected)] == [
        ("dead", "attempts"),
        ("dead", "rejected"),
    ]
    letters = {
        str(letter.body): letter
        for letter in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    }
    assert rejected.events[-1].dead_id == letters["b"].dead_id
    bench.deployment.dead_letters("orders", "billing").redrive(
        lambda place, _: str(place.row_no) + f"-{place.index}" == letters["b"].dead_id
    )
    redriven = of_group(bench, "0:1")
    assert (redriven.state, events(redriven)) == ("retrying", ["pulled", "dead", "redriven"])
    bench.settle(bench.pull()[0])
    done = of_group(bench, "0:1")
    assert (done.state, events(done)) == ("acknowledged", ["pulled", "dead", "redriven", "pulled", "acknowledged"])
    bench.deployment.dead_letters("orders", "billing").drop(lambda place, died_ms: True)
    assert (of_group(bench, "0:2").state, of_group(bench, "0:1").state) == ("dropped", "acknowledged")


def test_two_deaths_of_a_message_are_followed_to_two_copies_after_their_rows_were_removed(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=1)
    bench.send("a")
    for _ in range(2):
        bench.deployment.seeks().seek("orders", "billing", to="start")
        bench.settle(bench.pull()[0], dead=[0])
        bench.clock.pass_time(60)
    bench.deployment.dead_letters("orders", "billing").redrive(lambda position, died_ms: True)
    bench.deployment.sweeper.sweep()
    first, second = bench.pull(1), bench.pull(1)
    bench.settle(first[0])
    waits = of_group(bench)
    # A search by halving finds one of the claims, and says that there may be others.
    assert ((waits.state, events(waits).count("redriven")) == ("in_flight", 2)) is waits.complete
    bench.settle(second[0])
    assert of_group(bench).state == "acknowledged"


def test_a_search_for_a_redriven_message_reads_a_bounded_number_of_fillers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.deployment.groups.put("orders", "billing")
    group = bench.deployment.groups.records("orders", "billing")[1]
    filler = Row(first_seq=0, count=0, at_ms=bench.clock.ms, expires_ms=bench.clock.ms + 60_000)
    starts: list[int] = []

    def pages(self: Log, start: int, limit: int) -> list[tuple[int, Row | Corrupt]]:
        starts.append(start)
        return [(row_no, filler) for row_no in range(start, min(start + limit, 10_000))]

    monkeypatch.setattr(Log, "stored_page", pages)
    assert StoredHistory(bench.deployment.context, group).redriven(0, 0, bench.clock.ms, frozenset()) is None
    assert starts == list(range(0, 256, 32))


def test_a_message_that_was_sought_past_and_one_that_comes_again(bench: Bench) -> None:
    bench.send("a", "b")
    bench.deployment.groups.put("orders", "mail")
    bench.deployment.seeks().seek("orders", "mail", to="end")
    assert of_group(bench, group="mail").state == "skipped"
    bench.settle(bench.pull()[0])
    bench.deployment.seeks().seek("orders", "billing", to="start")
    again = of_group(bench)
    assert again.state == "waiting"
    bench.settle(bench.pull()[0])
    twice = of_group(bench)
    assert twice.state == "acknowledged"
    # A search by halving finds one of the claims, and says that there may be others.
    assert (events(twice) == ["pulled", "acknowledged"] * 2) is twice.complete


def test_a_delayed_message_before_and_after_its_time() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0))
    sent_at, due_at = at(bench), rfc3339(bench.clock.ms + 5_000)
    (accepted,) = bench.send_later("a", delay=5)
    assert accepted.scheduled_id is not None
    before = trace(bench, accepted.scheduled_id)
    assert (before.state, before.due_at, before.queue, before.id) == ("scheduled", due_at, None, accepted.id)
    bench.turn(10)
    bench.settle(bench.pull()[0])
    for name in (accepted.scheduled_id, "0:0"):
        after = trace(bench, name)
        assert (after.state, after.queue, after.offset) == ("accepted", 0, 0)
        assert (after.accepted_at, after.due_at) == (sent_at, due_at)
        assert after.dispatched_at is not None
        assert after.dispatched_at >= due_at
        assert events(after.groups[0]) == ["pulled", "acknowledged"]
    (cancelled,) = bench.send_later("b", delay="90d")
    assert cancelled.scheduled_id is not None
    bench.deployment.delayed.cancel(cancelled.scheduled_id)
    assert trace(bench, cancelled.scheduled_id).state == "cancelled"


def test_an_id_that_was_given_is_found_by_its_time_in_any_queue(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=3)
    accepted = []
    for key in map(str, range(6)):
        accepted += bench.send("x", key=key)
        bench.clock.pass_time(20)
    for each in accepted:
        found = trace(bench, each.id)
        assert (found.queue, found.offset, found.id) == (each.queue, each.offset, each.id)


def test_the_id_of_a_sender_needs_a_time(bench: Bench) -> None:
    began_ms = bench.clock.ms
    for n in range(3):
        bench.deployment.produce("orders", [NewMessage(body=str(n), id="mine"), NewMessage(body="x")])
        bench.clock.pass_time(10)
    with pytest.raises(Rejected, match="add from"):
        trace(bench, "mine")
    span = SearchSpan(began_ms + 10_000, began_ms + 20_000)
    assert trace(bench, "mine", span).offset == 2
    assert [
        each.offset for each in bench.deployment.messages.trace("orders", "mine", SearchSpan(began_ms)).messages
    ] == [0, 2, 4]
    with pytest.raises(NotFound, match="the lake keeps messages that expired"):
        bench.deployment.messages.trace("orders", "mine", SearchSpan(began_ms + 30_000))


def test_a_search_reads_so_many_rows_at_a_time_and_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_ROWS", 2)
    bench.deployment.subjects.put("orders", queues=2)
    places = []
    for n in range(9):
        name = "mine" if n % 4 == 0 else f"other-{n}"
        (accepted,) = bench.deployment.produce("orders", [NewMessage(body=str(n), id=name, key=str(n))])
        places += [(accepted.queue, accepted.offset)] if name == "mine" else []
    found: list[Any] = []
    page = TracePage([], "")
    span = SearchSpan(0)
    for _ in range(20):
        page = bench.deployment.messages.trace("orders", "mine", span)
        found += [(each.queue, each.offset) for each in page.messages]
        if page.next is None:
            break
        span = SearchSpan(0, None, messages.MessagePosition.parse(page.next))
    assert sorted(found) == sorted(places)
    assert page.next is None


def test_what_is_not_there_is_refused_with_advice(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("a")
    for name, slug in (("0:1", "offset-unknown"), ("1:0", "queue-unknown")):
        with pytest.raises(NotFound) as unknown:
            trace(bench, name)
        assert unknown.value.slug == slug
    with pytest.raises(NotFound) as unknown:
        trace(bench, group="nobody")
    assert unknown.value.slug == "group-unknown"
    bench.clock.pass_time(70)
    with pytest.raises(NotFound, match=r"expired.*lake"):
        trace(bench)
    (accepted,) = bench.send_later("b", delay=60, subject="refunds")
    assert accepted.scheduled_id is not None
    with pytest.raises(NotFound, match="of subject 'refunds'"):
        trace(bench, accepted.scheduled_id)


def test_the_way_of_a_damaged_message_is_told_without_its_body() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024))
    bench.send(NOISE)
    (pull,) = bench.pull()
    bench.settle(pull)
    bench.send(NOISE)
    remove_large_batches(bench)
    bench.pull()
    found = trace(bench)
    assert (found.message, found.groups[0].state) == (None, "acknowledged")
    assert found.damaged is not None
    assert of_group(bench, "0:1").state == "unreadable"


def test_a_trace_of_a_long_log_reads_little(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=60))
    for n in range(300):
        bench.send(str(n))
        bench.settle(bench.pull()[0])
    store.calls.clear()
    if claims._READ_WHOLE < 0:
        assert of_group(bench, "0:77").state == "acknowledged"
        assert len(store.calls) < 50


def test_retries_and_the_dead_letter_tell_what_the_consumer_said(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=3, retry=AT_ONCE)
    bench.send("a", "b")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[RetryLater(index=0, detail="no price")])
    (pull,) = bench.pull()
    bench.settle(pull, retry=[RetryLater(index=0, delay=60, detail="no disk")])
    bench.turn(70)
    for _ in range(2):  # the first end of a lease counts no attempt
        (pull,) = bench.pull(lease=1)
        bench.clock.pass_time(2)
    bench.pull()
    found = [(event.event, event.detail) for event in of_group(bench).events if event.event != "pulled"]
    # The attempt whose lease ended has no text: the dead letter has the text of the one before.
    assert found[:3] == [("retried", "no price"), ("retried", "no disk"), ("due", None)]
    assert found[3:] == [("lease_ended", None), ("dead", "no disk")]
    assert [event.detail for event in of_group(bench, "0:1").events] == [None, None]


def test_a_retry_without_a_detail_and_damaged_copies_tell_none(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=3, retry=AT_ONCE)
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0])
    bench.pull(lease=1)
    bench.clock.pass_time(2)
    bench.pull()
    assert [(event.event, event.detail) for event in of_group(bench).events if event.event != "pulled"] == [
        ("retried", None),
        ("lease_ended", None),
    ]


def test_a_removed_copy_may_have_been_pulled(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0])
    bench.settle(bench.pull()[0])
    assert events(of_group(bench)) == ["pulled", "retried", "pulled", "acknowledged"]
    # Copies of earlier versions could expire before the message itself.
    subject = bench.deployment.registry.subject("orders")
    bench.deployment.context.log(bench.deployment.registry.group(subject, "billing").retry_log).trim(1)
    found = of_group(bench)
    assert (found.state, events(found), found.complete) == ("expired", ["pulled", "retried"], False)
    bench.deployment.seeks().seek("orders", "billing", to="start")
    bench.settle(bench.pull()[0])
    found = of_group(bench)
    assert (found.state, found.complete) == ("acknowledged", False)


def test_pull_rows_that_were_removed_are_missing_in_the_trace(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=30 * 86_400)
    bench.send("a")
    bench.settle(bench.pull()[0])
    for _ in range(2):
        bench.clock.pass_time(SETTLED_KEPT_MS / 1_000)
        bench.deployment.sweeper.sweep()
    found = of_group(bench)
    assert (found.state, events(found), found.complete) == ("settled", [], False)
    bench.deployment.seeks().seek("orders", "billing", to="start")
    found = of_group(bench)
    assert (found.state, found.complete) == ("waiting", False)
