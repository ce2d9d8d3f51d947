"""Pull rows that grow: a consumer that is alone acknowledges a pull and claims the next messages in one write."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.groups.state import GroupState
from hourwheel.model.groups import Group, TagFilter
from hourwheel.model.pulls import Pull, PullRequest, Settled, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Key, Record, Refused, Table
from hourwheel.pull_log.claiming.claims import SettledRow
from hourwheel.pull_log.claiming.growth import ALONE_PULLS, GROWS_MS, growth_of
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED, EXPIRED, OPEN, SETTLED, Growth, PullRow
from hourwheel.pulling import answers
from hourwheel.times import rfc3339
from hourwheel.trace.messages import SearchSpan
from tests.support import AT_ONCE, Bench, CallByCall

SETTINGS = Settings(retry=AT_ONCE, registry_seconds=0)


@dataclass
class Consumer:
    """Pulls message by message, and settles each pull by the next one."""

    bench: Bench
    name: str = "c1"
    held: Pull | None = None
    answers: list[str] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)

    def pull(self, most: int = 1, lease_seconds: int = 30, **how: Any) -> list[str | None]:
        settle = None if self.held is None else [Settlement(receipt=self.held.receipt, **how)]
        return self.repeat(settle, most, lease_seconds)

    def repeat(self, settle: list[Settlement] | None, most: int = 1, lease_seconds: int = 30) -> list[str | None]:
        request = PullRequest(consumer=self.name, max_messages=most, lease_seconds=lease_seconds, settle=settle)
        result = self.bench.deployment.pull("orders", "billing", request)
        self.answers += [answer.status for answer in result.settled or ()]
        pulls = result.pulls
        self.held = pulls[0] if pulls else None
        self.receipts += [pull.receipt for pull in pulls]
        return [message.body for pull in pulls for message in pull.messages]

    def settle(self, receipt: str, **how: Any) -> Settled:
        (answer,) = self.bench.deployment.settle("orders", "billing", [Settlement(receipt=receipt, **how)])
        return answer


@pytest.fixture
def bench() -> Bench:
    return Bench(CallByCall(MemoryStore()), settings=SETTINGS)


def alone(bench: Bench, pulls: int = ALONE_PULLS + 1, waiting: int = 4, *, size: int = 1) -> Consumer:
    """Returns a consumer that was alone for this many pulls, with more messages behind them."""
    for number in range(pulls + waiting):
        bench.send(*(f"m{number}" + "." * index for index in range(size)))
    consumer = Consumer(bench)
    for _ in range(pulls):
        consumer.pull(size)
    return consumer


def log_of(bench: Bench) -> PullLog:
    return pull_logs(bench.deployment.context, *subject_and_group(bench))[1]


def subject_and_group(bench: Bench) -> tuple[Subject, Group]:
    subject: Subject = bench.deployment.registry.subject("orders")
    return subject, bench.deployment.registry.group(subject, "billing")


def rows(bench: Bench) -> list[PullRow]:
    return [current.value for _, current in log_of(bench).rows(0, 100)]


def pull_writes(bench: Bench, act: Callable[[], object]) -> int:
    assert isinstance(bench.store, CallByCall)
    bench.store.calls.clear()
    act()
    return bench.store.writes.count(("put", Table.PULL))


def test_a_consumer_that_was_alone_for_three_pulls_settles_and_claims_in_one_write(bench: Bench) -> None:
    consumer = alone(bench, pulls=ALONE_PULLS)
    assert pull_writes(bench, lambda: consumer.pull()) == 2
    assert pull_writes(bench, lambda: consumer.pull()) == 1
    assert pull_writes(bench, lambda: consumer.pull()) == 1
    assert {*consumer.answers} == {"settled"}
    last = rows(bench)[-1]
    assert (last.counts, last.base, last.unsettled(), last.state) == ((1, 1, 1), 2, [2], OPEN)


def test_a_growth_reads_the_counters_and_the_messages_only(bench: Bench) -> None:
    consumer = alone(bench)
    consumer.pull()
    assert isinstance(bench.store, CallByCall)
    bench.store.calls.clear()
    assert consumer.pull() == ["m5"]
    reads = [call for call in bench.store.calls if call not in bench.store.writes and call[1] != Table.META]
    assert [name for name, _ in reads] == ["counters", "scan"]


def test_every_message_comes_once_whoever_ends_the_growth(bench: Bench) -> None:
    first, second = alone(bench, waiting=8), Consumer(bench, "c2")
    found = [
        first.pull(),
        second.pull(),
        first.pull(),
        second.pull(),
        *(first.pull() + second.pull() for _ in range(5)),
    ]
    assert sorted(body or "" for bodies in found for body in bodies) == sorted(f"m{number}" for number in range(4, 12))
    assert {*first.answers, *second.answers} == {"settled"}


def test_a_second_consumer_ends_the_growth_for_good(bench: Bench) -> None:
    consumer = alone(bench)
    consumer.pull()
    assert not rows(bench)[-1].is_final
    assert Consumer(bench, "c2").pull() == ["m5"]
    assert all(row.is_final for row in rows(bench))
    assert pull_writes(bench, lambda: consumer.pull()) == 3, "a refused growth, the settlement and the claim"
    assert consumer.answers[-1] == "settled"


def test_a_consumer_that_finds_nothing_leaves_the_row_of_another_as_it_is(bench: Bench) -> None:
    alone(bench, waiting=0)
    other = Consumer(bench, "c2")
    assert pull_writes(bench, other.pull) == 0
    assert not rows(bench)[-1].is_final


def test_a_seek_begins_behind_the_end_that_the_row_has_then(bench: Bench) -> None:
    consumer = alone(bench)
    consumer.pull()
    bench.deployment.seeks().seek("orders", "billing", to="start")
    assert rows(bench)[-2].is_final
    assert consumer.pull() == ["m0"]
    assert consumer.answers[-1] == "settled"


def test_receipts_count_from_the_first_message_of_their_own_claim(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry_percent=100)
    consumer = alone(bench, size=3)
    consumer.pull(3)
    assert consumer.held is not None
    assert consumer.settle(consumer.held.receipt, ack=[0, 2], retry=[1]) == Settled("settled")
    assert [message.body for pull in bench.pull(1) for message in pull.messages] == ["m4."]
    assert rows(bench)[ALONE_PULLS].state == CLOSED


def test_a_repeated_pull_is_answered_as_the_first_one_was(bench: Bench) -> None:
    consumer = alone(bench)
    assert consumer.held is not None
    settle = [Settlement(receipt=consumer.held.receipt)]
    assert consumer.repeat(settle) == ["m4"]
    assert consumer.repeat(settle) == ["m5"]
    assert consumer.answers[-2:] == ["settled", "settled"]


@pytest.mark.parametrize("how", [{"retry": [0]}, {"dead": [0]}, {"release": [0]}, {"extend_seconds": 60}])
def test_an_acknowledged_claim_takes_no_other_settlement(bench: Bench, how: dict[str, Any]) -> None:
    consumer = alone(bench)
    consumer.pull()
    before = rows(bench)
    assert consumer.settle(consumer.receipts[-2], **how) == Settled("stale")
    assert rows(bench) == before


def test_the_end_of_a_lease_gives_back_the_last_claim_alone(bench: Bench) -> None:
    consumer = alone(bench, waiting=1)
    consumer.pull()
    assert consumer.held is not None
    bench.clock.pass_time(31)
    bench.deployment.sweeper.sweep()
    assert consumer.settle(consumer.held.receipt) == Settled("stale")
    assert consumer.settle(consumer.receipts[-2]) == Settled("settled"), "it was, by the growth"
    assert Consumer(bench, "c2").pull(100) == ["m4"]
    assert rows(bench)[ALONE_PULLS].outcome == EXPIRED


def test_a_lease_that_was_extended_ends_the_growth(bench: Bench) -> None:
    consumer = alone(bench)
    assert consumer.held is not None
    assert consumer.settle(consumer.held.receipt, extend_seconds=60).status == "extended"
    assert rows(bench)[-1].is_final
    assert consumer.pull() == ["m4"]
    assert consumer.answers[-1] == "settled"


def test_a_row_grows_for_two_seconds(bench: Bench) -> None:
    consumer = alone(bench)
    consumer.pull()
    count = len(rows(bench))
    bench.clock.pass_time(GROWS_MS / 1_000)
    consumer.pull()
    assert len(rows(bench)) == count + 1
    assert rows(bench)[-2].outcome == SETTLED
    assert not rows(bench)[-1].is_final, "the consumer is still alone"


def test_a_claim_that_ends_within_a_batch_is_settled_before_the_next_one(bench: Bench) -> None:
    consumer = alone(bench, waiting=1)
    bench.send("a", "b", "c")
    assert [consumer.pull(1) for _ in range(4)] == [["m4"], ["a"], ["b"], ["c"]]
    assert {*consumer.answers} == {"settled"}


def test_another_consumer_with_the_receipt_does_not_go_on_in_the_row(bench: Bench) -> None:
    consumer = alone(bench)
    other = Consumer(bench, "c2", held=consumer.held)
    assert other.pull() == ["m4"]
    assert [row.consumer for row in rows(bench)[-2:]] == ["c1", "c2"]


@pytest.mark.parametrize(
    "how",
    [{"ordered": True}, {"filter": TagFilter(tags_none=("x",))}, {"max_in_flight": 50}, {"messages_per_second": 50}],
    ids=["ordered", "filtered", "limited", "at a rate"],
)
def test_rows_of_groups_with_an_order_a_filter_or_limits_do_not_grow(bench: Bench, how: dict[str, Any]) -> None:
    bench.deployment.groups.put("orders", "billing", **how)
    alone(bench, waiting=0)
    assert all(row.growth is None for row in rows(bench))


def test_rows_do_not_grow_where_one_transaction_settles_and_claims() -> None:
    bench = Bench(MemoryStore(), settings=SETTINGS)
    alone(bench, waiting=0)
    assert all(row.growth is None for row in rows(bench))


def test_retries_come_before_the_row_grows(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry_percent=100)
    consumer = alone(bench)
    (pulled,) = bench.pull(1)
    bench.settle(pulled, retry=[0])
    assert consumer.pull() == ["m4"]
    assert consumer.answers[-1] == "settled"


def test_messages_that_cannot_be_read_leave_the_claim_and_not_those_before_it(bench: Bench) -> None:
    consumer = alone(bench, waiting=2)
    key = Key(Table.CONSUME, "orders~1/0", f"{ALONE_PULLS + 1:016d}")
    record = bench.store.get(key)
    assert record is not None
    spoilt_row = spoilt(msgspec.msgpack.decode(record.value))
    bench.store.put(key, Record(msgspec.msgpack.encode(spoilt_row), b"d" * 16), expect=record.token)
    assert consumer.pull() == ["m5"]
    row = rows(bench)[ALONE_PULLS]
    assert (row.state, row.outcome, row.counts) == (CLOSED, SETTLED, (1, 0))


def test_messages_that_can_be_read_are_answered_although_another_has_ended_the_growth(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, other = alone(bench, waiting=3), Consumer(bench, "c2")
    key = Key(Table.CONSUME, "orders~1/0", f"{ALONE_PULLS + 1:016d}")
    record = bench.store.get(key)
    assert record is not None
    spoilt_row = spoilt(msgspec.msgpack.decode(record.value))
    bench.store.put(key, Record(msgspec.msgpack.encode(spoilt_row), b"d" * 16), expect=record.token)
    exclude, found = answers.exclude_unreadable, []

    def after_another(*args: Any) -> Any:
        if not found:
            found.append("began")
            found.extend(other.pull())
        return exclude(*args)

    monkeypatch.setattr(answers, "exclude_unreadable", after_another)
    assert consumer.pull(2) == ["m5"]
    assert found == ["began", "m6"]


def test_a_lease_that_would_end_sooner_is_a_row_of_its_own(bench: Bench) -> None:
    """Others know the end of the lease that the row had, and would look for no earlier one."""
    for number in range(ALONE_PULLS + 2):
        bench.send(f"m{number}")
    consumer, other = Consumer(bench), Consumer(bench, "c2")
    for _ in range(ALONE_PULLS + 1):
        consumer.pull(lease_seconds=300)
    bench.deployment.leases.expire(log_of(bench), bench.deployment.registry.subject("orders"))
    assert consumer.pull(100, lease_seconds=5) == [f"m{ALONE_PULLS + 1}"]
    bench.clock.pass_time(6)
    assert other.pull() == [f"m{ALONE_PULLS + 1}"]


@pytest.mark.parametrize("second", [{"extend_seconds": 60}, {"retry": [0]}])
def test_settlements_of_one_row_are_carried_out_in_their_order(bench: Bench, second: dict[str, Any]) -> None:
    consumer = alone(bench)
    assert consumer.held is not None
    receipt = consumer.held.receipt
    consumer.repeat([Settlement(receipt=receipt), Settlement(receipt=receipt, **second)])
    assert consumer.answers[-2:] == ["settled", "stale"]


def test_an_open_lease_names_the_first_message_of_its_claim(bench: Bench) -> None:
    consumer = alone(bench)
    consumer.pull()
    consumer.pull()
    assert consumer.held is not None
    subject = bench.deployment.registry.subject("orders")
    group = bench.deployment.registry.group(subject, "billing")
    (lease,) = GroupState(bench.deployment.context, subject, [group]).leases(bench.deployment.leases).leases
    assert (lease.offset, lease.messages) == (consumer.held.messages[0].offset, 1)


@pytest.mark.parametrize("settles", [True, False])
def test_a_message_was_acknowledged_when_its_row_grew(bench: Bench, settles: bool) -> None:
    consumer = alone(bench)
    at_ms = bench.clock.now_ms()
    consumer.pull()
    bench.clock.pass_time(25)
    if settles:
        consumer.settle(consumer.receipts[-1])
    else:
        bench.clock.pass_time(6)
        bench.deployment.sweeper.sweep()
    (trace,) = bench.deployment.messages.trace("orders", f"0:{ALONE_PULLS}", SearchSpan(), "billing").messages
    (event,) = [event for event in trace.groups[0].events if event.event == "acknowledged"]
    assert event.at == rfc3339(at_ms)


def spoilt(row: list[Any]) -> list[Any]:
    """Returns the array of a row whose block of messages is damaged."""
    return [value[:-3] + b"???" if isinstance(value, bytes) and len(value) > 20 else value for value in row]


def test_the_trace_of_an_acknowledged_message_does_not_wait_for_the_end_of_its_row(bench: Bench) -> None:
    consumer = alone(bench)
    consumer.pull()
    (trace,) = bench.deployment.messages.trace("orders", "0:3", SearchSpan(), "billing").messages
    assert trace.groups[0].state == "acknowledged"
    (trace,) = bench.deployment.messages.trace("orders", "0:4", SearchSpan(), "billing").messages
    assert trace.groups[0].state == "in_flight"


def test_a_look_counts_the_leases_of_a_row_that_has_grown_since(bench: Bench) -> None:
    consumer = alone(bench)
    lags = []
    for _ in range(3):
        lag = bench.another_process().groups.lag("orders", "billing")
        lags.append((lag.in_flight, lag.waiting))
        consumer.pull()
    assert lags == [(1, 4), (1, 3), (1, 2)]


def test_a_look_reads_a_row_again_that_may_have_grown(bench: Bench) -> None:
    consumer = alone(bench)
    subject = bench.deployment.registry.subject("orders")
    log, leases = log_of(bench), bench.another_process().leases
    leases.expire(log, subject)
    consumer.pull()
    assert leases.idle(log) is None
    assert leases.counted(log, pages=1, most=10).tail.position.row_no == ALONE_PULLS + 2
    Consumer(bench, "c2").pull()
    leases.checkpoint(log)
    assert consumer.held is not None
    consumer.settle(consumer.held.receipt)
    bench.clock.pass_time(61)
    leases.checkpoint(log)
    checkpoint = log.checkpoint_record.load()
    assert checkpoint is not None
    assert (checkpoint.value.row_no, checkpoint.value.position.row_no) == (ALONE_PULLS + 1, ALONE_PULLS + 2)


class LostOnce(CallByCall):
    """Loses the answer to the next put of a ``new`` pull row, or to a change of one, and runs ``meanwhile`` before
    the put is repeated."""

    new: bool = False
    meanwhile: Callable[[], object] | None = None

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        refused = super().put(key, record, expect=expect)
        if key.table != Table.PULL or self.meanwhile is None or self.new != (expect is None):
            return refused
        meanwhile, self.meanwhile = self.meanwhile, None
        meanwhile()
        return super().put(key, record, expect=expect)


@pytest.mark.parametrize("new", [True, False], ids=["a new row", "a growth"])
def test_a_claim_is_known_by_its_consumer_although_another_has_ended_the_growth(new: bool) -> None:
    pulls = ALONE_PULLS if new else ALONE_PULLS + 1
    bench = Bench(store := LostOnce(MemoryStore()), settings=SETTINGS)
    consumer, other = alone(bench, pulls=pulls), Consumer(bench, "c2")
    found: list[list[str | None]] = []
    store.new = new
    store.meanwhile = lambda: found.append(other.pull())
    found.insert(0, consumer.pull())
    assert found == [[f"m{pulls}"], [f"m{pulls + 1}"]]
    assert {*consumer.answers} == {"settled"}


@pytest.mark.parametrize(
    ("before", "growth"),
    [
        (None, None),
        (SettledRow(5, 2), None),
        (SettledRow(6, 0), Growth(1)),
        (SettledRow(6, ALONE_PULLS - 1), Growth(ALONE_PULLS, until_ms=1_000 + GROWS_MS)),
        (SettledRow(6, ALONE_PULLS), Growth(ALONE_PULLS, until_ms=1_000 + GROWS_MS)),
    ],
    ids=["a pull that settles nothing", "another row lies between", "the first", "the last one", "a later one"],
)
def test_a_row_may_grow_if_its_pull_and_those_before_it_have_each_acknowledged_the_row_before(
    before: SettledRow | None, growth: Growth | None
) -> None:
    assert growth_of(7, before, 1_000) == growth


def test_a_growth_before_a_suspect_tells_that_it_waits(bench: Bench) -> None:
    bench.send("lost")
    bench.pull()
    bench.clock.pass_time(29.8)
    consumer, other = Consumer(bench), Consumer(bench, "c2")
    for number in range(ALONE_PULLS + 1):
        bench.send(f"bad {number}")  # pulled as a whole: nothing new waits beside the retries
        other.pull(10)
        assert other.held is not None
        bench.settle(other.held, retry=[0])
        other.held = None
        assert consumer.pull(10) == [f"bad {number}"]
    bench.send("bad")
    other.pull(10)
    assert other.held is not None
    bench.settle(other.held, retry=[0])
    bench.clock.pass_time(0.5)
    bench.deployment.sweeper.sweep()
    assert consumer.held is not None
    request = PullRequest(consumer="c1", settle=[Settlement(receipt=consumer.held.receipt)], max_messages=10)
    result = bench.deployment.pull("orders", "billing", request)
    assert [message.body for pull in result.pulls for message in pull.messages] == ["bad"]
    assert result.suspects_wait
    retries = pull_logs(bench.deployment.context, *subject_and_group(bench))[0]
    assert retries.latest(1)[0].base > 0, "the row has grown"
