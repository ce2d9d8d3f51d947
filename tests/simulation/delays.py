"""Describes the delayed messages of a run of the simulation, and the wheels that hand them over."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Delays:
    """The delayed messages of a plan, and the actors that deal with them."""

    share: float
    """The share of messages that are delayed."""
    bucket_minutes: int
    shards: int
    reach_ms: int
    """The longest delay."""
    dates: int
    """The number of times around which most messages fall due."""
    batches: int
    """A producer sends at most this many batches with delayed messages."""
    wheels: int
    leaves_seconds: int
    """A wheel leaves after about this many seconds (0: never)."""
    cancellers: int
    own_retries: bool
    """Consumers choose delays of their own."""
    patience: float
    """The share of sleeps that last until a message is due; the others last a moment."""
    pace: int
    """The factor by which actors without delayed messages sleep longer."""
    step_picks: int
    """A dispatch row names at most this many messages."""
    tick_ms: int = 500
    """0: wheels sleep until their next message is due."""
    precise: bool = False
    """Wheels are started by precise timers, as on AWS."""
    minute: float = 0.0
    """The share of delayed messages that may come a minute late."""
    prompt: bool = False
    """The run has no faults, so messages must arrive in time."""
    herd: bool = False
    """Most messages are due at one instant."""
