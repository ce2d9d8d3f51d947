"""Tests how the simulator judges the answers that its producers get."""

from dataclasses import replace

import pytest

from tests.simulation.actors import Actor
from tests.simulation.history import History
from tests.simulation.producers import Batch, Producer
from tests.simulation.scenes import PLAN
from tests.simulation.schedule import machine_of, prepare
from tests.simulation.world import Violation, World


def _producer() -> tuple[Actor, Producer]:
    world = World(PLAN)
    machine = machine_of(world, PLAN)
    keeper = Actor(machine, world.process("keeper"))
    prepare(keeper, PLAN)
    return keeper, Producer(machine, world.process("p"))


def _numbered(sequence: int) -> Batch:
    return Batch([f"p.{sequence}.{i}" for i in range(2)], ["s", "s"], "p", [None, None], None, sequence)


def test_a_batch_may_be_repeated_after_its_answer_if_the_next_one_was_refused() -> None:
    keeper, producer = _producer()
    first, second, third = map(_numbered, (1, 2, 3))
    assert producer.send(first)
    keeper.deployment.subjects.put("s", read_only=True)
    producer.process.sleep(5)  # until each process knows
    assert producer.send(second)
    assert "p.2.0" not in producer.history.accepted
    assert producer.send(first)
    keeper.deployment.subjects.put("s", read_only=False)
    producer.process.sleep(5)
    assert producer.send(third)
    assert set(producer.history.accepted) == {f"p.{batch}.{i}" for batch in (1, 3) for i in range(2)}


def test_a_repetition_that_is_answered_with_another_place_is_found() -> None:
    _, producer = _producer()
    batch = Batch(["p.1.0"], ["s"], None, [None])
    assert producer.send(batch)
    with pytest.raises(Violation, match="its repetition at"):
        producer.send(replace(batch))  # without a key it is stored again


def test_messages_of_a_producer_in_the_wrong_order_are_found() -> None:
    _, producer = _producer()
    history: History = producer.history
    history._check_order("p", "second", ("s~1/0", 0, 1))
    with pytest.raises(Violation, match="invariant 6"):
        history._check_order("p", "first", ("s~1/0", 0, 0))
