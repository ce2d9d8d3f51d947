"""Says from which number on a state of a deployment needs an operator. Nothing else decides that."""

from typing import NamedTuple


class Thresholds(NamedTuple):
    """The bounds at which ``concerns.py`` names a group, a volume or a wheel."""

    trend_ms: int = 15_000  # rates over a shorter time show single batches as peaks
    trend_span_ms: int = 60_000  # a rate is the mean of one to two of these: a minute is what a person sees as "now"
    rising_messages: int = 100  # shorter backlogs come and go with each batch of a producer
    rising_per_second: float = 0.1  # slower growth makes 100 messages in 17 minutes: the next look finds it
    rising_oldest_ms: int = 30_000  # messages that wait for less are pulled in time, however many they are
    long_messages: int = 1_000  # a backlog that shrinks is named from here on
    long_oldest_ms: int = 600_000
    unpulled_ms: int = 60_000  # a consumer asks at least every 30 seconds: after twice that it is gone
    low_reserves: int = 2  # times the reserve that a volume keeps, as in the answer of readiness
    overdue_ms: int = 30_000  # the sweeper starts a wheel within a minute of its time, which mostly is in advance


THRESHOLDS = Thresholds()
