"""Archives what the logs hold: a system consumer group of its own over consume, pull, schedule and dispatch logs.

It reads each log from its mark on, writes segments, and commits them by a manifest (see ``manifests.py``). A crash
before that leaves segments that nobody names; after it, marks that whoever comes next brings up. Any number may run at
once: one of them commits, what the others gathered is dropped.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from hourwheel.archive.blocks import Catalog, encode_catalog
from hourwheel.archive.collecting import Collector
from hourwheel.archive.passes import LogRead, Pass, commit_is_full
from hourwheel.archive.rebuild import unfinished
from hourwheel.archive.sources import Item, Source, catalog, sources
from hourwheel.context import Context
from hourwheel.errors import Conflict
from hourwheel.faults import Faults
from hourwheel.logs.cas import Versioned
from hourwheel.model import Group, Subject
from hourwheel.ports import Blobs, Table
from hourwheel.registry.registry import Registry
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.manifests import Manifest, MissingRows, Span, commit
from hourwheel.retention.watermarks import ArchiveHead, apply, catch_up, older, replace_head, watermark_name, watermarks

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


@dataclass(frozen=True)
class _Rows:
    """The rows of a log that were taken: up to ``end``, with this many messages."""

    end: int
    messages: int
    read: LogRead


@dataclass
class _Run:
    """``own_pass``: a pass that ends now began in this run. ``listed``: the subjects and groups of the pass that
    began at ``pass_ms``, which may be another archiver's."""

    until_ms: int
    report: Archived = field(default_factory=Archived)
    own_pass: bool = False
    pass_ms: int = 0
    listed: list[tuple[Subject, list[Group]]] = field(default_factory=list)

    def begin(self, head: ArchiveHead, now_ms: int, registry: Registry) -> Pass:
        """The pass that goes on, or begins; lists subjects and groups where that was not done for it yet."""
        current = Pass.of(head, now_ms)
        self.own_pass = self.own_pass or not head.pass_ms
        if not head.pass_ms or current.began_ms != self.pass_ms:
            # What is made from here on is for the next pass.
            self.pass_ms, self.listed = current.began_ms, catalog(registry)
        return current

    def goes_on(self, current: Pass) -> bool:
        """Whether something is left that was there when the run began; notes whether nothing is."""
        self.report.complete = self.own_pass and current.complete_ms > 0
        after_another = not self.own_pass
        self.own_pass = self.own_pass and current.commit_full
        return current.commit_full or after_another


@dataclass(frozen=True)
class Archiver:
    """``archive``: where to. Safe to run anywhere, any number at once."""

    context: Context
    registry: Registry
    archive: Blobs
    limits: Limits = field(default_factory=Limits)
    faults: Faults = field(default_factory=Faults)

    def run(self, until_ms: int, tell: Callable[[], None] = lambda: None) -> Archived:
        """Archives until nothing is left, or what is left is not settled yet, or time is up; a commit that has begun is
        finished. Calls ``tell`` after each commit. Raises ``Conflict`` where archive and store do not belong together,
        or the store is half rebuilt."""
        if unfinished(self.context):
            raise Conflict("store-rebuilding", "the store is half rebuilt: end that first")
        run = _Run(until_ms)
        while self._commit(run) and not run.report.complete and self.context.clock.now_ms() < until_ms:
            tell()
        self.context.store.collect(Table.META, self.context.clock.now_ms())
        return run.report

    def _commit(self, run: _Run) -> bool:
        """One commit, if there is anything to archive: whether to go on."""
        held = catch_up(self.context, self.archive)
        began_ms = self.context.clock.now_ms()
        collector = Collector(self.context, self.archive)
        current = run.begin(held.value, began_ms, self.registry)
        digest = self._catalog(collector, held.value, run.listed)
        stop_ms = min(run.until_ms, self.context.clock.now_ms() + self.limits.commit_ms)
        current = self._collect(collector, current, run.listed, stop_ms)
        collector.finish()
        found = bool(collector.segments or collector.spans)
        if not current.needs_manifest(held.value, found=found):
            value = current.noted(held.value)
            if value != held.value:
                replace_head(self.context, held, value)
            return run.goes_on(current)
        manifest = self._manifest(collector, current, held.value.number, began_ms, digest)
        if not commit(self.archive, manifest):
            run.report.lost_races += 1
            return True
        apply(self.context, Versioned(current.head(held.value), held.token), manifest)
        self._count(run.report, manifest)
        return run.goes_on(current) or found

    def _manifest(self, collector: Collector, current: Pass, number: int, began_ms: int, digest: str) -> Manifest:
        return Manifest(
            number=number,
            began_ms=began_ms,
            ended_ms=self.context.clock.now_ms(),
            complete_ms=current.complete_ms,
            segments=collector.segments,
            spans=collector.spans,
            unreadable=collector.damaged,
            missing=collector.gone,
            catalog=digest,
        )

    def _catalog(self, collector: Collector, head: ArchiveHead, listed: list[tuple[Subject, list[Group]]]) -> str:
        """Gathers the catalog where it has changed; its digest then."""
        found = Catalog([subject for subject, _ in listed], [group for _, groups in listed for group in groups])
        digest = blake2b(encode_catalog(found).data, digest_size=16).hexdigest()
        if digest == head.catalog:
            return ""
        collector.add_catalog(found)
        return digest

    def _collect(
        self, collector: Collector, current: Pass, listed: list[tuple[Subject, list[Group]]], stop_ms: int
    ) -> Pass:
        """Reads logs behind the one at which the last commit was full, up to the last one, or until this one is
        full."""
        known = watermarks(self.context)
        every = list(sources(self.context, listed))
        names = [_name(source) for source in every]
        start = names.index(current.first) + 1 if current.first in names else 0
        for source, name in zip(every[start:], names[start:], strict=True):
            read = self._log(collector, source, known.get(name), stop_ms)
            stop = len(collector.spans) >= self.limits.commit_spans or self.context.clock.now_ms() >= stop_ms
            current = current.after(name, read, stop=stop, at_end=source is every[-1])
            if current.over:
                break
        return current

    def _log(self, collector: Collector, source: Source, watermark: int | None, stop_ms: int) -> LogRead:
        """Gathers a log's rows from the mark on, up to the limits."""
        bounds = self._bounds(source, watermark)
        if bounds is None:
            return LogRead(complete=False)
        start, given = bounds
        if given < (watermark or 0):
            raise older(source.log)
        if given <= start:
            return LogRead(complete=True)
        rows = self._rows(collector, source, start, given, stop_ms)
        if rows.end > start:
            behind = max(0, given - rows.end)
            collector.spans.append(
                Span(kind=source.kind, log=source.log, start=start, end=rows.end, messages=rows.messages, behind=behind)
            )
        return rows.read

    def _bounds(self, source: Source, watermark: int | None) -> tuple[int, int] | None:
        """The row at which to begin, and the end of the log; None where they cannot be read."""
        start = watermark or 0
        with self._contained(source):
            given = source.given(start)
            if given > start and watermark is None:
                # What was removed before there was an archive is not missed.
                first = next(source.items(0), None)
                start = source.trimmed() if first is None else first.row
            return start, given
        return None

    def _rows(self, collector: Collector, source: Source, start: int, given: int, stop_ms: int) -> _Rows:
        end, messages, limit = start, 0, collector.size + self.limits.log_bytes
        for item in self._settled(source, start):
            if item is None:
                end, complete = self._end(collector, source, end, given)
                return _Rows(end, messages, LogRead(complete))
            if item.row > end:
                collector.gone.append(MissingRows(log=source.log, start=end, end=item.row))
            messages += collector.add(source, item)
            end = item.row + 1
            full = commit_is_full(collector.size, self.limits.commit_bytes, self.context.clock.now_ms(), stop_ms)
            if full or collector.size >= limit:
                return _Rows(end, messages, LogRead(complete=False, commit_full=full))
        return _Rows(end, messages, LogRead(complete=False))

    def _end(self, collector: Collector, source: Source, end: int, given: int) -> tuple[int, bool]:
        """Behind the last row: where the log is archived up to, and whether that is its end."""
        with self._contained(source):
            if (trimmed := source.trimmed()) > end:
                collector.gone.append(MissingRows(log=source.log, start=end, end=trimmed))
                end = trimmed
            return end, end >= given or not source.held_up(end)
        return end, False

    def _settled(self, source: Source, start: int) -> Iterator[Item | None]:
        """The rows from ``start`` on, and None behind the last one; it just ends where one cannot be read. Only reading
        is contained: who cannot write has archived nothing."""
        items = source.items(start)
        while True:
            ended = True
            item: Item | None = None
            with self._contained(source):
                item = next(items, None)
                ended = False
            if ended:
                return
            yield item
            if item is None:
                return

    def _contained(self, source: Source) -> AbstractContextManager[None]:
        return self.faults.contained(self.context, f"archiving {source.log}")

    def _count(self, report: Archived, manifest: Manifest) -> None:
        rows = sum(segment.rows for segment in manifest.segments)
        messages = sum(segment.messages for segment in manifest.segments if segment.kind == MESSAGES)
        gone = sum(one.end - one.start for one in manifest.missing)
        report.commits += 1
        report.rows += rows
        report.messages += messages
        report.bytes += sum(segment.bytes for segment in manifest.segments)
        report.damaged += len(manifest.unreadable)
        report.gone += gone
        meter = self.context.meter
        meter.record("ArchivedMessages", messages)
        for name, metric in (("ArchiveUnreadableRows", len(manifest.unreadable)), ("ArchiveMissingRows", gone)):
            if metric:
                meter.record(name, metric)
        for damage in manifest.unreadable:
            _logger.error("row %d of %s was archived without its messages: %s", damage.row, damage.log, damage.error)
        for one in manifest.missing:
            _logger.error("rows %d to %d of %s were removed before they were archived", one.start, one.end - 1, one.log)


def _name(source: Source) -> str:
    return watermark_name(source.kind, source.log)
