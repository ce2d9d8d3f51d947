"""Defines the bounds of what clients send, and the types of fields with those bounds."""

import re
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from hourwheel.errors import Rejected

# As large as a message of SQS, to which groups may push.
MESSAGE_BYTES = 1 << 20
# With base64 (a third more) and the names of the fields a full batch still fits into a request.
BATCH_BYTES = 4 << 20
# An index within a batch fits into ten bits (``delay/timing.py``).
BATCH_MESSAGES = 1_000
# Lambda takes 6 MiB with headers and wrapping.
REQUEST_BYTES = 6_000_000
# A waiting pull reads the counters of all queues and of the retry log in one request of ``GET_MANY``.
MAX_QUEUES = 64
MIN_RETENTION_SECONDS = 60  # the sweeper, which removes expired rows, comes each minute
MAX_RETENTION_SECONDS = 30 * 86_400  # longer histories are in the archive
DEFAULT_RETENTION_SECONDS = 3 * 86_400
DEFAULT_MAX_ATTEMPTS = 16  # with the default pauses, from 5 s doubling to 2 h, about 11 hours
# Each consumer of a broadcast group costs what a group costs.
MAX_BROADCAST_CONSUMERS = 1_000
DEFAULT_CONSUMER_EXPIRES_SECONDS = 3 * 86_400  # as long as messages are kept by default
MIN_CONSUMER_EXPIRES_SECONDS = 60  # the sweeper, which forgets consumers, comes each minute
MAX_CONSUMER_EXPIRES_SECONDS = 30 * 86_400  # as long as the longest retention
DEFAULT_LEASE_SECONDS = 30  # the messages of a crashed consumer wait this long; a busy one extends its leases
# Settled rows, which say where the next claim goes, are kept for three days. A row that extensions hold open for longer
# would lose those behind it: the tail would be read too low, and a range claimed twice. SQS has this cap, too.
MAX_LEASE_SECONDS = 12 * 3_600
# API Gateway gives up on an invocation after 30 s.
MAX_WAIT_SECONDS = 20
MAX_RETRY_SECONDS = 30 * 86_400  # as long as the longest retention
# Two years, whether or not one of them is a leap year.
MAX_DELAY_MS = 2 * 366 * 86_400_000
DEAD_RETENTION_MS = 30 * 86_400_000  # a person has to find the cause before the dead letters are sent again
DEFAULT_MAX_HELD = 10_000  # a snapshot with this many held keys, and nothing behind them, fits into one record
DEFAULT_RETRY_PERCENT = 50  # failing messages halve the pace of new ones, and the other way round, never more
MAX_HELD = 100_000  # each claim goes through the held keys
# With this many parked messages, a process that begins reads a snapshot of 4 MB (docs/decisions/0026).
MAX_PARKED = 1_000_000
# Longer than a client repeats a request; each key is stored for this time (docs/decisions/0004).
IDEMPOTENCY_MS = 10 * 60_000
# A sender that numbers its batches has one record, however many it sends, so the record may stay: longer than a sender
# is away (docs/decisions/0033).
SEQUENCE_MS = 400 * 86_400_000

NAME_PATTERN = r"[A-Za-z0-9._-]{1,100}"
_NAME = re.compile(NAME_PATTERN)

Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=f"^{NAME_PATTERN}$")]
Text = Annotated[str, Meta(min_length=1, max_length=100)]
Sequence = Annotated[int, Meta(ge=1, le=(1 << 53) - 1)]
Index = Annotated[int, Meta(ge=0, lt=BATCH_MESSAGES)]
Indexes = Annotated[list[Index], Meta(max_length=BATCH_MESSAGES)]
Detail = Annotated[str, Meta(max_length=1_000)]
DETAILS_BYTES = 32 * 1_024
"""The details of one settlement take at most this much: they share a record of the store with the rest of the pull."""

Headers = Annotated[dict[Text, Annotated[str, Meta(max_length=4_096)]], Meta(max_length=32)]


def check_name(value: str, field: str) -> str:
    """Returns the value if it is a valid name; raises ``Rejected`` for any other."""
    if not _NAME.fullmatch(value) or value in {".", ".."}:
        raise Rejected(
            "name-invalid",
            f"{field} must match {NAME_PATTERN} and not be '.' or '..', got {value[:120]!r}",
            field=field,
        )
    return value


Delay: TypeAlias = int | float | Annotated[str, Meta(max_length=30)]
"""A delay: seconds, or a number with ``ms``, ``s``, ``m``, ``h`` or ``d``: "500ms", "90d"."""

Precision: TypeAlias = Literal["minute"]
"""How late a delayed message may come: "minute" lets it come up to a minute late."""
