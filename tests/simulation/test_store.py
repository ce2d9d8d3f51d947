"""Tests the simulated store itself."""

import sys
from dataclasses import replace

import pytest

from hourwheel.errors import OutcomeUnknown, Throttled
from hourwheel.logs.rows import sort_of
from hourwheel.ports.storage import Key, Record, Store, Table
from tests.contract.stores import Nobody
from tests.simulation.faults import Faults
from tests.simulation.scenes import PLAN
from tests.simulation.state import State, Wanted
from tests.simulation.store import TransactionalStore
from tests.simulation.world import Verb, World

KEY = Key(Table.CONSUME, "log", "a")
STORED = Record(b"stored", b"t1")
UNDONE = Record(b"undone", b"t2")
CLAIM = Key(Table.PULL, "group@log", sort_of(0))


class Claims(Nobody):
    """A watcher that takes each new pull row for a claim."""

    def stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None:
        verb.claims.append((key.partition, int(key.sort)))


def test_no_read_however_stale_shows_what_was_rolled_back() -> None:
    state = State(Nobody(), trims=True)
    state.set(KEY, STORED)

    def work(inside: State) -> None:
        inside.set(KEY, UNDONE)
        inside.set(KEY, None)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        state.transact(work)
    everything = Wanted("", 10, reverse=False, consistent=False)
    seen = [state.scan(Table.CONSUME, "log", everything, changes) for changes in range(4)]
    assert seen == [[("a", STORED)], [], [], []]


def store_with(faults: Faults) -> TransactionalStore:
    world = World(replace(PLAN, faults=faults))
    world.limit = sys.maxsize
    return TransactionalStore(world.process("c1"), State(Claims(), trims=True))


def claim(store: Store) -> None:
    store.put(CLAIM, STORED, expect=None)


def test_a_claim_is_unanswered_once_the_answer_of_its_transaction_is_lost() -> None:
    store = store_with(Faults(lose=1))
    with pytest.raises(OutcomeUnknown):
        store.transact(claim)
    verb = store.process.verb
    assert (verb.claims, verb.unanswered) == ([("group@log", 0)], {("group@log", sort_of(0))})


def test_a_claim_is_unanswered_if_its_transaction_comes_late_and_not_before() -> None:
    store = store_with(Faults(late=1))
    with pytest.raises(OutcomeUnknown):
        store.transact(claim)
    verb = store.process.verb
    assert (verb.claims, verb.unanswered) == ([], set())
    store.world.calm()
    assert (verb.claims, verb.unanswered) == ([("group@log", 0)], {("group@log", sort_of(0))})


def test_a_claim_of_a_transaction_that_is_answered_stays_known_though_a_later_one_fails() -> None:
    store = store_with(Faults())
    store.transact(claim)
    verb = store.process.verb
    for faults in (Faults(throttle=1), Faults(lose=1)):
        store.world.faults = faults
        with pytest.raises((Throttled, OutcomeUnknown)):
            store.transact(lambda inside: inside.get(CLAIM))
    assert (verb.claims, verb.unanswered) == ([("group@log", 0)], set())
