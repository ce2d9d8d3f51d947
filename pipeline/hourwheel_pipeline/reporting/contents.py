"""Collects the contents of a report, as its JSON has them.

``format`` rises when a field changes its meaning or is removed; fields may be added. Times are Unix milliseconds.
"""

import msgspec

from hourwheel_pipeline.judging.reconciliation import Reconciled

FORMAT = 1


class HotKey(msgspec.Struct, frozen=True):
    key: str
    messages: int


class Hour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An hour of a subject or of a group: see ``metrics.py``. Fields without a value are left out."""

    hour_ms: int
    accepted: int | None = None
    accepted_bytes: int | None = None
    scheduled: int | None = None
    dispatched: int | None = None
    due: int | None = None
    delivered: int | None = None
    settled: int | None = None
    retried: int | None = None
    released: int | None = None
    dead: int | None = None
    lag: int | None = None
    attempts_mean: float | None = None
    attempts_max: int | None = None
    late_p50_ms: int | None = None
    late_p90_ms: int | None = None
    late_p99_ms: int | None = None
    late_max_ms: int | None = None
    pull_p50_ms: int | None = None
    pull_p90_ms: int | None = None
    pull_p99_ms: int | None = None
    pull_max_ms: int | None = None
    settle_p50_ms: int | None = None
    settle_p90_ms: int | None = None
    settle_p99_ms: int | None = None
    settle_max_ms: int | None = None
    total_p50_ms: int | None = None
    total_p90_ms: int | None = None
    total_p99_ms: int | None = None
    total_max_ms: int | None = None
    hot_keys: list[HotKey] | None = None


class GroupHours(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    hours: list[Hour]
    steps: list[Hour] = []


class SubjectHours(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    hours: list[Hour]
    steps: list[Hour] = []
    groups: list[GroupHours]


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a report. ``reconciled``: the last reconciliation, with its findings; None if there was none.
    ``subjects``: the subjects with the most messages, of ``subjects_total``, with their hours from ``since_ms`` on.
    ``step_ms``: the length of the ``steps`` that subjects and groups have beside their hours, while all stored messages
    span at most 60 hours; otherwise 0."""

    format: int = FORMAT
    made_ms: int
    since_ms: int
    reconciled: Reconciled | None
    step_ms: int = 0
    subjects_total: int
    subjects: list[SubjectHours]
