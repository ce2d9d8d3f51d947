"""Tests the simulated store itself."""

import pytest

from hourwheel.ports import Key, Record, Table
from tests.contract.stores import Nobody
from tests.simulation.store import State, Wanted

KEY = Key(Table.CONSUME, "log", "a")
STORED = Record(b"stored", b"t1")
UNDONE = Record(b"undone", b"t2")


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
