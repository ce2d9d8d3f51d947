"""A batch with an idempotency key is repeated once readers have filled its rows and its subject has more queues."""

from collections import defaultdict

import pytest

from hourwheel.context import Settings
from hourwheel.errors import Unavailable
from hourwheel.model.messages import NewMessage, SendResult
from hourwheel.ports.storage import Store
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.routing import queue_of
from tests.cut_off import CutOffRows
from tests.support import AT_ONCE, Bench

pytestmark = [
    pytest.mark.parametrize("store", ["memory", "sqlite", "dynamodb on moto", "dynamodb on ministack"], indirect=True),
    pytest.mark.parametrize("pages", ["usual", "small"], indirect=True),
    pytest.mark.usefixtures("pages"),
]

KEYS = "abcdefghijklmnop"


def send(bench: Bench, subject: str) -> list[SendResult]:
    messages = [NewMessage(body=key, key=key) for key in KEYS]
    return bench.another_process().produce(subject, messages, IdempotencyKey("once", b"digest", repeated=True))


def fill(bench: Bench, subject: str) -> None:
    """Lets the readers of a group come to holes, and past them."""
    bench.clock.pass_time(2)
    for queue in range(3):
        bench.deployment.produce(subject, [NewMessage(body="later", queue=queue)])
    bench.clock.pass_time(2)
    while pulls := bench.pull(subject=subject):
        for pull in pulls:
            bench.settle(pull, subject=subject)


@pytest.mark.parametrize("stored", [0, 1])
def test_each_queue_gets_the_messages_of_filled_rows_in_the_order_of_the_batch(
    store: Store, partition: str, stored: int
) -> None:
    cut_off = CutOffRows(store)
    bench = Bench(cut_off, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put(partition, queues=3)
    bench.deployment.groups.put(partition, "billing", ordered=True)
    cut_off.puts_left = stored
    with pytest.raises(Unavailable):
        send(bench, partition)
    cut_off.puts_left = -1
    fill(bench, partition)
    bench.deployment.subjects.put(partition, queues=5)
    placed = send(bench, partition)
    assert send(bench, partition) == placed
    accepted_now = [key for key in KEYS if queue_of(key, "", 3) >= stored]
    where = {key: (each.queue, each.offset) for key, each in zip(KEYS, placed, strict=True) if key in accepted_now}
    found: dict[str | None, tuple[int | None, int | None]] = {}
    while pulls := bench.pull(subject=partition):
        for pull in pulls:
            found |= {message.body: (message.queue, message.offset) for message in pull.messages}
            assert bench.settle(pull, subject=partition) == "settled"
    assert found == where, "the answer says where each message is"
    offsets = defaultdict[int | None, list[int]](list)
    for queue, offset in where.values():
        offsets[queue].append(offset or 0)
    assert offsets.keys() == {queue_of(key, "", 5) for key in accepted_now}
    assert all(taken == sorted(taken) for taken in offsets.values()), "one producer's messages are in its order"
