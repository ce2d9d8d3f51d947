"""Draws crowds: several consumers of one queue, each of which asks for few messages, so that claims keep messages."""

from dataclasses import replace
from random import Random

from tests.simulation.plan import Plan

_SHARE = 0.5
"""The share of the plans with steady consumers that have a crowd."""


def crowded(plan: Plan) -> Plan:
    """Returns the plan; in some cases with a crowd."""
    rng = Random(plan.seed ^ 0xC40D)
    return with_crowd(plan, rng) if plan.steady and rng.random() < _SHARE else plan


def with_crowd(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with two to four consumers that take a message or two at a time from a long queue."""
    moves = tuple(move for move in plan.moves if move not in ("refilter", "decide"))
    return replace(
        plan,
        crowd=rng.choice((20, 40, 80)),
        steady=rng.choice((0.9, 0.97)),
        consumers=rng.choice((2, 2, 3, 4)),
        switch=max(plan.switch, 0.5),
        calls=plan.calls + 600,
        couriers=0,
        operators=min(1, plan.operators) if moves else 0,
        sweepers=min(1, plan.sweepers),
        ordered=False,
        filters=(),
        moves=moves,
        max_in_flight=0,
        messages_per_second=0,
        lease_seconds=max(5, plan.lease_seconds),
        retention_seconds=rng.choice((plan.retention_seconds, 259_200)),
        delays=None if rng.random() < 0.7 else plan.delays,
        latency_ms=min(plan.latency_ms, 20),
        groups=plan.groups if plan.broadcast_seconds else plan.groups[:1],
        subjects=plan.subjects[:1],
        queues=1,
    )
