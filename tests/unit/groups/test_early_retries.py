"""Messages that wait for the delay of their retry are retried at once: all, those of a key, those of an error."""

import pytest

from hourwheel.delay.changes import ScheduledMessages
from hourwheel.errors import ChangePending, NotFound, Rejected, Throttled
from hourwheel.groups.early_retries import EarlyRetries, RetryFilter
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.pulls import PullRequest, RetryLater, Settlement
from hourwheel.trace.messages import SearchSpan
from tests.support import Bench

HOUR = RetryPolicy(delays_seconds=(3_600,))


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.deployment.groups.put("orders", "billing", retry=HOUR)
    return bench


def back_off(bench: Bench, *bodies: str, key: str | None = None, detail: str | None = None) -> None:
    bench.send(*bodies, key=key)
    (pull,) = bench.pull()
    settled = [RetryLater(index=index, detail=detail) for index in range(len(bodies))]
    assert bench.settle(pull, retry=settled) == "settled"


def retry(bench: Bench, key: str | None = None, detail: str | None = None, after: str | None = None) -> EarlyRetries:
    return bench.deployment.groups.backing_off("orders", "billing").retry(RetryFilter(key, detail), after)


def pulled(bench: Bench) -> list[tuple[str | None, int]]:
    """Returns body and attempt of each message that can be pulled once the wheels have turned for a second."""
    bench.turn(1)
    return sorted((message.body, message.attempt) for pull in bench.pull() for message in pull.messages)


def test_all_messages_that_back_off_are_pulled_at_once_and_once_each(bench: Bench) -> None:
    back_off(bench, "a", "b", "c")
    assert bench.pull() == []
    assert retry(bench) == EarlyRetries(retried=3)
    assert pulled(bench) == [("a", 2), ("b", 2), ("c", 2)]
    assert retry(bench) == EarlyRetries(retried=0)
    bench.turn(2 * 3_600)
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.waiting, lag.retrying + lag.in_flight, lag.backing_off, lag.dead) == (0, 3, 0, 0)


def test_the_trace_follows_a_message_to_its_early_retry(bench: Bench) -> None:
    back_off(bench, "a", "b")
    assert retry(bench).retried == 2
    bench.turn(1)
    (pull,) = bench.pull(1)
    bench.settle(pull)
    states = []
    for at in (0, 1):
        (traced,) = bench.deployment.messages.trace("orders", f"0:{at}", SearchSpan()).messages
        states += [group.state for group in traced.groups or []]
    assert states == ["acknowledged", "retrying"]


def test_messages_are_chosen_by_key_by_error_and_by_both(bench: Bench) -> None:
    back_off(bench, "a", key="k", detail="time-out")
    back_off(bench, "b", key="k", detail="refused")
    back_off(bench, "c", key="l", detail="time-out")
    assert retry(bench, key="l", detail="refused").retried == 0
    assert retry(bench, key="k", detail="refused").retried == 1
    assert pulled(bench) == [("b", 2)]
    assert retry(bench, detail="time-out").retried == 2
    assert pulled(bench) == [("a", 2), ("c", 2)]


def test_messages_of_a_producer_and_of_other_groups_stay_delayed(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "mail", retry=HOUR)
    back_off(bench, "a")
    (pull,) = bench.pull(group="mail")
    bench.settle(pull, group="mail", retry=[RetryLater(index=0)])
    bench.send_later("later", delay="2h")
    assert retry(bench).retried == 1
    assert pulled(bench) == [("a", 2)]
    assert bench.pull(group="mail") == []
    assert bench.deployment.groups.lag("orders", "mail").backing_off == 1


def test_a_call_stops_at_its_limit_and_the_next_one_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourwheel.groups.early_retries._MOST", 2)
    back_off(bench, "a", "b", "c")
    first = retry(bench)
    assert (first.retried, first.next is None) == (2, False)
    assert retry(bench, after=first.next) == EarlyRetries(retried=1)
    assert len(pulled(bench)) == 3


def test_a_call_that_finds_nothing_in_its_time_goes_on_behind_what_it_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.groups.early_retries._LONGEST_MS", 0)
    for body in "abc":
        back_off(bench, body, key=body)
    answers, after = [], None
    while not answers or after is not None:
        answers.append(retry(bench, key="c", after=after))
        after = answers[-1].next
    assert [answer.retried for answer in answers] == [0, 0, 1, 0], "a row each, and the end"
    assert pulled(bench) == [("c", 2)]


@pytest.mark.parametrize("after", ["", "1", "0000000000000-60/000", "x" * 4_000])
def test_a_cursor_of_something_else_is_refused(bench: Bench, after: str) -> None:
    with pytest.raises(Rejected, match="an earlier answer"):
        retry(bench, after=after)


def test_a_change_that_was_refused_is_not_counted_as_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Throttled("too many requests")

    back_off(bench, "a")
    with monkeypatch.context() as patched:
        patched.setattr(ScheduledMessages, "reschedule", refuse)
        with pytest.raises(Throttled):
            retry(bench)
    assert retry(bench) == EarlyRetries(retried=1)


def test_a_change_that_waits_for_its_wheel_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def stored(*_: object) -> None:
        raise ChangePending("the wheel does not answer")

    back_off(bench, "a")
    monkeypatch.setattr(ScheduledMessages, "reschedule", stored)
    assert retry(bench) == EarlyRetries(retried=1)


def test_each_consumer_of_a_broadcast_group_has_its_own_retries(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True, retry=HOUR)
    bench.send("a")
    for consumer in ("hall", "desk"):
        request = PullRequest(consumer=consumer, max_messages=1)
        (pull,) = bench.deployment.pull("orders", "screens", request).pulls
        bench.deployment.settle("orders", "screens", [Settlement(receipt=pull.receipt, retry=[RetryLater(index=0)])])
    answer = bench.deployment.groups.backing_off("orders", "screens").retry(RetryFilter())
    assert answer.retried == 2
    bench.turn(1)
    for consumer in ("hall", "desk"):
        (pull,) = bench.deployment.pull("orders", "screens", PullRequest(consumer=consumer, max_messages=1)).pulls
        assert [message.attempt for message in pull.messages] == [2]


def test_an_ordered_group_and_an_unknown_one_are_refused(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "ledger", ordered=True)
    with pytest.raises(Rejected, match="in its order"):
        bench.deployment.groups.backing_off("orders", "ledger").retry(RetryFilter())
    with pytest.raises(NotFound):
        bench.deployment.groups.backing_off("orders", "gone")
