"""Checks the options of a producer or consumer when it is made, and holds those of a consumer. A consumer with
``concurrency=0`` would wait for ever."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from hourwheel.model.fields import BATCH_MESSAGES, MAX_LEASE_SECONDS, MAX_WAIT_SECONDS
from hourwheel.ports.machine import Ids

A = TypeVar("A")

DEFAULT_MAX_MESSAGES = 100
"""The least that a consumer pulls at a time that does not follow its handlers."""

_MOST_SECONDS = 1_000_000_000  # 31 years: Python's waits take up to 292 years, and not ``math.inf``


class _Range(NamedTuple):
    least: float
    most: int | None
    whole: bool


_COUNT = _Range(1, None, whole=True)
_SECONDS = _Range(0, _MOST_SECONDS, whole=False)

_RANGES = {
    "batch_messages": _Range(1, BATCH_MESSAGES, whole=True),
    "batch_bytes": _COUNT,
    "linger_seconds": _SECONDS,
    "delivery_timeout_seconds": _Range(0.001, _MOST_SECONDS, whole=False),
    "close_timeout_seconds": _SECONDS,
    "max_pending_messages": _COUNT,
    "max_pending_bytes": _COUNT,
    "concurrency": _COUNT,
    "max_messages": _Range(1, BATCH_MESSAGES, whole=True),
    "wait_seconds": _Range(0, MAX_WAIT_SECONDS, whole=False),
    "lease_seconds": _Range(1, MAX_LEASE_SECONDS, whole=True),
    "settle_linger_seconds": _SECONDS,
    "drain_seconds": _SECONDS,
}


class PrefetchOptions(NamedTuple, Generic[A]):
    """Holds the options of a consumer, checked. ``connect`` makes an ``Api`` or an ``AsyncApi``."""

    connect: Callable[..., A]
    subject: str
    group: str
    consumer_id: str
    max_messages: int
    wait_seconds: float
    lease_seconds: int
    settle_linger_seconds: float
    ids: Ids


def check_options(**options: Any) -> None:
    """Raises ``TypeError`` for an option that is no number, or no whole one, and ``ValueError`` for one out of its
    range."""
    for name, value in options.items():
        least, most, whole = _RANGES[name]
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise TypeError(_sentence(name, value))
        if not least <= value <= (value if most is None else most):
            raise ValueError(_sentence(name, value))


def _sentence(name: str, value: Any) -> str:
    least, most, whole = _RANGES[name]
    until = "" if most is None else f" to {most:,}"
    return f"{name} is a {'whole ' if whole else ''}number from {least}{until}, got {value!r}"
