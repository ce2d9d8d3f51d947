"""Each call of the DynamoDB adapter raises the right error under each fault, and a retry has a certain result."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from hourwheel.adapters.aws.dynamodb import DynamoStore
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.errors import OutcomeUnknown, Throttled, Unavailable
from hourwheel.ports.storage import Counter, Key, Record, Refused, Store, Table

from . import wire
from .records import record
from .simulated import InstantClock, SteadyIds
from .wire import Wire


class Scene(NamedTuple):
    """A key with the record ``before``, an empty key, and a counter at (1, 2)."""

    held: Key
    before: Record
    empty: Key
    counter: str
    mine: Record


class Call(NamedTuple):
    """A call. ``ask`` makes it; ``settled`` returns whether its answer and the stored record prove that it took
    place."""

    ask: Callable[[Store, Scene], Any]
    settled: Callable[[Store, Scene, Any], bool]


def is_mine(answer: Refused | None, mine: Record) -> bool:
    """Reads an answer as every writer above the port does: the writer's own token means that an earlier try has won."""
    return answer is None or (answer.current is not None and answer.current.token == mine.token)


CALLS = {
    "add": Call(
        lambda store, scene: store.add(scene.counter, rows=1, numbers=2),
        # After two effects with lost answers two numbers are lost: the third try is certain.
        lambda store, scene, answer: (
            answer in (Counter(2, 4), Counter(4, 8)) and store.counter(scene.counter) == answer
        ),
    ),
    "seal": Call(
        lambda store, scene: store.seal(scene.counter),
        lambda store, scene, answer: answer == store.counter(scene.counter) == Counter(1, 2, sealed=True),
    ),
    "counter": Call(
        lambda store, scene: store.counter(scene.counter),
        lambda store, scene, answer: answer == Counter(1, 2),
    ),
    "counters": Call(
        lambda store, scene: store.counters([scene.counter]),
        lambda store, scene, answer: answer == {scene.counter: Counter(1, 2)},
    ),
    "get": Call(
        lambda store, scene: store.get(scene.held),
        lambda store, scene, answer: answer == scene.before,
    ),
    "put on an empty key": Call(
        lambda store, scene: store.put(scene.empty, scene.mine, expect=None),
        lambda store, scene, answer: is_mine(answer, scene.mine) and store.get(scene.empty) == scene.mine,
    ),
    "put over a record": Call(
        lambda store, scene: store.put(scene.held, scene.mine, expect=scene.before.token),
        lambda store, scene, answer: is_mine(answer, scene.mine) and store.get(scene.held) == scene.mine,
    ),
    "delete": Call(
        lambda store, scene: store.delete(scene.held, expect=scene.before.token),
        lambda store, scene, answer: answer in (None, Refused(None)) and store.get(scene.held) is None,
    ),
    "scan": Call(
        lambda store, scene: store.scan(scene.held.table, scene.held.partition, limit=5),
        lambda store, scene, answer: answer == [(scene.held.sort, scene.before)],
    ),
}

FAULTS: dict[str, tuple[wire.Fault, type[Unavailable]]] = {
    "throttled": (wire.throttled, Throttled),
    "not connected": (wire.not_connected, OutcomeUnknown),
    "500 before the effect": (wire.failed_before_effect, OutcomeUnknown),
    "500 after the effect": (wire.failed_after_effect, OutcomeUnknown),
    "reply lost": (wire.reply_lost, OutcomeUnknown),
    "connection cut": (wire.connection_cut, OutcomeUnknown),
    "reply cut off": (wire.reply_cut_off, OutcomeUnknown),
}


@pytest.fixture
def scene(dynamodb: DynamoStore, partition: str) -> Scene:
    held = Key(Table.META, partition, "held")
    before = record(b"before")
    dynamodb.put(held, before, expect=None)
    dynamodb.add(partition, rows=1, numbers=2)
    return Scene(held, before, Key(Table.CONSUME, partition, "empty"), partition, record(b"mine"))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_a_fault_is_translated_and_nothing_is_repeated(
    own_client: Any, dynamodb: DynamoStore, scene: Scene, call: str, fault: str
) -> None:
    spoil, expected = FAULTS[fault]
    spoilt = Wire(own_client)
    spoilt.faults.append(spoil)
    with pytest.raises(expected) as raised:
        CALLS[call].ask(dynamodb, scene)
    assert type(raised.value) is expected
    assert spoilt.requests == 1


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
def test_a_retry_gives_a_certain_result(
    own_client: Any, dynamodb: DynamoStore, scene: Scene, call: str, fault: str
) -> None:
    spoil, _ = FAULTS[fault]
    Wire(own_client).faults.extend([spoil, wire.throttled, spoil])
    clock = InstantClock()
    again = RetryingStore(dynamodb, clock, SteadyIds())
    answer = CALLS[call].ask(again, scene)
    assert len(clock.pauses) == 3
    assert CALLS[call].settled(dynamodb, scene, answer)


def test_a_writer_that_lost_while_it_retried_learns_who_won(
    own_client: Any, dynamodb: DynamoStore, scene: Scene
) -> None:
    theirs = record(b"theirs")

    def somebody_is_faster(request: Any) -> None:
        dynamodb.put(scene.empty, theirs, expect=None)
        wire.not_connected(request)

    Wire(own_client).faults.append(somebody_is_faster)
    answer = RetryingStore(dynamodb, InstantClock(), SteadyIds()).put(scene.empty, scene.mine, expect=None)
    assert answer == Refused(theirs)
    assert not is_mine(answer, scene.mine)
