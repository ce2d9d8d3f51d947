"""Implements archivists: actors that archive while others work. Checks that the archive contains each row once, as it
was stored."""

from dataclasses import dataclass
from functools import partial

from hourwheel.archive.archiver import Archived, Archiver, CommitLimits
from hourwheel.pull_log.records import CLOSED, PullRow
from hourwheel.retention.chain import manifests
from tests.simulation.actors import Actor
from tests.simulation.audit import StoreAudit
from tests.simulation.blobs import SimulatedBlobs
from tests.simulation.facts import LogName
from tests.simulation.world import Violation
from tests.unit.archive.reading import Contents, contents

_ROUNDS = 50


def archive(actor: Actor, limits: CommitLimits, seconds: int) -> Archived | None:
    blobs = SimulatedBlobs(actor.process, actor.machine.archive)
    archiver = Archiver(actor.deployment.context, actor.deployment.registry, blobs, limits)
    _, report = actor.ask("archive", lambda: archiver.run(actor.process.now_ms() + seconds * 1_000))
    return report


@dataclass
class Archivist(Actor):
    def work(self) -> None:
        self.nap(3_000)
        small, some = self.rng.choice((300, 2_000, 1 << 20)), self.rng.choice((1, 3, 5_000))
        archive(self, CommitLimits(commit_bytes=small, commit_spans=some, log_bytes=small), 5)


def finish(actor: Actor) -> None:
    """Archives the remaining rows, then checks that the archive contains every row."""
    for _ in range(_ROUNDS):
        report = archive(actor, CommitLimits(), 600)
        if report is not None and report.complete:
            break
        actor.process.sleep(2)
    else:
        raise Violation("9", "the archive does not become complete after the faults have ended")
    _judge(actor.history.audit, actor)


def _judge(audit: StoreAudit, actor: Actor) -> None:
    found = contents(actor.machine.archive)
    for position, times in found.rows.items():
        if times > 1:
            raise Violation("9", f"{position} was archived {times} times")
    for manifest in manifests(actor.machine.archive):
        for gone in manifest.missing:
            if not gone.log.startswith("schedule/") and not audit.gone(*_names(gone.log)):
                raise Violation("12", f"{gone} was removed before it was archived")
    for log, facts in audit.logs.items():
        for row, fact in facts.items():
            _judge_row(audit, found, log, row, fact.row.count, partial(_same, found, log, row, fact.messages))
    _judge_pulls(audit, found)
    _judge_buckets(audit, found)


def _judge_pulls(audit: StoreAudit, found: Contents) -> None:
    for partition, history in audit.pulls.items():
        if audit.gone(history.source, history.member):
            continue
        for row, pull in history.pulls.items():
            before = found.pulls.get((partition, row))
            if before is None and pull.value.state == CLOSED:
                raise Violation("9", f"pull row {row} of {partition} is not in the archive")
            if before is not None and before != without_order(pull.value):
                raise Violation("9", f"pull row {row} of {partition} was archived as {before}, it is {pull.value}")


def without_order(row: PullRow) -> PullRow:
    """Returns the row as most readers of the archive see it."""
    return PullRow(**{name: getattr(row, name) for name in PullRow.__struct_fields__})


def _judge_buckets(audit: StoreAudit, found: Contents) -> None:
    for name, bucket in audit.buckets.items():
        rows = [dispatched for (log, _), dispatched in found.dispatches.items() if log == name]
        tokens = {transfer.token for dispatched in rows for transfer in dispatched.transfers}
        if missing := set(bucket.named.values()) - tokens:
            raise Violation("9", f"{len(missing)} transfers of bucket {name} are not in the archive")


def _judge_row(audit: StoreAudit, found: Contents, log: str, row: int, count: int, same: "partial[bool]") -> None:
    entry = found.entries.get((log, row))
    if entry is None:
        if count and not audit.lost(log):
            raise Violation("9", f"row {row} of {log} is not in the archive")
    elif not audit.lost(log) and (entry.count != count or not same()):
        raise Violation("9", f"row {row} of {log} was archived as something else")


def _same(found: Contents, log: str, row: int, messages: list[object]) -> bool:
    return [found.messages.get((log, row, index)) for index in range(len(messages))] == messages


def _names(log: str) -> tuple[str, str]:
    """Returns the log that a log or a pull log reads, and the group."""
    member, at, source = log.partition("@")
    return (source, member) if at else (log, LogName.parse(log).member)
