"""Plants bugs of the sweep as a whole: what one subject does to the others."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hourwheel.model.subjects import Subject
from hourwheel.registry.registry import Registry
from hourwheel.sweep.position import StoredPosition, SweepPosition
from tests.simulation.bugs import Bug, registrar
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

SWEPT: list[Bug] = []
planted = registrar(SWEPT)


def _holes(plan: Plan) -> Plan:
    """Sharpens a plan: producers die between a reservation and its row, which the sweeper fills at the end of a log."""
    plan = replace(plan, subjects=("s", "t"), spanning=True, operators=0, moves=(), quiet_days=False)
    return replace(plan, transactional=False, producers=3, faults=Faults(crash=0.05))


def _spoilt(plan: Plan) -> Plan:
    return replace(_holes(plan), has_spoilt_record=True)


@planted(sharpen=_spoilt)
def a_record_that_cannot_be_decoded_ends_the_sweep() -> Iterator[None]:
    def all_subjects(self: Registry, after: str = "", *, unreadable: object = None, **how: Any) -> Iterator[Subject]:
        return real(self, after, **how)

    real = Registry.all_subjects
    with patch.object(Registry, "all_subjects", all_subjects):
        yield


@planted(sharpen=_holes)
def a_sweep_goes_on_behind_a_subject_that_none_has_tended() -> Iterator[None]:
    def stop(self: StoredPosition, position: SweepPosition) -> None:
        real(self, SweepPosition("t", position.began_ms))

    real = StoredPosition.stop
    with patch.object(StoredPosition, "stop", stop), patch("hourwheel.sweep.sweep._SWEEP_MS", 0):
        yield
