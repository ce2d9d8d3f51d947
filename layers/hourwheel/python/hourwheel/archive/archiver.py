"""Archives the rows of all logs: of queues, retries, dead letters, pulls, schedules and dispatches.

An archiver reads each log from its watermark on, writes segments, and commits them by a manifest (see
``manifests.py``). A crash before the commit leaves segments that no manifest names; a crash after it leaves watermarks
that the next archiver brings up. Any number of archivers may run at once: one of them commits, and the rows that the
others gathered are dropped.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from hourwheel.archive.blocks import RegistrySnapshot, encode_registry
from hourwheel.archive.collecting import Collector
from hourwheel.archive.passes import LogRead, Pass, commit_is_full
from hourwheel.archive.rebuild import unfinished
from hourwheel.archive.sources import Item, LogSource, registry_listing, sources
from hourwheel.context import Context
from hourwheel.errors import Conflict, Corrupt
from hourwheel.faults import Faults
from hourwheel.logs.cas import Versioned
from hourwheel.model.groups import Group
from hourwheel.model.log_names import source_of
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Blobs, Table
from hourwheel.reach.outages import Outages
from hourwheel.registry.registry import Registry
from hourwheel.retention.archive_progress import apply, catch_up, older
from hourwheel.retention.bundles import EVERY, behind, fold
from hourwheel.retention.kinds import MESSAGES, PULLS
from hourwheel.retention.manifests import Manifest, MissingRows, Span, commit, sealed
from hourwheel.retention.watermarks import ArchiveHead, replace_head, watermark_name, watermarks

_logger = logging.getLogger("hourwheel")


class CommitLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one commit: the bytes of its rows as they were stored, its spans, and its time. A commit takes
    at most ``log_bytes`` of one log before it goes on to the next."""

    commit_bytes: int = 128 << 20
    commit_spans: int = 5_000  # each moves a watermark, which is a write after the commit
    commit_ms: int = 60_000  # the work that a crash, or a lost race for the number, can waste
    log_bytes: int = 16 << 20  # the other logs must not wait for a long backlog of one


class Archived(msgspec.Struct):
    """The report of a run. ``complete``: every settled row that existed when the run began is archived. ``cells_out``
    are the cells that were out of reach: the rows of their logs follow in a later run."""

    commits: int = 0
    rows: int = 0
    messages: int = 0
    bytes: int = 0
    unreadable_rows: int = 0
    missing_rows: int = 0
    lost_races: int = 0
    complete: bool = False
    cells_out: list[str] = []


@dataclass(frozen=True)
class _CommitRows:
    """The rows of a log that a commit takes: those below ``end``, which have this many messages."""

    end: int
    messages: int
    read: LogRead


@dataclass
class _ArchiverRun:
    """The state of a run. ``own_pass``: a pass that ends now began in this run. ``listed``: the subjects and groups of
    the pass that began at ``pass_ms``, which may be another archiver's."""

    until_ms: int
    report: Archived = field(default_factory=Archived)
    own_pass: bool = False
    pass_ms: int = 0
    listed: list[tuple[Subject, list[Group]]] = field(default_factory=list)

    def begin(self, head: ArchiveHead, now_ms: int, registry: Registry) -> Pass:
        """Returns the pass that goes on, or begins one. Lists subjects and groups once for each pass."""
        current = Pass.of(head, now_ms)
        self.own_pass = self.own_pass or not head.pass_ms
        if not head.pass_ms or current.began_ms != self.pass_ms:
            # Subjects and groups that are created from here on belong to the next pass.
            self.pass_ms, self.listed = current.began_ms, registry_listing(registry)
        return current

    def goes_on(self, current: Pass) -> bool:
        """Returns whether the run has to commit again, and notes in the report whether the run is complete."""
        # A pass that began before this run may have read logs before the rows were stored that this run has to archive.
        self.report.complete = self.own_pass and current.complete_ms > 0
        after_another = not self.own_pass
        self.own_pass = self.own_pass and current.commit_full
        return current.commit_full or after_another


@dataclass(frozen=True)
class Archiver:
    """Archives into ``archive``. Any number of archivers may run at once, on any machine."""

    context: Context
    registry: Registry
    archive: Blobs
    limits: CommitLimits = field(default_factory=CommitLimits)
    faults: Faults = field(default_factory=Faults)
    _outages: Outages = field(default_factory=Outages)

    def run(self, until_ms: int, after_commit: Callable[[], None] = lambda: None) -> Archived:
        """Archives until no settled row is left, or until ``until_ms``; finishes a commit that has begun. Calls
        ``after_commit`` after each commit. Raises ``Conflict`` when archive and store do not belong together, or when
        a rebuild of the store has not ended."""
        if unfinished(self.context):
            raise Conflict("store-rebuilding", "the store is half rebuilt: finish the rebuild first")
        run = _ArchiverRun(until_ms)
        self._outages.clear()
        while self._commit(run) and not run.report.complete and self.context.clock.now_ms() < until_ms:
            after_commit()
        # The watermarks of buckets, and the states of passes that extend expiries, expire in this table.
        self.context.store.collect(Table.META, self.context.clock.now_ms())
        run.report.cells_out = self._outages.names
        return run.report

    def _folded(self, head: Versioned[ArchiveHead]) -> Versioned[ArchiveHead]:
        """Folds each full thousand of manifests that are not in bundles; returns the head then."""
        following, due = head.value.bundled, head.value.number // EVERY * EVERY
        if following >= due:
            return head
        while following < due:
            following = self._fold(following)
        return replace_head(self.context, head, msgspec.structs.replace(head.value, bundled=following))

    def _fold(self, first: int) -> int:
        """Folds the manifests from the number ``first`` on. Returns where the next bundle begins."""
        try:
            return fold(self.archive, first)
        except Corrupt as error:
            # Its manifests are there, and readers read them one by one.
            _logger.error("the archiver passes over a bundle that cannot be read: %s", error)
            return behind(self.archive, first)

    def _commit(self, run: _ArchiverRun) -> bool:
        """Commits once, if there is anything to archive. Returns whether to go on."""
        # An archiver that crashed between its manifest and its watermarks has left the watermarks behind.
        head = self._folded(catch_up(self.context, self.archive))
        began_ms = self.context.clock.now_ms()
        collector = Collector(self.context, self.archive)
        current = run.begin(head.value, began_ms, self.registry)
        digest = self._registry_digest(collector, head.value, run.listed)
        stop_ms = min(run.until_ms, self.context.clock.now_ms() + self.limits.commit_ms)
        current = self._collect(collector, current, run.listed, stop_ms)
        collector.finish()
        archived = bool(collector.segments or collector.spans)
        if not current.needs_manifest(head.value, has_rows=archived):
            value = current.noted(head.value)
            if value != head.value:
                replace_head(self.context, head, value)
            return run.goes_on(current)
        manifest = self._manifest(collector, current, head.value, began_ms, digest)
        # The manifest is the commit: its number is written once, so one archiver gets it.
        if not commit(self.archive, manifest):
            # Another archiver committed this number first: the segments written here belong to no manifest.
            run.report.lost_races += 1
            return True
        # After the manifest: if this is cut off, the next archiver reads the watermarks from the manifest.
        apply(self.context, head.changed(current.head(head.value)), manifest, sealed(manifest))
        self._count(run.report, manifest)
        return run.goes_on(current) or archived

    def _manifest(self, collector: Collector, current: Pass, head: ArchiveHead, began_ms: int, digest: str) -> Manifest:
        return Manifest(
            number=head.number,
            store=head.store,
            previous=head.digest,
            began_ms=began_ms,
            ended_ms=self.context.clock.now_ms(),
            complete_ms=current.complete_ms,
            segments=collector.segments,
            spans=collector.spans,
            unreadable=collector.unreadable,
            missing=collector.missing,
            registry=digest,
        )

    def _registry_digest(
        self, collector: Collector, head: ArchiveHead, listed: list[tuple[Subject, list[Group]]]
    ) -> str:
        """Gathers the subjects and groups if they have changed. Returns their digest, or "" if they have not."""
        snapshot = RegistrySnapshot(
            [subject for subject, _ in listed], [group for _, groups in listed for group in groups]
        )
        digest = blake2b(encode_registry(snapshot).data, digest_size=16).hexdigest()
        if digest == head.registry:
            return ""
        collector.add_registry(snapshot)
        return digest

    def _collect(
        self, collector: Collector, current: Pass, listed: list[tuple[Subject, list[Group]]], stop_ms: int
    ) -> Pass:
        """Reads the logs behind the one at which the last commit was full, up to the last log, or until this commit is
        full. Returns the pass after them."""
        row_by_watermark = watermarks(self.context)
        all_sources = list(sources(self.context, listed))
        names = [_name(source) for source in all_sources]
        # From the first log on if the one behind which the last commit ended was removed since.
        start = names.index(current.first) + 1 if current.first in names else 0
        for source, name in zip(all_sources[start:], names[start:], strict=True):
            read = self._log(collector, source, row_by_watermark.get(name), stop_ms)
            if source is all_sources[-1]:
                return current.after_last(name, read)
            current = current.after(name, read)
            if len(collector.spans) >= self.limits.commit_spans or self.context.clock.now_ms() >= stop_ms:
                current = current.stopped()
            if current.commit_full:
                break
        return current

    def _log(self, collector: Collector, source: LogSource, watermark: int | None, stop_ms: int) -> LogRead:
        """Gathers a log's rows from the watermark on, up to the limits. Returns how far it read."""
        bounds = self._bounds(source, watermark)
        if bounds is None:
            return LogRead.ROWS_LEFT
        start, log_end = bounds
        # The store was set back to an earlier state: its new rows would count as archived, and never be.
        if log_end < (watermark or 0):
            raise older(source.log)
        if log_end <= start:
            return LogRead.TO_ITS_END
        rows = self._rows(collector, source, start, log_end, stop_ms)
        if rows.end > start:
            behind = max(0, log_end - rows.end)
            collector.spans.append(
                Span(kind=source.kind, log=source.log, start=start, end=rows.end, messages=rows.messages, behind=behind)
            )
        return rows.read

    def _bounds(self, source: LogSource, watermark: int | None) -> tuple[int, int] | None:
        """Returns the row at which to begin and the end of the log, or None if they cannot be read."""
        start = watermark or 0
        with self._contained(source):
            log_end = source.log_end(start)
            if log_end > start and watermark is None:
                # Rows that were removed before there was an archive do not count as missing.
                first = next(source.items(0), None)
                start = source.trimmed() if first is None else first.row_no
            return start, log_end
        return None

    def _rows(self, collector: Collector, source: LogSource, start: int, log_end: int, stop_ms: int) -> _CommitRows:
        """Gathers the settled rows of a log from ``start`` on, until the log or this commit's share of it ends."""
        end, messages, limit = start, 0, collector.size + self.limits.log_bytes
        for item in self._settled(source, start):
            if item is None:
                end, complete = self._end(collector, source, end, log_end)
                return _CommitRows(end, messages, LogRead.TO_ITS_END if complete else LogRead.ROWS_LEFT)
            if item.row_no > end:
                collector.missing.append(MissingRows(log=source.log, start=end, end=item.row_no))
            added: int | None = None
            # The object of a large batch. Every other error stops the run: it may be one of the archive.
            with self.faults.outages(self.context, f"archiving {source.log}"), self._seen(source):
                added = collector.add(source, item)
            if added is None:
                return _CommitRows(end, messages, LogRead.ROWS_LEFT)
            messages += added
            end = item.row_no + 1
            full = commit_is_full(collector.size, self.limits.commit_bytes, self.context.clock.now_ms(), stop_ms)
            if full or collector.size >= limit:
                return _CommitRows(end, messages, LogRead.COMMIT_FULL if full else LogRead.ROWS_LEFT)
        return _CommitRows(end, messages, LogRead.ROWS_LEFT)

    def _end(self, collector: Collector, source: LogSource, end: int, log_end: int) -> tuple[int, bool]:
        """Returns, after the last row was read, the row up to which the log is archived, and whether the log ends
        there."""
        with self._contained(source):
            # Rows below the trim mark were removed before they could be archived.
            if (trimmed := source.trimmed()) > end:
                collector.missing.append(MissingRows(log=source.log, start=end, end=trimmed))
                end = trimmed
            return end, end >= log_end or not source.behind_a_hole(end)
        return end, False

    def _settled(self, source: LogSource, start: int) -> Iterator[Item | None]:
        """Yields the rows from ``start`` on, and None behind the last one. Ends without the None at a row that cannot
        be read. Contains only errors of reading: after an error of writing nothing may count as archived."""
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

    @contextmanager
    def _contained(self, source: LogSource) -> Iterator[None]:
        with self.faults.contained(self.context, f"archiving {source.log}"), self._seen(source):
            yield

    def _seen(self, source: LogSource) -> AbstractContextManager[None]:
        return self._outages.seen(source_of(source.log) if source.kind == PULLS else source.log)

    def _count(self, report: Archived, manifest: Manifest) -> None:
        rows = sum(segment.rows for segment in manifest.segments)
        messages = sum(segment.messages for segment in manifest.segments if segment.kind == MESSAGES)
        missing = sum(missing_range.end - missing_range.start for missing_range in manifest.missing)
        report.commits += 1
        report.rows += rows
        report.messages += messages
        report.bytes += sum(segment.bytes for segment in manifest.segments)
        report.unreadable_rows += len(manifest.unreadable)
        report.missing_rows += missing
        meter = self.context.meter
        meter.record("ArchivedMessages", messages)
        for name, amount in (("ArchiveUnreadableRows", len(manifest.unreadable)), ("ArchiveMissingRows", missing)):
            if amount:
                meter.record(name, amount)
        for unreadable in manifest.unreadable:
            _logger.error(
                "row %d of %s was archived without its messages: %s",
                unreadable.row_no,
                unreadable.log,
                unreadable.error,
            )
        for missing_range in manifest.missing:
            _logger.error(
                "rows %d to %d of %s were removed before they were archived",
                missing_range.start,
                missing_range.end - 1,
                missing_range.log,
            )


def _name(source: LogSource) -> str:
    return watermark_name(source.kind, source.log)
