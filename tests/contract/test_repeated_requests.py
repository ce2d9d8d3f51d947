"""A request that is repeated with its idempotency key moves no end of a log, and no count takes it for messages."""

import pytest

from hourwheel.buckets.scheduled_ids import read_scheduled_id
from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage, SendResult
from hourwheel.ports.storage import Counter, Store
from hourwheel.producing.idempotency import IdempotencyKey
from tests.support import AT_ONCE, Bench

pytestmark = pytest.mark.parametrize(
    "store", ["memory", "sqlite", "dynamodb on moto", "dynamodb on ministack"], indirect=True
)

REPEATS = 100
BATCH = [NewMessage(body=body, key=body) for body in "abc"]


@pytest.fixture
def bench(store: Store) -> Bench:
    return Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))


def sent(bench: Bench, subject: str, *, sequence: int | None = None, delay: str | None = None) -> list[SendResult]:
    messages = [NewMessage(body=message.body, key=message.key, delay=delay) for message in BATCH]
    return bench.deployment.produce(subject, messages, IdempotencyKey("key", b"digest", sequence))


def ends(bench: Bench, subject: str) -> list[Counter]:
    return [bench.store.counter(log) for log in bench.deployment.subjects.get(subject).queue_logs()]


@pytest.mark.parametrize("sequence", [None, 7])
@pytest.mark.parametrize("queues", [1, 4])
def test_a_hundred_repeats_move_no_end_and_add_nothing_to_the_counts(
    bench: Bench, partition: str, queues: int, sequence: int | None
) -> None:
    bench.deployment.subjects.put(partition, queues=queues)
    bench.deployment.groups.put(partition, "g")
    first = sent(bench, partition, sequence=sequence)
    before = ends(bench, partition)
    assert all(sent(bench, partition, sequence=sequence) == first for _ in range(REPEATS))
    assert ends(bench, partition) == before
    bench.send("behind", subject=partition)
    assert bench.deployment.groups.lag(partition, "g").waiting == 4
    overview = bench.deployment.overview.groups(partition, "", 10)
    assert sum(queue.messages or 0 for queue in overview.queues) == 4
    assert [group.waiting for group in overview.groups] == [4]


def test_a_hundred_repeats_of_delayed_messages_add_nothing_to_the_counts(bench: Bench, partition: str) -> None:
    bench.deployment.subjects.put(partition)
    first = sent(bench, partition, delay="2h")
    before = [bench.store.counter(log) for log in _schedule_logs(first, bench)]
    assert all(sent(bench, partition, delay="2h") == first for _ in range(REPEATS))
    assert [bench.store.counter(log) for log in _schedule_logs(first, bench)] == before
    assert sum(count for _, count in bench.deployment.delayed.pending(partition, hours=3)) == 3
    subject = bench.deployment.subjects.get(partition)
    assert bench.deployment.background.total((subject.name, subject.generation)).messages == 3


def test_a_process_that_meets_a_repeat_for_the_first_time_reserves_once_at_most(bench: Bench, partition: str) -> None:
    bench.deployment.subjects.put(partition, queues=1)
    first = sent(bench, partition)
    (before,) = ends(bench, partition)
    bench.deployment = bench.another_process()
    assert all(sent(bench, partition) == first for _ in range(REPEATS))
    (after,) = ends(bench, partition)
    assert after.rows - before.rows <= 1


def test_a_repeat_that_says_so_reserves_nothing_in_any_process(bench: Bench, partition: str) -> None:
    bench.deployment.subjects.put(partition, queues=1)
    first = sent(bench, partition)
    before = ends(bench, partition)
    key = IdempotencyKey("key", b"digest", repeated=True)
    for _ in range(3):
        messages = [NewMessage(body=message.body, key=message.key) for message in BATCH]
        assert bench.another_process().produce(partition, messages, key) == first
    assert ends(bench, partition) == before


def _schedule_logs(results: list[SendResult], bench: Bench) -> set[str]:
    return {read_scheduled_id(bench.deployment.secret, result.scheduled_id or "").bucket.log for result in results}
