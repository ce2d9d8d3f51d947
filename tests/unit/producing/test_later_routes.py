"""A repeat divides the parts of a batch that no log has taken, once their subject has more queues."""

from collections import defaultdict
from typing import TypeAlias

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Unavailable
from hourwheel.logs.cas import CasRecord
from hourwheel.model.messages import AddressedMessage, NewMessage, SendResult
from hourwheel.producing.idempotency import IdempotencyKey, Remembered
from hourwheel.producing.routing import queue_of
from tests.cut_off import CutOffRows
from tests.support import AT_ONCE, Bench

ONCE = IdempotencyKey("once", b"digest", repeated=True)
KEYS = "abcdefghijklmnop"
SUBJECTS = ("orders", "bills")


Found: TypeAlias = tuple[str, str | None, int | None, int | None]
"""The subject, body, queue and offset of a message."""


@pytest.fixture
def store() -> CutOffRows:
    return CutOffRows(MemoryStore())


@pytest.fixture
def bench(store: CutOffRows) -> Bench:
    made = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    for subject in SUBJECTS:
        made.deployment.subjects.put(subject, queues=3)
        made.deployment.groups.put(subject, "billing", ordered=True)
    return made


def send(bench: Bench) -> list[SendResult]:
    """Sends a batch of both subjects, for the first time or again."""
    messages = [AddressedMessage(subject=subject, body=key, key=key) for key in KEYS for subject in SUBJECTS]
    return bench.another_process().produce_many(messages, ONCE)


def send_in_vain(bench: Bench, store: CutOffRows, *, puts: int) -> list[Found]:
    """Sends the batch, and stops after this many rows. Readers fill the others. Returns what they found."""
    store.puts_left = puts
    with pytest.raises(Unavailable):
        send(bench)
    store.puts_left = -1
    bench.clock.pass_time(2)
    for subject in SUBJECTS:
        for queue in range(bench.another_process().subjects.get(subject).queues):
            bench.another_process().produce(subject, [NewMessage(body="later", queue=queue)])
    bench.clock.pass_time(2)
    return read(bench)


def read(bench: Bench) -> list[Found]:
    """Hands out all messages of the batch that wait, and settles them."""
    found: list[Found] = []
    for subject in SUBJECTS:
        while pulls := bench.pull(subject=subject):
            for pull in pulls:
                found += [(subject, each.body, each.queue, each.offset) for each in pull.messages if each.key]
                bench.settle(pull, subject=subject)
    return found


def remembered(bench: Bench) -> CasRecord[Remembered]:
    return ONCE.record(bench.deployment.context, "*")


def where(placed: list[SendResult]) -> list[Found]:
    """Returns where the answer says that each message is, in the order of the batch."""
    sent = [(subject, key) for key in KEYS for subject in SUBJECTS]
    return [(*name, each.queue, each.offset) for name, each in zip(sent, placed, strict=True)]


@pytest.mark.parametrize("puts", [0, 1, 2])
@pytest.mark.parametrize("added", [4, 5, 7])
def test_each_queue_gets_the_messages_of_divided_parts_in_the_order_of_the_batch(
    bench: Bench, store: CutOffRows, added: int, puts: int
) -> None:
    found = send_in_vain(bench, store, puts=puts)
    stored = {(subject, body) for subject, body, *_ in found}
    for subject in SUBJECTS:
        bench.deployment.subjects.put(subject, queues=added)
    placed = where(send(bench))
    offsets = defaultdict[tuple[str, int | None], list[int]](list)
    for subject, key, queue, offset in placed:
        assert queue == queue_of(key, "", 3 if (subject, key) in stored else added)
        if (subject, key) not in stored:
            offsets[subject, queue].append(offset or 0)
    for taken in offsets.values():
        assert taken == list(range(taken[0], taken[0] + len(taken))), "the messages are one row"
    assert sorted(found + read(bench)) == sorted(placed)


@pytest.mark.parametrize("puts", [7, 8, 9, 12])
def test_rows_that_are_filled_before_and_after_queues_are_added_are_divided_together(
    bench: Bench, store: CutOffRows, puts: int
) -> None:
    found = send_in_vain(bench, store, puts=1)
    for subject in SUBJECTS:
        bench.deployment.subjects.put(subject, queues=4)
    # Six puts find the rows as they are, the next one is that of the row that is stored.
    found += send_in_vain(bench, store, puts=puts)
    once = remembered(bench).load()
    assert once is not None
    assert [(route.parts, route.queues) for route in once.value.rerouted] == [((3, 4, 5), 4), ((1, 2), 4)]
    for subject in SUBJECTS:
        bench.deployment.subjects.put(subject, queues=7)
    placed = send(bench)
    bench.deployment.subjects.put("orders", queues=8)
    assert send(bench) == placed
    assert sorted(found + read(bench)) == sorted(where(placed)), "each message once"
