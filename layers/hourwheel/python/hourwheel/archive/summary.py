"""Summarizes an archive for a rebuild: the end of each log, the progress of each group, the open buckets, and the
hand-overs whose target row is not archived. Reads each segment that it needs once.

The summary stays in memory: a few numbers for each log, and the hand-overs whose target row is not archived.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from hourwheel.archive.blocks import Entry, RegistrySnapshot
from hourwheel.archive.reading import dispatch_rows, entries, pull_rows, registry_snapshots
from hourwheel.buckets.buckets import Bucket
from hourwheel.delay.ownership import Dispatched
from hourwheel.errors import Corrupt
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import CancelMarker, DueTimes, readable_entry
from hourwheel.model.groups import Group
from hourwheel.model.log_names import LogName, is_schedule, source_of
from hourwheel.model.subjects import Subject
from hourwheel.ordered.key_states import KeyStates
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.open_logs import group_parts
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.records import SOUGHT, Moved, Position
from hourwheel.registry.records import alive
from hourwheel.retention.chain import ChainEnd, LinkedManifest, chain
from hourwheel.retention.kinds import DISPATCHES, MESSAGES, PULLS, REGISTRY
from hourwheel.retention.manifests import Manifest, Segment, manifest_key

T = TypeVar("T", Subject, Group)

Pick: TypeAlias = tuple[int, int]


class Progress(NamedTuple):
    """The end of the last pull row that is archived."""

    row_no: int
    position: Position
    seq: int


@dataclass
class End:
    """The end of a log of messages. ``archived``: the archive has the rows below it. ``rows`` and ``numbers``: every
    row and every sequence that the archive names is below these."""

    archived: int = 0
    rows: int = 0
    numbers: int = 0

    def pass_over(self, rows: int, numbers: int) -> None:
        self.rows = max(self.rows, rows)
        self.numbers = max(self.numbers, numbers)


@dataclass
class Tally:
    """Tells whether messages of a bucket are left. ``left`` is a sum of hashes of the bucket's messages, less the
    hashes of those that were handed over or cancelled. It is 0 when each message was handed over or cancelled once. A
    message that was named twice leaves another sum, and the bucket then counts as open. ``last_ms`` is the time of the
    last dispatch row."""

    left: int = 0
    last_ms: int = 0

    def wait(self, row_no: int, count: int) -> None:
        # A sum of hashes: it is 0 again once each message was settled, without a set of millions of positions.
        self.left += sum(hash((row_no, index)) for index in range(count))

    def settle(self, picks: Iterable[Pick]) -> None:
        self.left -= sum(map(hash, picks))


class UnarchivedHandover(NamedTuple):
    """A hand-over to a row that is not archived: from a pull log, or the schedule log of a bucket."""

    source: str
    what: Moved | Transfer

    @property
    def picks(self) -> tuple[Pick, ...]:
        return self.what.picks


@dataclass
class ArchiveSummary:
    """The summary of the manifests below ``end_manifest``. ``pulled``: hand-overs of pull rows whose target row is not
    archived. ``dispatched``: such hand-overs of wheels, by bucket and message, with the number of the dispatch row.
    ``key_states``: the states of ordered groups, by their pull logs. ``pending_rows``: the rows of the manifest that is
    being read, which these states do not include yet. ``listed``: the names in the last snapshot of the registry."""

    end_manifest: int = 0
    complete_ms: int = 0
    registry: str = ""
    subjects: dict[str, Subject] = field(default_factory=dict)
    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    listed: set[str | tuple[str, str]] = field(default_factory=set)
    watermarks: dict[tuple[str, str], int] = field(default_factory=dict)
    ends: dict[str, End] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    key_states: dict[str, KeyStates] = field(default_factory=dict)
    pending_rows: dict[str, dict[int, OrderedRow]] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    pulled: list[UnarchivedHandover] = field(default_factory=list)
    dispatched: dict[str, dict[Pick, tuple[int, Transfer]]] = field(default_factory=dict)
    unreadable_segments: set[str] = field(default_factory=set)
    lost_manifests: dict[str, str] = field(default_factory=dict)
    """The manifests that cannot be read, by their keys, each with the reason."""
    lost_rows: int = 0
    """The rows that no manifest names, though later ones name rows of the same logs."""
    chain_end: ChainEnd = field(default_factory=ChainEnd)
    """The place behind the last manifest."""

    def follow_orders(self) -> None:
        """Brings the states of ordered groups up to the rows of a manifest, which its segments hold by hours."""
        for partition, rows in self.pending_rows.items():
            for row_no, row in sorted(rows.items()):
                state = self.key_states.get(partition)
                if state is None and row.order is not None:
                    state = self.key_states[partition] = KeyStates(row_no, row.first, 0)
                if state is not None:
                    state.follow(row_no, row, b"")
        self.pending_rows.clear()

    def end(self, log: str) -> End:
        return self.ends.setdefault(log, End())

    @property
    def unarchived_handovers(self) -> list[UnarchivedHandover]:
        """All hand-overs whose target row is not archived; of each message of a bucket only the last one."""
        handovers = list(self.pulled)
        for bucket, picks in self.dispatched.items():
            # A transfer has many messages: each is repeated once, by its token.
            transfers = {transfer.token: transfer for _, transfer in picks.values()}
            handovers += [UnarchivedHandover(bucket, transfer) for transfer in transfers.values()]
        return handovers

    @property
    def alive(self) -> list[tuple[Subject, list[Group]]]:
        """The subjects that are not deleted, each with its groups."""
        return [
            (subject, [self.groups[path] for path in self._groups_of(name) if alive(self.groups[path], subject)])
            for name, subject in self.subjects.items()
            if name in self.listed and not subject.deleted
        ]

    def _groups_of(self, subject: str) -> list[tuple[str, str]]:
        return [path for path in self.groups if path[0] == subject and path in self.listed]

    def remembered(self) -> tuple[list[Subject], list[Group]]:
        """Returns the records of all subjects and groups that ever were. Those that are no longer listed are marked
        erased: of them only the generation counts."""
        return (
            [record if record.name in self.listed else _erased(record) for record in self.subjects.values()],
            [record if path in self.listed else _erased(record) for path, record in self.groups.items()],
        )

    def open_buckets(self, now_ms: int) -> set[str]:
        """Returns the buckets that are not over, or from which messages may still have to be handed over."""
        names = {name for name, tally in self.tallies.items() if tally.left or Bucket.parse(name).end_ms > now_ms}
        names.update(self.dispatched)
        names.update(
            LogName.parse(handover.what.log).bucket for handover in self.pulled if is_schedule(handover.what.log)
        )
        return names


def summarize(archive: Blobs, end_manifest: int, *, skip_damaged: bool) -> ArchiveSummary:
    """Summarizes the manifests below ``end_manifest``. Raises ``Corrupt`` for a manifest or a segment that cannot be
    read; with ``skip_damaged`` skips it, and names it in ``lost_manifests`` or ``unreadable_segments``."""
    summary = ArchiveSummary(end_manifest=end_manifest)
    _read_manifests(summary, archive, skip_damaged)
    # Only once all ends are known can a hand-over be found to lie beyond an end.
    for manifest in readable(archive, end_manifest):
        for segment in manifest.segments:
            try:
                _read(summary, archive, segment)
            except Corrupt:
                if not skip_damaged:
                    raise
                summary.unreadable_segments.add(segment.key)
        summary.follow_orders()
    for subject, groups in summary.alive:
        for group in groups:
            for queue in range(len(group.origins)):
                for _, log, origin in group_parts(subject, group, queue):
                    summary.end(log).pass_over(origin, 0)
    return summary


def _read_manifests(summary: ArchiveSummary, archive: Blobs, skip_damaged: bool) -> None:
    for link in chain(archive, below=summary.end_manifest):
        if isinstance(link, LinkedManifest):
            _add_ends(summary, link.manifest)
            summary.chain_end = link.chain_end
        elif skip_damaged:
            summary.lost_manifests[manifest_key(link.number)] = link.reason
            summary.chain_end = ChainEnd(summary.chain_end.store)
        else:
            raise Corrupt(f"{link.reason}: put it back from a copy, or rebuild with skip_damaged, which leaves it out")


def readable(archive: Blobs, end_manifest: int, start: int = 0) -> Iterator[Manifest]:
    """Yields the manifests from ``start`` on and below ``end_manifest`` that can be read. The summary names the
    others."""
    links = chain(archive, start, end_manifest)
    return (link.manifest for link in links if isinstance(link, LinkedManifest))


def _erased(record: T) -> T:
    return msgspec.structs.replace(record, deleted=True, erased=True)


def _add_ends(summary: ArchiveSummary, manifest: Manifest) -> None:
    summary.complete_ms = max(summary.complete_ms, manifest.complete_ms)
    summary.registry = manifest.registry or summary.registry
    for span in manifest.spans:
        key = span.kind, span.log
        if summary.lost_manifests:
            summary.lost_rows += max(0, span.start - summary.watermarks.get(key, 0))
        summary.watermarks[key] = max(summary.watermarks.get(key, 0), span.end)
        if span.kind == MESSAGES:
            end = summary.end(span.log)
            end.archived = max(end.archived, span.end)
            end.pass_over(span.end, 0)
    for segment in manifest.segments:
        if segment.kind == MESSAGES:
            for part in segment.parts:
                summary.end(part.log).pass_over(part.end, part.following)


def _read(summary: ArchiveSummary, archive: Blobs, segment: Segment) -> None:
    if segment.kind == REGISTRY:
        for snapshot in registry_snapshots(archive, segment):
            _add_registry(summary, snapshot)
    elif segment.kind == PULLS:
        for partition, row_no, pull in pull_rows(archive, segment):
            _add_pull(summary, partition, row_no, pull)
    elif segment.kind == DISPATCHES:
        for bucket, row_no, dispatched in dispatch_rows(archive, segment):
            _add_dispatch(summary, bucket, row_no, dispatched)
    elif any(is_schedule(part.log) for part in segment.parts):
        for log, entry in entries(archive, segment):
            _add_entry(summary, log, entry)


def _add_registry(summary: ArchiveSummary, snapshot: RegistrySnapshot) -> None:
    subjects = {subject.name: subject for subject in snapshot.subjects}
    groups = {(group.subject, group.name): group for group in snapshot.groups}
    summary.subjects |= subjects
    summary.groups |= groups
    # Not added: a later snapshot leaves out what was erased since.
    summary.listed = {*subjects, *groups}


def _add_pull(summary: ArchiveSummary, partition: str, row_no: int, pull: OrderedRow) -> None:
    # A seek of an ordered group has no order, and forgets parked messages.
    if pull.order is not None or pull.outcome == SOUGHT:
        summary.pending_rows.setdefault(partition, {})[row_no] = pull
    before = summary.progress.get(partition)
    if before is None or before.row_no < row_no:
        summary.progress[partition] = Progress(row_no, pull.end, pull.end_seq)
    # A claim that ends within a row proves that the row was given out, archived or not.
    summary.end(source_of(partition)).pass_over(pull.end.row_no + (pull.end.index > 0), pull.end_seq)
    for moved in pull.moved:
        end = summary.end(moved.log)
        end.pass_over(moved.row_no + 1, moved.first_seq + len(moved.picks))
        if moved.row_no >= end.archived:
            summary.pulled.append(UnarchivedHandover(partition, moved))


def _add_dispatch(summary: ArchiveSummary, name: str, row_no: int, dispatched: Dispatched) -> None:
    tally = summary.tallies.setdefault(name, Tally())
    tally.last_ms = max(tally.last_ms, dispatched.at_ms)
    source = summary.end(str(LogName.of_schedule(name)))
    for transfer in dispatched.transfers:
        tally.settle(transfer.picks)
        source.pass_over(max(row_no for row_no, _ in transfer.picks) + 1 if transfer.picks else 0, 0)
        if not transfer.log:
            continue  # messages that were dropped, or could not be read
        end = summary.end(transfer.log)
        end.pass_over(transfer.row_no + 1, transfer.first_seq + len(transfer.picks))
        if transfer.row_no >= end.archived:
            picks = summary.dispatched.setdefault(name, {})
            for pick in transfer.picks:
                picks[pick] = max(picks.get(pick, (-1, transfer)), (row_no, transfer), key=lambda entry: entry[0])


def _add_entry(summary: ArchiveSummary, log: str, row: Entry) -> None:
    if not is_schedule(log):
        return
    tally = summary.tallies.setdefault(Bucket.of_log(log).name, Tally())
    entry = readable_entry(row.meta)  # of a damaged one no wheel could read the messages either
    if isinstance(entry, CancelMarker):
        tally.settle([(entry.row_no, entry.index)])
    elif isinstance(entry, DueTimes):
        tally.wait(row.row_no, row.count)
