"""Messages that are claimed ahead: consumers that share a log race once for many pulls."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.ports.storage import Table
from hourwheel.pull_log import pull_log
from hourwheel.pull_log.claiming.others import Others
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import AHEAD_KEPT_MS, CLOSED, OPEN, SETTLED, SOUGHT, Position, PullRow
from hourwheel.settling.leases import Leases
from hourwheel.times import rfc3339
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.pull_log.claiming.test_growth import Consumer, pull_writes


@pytest.fixture
def bench() -> Bench:
    return Bench(CallByCall(MemoryStore()), settings=Settings(retry=AT_ONCE, registry_seconds=0))


def log_of(bench: Bench) -> PullLog:
    subject = bench.deployment.registry.subject("orders")
    return pull_logs(bench.deployment.context, subject, bench.deployment.registry.group(subject, "billing"))[1]


def keeping_row(bench: Bench) -> tuple[int, PullRow]:
    """Returns the pull row that keeps messages, and its number."""
    ((row_no, row),) = [(no, current.value) for no, current in log_of(bench).rows(0, 100) if current.value.kept]
    return row_no, row


def serial(bench: Bench, messages: int, name: str = "c1") -> Consumer:
    """Returns a consumer that holds one message, before these."""
    for body in ("first", *(f"m{number}" for number in range(messages))):
        bench.send(body)
    consumer = Consumer(bench, name)
    assert consumer.pull() == ["first"]
    return consumer


def met(bench: Bench, messages: int = 20, others: int = 1) -> Consumer:
    """Returns a consumer whose second claim comes behind those of others, so that its row keeps messages."""
    consumer = serial(bench, messages)
    consumer.pull()
    for other in range(others):
        Consumer(bench, f"o{other}").pull()
    bench.clock.pass_time(0.05)
    consumer.pull()
    return consumer


def bodies(numbers: Sequence[int]) -> list[str]:
    return [f"m{number}" for number in numbers]


def test_a_consumer_that_meets_another_takes_its_next_messages_by_one_write_each(bench: Bench) -> None:
    consumer = met(bench)
    kept = len(keeping_row(bench)[1].kept)
    assert kept == 8, "half of the seventeen messages that wait"
    found = []
    for _ in range(kept):
        assert pull_writes(bench, lambda: found.extend(consumer.pull())) == 1
    assert found == bodies(range(3, 11))
    assert {*consumer.answers} == {"settled"}
    assert pull_writes(bench, lambda: found.extend(consumer.pull())) == 2, "a settlement and a claim"
    assert found[-1] == "m11"


def test_other_consumers_claim_behind_the_kept_messages(bench: Bench) -> None:
    consumer, other = met(bench), Consumer(bench, "c2")
    assert other.pull() == ["m11"]
    assert consumer.pull() == ["m3"]


@pytest.mark.parametrize(("messages", "others", "kept"), [(20, 3, 3), (4, 1, 0), (5, 1, 1), (100, 1, 31)])
def test_a_consumer_keeps_its_share_of_the_messages_that_wait(
    bench: Bench, messages: int, others: int, kept: int
) -> None:
    met(bench, messages, others)
    assert sum(len(current.value.kept) for _, current in log_of(bench).rows(0, 100)) == kept


def test_a_slow_consumer_keeps_nothing(bench: Bench) -> None:
    consumer = serial(bench, 20)
    consumer.pull()
    Consumer(bench, "c2").pull()
    bench.clock.pass_time(2.5)
    assert consumer.pull() == ["m2"]
    assert Consumer(bench, "c3").pull() == ["m3"]


def test_a_consumer_that_was_alone_keeps_nothing(bench: Bench) -> None:
    met(bench, others=0)
    assert Consumer(bench, "c2").pull() == ["m2"]


def test_a_consumer_keeps_nothing_while_retries_wait(bench: Bench) -> None:
    consumer = serial(bench, 20)
    failing, other = Consumer(bench, "c0"), Consumer(bench, "c2")
    failing.pull()
    consumer.pull()
    other.pull()
    assert failing.held is not None
    failing.settle(failing.held.receipt, retry=[0])
    bench.clock.pass_time(0.05)
    consumer.pull()
    assert not any(current.value.kept for _, current in log_of(bench).rows(0, 100))


@pytest.mark.parametrize(
    "how", [{}, {"retry": [0]}, {"release": [0]}, {"dead": [0]}], ids=["ack", "retry", "release", "dead"]
)
def test_a_settlement_without_a_pull_releases_the_kept_messages(bench: Bench, how: dict[str, list[int]]) -> None:
    consumer = met(bench)
    row_no, row = keeping_row(bench)
    assert consumer.held is not None
    assert consumer.settle(consumer.held.receipt, **how).status == "settled"
    current = log_of(bench).record(row_no).load()
    assert current is not None
    assert current.value.state == CLOSED
    found = [message for _ in range(20) for message in Consumer(bench, "c2").pull()]
    again = [] if "retry" not in how and "release" not in how else ["m2"]
    assert sorted(map(str, found)) == sorted(bodies(range(3, 20)) + again)
    assert len(row.kept) == 8


def test_kept_messages_are_released_once_their_consumer_is_silent(bench: Bench) -> None:
    consumer = met(bench)
    bench.clock.pass_time(AHEAD_KEPT_MS / 1_000 + 0.1)
    found = [message for _ in range(20) for message in Consumer(bench, "c2").pull()]
    assert sorted(map(str, found)) == sorted(bodies(range(3, 20)))
    assert consumer.held is not None
    assert consumer.settle(consumer.held.receipt).status == "settled", "its own message is still leased"


def test_kept_messages_come_again_as_they_were_when_the_lease_ends(bench: Bench) -> None:
    met(bench)
    bench.clock.pass_time(31)
    subject = bench.deployment.registry.subject("orders")
    bench.deployment.leases.expire(log_of(bench), subject)
    retried = bench.deployment.context.log(log_of(bench).group.retry_log)
    suspects = [bool(row.meta) for _, row in retried.read(0, 10)]
    assert sorted(suspects) == [False, True, True], "messages that nobody has had are no suspects"


def test_kept_messages_wait_and_are_not_in_flight(bench: Bench) -> None:
    kept_at = rfc3339(bench.clock.ms)
    consumer = met(bench)
    bench.clock.pass_time(1)
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.in_flight, lag.waiting, lag.oldest_at) == (2, 17, kept_at)
    assert (lag.queues[0].in_flight, lag.queues[0].waiting) == (2, 17)
    consumer.pull()
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.in_flight, lag.waiting) == (2, 16)


def test_every_reader_of_open_rows_counts_kept_messages_as_waiting(bench: Bench) -> None:
    met(bench)
    deployment = bench.deployment
    (group,) = deployment.overview.groups("orders", "", 1).groups
    assert (group.in_flight, group.waiting) == (2, 17)
    states = deployment.groups.consumers("orders", "billing").consumers
    assert {state.consumer: state.in_flight for state in states} == {"c1": 1, "o0": 1}
    leases = deployment.groups.state("orders", "billing").leases(deployment.leases).leases
    assert [(lease.consumer, lease.messages, lease.offset) for lease in leases] == [("o0", 1, 2), ("c1", 1, 3)]


def test_the_sweeper_reports_kept_messages_as_waiting(bench: Bench) -> None:
    met(bench)
    bench.deployment.sweeper.sweep()
    assert ("WaitingMessages", 17) in bench.meter.metrics


def test_a_repeated_settlement_gets_the_answer_that_it_had(bench: Bench) -> None:
    consumer = met(bench)
    consumer.pull()
    before = consumer.receipts[-2]
    assert consumer.settle(before).status == "settled"
    assert consumer.settle(before, retry=[0]).status == "stale"
    assert keeping_row(bench)[1].state == OPEN


def test_a_pull_by_another_consumer_with_the_receipt_releases_the_kept_messages(bench: Bench) -> None:
    consumer = met(bench)
    other = Consumer(bench, "c2", held=consumer.held)
    other.pull()
    assert not any(current.value.kept for _, current in log_of(bench).rows(0, 100) if current.value.consumer == "c1")
    assert other.answers == ["settled"]


def test_kept_messages_are_one_read_behind_their_claim(bench: Bench) -> None:
    consumer = met(bench)
    assert isinstance(bench.store, CallByCall)
    bench.store.calls.clear()
    consumer.pull()
    reads = [call for call in bench.store.calls if call not in bench.store.writes and call[1] != Table.META]
    assert [name for name, _ in reads] == ["counters", "scan"]


@dataclass
class Prefetcher:
    """Pulls the next message while it handles one, as the consumers of the package do: its pull acknowledges the one
    before."""

    bench: Bench
    name: str = "c1"
    held: list[str] = field(default_factory=list)
    handled: list[str | None] = field(default_factory=list)

    def pull(self) -> None:
        done = [self.held.pop(0)] if len(self.held) > 1 else []
        settle = [Settlement(receipt=receipt) for receipt in done]
        request = PullRequest(consumer=self.name, max_messages=1, lease_seconds=30, settle=settle)
        for pull in self.bench.deployment.pull("orders", "billing", request).pulls:
            self.held.append(pull.receipt)
            self.handled += [message.body for message in pull.messages]
        self.bench.clock.pass_time(0.05)


def test_a_consumer_that_prefetches_and_is_alone_gets_the_messages_in_order(bench: Bench) -> None:
    for number in range(60):
        bench.send(f"m{number}")
    consumer = Prefetcher(bench)
    for _ in range(60):
        consumer.pull()
    assert consumer.handled == bodies(range(60))
    assert bench.deployment.groups.lag("orders", "billing").retrying == 0


def test_a_consumer_that_prefetches_keeps_nothing_beside_others_that_come_and_go(bench: Bench) -> None:
    for number in range(120):
        bench.send(f"m{number}")
    consumer = Prefetcher(bench)
    others = [Consumer(bench, "c2"), Consumer(bench, "c3")]
    for step in range(40):
        consumer.pull()
        for other in others[: step // 3 % 3]:
            other.pull()
        kept = [current.value.kept for _, current in log_of(bench).rows(0, 200) if current.value.consumer == "c1"]
        assert not any(kept)
    numbers = [int(str(body)[1:]) for body in consumer.handled]
    assert numbers == sorted(numbers)


def test_a_consumer_that_stops_to_prefetch_for_one_pull_keeps_nothing(bench: Bench) -> None:
    for number in range(40):
        bench.send(f"m{number}")
    consumer = Prefetcher(bench)
    for step in range(4):
        consumer.pull()
        Consumer(bench, f"o{step}").pull()
    # It has handled all that it held before its next pull, as where the queue was empty for a moment.
    settled, last = consumer.held
    bench.deployment.settle("orders", "billing", [Settlement(receipt=settled)])
    again = PullRequest(consumer="c1", max_messages=1, lease_seconds=30, settle=[Settlement(receipt=last)])
    assert len(bench.deployment.pull("orders", "billing", again).pulls) == 1
    assert not any(current.value.kept for _, current in log_of(bench).rows(0, 100) if current.value.consumer == "c1")


def test_a_lost_race_against_the_own_consumer_meets_nobody() -> None:
    row = PullRow(
        consumer="c1",
        first=Position(0),
        counts=(1,),
        end=Position(1),
        end_seq=1,
        claim=b"",
        claimed_ms=0,
        lease_until_ms=1,
    )
    assert Others().joined([row], "c1") == Others(beside=True)
    assert Others().joined([row], "c2") == Others(frozenset({"c1"}))
    assert Others().joined([row.closed(SETTLED, 1), row.closed(SOUGHT, 1)], "c1") == Others()


def test_a_settlement_that_releases_kept_messages_wakes_who_waits(bench: Bench) -> None:
    consumer = met(bench)
    assert consumer.held is not None
    bench.wakeups.announced.clear()
    consumer.settle(consumer.held.receipt)
    assert bench.wakeups.announced == [("orders", "billing")]


def pull_beside(bench: Bench, consumer: Consumer, other: str) -> int:
    """Has the consumer pull on after another one has pulled once. Returns the number of messages that its rows keep
    then."""
    Consumer(bench, other).pull()
    bench.clock.pass_time(0.05)
    consumer.pull()
    rows = [current.value for _, current in log_of(bench).rows(0, 200)]
    return sum(len(row.kept) for row in rows if row.consumer == consumer.name)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_consumer_keeps_nothing_while_it_holds_an_older_row(bench: Bench, processes: int) -> None:
    consumer = serial(bench, 100)
    old = consumer.held
    consumer.held = None
    consumer.pull()
    if processes == 2:
        bench.deployment = bench.another_process()
    assert [pull_beside(bench, consumer, f"o{step}") for step in range(6)] == [0] * 6
    assert old is not None
    consumer.settle(old.receipt)
    assert [pull_beside(bench, consumer, f"p{step}") > 0 for step in range(2)] == [False, True]


def test_a_consumer_whose_process_knows_too_little_keeps_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.send("of another one")
    Consumer(bench, "c2").pull()
    consumer = serial(bench, 40)
    monkeypatch.setattr(Leases, "open_from", lambda self, log, name: 0)
    monkeypatch.setattr(pull_log, "SINCE", 0)
    assert [pull_beside(bench, consumer, f"o{step}") for step in range(4)] == [0] * 4


def test_a_consumer_that_goes_on_reads_no_older_rows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = met(bench)
    monkeypatch.setattr(PullLog, "_holds_before", None)  # not called
    while keeping := [current for _, current in log_of(bench).rows(0, 100) if current.value.kept]:
        assert keeping
        consumer.pull()
    Consumer(bench, "c3").pull()
    assert consumer.pull() == ["m12"]


def test_a_consumer_keeps_nothing_beside_a_claim_whose_answer_was_lost(bench: Bench) -> None:
    consumer = met(bench, messages=100)
    before = consumer.held
    consumer.pull()  # the answer is lost
    consumer.held = before
    for step in range(4):
        kept = keeping_row(bench)[0]
        Consumer(bench, f"p{step}").pull()
        consumer.pull()
        assert keeping_row(bench)[0] == kept, "the row of the lost answer, and no other"


def test_a_consumer_that_settles_the_row_of_another_one_keeps_nothing_beside_its_own(bench: Bench) -> None:
    bench.send("of c2")
    Consumer(bench, "c2").pull()
    owner = serial(bench, 100)
    owner.pull()
    consumer = Consumer(bench, "c2", held=owner.held)
    assert [pull_beside(bench, consumer, f"p{step}") for step in range(4)] == [0] * 4
