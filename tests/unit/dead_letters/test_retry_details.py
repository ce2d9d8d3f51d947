"""A consumer says why an attempt failed. The copies keep the text, and the dead letter has the last one."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.dead_letters.dead import DeadFilter
from hourwheel.errors import Rejected
from hourwheel.groups.state import dead_reasons
from hourwheel.handover.copies import ATTEMPTS, RETRY
from hourwheel.handover.handover import Transfer
from hourwheel.logs.codec import encode
from hourwheel.model.fields import DETAILS_BYTES
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import Message
from hourwheel.model.pulls import Pull, PullRequest, Rejection, RetryLater, Settlement
from hourwheel.pull_log.parsed_settlements import parse_settlement
from tests.support import AT_ONCE, Bench, CallByCall

BOTH = pytest.mark.parametrize("store", [MemoryStore, lambda: CallByCall(MemoryStore())], ids=["transactions", "calls"])


def bench_of(store: Any = MemoryStore, *, attempts: int = 2, **settings: Any) -> Bench:
    bench = Bench(store=store())
    bench.deployment.groups.put("orders", "billing", max_attempts=attempts, **{"retry": AT_ONCE, **settings})
    return bench


def fail(bench: Bench, *details: str | None, pull: Pull | None = None) -> str:
    """Settles a pull whose messages failed, each with its detail; None: with none."""
    if pull is None:
        (pull,) = bench.pull()
    retry = [index if text is None else RetryLater(index=index, detail=text) for index, text in enumerate(details)]
    return bench.settle(pull, retry=retry)


def letters(bench: Bench, **which: str) -> list[tuple[str | None, str | None, str | None]]:
    page = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=100, which=DeadFilter(**which))
    return [(each.body, each.reason, each.detail) for each in page.messages]


@BOTH
def test_a_dead_letter_whose_attempts_are_used_up_has_the_error_of_the_last_one(store: Any) -> None:
    bench = bench_of(store)
    bench.send("a", "b", "c")
    assert fail(bench, "ValueError: no price", "TimeoutError", None) == "settled"
    (pull,) = bench.pull()
    assert [(each.body, each.attempt, each.detail) for each in pull.messages] == [
        ("a", 2, "ValueError: no price"),
        ("b", 2, "TimeoutError"),
        ("c", 2, None),
    ]
    assert fail(bench, "KeyError: 'price'", None, "OSError: no disk", pull=pull) == "settled"
    assert letters(bench) == [
        ("a", "attempts", "KeyError: 'price'"),
        ("b", "attempts", "TimeoutError"),
        ("c", "attempts", "OSError: no disk"),
    ]
    assert letters(bench, reason="attempts", detail="TimeoutError") == [("b", "attempts", "TimeoutError")]
    reasons = dead_reasons(bench.deployment.dead_letters("orders", "billing").alive()).reasons
    assert sorted((reason.reason, reason.detail or "") for reason in reasons) == [
        ("attempts", "KeyError: 'price'"),
        ("attempts", "OSError: no disk"),
        ("attempts", "TimeoutError"),
    ]


@BOTH
def test_a_lease_that_ends_keeps_the_error_of_the_attempt_before(store: Any) -> None:
    bench = bench_of(store)
    bench.send("a")
    fail(bench, "ValueError: no price")
    for _ in range(2):  # the first end of a lease counts no attempt
        bench.pull(lease=1)
        bench.clock.pass_time(2)
    assert bench.pull() == []
    assert letters(bench) == [("a", "attempts", "ValueError: no price")]


@BOTH
def test_the_detail_of_a_delayed_retry_waits_with_the_message(store: Any) -> None:
    bench = bench_of(store, retry=RetryPolicy(first_seconds=60))
    bench.send("a", "b")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0, RetryLater(index=1, delay="2m", detail="OSError: no disk")])
    bench.turn(130)
    found = [(each.body, each.detail) for pull in bench.pull() for each in pull.messages]
    assert sorted(found) == [("a", None), ("b", "OSError: no disk")]


def test_a_released_message_keeps_its_detail_and_a_redriven_one_loses_it() -> None:
    bench = bench_of()
    bench.send("a")
    fail(bench, "ValueError: no price")
    (pull,) = bench.pull()
    bench.settle(pull, release=[0])
    (pull,) = bench.pull()
    assert pull.messages[0].detail == "ValueError: no price"
    fail(bench, None, pull=pull)
    assert bench.deployment.dead_letters("orders", "billing").redrive(lambda position, died_ms: True) == 1
    (pull,) = bench.pull()
    assert (pull.messages[0].attempt, pull.messages[0].detail) == (1, None)


def test_a_message_that_is_rejected_has_what_its_consumer_said_then() -> None:
    bench = bench_of(attempts=5)
    bench.send("a", "b")
    fail(bench, "ValueError: no price", "ValueError: no price")
    (pull,) = bench.pull()
    bench.settle(pull, dead=[0, Rejection(index=1, detail="too late")])
    assert letters(bench) == [("a", "rejected", None), ("b", "rejected", "too late")]


@pytest.mark.parametrize("store", [MemoryStore, lambda: CallByCall(MemoryStore())], ids=["transactions", "calls"])
def test_an_ordered_group_keeps_the_error_of_the_last_attempt(store: Any) -> None:
    bench = bench_of(store, ordered=True)
    bench.send("a1", "a2", key="a")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[RetryLater(index=0, detail="first")], release=[1])
    (pull,) = bench.pull()
    assert [(each.body, each.attempt, each.detail) for each in pull.messages] == [("a1", 2, None), ("a2", 1, None)]
    bench.settle(pull, retry=[RetryLater(index=0, detail="second")], release=[1])
    assert letters(bench) == [("a1", "attempts", "second")]
    assert bench.bodies() == ["a2"]


def test_a_broadcast_consumer_has_the_errors_of_its_own() -> None:
    bench = bench_of(attempts=1, broadcast=True)

    def pulls(consumer: str) -> list[Pull]:
        return bench.deployment.pull("orders", "billing", PullRequest(consumer=consumer)).pulls

    for consumer in ("one", "two"):
        pulls(consumer)
    bench.send("a")
    for consumer in ("one", "two"):
        (pull,) = pulls(consumer)
        fail(bench, f"error of {consumer}", pull=pull)
    assert [detail for _, _, detail in letters(bench)] == ["error of one", "error of two"]


def test_details_of_retries_and_rejections_share_the_room_of_a_settlement() -> None:
    long = "é" * 1_000
    fits = DETAILS_BYTES // 2_000
    parsed = parse_settlement(
        Settlement(
            receipt="r",
            dead=[Rejection(index=0, detail=long)],
            retry=[RetryLater(index=index, detail=long) for index in range(1, 40)],
        ),
        40,
    )
    assert [*parsed.details] == [*range(fits)]
    assert len(parsed.retried) == 39
    bench = bench_of()
    bench.send(*map(str, range(40)))
    assert fail(bench, *[long] * 40) == "settled"
    assert [each.detail for each in bench.pull()[0].messages] == [long] * fits + [None] * (40 - fits)


def test_the_size_of_a_row_and_of_an_answer_counts_the_details() -> None:
    """A quote takes four bytes in an answer of Lambda: so do those of a detail."""
    plain, quotes = Message(body="x", id="m"), Message(body="x", id="m", detail='"' * 1_000)
    assert encode([quotes] * 1_000).answer.total - encode([plain] * 1_000).answer.total >= 4 * 1_000 * 1_000


def test_a_repeated_settlement_with_details_is_answered_as_the_first_one_was() -> None:
    bench = bench_of()
    bench.send("a", "b")
    (pull,) = bench.pull()
    for _ in range(2):
        assert fail(bench, "no price", None, pull=pull) == "settled"
    assert fail(bench, "another error", None, pull=pull) == "stale"
    assert [each.detail for each in bench.pull()[0].messages] == ["no price", None]


def test_the_mark_of_a_delayed_retry_is_that_of_older_versions() -> None:
    """A settlement that was sent before an update of the server, and is repeated after it, is recognised."""
    later = Settlement(receipt="r", retry=[RetryLater(index=0, delay=5)])
    assert parse_settlement(later, 1).mark.hex() == "24ddb1d8a7f76f13"


def test_a_retry_may_have_neither_delay_nor_detail() -> None:
    parsed = parse_settlement(Settlement(receipt="r", retry=[RetryLater(index=0)]), 1)
    assert (parsed.retried, parsed.delays_ms, parsed.details) == ({0}, {}, {})
    with pytest.raises(Rejected, match="index 0 is named twice"):
        parse_settlement(Settlement(receipt="r", retry=[0, RetryLater(index=0, detail="x")]), 1)


def test_a_transfer_of_an_older_version_has_no_details() -> None:
    for kind in (RETRY, ATTEMPTS):
        transfer = Transfer(
            kind=kind, log="orders~1/0", row_no=0, first_seq=0, token=b"t" * 16, at_ms=0, expires_ms=0, picks=((0, 0),)
        )
        assert transfer.details == ()
