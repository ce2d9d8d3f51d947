"""Defines the cases of a deployment whose functions have URLs instead of an HTTP API."""

from collections.abc import Callable, Iterator

from bench.cost import cases
from bench.cost.cases import Measured
from bench.cost.deployment import CountedDeployment

ROUNDS = 100


def through_urls(fresh: Callable[..., CountedDeployment]) -> Iterator[tuple[str, int, Measured]]:
    """Measures the messages of ``cases.immediate`` with one group, sent and pulled through URLs. Yields name, batch and
    measure of each case."""
    for batch in (1, 10, 100):
        measured = cases.immediate(fresh(front="url"), batch, 1, ROUNDS)
        yield f"batch {batch}, function URLs", batch, measured
