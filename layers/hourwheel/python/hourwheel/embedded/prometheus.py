"""Answers ``GET /metrics`` with metrics for Prometheus, in its text format 0.0.4."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import accumulate

from hourwheel import __version__
from hourwheel.adapters.metrics import BOUNDS_SECONDS, Histogram
from hourwheel.api.events import Response
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.delay.lists.pending_counts import count_of
from hourwheel.embedded.runtime import Runtime
from hourwheel.embedded.workers.wheels import Wheels
from hourwheel.groups.progress import lag_of
from hourwheel.model.groups import Group
from hourwheel.model.lag import HeldKeys, Lag
from hourwheel.model.subjects import Subject
from hourwheel.reach.outages import Outages
from hourwheel.retention.watermarks import behind_seconds
from hourwheel.times import parse_rfc3339

_HEADERS = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}

_DELAYED_ROWS = 20_000  # of schedule logs, read by one computation: about 100 ms; the next one goes on
_KEPT_MS = 5_000
_SHARE = 20
"""The metrics of groups are computed anew after 5 s, or after 20 times as long as the last computation took. So they
take at most a twentieth of a core, for any number of groups and of scrapes."""

_COUNTERS = (
    ("Accepted", "accepted", "Messages accepted, delayed ones included."),
    ("Delivered", "delivered", "Messages handed out to consumers."),
    ("Settled", "settled", "Messages that consumers acknowledged, released or gave up."),
    ("EndedLeases", "ended_leases", "Pulls whose lease ended before all messages were settled."),
    ("ThrottledPulls", "throttled_pulls", "Pulls refused because their group pulls too often."),
    ("ClaimConflicts", "claim_conflicts", "Claims that another consumer won."),
    ("HolesFilled", "holes_filled", "Rows of logs that a writer left empty."),
    ("DeadLetters", "dead_letters", "Messages that became dead letters."),
    ("Faults", "faults", "Faults of the server, as in its log."),
    ("UnreadableMessages", "unreadable_messages", "Messages left out because they cannot be read."),
    ("ExpiredUnread", "expired_unread", "Messages that expired before a group pulled them, counted for each group."),
    ("OrphanedMessages", "orphaned_messages", "Delayed messages whose subject was deleted before their time."),
    ("WakesMissed", "wakes_missed", "Timers of wheels that could not be set."),
    ("Dispatched", "dispatched", "Delayed messages handed over to their queues."),
    ("PushDelivered", "push_delivered", "Messages that push targets accepted."),
    ("PushFailed", "push_failed", "Messages that push targets did not accept."),
    ("PushPaused", "push_paused", "Times that pushing for a group was paused."),
    ("ArchivedMessages", "archived_messages", "Messages archived, copies in retry, dead and schedule logs included."),
    ("ArchiveUnreadableRows", "archive_damaged", "Rows archived without their messages, because these cannot be read."),
    ("ArchiveMissingRows", "archive_gone", "Rows that were removed before they were archived."),
)

_FREE = "Free bytes of the volumes of the data directories."
_RESERVE = "Free bytes of a volume below which it takes no new messages; 0: it takes all."

_BLOCKED = "Seconds for which another process has kept this one from writing."

_GROUP_GAUGES = (
    ("waiting", "Messages that wait in the queues."),
    ("in_flight", "Messages that are leased."),
    ("retrying", "Messages that can be pulled again for a retry."),
    ("backing_off", "Messages that wait for the delay of their retry."),
    ("dead", "Dead letters."),
    ("paused", "1 if the group or its subject is paused."),
    ("consumers", "Consumers that pulled from this server within ten minutes."),
    ("held_keys", "Keys of an ordered group that a failed message holds back."),
    ("oldest_seconds", "Age of the oldest waiting message in seconds."),
)


class Exporter:
    """Exports the metrics of a server, and those of the ``groups`` groups with the most messages. Thread-safe."""

    def __init__(self, runtime: Runtime, *, groups: int) -> None:
        self._runtime = runtime
        self._most = groups
        self._clock = runtime.deployment.context.clock
        self._started_seconds = self._clock.now_ms() / 1_000
        self._lock = threading.Lock()
        self._groups: list[str] = []
        self._computed_ms = self._expires_ms = 0

    def answer(self) -> Response:
        """Returns the page of metrics. Raises the errors of the store. If the metrics of groups are too old, computes
        those of every group, which may take long.
        """
        return {"statusCode": 200, "headers": _HEADERS, "body": "\n".join(self._lines()) + "\n"}

    def _lines(self) -> Iterator[str]:
        meter = self._runtime.meter
        for name, suffix, text in _COUNTERS:
            yield from _family(f"hourwheel_{suffix}_total", "counter", text, [({}, meter.total(name))])
        yield from _histogram(
            "hourwheel_dispatch_lateness_seconds",
            "How late delayed messages were handed over, by the first one of each row.",
            meter.times("DispatchLateness"),
        )
        wheels = self._runtime.deployment.context.timers
        assert isinstance(wheels, Wheels)
        gauges: list[tuple[str, str, dict[str, str], float]] = [
            ("hourwheel_connections", "Open connections.", {}, self._runtime.connections()),
            ("hourwheel_waiting_pulls", "Pulls that wait for messages.", {}, self._runtime.wakeups.waiting),
            ("hourwheel_writes_blocked_seconds", _BLOCKED, {}, self._runtime.blocked_seconds),
            ("hourwheel_reserve_bytes", _RESERVE, {}, self._runtime.reserves.size),
            ("hourwheel_wheels_turning", "Wheels of delayed messages that turn.", {}, wheels.turning),
            ("hourwheel_build_info", "Always 1.", {"version": __version__}, 1),
            ("process_start_time_seconds", "Unix time at which the process began.", {}, self._started_seconds),
        ]
        context = self._runtime.deployment.context
        if context.settings.archive:
            text = "Age in seconds of the oldest row that is not archived."
            gauges.append(("hourwheel_archive_behind_seconds", text, {}, behind_seconds(context)))
        for name, text, labels, value in gauges:
            yield from _family(name, "gauge", text, [(labels, value)])
        volumes = self._runtime.reserves.by_volume
        free = [({"volume": volume}, reserve.free) for volume, reserve in volumes.items()]
        readable = [(labels, size) for labels, size in free if size is not None]
        yield from _family("hourwheel_free_bytes", "gauge", _FREE, readable)
        yield from self._group_lines()

    def _group_lines(self) -> list[str]:
        with self._lock:
            began_ms = self._clock.now_ms()
            # After the clock was set back, ``began_ms`` is before the last computation: compute anew.
            if not self._computed_ms <= began_ms < self._expires_ms:
                self._groups = list(self._all_group_lines())
                self._computed_ms = self._clock.now_ms()
                self._expires_ms = self._computed_ms + max(_KEPT_MS, _SHARE * (self._computed_ms - began_ms))
            return self._groups

    def _all_group_lines(self) -> Iterator[str]:
        deployment = self._runtime.deployment
        pending, _ = deployment.pending_counts.everywhere(deployment.context, most_rows=_DELAYED_ROWS)
        consumers = deployment.seen_pulls.consumers(self._clock.now_ms())
        text = "Delayed messages of all subjects that are not due yet."
        yield from _family("hourwheel_delayed", "gauge", text, [({}, count_of(pending, None))])
        groups: list[tuple[dict[str, str], dict[str, float]]] = []
        for subject in deployment.registry.all_subjects():
            if subject.deleted:
                continue
            for group in deployment.registry.groups(subject):
                if group.broadcast:
                    continue  # each consumer has a group of its own, with its own messages
                labels = {"subject": subject.name, "group": group.shared_name}
                if group.consumer:
                    labels["consumer"] = group.consumer
                with deployment.leases.faults.contained(
                    deployment.context, f"the lag of {group.member} on {subject.name}"
                ):
                    metrics = self._metrics(subject, group)
                    metrics["backing_off"] += max(0, pending[subject.name, subject.generation, group.member])
                    metrics["consumers"] = consumers[subject.name, group.shared_name]
                    groups.append((labels, metrics))
        kept = nlargest(self._most, groups, key=_size)
        kept.sort(key=lambda entry: (entry[0]["subject"], entry[0]["group"], entry[0].get("consumer", "")))
        dropped = (len(groups) - len(kept)) * len(_GROUP_GAUGES)
        text = "Series of groups that are left out, those with the fewest messages."
        yield from _family("hourwheel_series_dropped", "gauge", text, [({}, dropped)])
        for name, text in _GROUP_GAUGES:
            samples = [(labels, metrics[name]) for labels, metrics in kept]
            yield from _family(f"hourwheel_group_{name}", "gauge", text, samples)

    def _metrics(self, subject: Subject, group: Group) -> dict[str, float]:
        deployment = self._runtime.deployment
        logs = deployment.opener.of(deployment.context, subject, group)
        lag = lag_of(logs, deployment.leases, DeadLetters(deployment.context, subject, group), Outages())
        return {
            "waiting": lag.waiting,
            "in_flight": lag.in_flight,
            "retrying": lag.retrying,
            "backing_off": lag.backing_off,
            "paused": subject.paused or group.paused,
            "dead": lag.dead,
            "held_keys": lag.held.keys if isinstance(lag.held, HeldKeys) else 0,
            "oldest_seconds": self._age(lag),
        }

    def _age(self, lag: Lag) -> float:
        if lag.oldest_at is None:
            return 0.0
        return max(0.0, (self._clock.now_ms() - parse_rfc3339(lag.oldest_at, "oldest_at")) / 1_000)


def _size(group: tuple[dict[str, str], dict[str, float]]) -> tuple[float, float]:
    metrics = group[1]
    return sum(metrics[name] for name in ("waiting", "in_flight", "retrying", "dead")), metrics["oldest_seconds"]


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield f"{name}{_labels(labels)} {_number(value)}"


def _histogram(name: str, text: str, times: Histogram) -> Iterator[str]:
    yield from _family(name, "histogram", text, [])
    counts = list(accumulate(times.counts))
    for bound, count in zip((*map(_number, BOUNDS_SECONDS), "+Inf"), counts, strict=True):
        yield f"{name}_bucket{_labels({'le': bound})} {count}"
    yield f"{name}_sum {_number(times.seconds)}"
    yield f"{name}_count {counts[-1]}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
