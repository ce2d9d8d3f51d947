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
from hourwheel.archive.kinds import MESSAGES
from hourwheel.archive.manifests import Gone, Manifest, Span, commit
from hourwheel.archive.marks import Head, apply, caught_up, mark_of, marks, note, older
from hourwheel.archive.rebuild import unfinished
from hourwheel.archive.sources import Item, Source, catalog, sources
from hourwheel.context import Context
from hourwheel.errors import Conflict
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
class _Circle:
    """A way through all logs, in as many commits as it takes. ``whole``: nothing was left out so far; ``full``: the
    commit is, at the log ``resume``."""

    began_ms: int
    whole: bool
    full: bool = False
    resume: str = ""

    @property
    def complete_ms(self) -> int:
        """0 where it is not at its end, or left something out."""
        return self.began_ms if self.whole and not self.full else 0

    def of(self, head: Head) -> Head:
        """The head that knows where to go on."""
        return msgspec.structs.replace(
            head,
            resume=self.resume if self.full else "",
            circle_ms=self.began_ms if self.full else 0,
            whole=self.whole or not self.full,
        )


@dataclass
class _Run:
    """``own_circle``: a circle that ends now began in this run. ``listed``: the subjects and groups of the circle that
    began at ``circle_ms``, which may be another archiver's."""

    until_ms: int
    report: Archived = field(default_factory=Archived)
    own_circle: bool = False
    circle_ms: int = 0
    listed: list[tuple[Subject, list[Group]]] = field(default_factory=list)

    def goes_on(self, circle: _Circle) -> bool:
        """Whether something is left that was there when the run began; notes whether nothing is."""
        self.report.complete = self.own_circle and circle.complete_ms > 0
        after_another = not self.own_circle
        self.own_circle = self.own_circle and circle.full
        return circle.full or after_another


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
        held = caught_up(self.context, self.archive)
        began_ms = self.context.clock.now_ms()
        collector = Collector(self.context, self.archive)
        circle = _Circle(held.value.circle_ms or began_ms, held.value.whole)
        run.own_circle = run.own_circle or not held.value.circle_ms
        if not held.value.circle_ms or circle.began_ms != run.circle_ms:
            # What is made from here on is for the next circle.
            run.circle_ms, run.listed = circle.began_ms, catalog(self.directory)
        digest = self._catalog(collector, held.value, run.listed)
        stop_ms = min(run.until_ms, self.context.clock.now_ms() + self.limits.commit_ms)
        self._collect(collector, circle, held.value.resume, run.listed, stop_ms)
        collector.finish()
        nothing_new = not collector.segments and not collector.spans
        if nothing_new and circle.complete_ms - held.value.told_ms < _TELL_MS:
            complete_ms = max(held.value.complete_ms, circle.complete_ms)
            value = msgspec.structs.replace(circle.of(held.value), complete_ms=complete_ms)
            if value != held.value:
                note(self.context, held, value)
            return run.goes_on(circle)
        manifest = Manifest(
            number=held.value.number,
            began_ms=began_ms,
            ended_ms=self.context.clock.now_ms(),
            complete_ms=circle.complete_ms,
            segments=collector.segments,
            spans=collector.spans,
            damaged=collector.damaged,
            gone=collector.gone,
            catalog=digest,
        )
        if not commit(self.archive, manifest):
            run.report.lost_races += 1
            return True
        apply(self.context, Held(circle.of(held.value), held.token), manifest)
        self._count(run.report, manifest)
        return run.goes_on(circle) or not nothing_new

    def _catalog(self, collector: Collector, head: Head, listed: list[tuple[Subject, list[Group]]]) -> str:
        """Gathers the catalog where it has changed; its digest then."""
        found = Catalog([subject for subject, _ in listed], [group for _, groups in listed for group in groups])
        digest = blake2b(encode_catalog(found).data, digest_size=16).hexdigest()
        if digest == head.catalog:
            return ""
        collector.add_catalog(found)
        return digest

    def _collect(
        self,
        collector: Collector,
        circle: _Circle,
        resume: str,
        listed: list[tuple[Subject, list[Group]]],
        stop_ms: int,
    ) -> None:
        """Goes on behind the log where the last commit was full, up to the last one, or until this one is."""
        known = marks(self.context)
        every = list(sources(self.context, listed))
        at = next((at for at, source in enumerate(every) if _name(source) == resume), -1) + 1
        before = resume
        for source in every[at:]:
            self._log(collector, source, known.get(_name(source)), circle, stop_ms)
            if circle.full and before != resume:
                circle.resume = before  # the rest of this log comes first
                return
            circle.whole = circle.whole and not circle.full
            full = circle.full or len(collector.spans) >= self.limits.commit_spans
            if full or self.context.clock.now_ms() >= stop_ms:
                circle.full, circle.resume = source is not every[-1], _name(source)
                return
            before = _name(source)

    def _log(self, collector: Collector, source: Source, mark: int | None, circle: _Circle, stop_ms: int) -> None:
        """Gathers a log's rows from the mark on, up to the limits: the circle is full then, before the log's end."""
        start = end = given = mark or 0
        messages, whole, known = 0, False, False
        with self._contained(source):
            given = source.given(start)
            if given > start and mark is None:
                # What was removed before there was an archive is not missed.
                first = next(source.items(0), None)
                start = end = source.trimmed() if first is None else first.row
            known = True
        if given < (mark or 0):
            raise older(source.log)
        if given <= start:
            circle.whole = circle.whole and known
            return
        limit = collector.size + self.limits.log_bytes
        for item in self._settled(source, start):
            if item is None:
                with self._contained(source):
                    if (trimmed := source.trimmed()) > end:
                        collector.gone.append(Gone(log=source.log, start=end, end=trimmed))
                        end = trimmed
                    whole = end >= given or not source.held_up(end)
                break
            if item.row > end:
                collector.gone.append(Gone(log=source.log, start=end, end=item.row))
            messages += collector.add(source, item)
            end = item.row + 1
            circle.full = collector.size >= self.limits.commit_bytes or self.context.clock.now_ms() >= stop_ms
            if circle.full or collector.size >= limit:
                break
        circle.whole = circle.whole and (whole or circle.full)
        if end > start:
            behind = max(0, given - end)
            collector.spans.append(
                Span(kind=source.kind, log=source.log, start=start, end=end, messages=messages, behind=behind)
            )

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
