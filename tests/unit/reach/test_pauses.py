"""Work for a cell that did not answer waits some seconds, and the outage is logged once."""

import logging

import pytest

from hourwheel.errors import CellFull, CellUnavailable, Unavailable
from hourwheel.reach.pauses import Pauses
from tests.support import Bench

HOME, FAR, ALSO_FAR = "orders~1/0", "far:orders~1/2.1", "far:orders~1/3.1"


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def pauses(bench: Bench) -> Pauses:
    return Pauses(bench.deployment.context, "messages")


def fail(pauses: Pauses) -> None:
    with pauses.tried(FAR):
        raise CellFull("the volume of cell far is full")


def test_a_cell_that_did_not_answer_pauses_until_its_next_try(bench: Bench, pauses: Pauses) -> None:
    assert not pauses.holds(FAR)
    fail(pauses)
    assert pauses.holds(FAR)
    assert pauses.holds(ALSO_FAR)
    assert not pauses.holds(HOME)
    next_ms = pauses.next_ms(FAR)
    assert next_ms == pauses.end_ms(ALSO_FAR) > bench.clock.ms
    bench.clock.ms = next_ms
    assert not pauses.holds(FAR)
    assert pauses.next_ms(FAR) > next_ms == pauses.end_ms(FAR)


def test_an_answer_ends_the_pause(pauses: Pauses) -> None:
    fail(pauses)
    pauses.answered(ALSO_FAR)
    assert not pauses.holds(FAR)


def test_an_outage_is_logged_once(pauses: Pauses, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "hourwheel")
    told = "messages for cell far wait until it can be reached: the volume of cell far is full"
    fail(pauses)
    fail(pauses)
    assert [record.getMessage() for record in caplog.records] == [told]
    pauses.answered(FAR)
    fail(pauses)
    assert [record.getMessage() for record in caplog.records] == [told, told]


def test_an_error_of_the_home_cell_passes_through(pauses: Pauses) -> None:
    with pytest.raises(Unavailable) as raised, pauses.tried(FAR):
        raise Unavailable("the store does not answer")
    assert not isinstance(raised.value, CellUnavailable)
    assert not pauses.holds(FAR)
