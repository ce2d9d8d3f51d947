"""Shows what needs an operator: first what is in the way of every message, then the groups by their backlog.

What is in the way of a group is decided from the numbers that the overview has read, so an open page costs no other
reads.
Wheels, volumes and cells are looked at some seconds apart.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from hourwheel.context import Context
from hourwheel.operations.background import Background
from hourwheel.operations.concerns import (
    Concern,
    concerns_of_storages,
    concerns_of_volumes,
    concerns_of_wheels,
)
from hourwheel.operations.overview import Overview
from hourwheel.operations.thresholds import THRESHOLDS
from hourwheel.ports.storage import transactional
from hourwheel.times import rfc3339, within

_SYSTEM_MS, _SYSTEM_FAR_MS = 5_000, 30_000
"""The time between two looks at wheels, volumes and cells: on one machine, and where each read costs money."""

_NEVER = -(1 << 62)


class AttentionPage(Struct, kw_only=True):
    """What needs an operator, the gravest first: up to the limit of the call, of ``total`` in all. ``complete`` is
    False while the server has not read every subject yet. The oldest numbers were read at ``oldest_read_at``."""

    concerns: list[Concern]
    total: int
    at: str
    complete: bool
    oldest_read_at: str | None


@dataclass
class Attention:
    """Tells what needs an operator. Thread-safe."""

    overview: Overview
    background: Background
    out_of_reach: Callable[[], Sequence[str]]
    """Returns the names of the cells that cannot be reached."""

    _system: list[Concern] = field(default_factory=list)
    _system_ms: int = _NEVER
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def context(self) -> Context:
        return self.overview.context

    def page(self, limit: int) -> AttentionPage:
        """Returns up to ``limit`` concerns.

        On DynamoDB: what ``Overview.concerns`` needs, and every 30 s two queries and a batch for the wheels, and a
        query and a read of each cell.
        """
        groups = self.overview.concerns()
        concerns = sorted([*self._system_concerns(), *groups.concerns], key=Concern.order_key)
        return AttentionPage(
            concerns=concerns[:limit],
            total=len(concerns),
            at=rfc3339(self.context.clock.now_ms()),
            complete=groups.complete,
            oldest_read_at=None if groups.oldest_ms is None else rfc3339(groups.oldest_ms),
        )

    def _system_concerns(self) -> list[Concern]:
        rest_ms = _SYSTEM_MS if transactional(self.context.store) else _SYSTEM_FAR_MS
        with self._lock:
            now_ms = self.context.clock.now_ms()
            if self._system_ms == _NEVER or not within(self._system_ms, now_ms, rest_ms):
                self._system, self._system_ms = list(self._look(now_ms)), now_ms
            return self._system

    def _look(self, now_ms: int) -> Iterator[Concern]:
        context = self.context
        yield from concerns_of_storages(self.out_of_reach())
        yield from concerns_of_volumes(context.reserve.volumes(), THRESHOLDS)
        yield from concerns_of_wheels(self.background.wheels().wheels, THRESHOLDS, now_ms)
