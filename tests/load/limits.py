"""States the numbers of the load model, each with its source.

A source is a document by AWS, read in a stored copy on ``READ_ON``, or a sentence that says what the number is taken
from. Numbers of AWS change: look at the document before you rely on one.
"""

from dataclasses import dataclass
from math import log

READ_ON = "2026-11-28"


@dataclass(frozen=True)
class Source:
    """Where a number comes from: the title and the address of a document, or for ``url`` "" an assumption."""

    title: str
    url: str = ""


_SPIKES = Source(
    "Knowledge Center: How does DynamoDB handle spiky workloads in short intervals",
    "https://repost.aws/knowledge-center/dynamodb-spiky-workloads-short-intervals",
)
_WARM = Source(
    "DynamoDB Developer Guide: Understanding DynamoDB warm throughput in different scenarios",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput-scenarios.html",
)
_ON_DEMAND = Source(
    "DynamoDB Developer Guide: DynamoDB on-demand capacity mode",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html",
)
_ON_DEMAND_THROTTLING = Source(
    "Knowledge Center: Why is my on-demand DynamoDB table throttled",
    "https://repost.aws/knowledge-center/on-demand-table-throttling-dynamodb",
)
_UNITS = Source(
    "DynamoDB Developer Guide: DynamoDB read and write operations",
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html",
)
_SCALING = Source(
    "Lambda Developer Guide: Lambda scaling behavior",
    "https://docs.aws.amazon.com/lambda/latest/dg/scaling-behavior.html",
)
_LAMBDA = Source("Lambda Developer Guide: Lambda quotas", "https://docs.aws.amazon.com/lambda/latest/dg/limits.html")
_GATEWAY = Source(
    "API Gateway Developer Guide: Amazon API Gateway quotas",
    "https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html",
)
_HTTP_API = Source(
    "AWS Compute Blog: Building faster, lower cost, better APIs: HTTP APIs now generally available",
    "https://aws.amazon.com/blogs/compute/building-better-apis-http-apis-now-generally-available/",
)
_SCHEDULER = Source(
    "EventBridge Scheduler User Guide: Quotas for Amazon EventBridge Scheduler",
    "https://docs.aws.amazon.com/scheduler/latest/UserGuide/scheduler-quotas.html",
)
_PRECISION = Source(
    "EventBridge Scheduler User Guide: Schedule types in EventBridge Scheduler",
    "https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html",
)
_ASSUMED_LATENCY = Source("assumed; the Developer Guide promises single-digit milliseconds")
_COUNTED = Source("fitted to the billed time of produce and pull in the counts that ship with hourwheel.aws.bill")
_BENCH = Source("bench.cost.deployment.INIT_SECONDS, as in make cost")
_ASSUMED = Source("assumed")


@dataclass(frozen=True)
class Limit:
    value: float
    unit: str
    source: Source


LIMITS = {
    "partition writes": Limit(1_000, "units a second and partition key", _WARM),
    "partition reads": Limit(3_000, "units a second and partition key", _WARM),
    # The document adds that a burst is not guaranteed, and that it does not lift the limit of a partition: scenarios
    # therefore begin without a burst, as after an hour of their load.
    "burst": Limit(300, "seconds of unused capacity", _SPIKES),
    "table writes at first": Limit(4_000, "units a second and table", _ON_DEMAND_THROTTLING),
    "table reads at first": Limit(12_000, "units a second and table", _ON_DEMAND_THROTTLING),
    "table doubles in": Limit(30, "minutes", _ON_DEMAND_THROTTLING),
    "table quota": Limit(40_000, "units a second and table, of reads and of writes", _ON_DEMAND),
    "write unit": Limit(1_024, "bytes", _UNITS),
    "read unit": Limit(4_096, "bytes, read strongly; half a unit otherwise", _UNITS),
    "store call, median": Limit(4.5, "ms", _ASSUMED_LATENCY),
    "store call, p99": Limit(10, "ms", _ASSUMED_LATENCY),
    "executions": Limit(1_000, "at once in an account", _LAMBDA),
    "new executions": Limit(1_000, "in 10 s for each function", _SCALING),
    "requests of an execution": Limit(10, "a second, for each of the executions of the account", _SCALING),
    "cold start": Limit(600, "ms", _BENCH),
    "CPU of an invocation": Limit(1.8, "ms of a whole vCPU", _COUNTED),
    "CPU of a store call": Limit(1.2, "ms of a whole vCPU", _COUNTED),
    "requests": Limit(10_000, "a second for all APIs of an account and region", _GATEWAY),
    "request burst": Limit(5_000, "requests", _GATEWAY),
    "HTTP API, median": Limit(5, "ms for a request and its answer", _ASSUMED),
    "HTTP API, p99": Limit(10, "ms for a request and its answer", _HTTP_API),
    "schedules, large regions": Limit(1_000, "creations a second; the newer copy says 5,000", _SCHEDULER),
    "schedules, small regions": Limit(250, "creations a second", _SCHEDULER),
    "schedule precision": Limit(60, "seconds", _PRECISION),
    "start by SQS or Lambda": Limit(100, "ms until an invocation begins that nobody waits for", _ASSUMED),
}


def value(name: str) -> float:
    return LIMITS[name].value


def spread(median: str, p99: str) -> tuple[float, float]:
    """Returns the two parameters of the lognormal distribution with this median and 99th percentile."""
    return log(value(median)), log(value(p99) / value(median)) / 2.326


def lines() -> list[str]:
    """Returns a line for each number, for readers."""
    return [
        f"{name:26} {limit.value:>9,g} {limit.unit}  [{limit.source.title} {limit.source.url}".rstrip() + "]"
        for name, limit in LIMITS.items()
    ]
