"""Queues are added to a subject between the two requests of one batch: keys keep their order in ordered groups."""

from collections.abc import Sequence

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Unavailable
from hourwheel.model.messages import NewMessage, SendResult
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.routing import queue_of
from tests.cut_off import CutOffRows
from tests.support import AT_ONCE, Bench

KEY = IdempotencyKey("once", b"digest")
KEYS = "abcdefgh"


class Sender:
    """A producer whose first request is cut off, on a subject with one queue and an ordered group."""

    def __init__(self) -> None:
        self.store = CutOffRows(MemoryStore())
        self.bench = Bench(self.store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
        self.bench.deployment.groups.put("orders", "billing", ordered=True)

    def send(self, number: int, keys: Sequence[str] = KEYS) -> list[SendResult]:
        messages = [NewMessage(body=f"{key}{number}", key=key) for key in keys]
        return self.bench.deployment.produce("orders", messages, KEY if number == 1 else None)

    def send_in_vain(self, *, puts: int) -> None:
        """Sends the first messages, and stops after this many rows. A reader fills the others."""
        self.store.puts_left = puts
        with pytest.raises(Unavailable):
            self.send(1)
        self.store.puts_left = -1
        self.bench.clock.pass_time(2)
        for queue in range(self.bench.deployment.subjects.get("orders").queues):
            self.bench.deployment.produce("orders", [NewMessage(body="later", queue=queue)])
        self.bench.clock.pass_time(2)
        for pull in self.bench.pull():
            self.bench.settle(pull)

    def served(self) -> list[str]:
        """Returns the messages that the group hands out while none of them is acknowledged."""
        return [message.body or "" for message in self.bench.take() if message.key]


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_a_batch_that_is_stored_by_its_repeat_goes_where_its_keys_go_then(sender: Sender) -> None:
    sender.send_in_vain(puts=0)
    sender.bench.deployment.subjects.put("orders", queues=4)
    placed = sender.send(1)
    assert [each.queue for each in placed] == [queue_of(key, "", 4) for key in KEYS]
    sender.send(2)
    first, second = [f"{key}1" for key in KEYS], [f"{key}2" for key in KEYS]
    pulls = sender.bench.pull()
    held = [message.body for pull in pulls for message in pull.messages]
    assert sorted(held) == sorted(first + second)
    assert all(held.index(f"{key}1") < held.index(f"{key}2") for key in KEYS)


def test_a_second_message_of_a_key_waits_for_the_first_that_a_repeat_has_stored(sender: Sender) -> None:
    sender.send_in_vain(puts=0)
    sender.bench.deployment.subjects.put("orders", queues=4)
    sender.send(1)
    assert sorted(sender.served()) == [f"{key}1" for key in KEYS]
    sender.send(2)
    assert sender.served() == []


def test_each_further_repeat_gets_the_same_answer_also_after_more_queues(sender: Sender) -> None:
    sender.send_in_vain(puts=0)
    sender.bench.deployment.subjects.put("orders", queues=4)
    placed = sender.send(1)
    sender.bench.deployment.subjects.put("orders", queues=7)
    assert sender.send(1) == placed
    assert sorted(sender.served()) == [f"{key}1" for key in KEYS]
    assert sender.send(1) == placed


def test_parts_that_were_stored_stay_in_their_queue_and_only_the_others_are_divided_again(sender: Sender) -> None:
    sender.bench.deployment.subjects.put("orders", queues=2)
    sender.send_in_vain(puts=1)
    sender.bench.deployment.subjects.put("orders", queues=5)
    placed = sender.send(1)
    stored = [queue_of(key, "", 2) == 0 for key in KEYS]
    assert 0 < sum(stored) < len(KEYS)
    where = [0 if put else queue_of(key, "", 5) for key, put in zip(KEYS, stored, strict=True)]
    assert [each.queue for each in placed] == where
    sender.bench.deployment.subjects.put("orders", queues=6)
    assert sender.send(1) == placed
