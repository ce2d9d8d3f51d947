"""Declares the settings of a group."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Struct

from hourwheel.model.fields import (
    DEFAULT_CONSUMER_EXPIRES_SECONDS,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_HELD,
    DEFAULT_RETRY_PERCENT,
    MAX_CONSUMER_EXPIRES_SECONDS,
    MAX_HELD,
    MAX_RETRY_SECONDS,
    MIN_CONSUMER_EXPIRES_SECONDS,
)
from hourwheel.model.settings import Setting

MOST_IN_FLIGHT = MOST_PER_SECOND = 1_000_000  # a group that gets more has no use for a limit

WhenDead: TypeAlias = Literal["continue", "stop"]
"""Decides about a key of an ordered group whose first message was given up. With ``continue`` the message becomes a
dead letter, and the key goes on; with ``stop`` the key stops with that message, until an operator decides."""


class GroupSettings(Struct, frozen=True, kw_only=True):
    """The settings that every group has. The stored record of a group and the answer to a client both have them."""

    start: Annotated[
        Literal["earliest", "latest"],
        Setting("Begins with", "the message at which the group begins", fixed=True),
    ] = "earliest"

    max_attempts: Annotated[
        int,
        Setting("Attempts", "after this many attempts a message is a dead letter", least=1, most=1_000),
    ] = DEFAULT_MAX_ATTEMPTS

    redelivery_delay_seconds: Annotated[
        float,
        Setting(
            "Wait after a lease",
            "how long a message waits [whose lease ended](pulling.md#when-a-lease-ends) for the first time",
            least=0,
            most=MAX_RETRY_SECONDS,
            zero="at once",
        ),
    ] = 0.0

    max_in_flight: Annotated[
        int,
        Setting(
            "In flight at once",
            "[how many messages](#flow-control) may be leased at once",
            least=0,
            most=MOST_IN_FLIGHT,
            zero="no limit",
        ),
    ] = 0

    messages_per_second: Annotated[
        float,
        Setting(
            "Messages per second",
            "[how many messages](#flow-control) may be leased per second",
            least=0,
            most=MOST_PER_SECOND,
            zero="no limit",
        ),
    ] = 0.0

    retry_percent: Annotated[
        int,
        Setting(
            "Percentage of retries",
            "[the share of retries](#retries-and-new-messages) among the messages that pulls hand out while new ones"
            " wait",
            least=1,
            most=100,
        ),
    ] = DEFAULT_RETRY_PERCENT

    broadcast: Annotated[
        bool,
        Setting("Broadcast", "whether [each consumer](broadcast.md) gets every message", fixed=True),
    ] = False

    ordered: Annotated[
        bool,
        Setting("Ordered", "whether [the messages of each key](ordered.md) are served one after the other", fixed=True),
    ] = False


class AllGroupSettings(GroupSettings, frozen=True, kw_only=True):
    """The settings of a group with those that only ordered or broadcast groups have. A client gets None for the ones
    of another kind of group."""

    consumer_expires_seconds: Annotated[
        int,
        Setting(
            "Consumers are forgotten after",
            "after this time without a pull a consumer is forgotten",
            least=MIN_CONSUMER_EXPIRES_SECONDS,
            most=MAX_CONSUMER_EXPIRES_SECONDS,
            needs="broadcast",
        ),
    ] = DEFAULT_CONSUMER_EXPIRES_SECONDS

    when_dead: Annotated[
        WhenDead,
        Setting(
            "When a message is given up",
            "whether a key goes on after a message of it was given up",
            needs="ordered",
        ),
    ] = "continue"

    max_held: Annotated[
        int,
        Setting(
            "Most held keys",
            "how many keys of a queue may be held before the queue waits",
            least=1,
            most=MAX_HELD,
            needs="ordered",
        ),
    ] = DEFAULT_MAX_HELD
