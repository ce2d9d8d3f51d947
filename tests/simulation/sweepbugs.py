"""Plants bugs of the sweep as a whole: what one subject does to the others."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from zlib import crc32

from hourwheel.registry.registry import Registry
from hourwheel.registry.stored_records import SubjectRecords
from hourwheel.sweep.faults import SweepFaults
from hourwheel.sweep.position import StoredPosition, SweepPosition
from hourwheel.sweep.shares import Share
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
    @contextmanager
    def whole(self: SweepFaults, what: str) -> Iterator[None]:
        with nullcontext() if what.startswith("reading the records") else real(self, what):
            yield

    def whole_subject(self: Registry, name: str, *, unreadable: object = None, **how: Any) -> SubjectRecords | None:
        return records(self, name, **how)

    real, records = SweepFaults.whole, Registry.whole_subject
    with patch.object(SweepFaults, "whole", whole), patch.object(Registry, "whole_subject", whole_subject):
        yield


def _shared(plan: Plan) -> Plan:
    """Sharpens a plan: two sweeps share the subjects, one each."""
    return replace(_holes(plan), shares=2)


@planted(sharpen=_shared)
def a_share_leaves_out_a_subject() -> Iterator[None]:
    def has(self: Share, subject: str) -> bool:
        return self.of == 1 or crc32(subject.encode()) % (self.of + 1) == self.number

    with patch.object(Share, "has", has):
        yield


@planted(sharpen=_shared)
def a_share_goes_on_at_the_position_of_another() -> Iterator[None]:
    with patch.object(Share, "name", ""), patch("hourwheel.sweep.sweep._SWEEP_MS", 0):
        yield


@planted(sharpen=_holes)
def a_sweep_goes_on_behind_a_subject_that_none_has_tended() -> Iterator[None]:
    def stop(self: StoredPosition, position: SweepPosition) -> None:
        real(self, SweepPosition("t", position.began_ms))

    real = StoredPosition.stop
    with patch.object(StoredPosition, "stop", stop), patch("hourwheel.sweep.sweep._SWEEP_MS", 0):
        yield
