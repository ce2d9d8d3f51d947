"""Turns a run into numbers: what saturates first, times, units, dollars and executions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.cost.prices import MILLION, Usage, dollars, scaled
from hourwheel.ports.storage import Table
from tests.load.actors import Samples
from tests.load.deployment import SimulatedDeployment
from tests.load.throughput import READ, WRITE

_SHOWN = 3
_LAST_MS = 240_000


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the quantile; 0 without values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0


@dataclass(frozen=True)
class Saturation:
    """A limit that refused requests: the first at ``seconds`` of the run. Or one that refused none, with the used part
    of it."""

    limit: str
    refused: int
    seconds: float
    share: float

    def __str__(self) -> str:
        if not self.refused:
            return f"{self.limit} {self.share:.0%}"
        return f"{self.limit} {self.share:.0%}, refused {self.refused:,} from {self.seconds:.1f} s on"


@dataclass(frozen=True)
class Result:
    """``numbers`` by name, as the bounds of scenarios name them; ``saturated``: the limits that refused requests, the
    first one first, or the ones that were used most."""

    numbers: dict[str, float]
    saturated: list[Saturation]


def result_of(deployment: SimulatedDeployment, samples: Samples, began: float, used_before: Usage) -> Result:
    """Returns the numbers of a run that began at this time. ``used_before`` is not billed to its messages."""
    seconds = (deployment.machine.now - began) / 1_000
    received = samples.counts["received"]
    numbers = {
        "refused": float(sum(limit.refused for limit in deployment.throughputs.limits.values())),
        "messages a second": received / seconds,
        "given up": float(samples.counts["given up"]),
        "undelivered share": samples.undelivered / max(1, samples.counts["sent"]),
        "refused by quotas": float(sum(quota.refused for quota in deployment.quotas)),
        "executions at most": float(deployment.lambdas.executions.most_running),
        "cold starts": float(deployment.lambdas.cold),
        "wheels failed": float(sum(n for (name, _), n in deployment.lambdas.failed.items() if name == "wheel")),
        "sweeps failed": float(sum(n for (name, _), n in deployment.lambdas.failed.items() if name == "sweep")),
        "longest sweep s": max(deployment.lambdas.seconds.get("sweep", [0.0])),
        "longest delayed work s": max(deployment.lambdas.seconds.get("delayed", [0.0])),
        "untended at most s": _untended(deployment),
        "busiest key of meta": max(
            (
                limit.share(deployment.machine.now)
                for (table, key, _), limit in deployment.throughputs.limits.items()
                if table == Table.META and key
            ),
            default=0.0,
        ),
    }
    used = deployment.usage.copy()
    used.subtract(used_before)
    numbers |= {
        "dollars a month": dollars(scaled(used, 730 * 3_600 / seconds)),
        "dollars a million": dollars(scaled(used, MILLION / max(1, received))),
    }
    return Result(numbers | _times(samples) | _of_a_message(deployment, received), _saturated(deployment, began))


def _untended(deployment: SimulatedDeployment) -> float:
    """Returns the longest time between two sweeps of one subject, in seconds, within the last minutes of the run."""
    end = deployment.machine.now
    begin = end - _LAST_MS
    times = ([begin, *(at for at in tended if at > begin), end] for tended in deployment.tended.values())
    return max((later - earlier for subject in times for earlier, later in pairwise(subject)), default=0.0) / 1_000


def _times(samples: Samples) -> dict[str, float]:
    kinds = {
        "produce": samples.produced,
        "pull": samples.pulled,
        "delivery": samples.delivered,
        "late": samples.late,
    }
    numbers: dict[str, float] = {}
    for name, values in kinds.items():
        numbers |= {f"{name} p50 ms": quantile(values, 0.5), f"{name} p99 ms": quantile(values, 0.99)}
    late = samples.late
    return numbers | {
        "late at most ms": max(late, default=0.0),
        "over 5 s late": sum(ms > 5_000 for ms in late) / max(1, len(late)),
    }


def _of_a_message(deployment: SimulatedDeployment, received: int) -> dict[str, float]:
    store, received = deployment.store, max(1, received)
    puts = store.calls["pull", "put"]
    return {
        "write units a message": sum(n for (_, kind), n in store.units.items() if kind == WRITE) / received,
        "read units a message": sum(n for (_, kind), n in store.units.items() if kind == READ) / received,
        "pull units a message": store.units.get(("pull", WRITE), 0.0) / received,
        "lost puts": store.lost["pull"] / max(1, puts),
    }


def _saturated(deployment: SimulatedDeployment, began: float) -> list[Saturation]:
    """Returns the limits that refused requests, the first one first, or without any the ones that were used most."""
    now = deployment.machine.now
    seconds = (now - began) / 1_000
    found = [
        Saturation(quota.name, quota.refused, (quota.first_refused - began) / 1_000, quota.share(seconds))
        for quota in deployment.quotas
    ]
    for (table, partition, kind), limit in deployment.throughputs.limits.items():
        name = f"{kind} of {table} {partition}".rstrip()
        found.append(Saturation(name, limit.refused, (limit.first_refused - began) / 1_000, limit.share(now)))
    refusing = sorted((limit for limit in found if limit.refused), key=lambda limit: limit.seconds)
    return (refusing or sorted(found, key=lambda limit: -limit.share))[:_SHOWN]
