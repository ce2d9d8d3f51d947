"""Archives what the logs hold: a system consumer group of its own over consume, pull, schedule and dispatch logs.

It reads each log from its mark on, writes segments, and commits them by a manifest (see ``manifests.py``). A crash
before that leaves segments that nobody names; after it, marks that whoever comes next brings up. Any number may run at
once: one of them commits, what the others gathered is dropped.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from hourwheel.archive.blocks import Catalog, encode_catalog
from hourwheel.archive.collecting import Collector
from hourwheel.archive.kinds import MESSAGES
from hourwheel.archive.manifests import Gone, Manifest, Span, commit
from hourwheel.archive.marks import Head, apply, caught_up, head_slot, mark_of, marks
from hourwheel.archive.sources import Source, catalog, sources
from hourwheel.context import Context
from hourwheel.logs.item import Held
from hourwheel.meta.directory import Directory
from hourwheel.model import Group, Subject
from hourwheel.ports import Blobs, Table
from hourwheel.queueing.faults import Faults

_TELL_MS = 3_600_000
"""Who reads the archive alone learns so often that nothing new is there."""

_logger = logging.getLogger("hourwheel")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one commit: so many bytes as they were stored, so many spans, so long. Of one log at most ``log_bytes`` are
    taken before others have their turn."""

    commit_bytes: int = 128 << 20
    commit_spans: int = 5_000
    commit_ms: int = 60_000
    log_bytes: int = 16 << 20


class Archived(msgspec.Struct):
    """What a run did. ``complete``: nothing is left that was there when it began."""

    commits: int = 0
    rows: int = 0
    messages: int = 0
    bytes: int = 0
    damaged: int = 0
    gone: int = 0
    lost_races: int = 0
    complete: bool = False


@dataclass
class _Pass:
    """One way through all logs. ``full``: limits were reached before its end, at the log ``resume``."""

    complete: bool = True
    full: bool = False
    resume: str = ""


@dataclass(frozen=True)
class Archiver:
    """``archive``: where to. Safe to run anywhere, any number at once."""

    context: Context
    directory: Directory
    archive: Blobs
    limits: Limits = field(default_factory=Limits)
    faults: Faults = field(default_factory=Faults)

    def run(self, until_ms: int, tell: Callable[[], None] = lambda: None) -> Archived:
        """Archives until nothing is left, or what is left is not settled yet, or time is up; a commit that has begun is
        finished. Calls ``tell`` after each commit."""
        report = Archived()
        while self._commit(report, until_ms) and not report.complete and self.context.clock.now_ms() < until_ms:
            tell()
        self.context.store.collect(Table.META, self.context.clock.now_ms())
        return report

    def _commit(self, report: Archived, until_ms: int) -> bool:
        """One commit, if there is anything to archive: whether there was."""
        held = caught_up(self.context, self.archive)
        began_ms = self.context.clock.now_ms()
        collector = Collector(self.context, self.archive)
        listed = catalog(self.directory)
        digest = self._catalog(collector, held.value, listed)
        stop_ms = min(until_ms, began_ms + self.limits.commit_ms)
        way = self._collect(collector, held.value, listed, stop_ms)
        collector.finish()
        complete_ms = began_ms if way.complete else 0
        nothing_new = not collector.segments and not collector.spans
        if nothing_new and complete_ms - held.value.told_ms < _TELL_MS:
            self._nothing_new(held, complete_ms)
            report.complete = way.complete
            return False
        manifest = Manifest(
            number=held.value.number,
            began_ms=began_ms,
            ended_ms=self.context.clock.now_ms(),
            complete_ms=complete_ms,
            segments=collector.segments,
            spans=collector.spans,
            damaged=collector.damaged,
            gone=collector.gone,
            catalog=digest,
        )
        if not commit(self.archive, manifest):
            report.lost_races += 1
            return True
        apply(self.context, held, manifest, resume=way.resume)
        report.complete = way.complete
        self._count(report, manifest)
        return not nothing_new

    def _catalog(self, collector: Collector, head: Head, listed: list[tuple[Subject, list[Group]]]) -> str:
        """Gathers the catalog where it has changed; its digest then."""
        found = Catalog([subject for subject, _ in listed], [group for _, groups in listed for group in groups])
        digest = blake2b(encode_catalog(found).data, digest_size=16).hexdigest()
        if digest == head.catalog:
            return ""
        collector.add_catalog(found)
        return digest

    def _collect(
        self, collector: Collector, head: Head, listed: list[tuple[Subject, list[Group]]], stop_ms: int
    ) -> _Pass:
        """Goes once through all logs, beginning behind the one where the last pass stopped."""
        known = marks(self.context)
        every = list(sources(self.context, listed))
        at = next((at for at, source in enumerate(every) if _name(source) == head.resume), -1) + 1
        way = _Pass()
        for source in every[at:] + every[:at]:
            if way.full:
                way.complete = False
                break
            self._log(collector, source, known.get(_name(source)), way, stop_ms)
        return way

    def _log(self, collector: Collector, source: Source, mark: int | None, way: _Pass, stop_ms: int) -> None:
        """Gathers a log's rows from the mark on, up to the limits."""
        start = end = given = mark or 0
        messages, whole = 0, False
        with self.faults.contained(self.context, f"archiving {source.log}"):
            given = source.given(start)
            if given <= start:
                return
            if mark is None:
                # What was removed before there was an archive is not missed.
                first = next(source.items(0), None)
                start = end = source.trimmed() if first is None else first.row
            limit = collector.size + self.limits.log_bytes
            for item in source.items(start):
                if item.row > end:
                    collector.gone.append(Gone(log=source.log, start=end, end=item.row))
                messages += collector.add(source, item)
                end = item.row + 1
                way.full = collector.size >= self.limits.commit_bytes or self.context.clock.now_ms() >= stop_ms
                if way.full or collector.size >= limit:
                    break
            else:
                if (trimmed := source.trimmed()) > end:
                    collector.gone.append(Gone(log=source.log, start=end, end=trimmed))
                    end = trimmed
                whole = end >= given or not source.held_up(end)
        way.complete = way.complete and whole
        if end > start:
            behind = max(0, given - end)
            collector.spans.append(
                Span(kind=source.kind, log=source.log, start=start, end=end, messages=messages, behind=behind)
            )
        way.full = way.full or len(collector.spans) >= self.limits.commit_spans
        if way.full:
            way.resume = _name(source)

    def _nothing_new(self, held: Held[Head], complete_ms: int) -> None:
        """Notes that all was archived; where somebody else has changed the head, he has noted it as well."""
        if complete_ms > held.value.complete_ms:
            value = msgspec.structs.replace(held.value, complete_ms=complete_ms, resume="")
            head_slot(self.context).swap(held.token, value)

    def _count(self, report: Archived, manifest: Manifest) -> None:
        rows = sum(segment.rows for segment in manifest.segments)
        messages = sum(segment.messages for segment in manifest.segments if segment.kind == MESSAGES)
        gone = sum(one.end - one.start for one in manifest.gone)
        report.commits += 1
        report.rows += rows
        report.messages += messages
        report.bytes += sum(segment.bytes for segment in manifest.segments)
        report.damaged += len(manifest.damaged)
        report.gone += gone
        meter = self.context.meter
        meter.record("ArchivedMessages", messages)
        for name, figure in (("ArchiveDamaged", len(manifest.damaged)), ("ArchiveGone", gone)):
            if figure:
                meter.record(name, figure)
        for damage in manifest.damaged:
            _logger.error("row %d of %s was archived without its messages: %s", damage.row, damage.log, damage.error)
        for one in manifest.gone:
            _logger.error("rows %d to %d of %s were removed before they were archived", one.start, one.end - 1, one.log)


def _name(source: Source) -> str:
    return mark_of(source.kind, source.log)
