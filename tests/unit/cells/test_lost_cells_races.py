"""A process that does not know yet that a cell is given up acknowledges nothing that it stores there afterwards."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.context import Settings
from hourwheel.delay import dispatch
from hourwheel.errors import Conflict, NotFound, Unavailable
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import CellStorage, Table
from hourwheel.producing import produce
from hourwheel.producing.idempotency import IdempotencyKey
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.delay.test_cells_out_of_reach import ALL, Outage

MOST_CALLS = 40


class Interrupted(CallByCall):
    """A store that calls ``interrupt`` before its next call but ``left``."""

    def __init__(self, store: MemoryStore, calls: "Calls") -> None:
        super().__init__(store)
        for verb in ALL:
            setattr(self, verb, partial(calls.made, getattr(self, verb)))


class Calls:
    """Counts the calls of some stores, and interrupts one of them."""

    left: int | None = None
    interrupt: Callable[[], None]

    def made(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                self.interrupt()
        return call(*arguments, **named)


class World:
    """Two processes on the same home: for ``stale`` the cell fast answers, and it sees no change of the state or of a
    route for a minute. For ``operator`` the cell is gone."""

    def __init__(self) -> None:
        self.home, self.fast, self.calls = MemoryStore(), MemoryStore(), Calls()
        settings = Settings(retry=AT_ONCE, registry_seconds=60)
        near = {"fast": CellStorage(Interrupted(self.fast, self.calls), MemoryBlobs())}
        self.stale = Bench(Interrupted(self.home, self.calls), settings=settings, cells=near)
        self.stale.deployment.cells.add("fast")
        self.stale.deployment.subjects.put("far")
        self.stale.deployment.routes.move("far", 0, "fast")
        cells = self.stale.deployment.context.cells
        assert isinstance(cells, GuardedCells)
        cells.seconds = 60
        self.stale.send("first", subject="far")
        away = Outage()
        away.down = ALL
        self.operator = Bench(
            self.home,
            clock=self.stale.clock,
            timers=self.stale.timers,
            settings=Settings(retry=AT_ONCE, registry_seconds=0),
            cells={"fast": CellStorage(away, MemoryBlobs())},
        )
        self.calls.interrupt = self.give_up
        self.lost_rows = 0

    def give_up(self) -> None:
        self.operator.deployment.cells.set_state("fast", "offline")
        self.operator.deployment.cells.remove("fast", lost=True)
        self.lost_rows = self.rows_of_fast()

    def rows_of_fast(self) -> int:
        return len(self.fast.scan(Table.CONSUME, "fast:far~1/0.1", limit=100))


def sends(world: World, calls: int, key: IdempotencyKey | None) -> bool:
    """Gives the cell up before call number ``calls`` of a producer; returns whether it was made. Raises if a message
    was acknowledged, stored in the lost cell afterwards, and never delivered."""
    world.calls.left = calls
    acknowledged = False
    with suppress(Unavailable):
        world.stale.deployment.produce("far", [NewMessage(body="x")], key)
        acknowledged = True
    if world.calls.left is not None:
        return False
    delivered = world.operator.bodies(subject="far") == ["x"]
    assert delivered or not acknowledged or world.rows_of_fast() == world.lost_rows
    return True


def race(key: IdempotencyKey | None) -> int:
    """Gives the cell up before each call of a producer; returns the number of calls."""
    for calls in range(MOST_CALLS):
        if not sends(World(), calls, key):
            return calls
    raise AssertionError("the producer makes more calls")


KEYS = pytest.mark.parametrize("key", [None, IdempotencyKey(key="k", digest=b"d")], ids=["", "idempotent"])


@KEYS
def test_a_producer_that_knows_nothing_of_the_loss_acknowledges_nothing_that_is_lost(
    key: IdempotencyKey | None,
) -> None:
    assert race(key) >= 3


@KEYS
def test_without_the_look_at_the_state_the_race_is_lost(
    key: IdempotencyKey | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "check_serving", lambda *_: None)
    with pytest.raises(AssertionError):
        race(key)


def turns(calls: int) -> bool:
    """Gives the cell up before call number ``calls`` of a wheel whose message is due; returns whether it was made.
    Raises if the message was put into the lost cell afterwards, and never elsewhere."""
    world = World()
    world.stale.send_later("x", delay=60, subject="far")
    # The dispatch row of this one is the last one then: the next owner does not look at the row before.
    world.stale.send_later("y", delay=61, subject="near")
    world.stale.turn(59)
    world.calls.left = calls
    world.stale.turn(5)
    interrupted = world.calls.left is None
    world.calls.left = None
    if interrupted:
        world.stale.turn(120)
        world.operator.turn(4_000)
        assert world.operator.bodies(subject="far") == ["x"] or world.rows_of_fast() == world.lost_rows
    return interrupted


def test_a_wheel_that_knows_nothing_of_the_loss_hands_over_again_what_is_lost() -> None:
    assert all(turns(calls) for calls in range(18))


def test_without_the_look_at_the_state_a_delayed_message_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "check_serving", lambda *_: None)
    with pytest.raises(AssertionError):
        all(turns(calls) for calls in range(18))


@pytest.mark.parametrize(("subject", "cell"), [("far", "home"), ("near", "fast")])
def test_a_move_that_knows_nothing_of_the_loss_leaves_no_queue_in_the_lost_cell(subject: str, cell: str) -> None:
    for calls in range(MOST_CALLS):
        world = World()
        (first,) = world.stale.send("0", subject="near")
        world.calls.left = calls
        with suppress(Unavailable, Conflict, NotFound):
            world.stale.deployment.routes.move(subject, 0, cell)
        if world.calls.left is not None:
            assert calls >= 3
            return
        for name in ("far", "near"):
            world.operator.deployment.sweeper.sweep()
            route = world.operator.deployment.subjects.get(name).route(0)
            assert not [each for each in route.readable if each.cell == "fast"], calls
            offsets = [sent.offset for sent in world.operator.send("1", subject=name)]
            assert offsets > [first.offset], calls
            assert "1" in world.operator.bodies(subject=name), calls
    raise AssertionError("the move makes more calls")
