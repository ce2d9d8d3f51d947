"""Plants bugs of broadcast groups: the real code with one clause left out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.context import Context
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.registry import broadcast
from hourwheel.registry.records import group_record
from hourwheel.registry.registry import Registry
from hourwheel.settling.leases import Leases
from hourwheel.sweep import consumers
from tests.simulation.bugs import Bug, registrar
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

BROADCAST: list[Bug] = []
planted = registrar(BROADCAST)


def _members(plan: Plan) -> Plan:
    return replace(
        plan,
        broadcast_seconds=1,
        ordered=False,
        groups=("a",),
        consumers=3,
        sweepers=2,
        lease_seconds=5,
        calls=500,
        operators=0,
        moves=(),
        registry_seconds=0.0,
        quiet_days=False,
    )


@planted(sharpen=_members)
def a_member_is_forgotten_while_it_holds_leases() -> Iterator[None]:
    def forget(context: Context, registry: Registry, leases: Leases, subject: Subject, group: Group) -> bool:
        with patch.object(Leases, "in_flight", lambda *_: 0):
            return real(context, registry, leases, subject, group)

    real = consumers.forget_if_away
    with patch("hourwheel.sweep.subjects.forget_if_away", forget):
        yield


def _steady(plan: Plan) -> Plan:
    return replace(_members(plan), broadcast_seconds=10, skew_ms=300)


@planted(sharpen=_steady)
def a_member_is_forgotten_while_it_pulls() -> Iterator[None]:
    with patch.object(consumers, "away", lambda group, now_ms: now_ms - group.created_ms > 2_000):
        yield


def _outdated(plan: Plan) -> Plan:
    """Sharpens a plan: the sweeper judges consumers by a list that is out of date, so that each seems to be away."""
    return replace(
        _members(plan), transactional=False, skew_ms=0, lease_seconds=1, consumers=2, faults=Faults(stale=0.9)
    )


@planted(sharpen=_outdated)
def a_member_that_comes_back_is_forgotten_nevertheless() -> Iterator[None]:
    def delete(context: Context, registry: Registry, subject: Subject, group: Group) -> bool:
        record = group_record(context, subject.name, group.name)
        current = record.load()
        if current is None or current.value.deleted:
            return False
        deleted = msgspec.structs.replace(current.value, deleted=True)
        return record.swap(current, deleted).stored and consumers._delete(registry, subject, group)

    with patch.object(consumers, "_delete_unseen", delete):
        yield


@planted(sharpen=_members)
def members_share_their_progress() -> Iterator[None]:
    def name(group: Group, consumer: str) -> str:
        return real(group, consumer and "all")

    real = broadcast.consumer_group_name
    with patch.object(broadcast, "consumer_group_name", name):
        yield


@planted(sharpen=_members)
def a_settlement_goes_to_the_member_that_asks() -> Iterator[None]:
    def group_of(registry: Registry, subject: Subject, group: Group, *receipt: Any) -> Group | None:
        members = broadcast.consumer_groups(registry, subject, group)
        return members[-1] if members else None

    with patch("hourwheel.settling.settlements.group_of_receipt", group_of):
        yield
