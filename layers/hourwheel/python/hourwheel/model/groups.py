"""Defines the record of a group, and its settings."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from hourwheel.model.fields import MAX_RETRY_SECONDS
from hourwheel.model.group_settings import AllGroupSettings
from hourwheel.model.log_names import LogName, Member, shared_name


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """Determines the time between two attempts: ``first_seconds`` after the first attempt, then each time ``factor``
    times longer up to ``cap_seconds``; or the delays of ``delays_seconds``, of which the last one is repeated."""

    first_seconds: Annotated[float, Meta(ge=0, le=MAX_RETRY_SECONDS)] = 5.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    cap_seconds: Annotated[float, Meta(ge=0, le=MAX_RETRY_SECONDS)] = 7_200.0
    delays_seconds: Annotated[tuple[float, ...], Meta(max_length=100)] = ()

    def delay_ms(self, attempt: int) -> int:
        """Returns the delay after the failure of this attempt (counted from 1)."""
        if self.delays_seconds:
            seconds = self.delays_seconds[min(attempt, len(self.delays_seconds)) - 1]
        else:
            # Past this many doublings every cap is reached; the power stays a small number.
            seconds = min(self.cap_seconds, self.first_seconds * self.factor ** min(attempt - 1, 64))
        return round(seconds * 1_000)

    @property
    def longest_ms(self) -> int:
        return round(max(self.delays_seconds or (self.cap_seconds,)) * 1_000)


class TagFilter(Struct, frozen=True, kw_only=True):
    """The messages that a group takes, by their tags: those with at least one of ``tags_any``, every tag of
    ``tags_all`` and no tag of ``tags_none``. An empty list asks for nothing."""

    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    tags_none: tuple[str, ...] = ()

    def takes(self, tags: Sequence[str] | None) -> bool:
        """Returns whether the group takes a message with these tags."""
        tag_set = frozenset(tags or ())
        return (
            (not self.tags_any or not tag_set.isdisjoint(self.tags_any))
            and tag_set.issuperset(self.tags_all)
            and tag_set.isdisjoint(self.tags_none)
        )


PushKind: TypeAlias = Literal["lambda", "sqs", "eventbridge", "notify", "https", "python"]

KEEP_VERSION = 0
"""A request with this ``secret_version`` keeps the version that the group has."""


class PushTarget(Struct, frozen=True, kw_only=True):
    """The target to which Hourwheel delivers the messages of a group. ``address`` is the ARN of a function, queue or
    bus, a URL, or the name of a Python target. A delivery contains at most ``batch`` messages and may take
    ``timeout_seconds``; at most ``concurrency`` deliveries run at once. A target of the kind ``notify`` learns only
    that there are messages. A new ``secret_version`` signs with a new secret; ``KEEP_VERSION`` keeps the group's
    version."""

    kind: PushKind
    address: str
    batch: int = 10
    concurrency: int = 2
    timeout_seconds: int = 30
    secret_version: int = 1


class Group(AllGroupSettings, frozen=True, kw_only=True):
    """A group's record, valid for one generation of its subject. A group without ``broadcast`` has no
    ``consumer_expires_seconds``: 0."""

    subject: str
    subject_generation: int
    name: str
    generation: int
    created_ms: int

    retry: RetryPolicy | None = None
    """The delays of retries; None stands for those of the deployment."""

    push: PushTarget | None = None
    push_secret: int = 0
    """The latest version of the secret that signs deliveries."""

    origins: tuple[int, ...] = ()
    """The rows at which a group begins that started at the latest message, by queue; 0 if the tuple is shorter. They
    are rows of the logs that took the queues' messages in epoch ``origin_epoch``."""

    origin_epoch: int = 0
    origin_logs: tuple[str, ...] = ()
    """The names of the logs of ``origins``, for a subject with routes."""

    seeks: int = 0
    """The number of seeks, of changes of the filter and of decisions about stopped keys. A waiting pull that sees the
    number change looks at all queues again."""

    paused: bool = False
    filter: TagFilter | None = None
    """The messages of the queues that the group takes; None: all."""

    consumer: str = ""
    """The consumer of a broadcast group whose progress this record holds: see ``registry/broadcast.py``."""

    seen_ms: int = 0
    """The time of the consumer's last pull."""

    deleted: bool = False
    erased: bool = False
    seeking_ms: int = 0
    """The time at which a seek or a decision began that has not ended (0: none). Pulls look at all queues meanwhile."""

    @property
    def redelivery_ms(self) -> int:
        return round(self.redelivery_delay_seconds * 1_000)

    @property
    def flow_limited(self) -> bool:
        return bool(self.max_in_flight or self.messages_per_second)

    @property
    def settling_frees(self) -> bool:
        """Whether each settlement may let the group have another message."""
        return self.ordered or bool(self.max_in_flight)

    @property
    def member(self) -> str:
        return str(Member(self.name, self.generation))

    @property
    def shared_name(self) -> str:
        """The name in requests: that of the broadcast group for the group of one of its consumers."""
        return shared_name(self.name)

    @property
    def retry_log(self) -> str:
        return str(LogName.of_retries(self.subject, self.subject_generation, Member(self.name, self.generation)))

    @property
    def dead_log(self) -> str:
        return str(LogName.of_dead(self.subject, self.subject_generation, Member(self.name, self.generation)))

    @property
    def expired_counter(self) -> str:
        """The name of the counter of the messages that expired before the group had pulled them, in the home cell. A
        new group of the name has another generation, and begins at 0."""
        return f"{self.subject}~{self.subject_generation}/expired/{self.member}"
