"""Decides which requests DynamoDB refuses: credit by partition key and by table, for writes and for reads."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.load.limits import value

WRITE, READ = "writes", "reads"
RATES = {WRITE: value("partition writes"), READ: value("partition reads")}
FIRST = {WRITE: value("table writes at first"), READ: value("table reads at first")}
_DOUBLING_MS = value("table doubles in") * 60_000
_QUOTA = value("table quota")


@dataclass(slots=True)
class Throughput:
    """The credit of units that one limit gives: ``rate`` a second, of which it keeps those of ``burst_seconds``.
    ``offered``: the units that others ask for each second, beside the requests of the run. A run begins with the credit
    of one second."""

    rate: float
    now: float
    burst_seconds: float = 1.0
    offered: float = 0.0
    credit: float = field(init=False)
    began: float = field(init=False)
    used: float = 0.0
    refused: int = 0
    first_refused: float = 0.0

    def __post_init__(self) -> None:
        self.credit = self.rate
        self.began = self.now

    def admits(self, now: float, chance: float) -> bool:
        """Returns whether the next request is let through. ``chance``, from 0 to 1, decides while others ask for more
        than there is."""
        self.credit += (self.rate - self.offered) * (now - self.now) / 1_000
        self.credit = min(self.credit, self.rate * self.burst_seconds)
        self.now = now
        if self.offered > self.rate and self.credit <= 0:
            self.credit = 0.0
            admitted = chance < self.rate / self.offered
        else:
            # A request may take more than is left, as its units are known only afterwards: the debt delays the next.
            admitted = self.credit > 0
        if not admitted:
            self.refused += 1
            self.first_refused = self.first_refused or now
        return admitted

    def use(self, units: float) -> None:
        self.used += units
        if self.offered <= self.rate:
            self.credit -= units

    def share(self, now: float) -> float:
        """Returns the used part of what the limit allowed since the beginning."""
        seconds = (now - self.began) / 1_000
        return (self.used / seconds + self.offered) / self.rate if seconds else 0.0


@dataclass(slots=True)
class Doubling(Throughput):
    """The credit of a table: it serves twice its highest use of half an hour in the next one, up to the quota."""

    window_used: float = 0.0
    window: float = field(init=False)

    def __post_init__(self) -> None:
        Throughput.__post_init__(self)
        self.window = self.now

    def admits(self, now: float, chance: float) -> bool:
        if now >= self.window + _DOUBLING_MS:
            used = (self.used - self.window_used) / (_DOUBLING_MS / 1_000)
            self.rate = min(_QUOTA, max(self.rate, 2 * used))
            self.window, self.window_used = now, self.used
        return Throughput.admits(self, now, chance)


class Throughputs:
    """All limits of the tables of a deployment. ``warm``: the units a second that each table serves from the beginning;
    0: those of a new one."""

    def __init__(
        self, now: Callable[[], float], chance: Callable[[], float], warm: float = 0.0, burst_seconds: float = 1.0
    ) -> None:
        self._now = now
        self._chance = chance
        self._burst_seconds = burst_seconds
        self._warm = warm
        self.limits: dict[tuple[str, str, str], Throughput] = {}
        """By table, partition key ("" for the table) and kind."""

    def of(self, table: str, partition: str, kind: str) -> Throughput:
        found = self.limits.get((table, partition, kind))
        if found is None:
            if partition:
                found = Throughput(RATES[kind], self._now(), self._burst_seconds)
            else:
                found = Doubling(min(_QUOTA, max(FIRST[kind], self._warm)), self._now())
            self.limits[table, partition, kind] = found
        return found

    def admits(self, table: str, partition: str, kind: str) -> bool:
        now = self._now()
        # The partition first: what it refuses does not count for the table.
        return self.of(table, partition, kind).admits(now, self._chance()) and self.of(table, "", kind).admits(
            now, self._chance()
        )

    def use(self, table: str, partition: str, kind: str, units: float) -> None:
        self.of(table, partition, kind).use(units)
        self.of(table, "", kind).use(units)
