"""Checks the rows of pull logs, and the records of subjects, groups and buckets."""

import msgspec

from hourwheel.embedded.checks.report import Findings
from hourwheel.errors import UNDECODABLE
from hourwheel.model.groups import Group
from hourwheel.model.log_names import source_of
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Record, Store, Table, items_of
from hourwheel.pull_log.records import OPEN, SOUGHT, PullRow
from hourwheel.registry.records import SUBJECT_SORT
from hourwheel.registry.subject_list import SubjectList

_SEEK = "the group may lose its place there: hourwheel group seek sets it"
_RESTORE = "restore a backup, or rebuild the directory from its archive"
_AGAIN = "hourwheel subject create lists the subject again"


def check_pull_log(findings: Findings, store: Store, partition: str) -> None:
    """Checks that the rows of a pull log follow one another, and that none covers what its source never gave out."""
    findings.report.pull_logs += 1
    source, before = source_of(partition), None
    given_out = store.counter(source).rows
    for sort, record in items_of(store, Table.PULL, partition):
        findings.report.pull_rows += 1
        try:
            row = msgspec.msgpack.decode(record.value, type=PullRow)
        except UNDECODABLE as error:
            findings.add(f"pull row {sort} of {partition} cannot be read: {error}", _SEEK)
            before = None
            continue
        findings.report.open_leases += row.state == OPEN
        findings.report.open_transfers += len(row.transfers)
        if row.end.row_no > given_out:
            findings.add(f"pull row {sort} of {partition} covers rows that {source} never gave out", _RESTORE)
        if before is not None and not _follows(before, (int(sort), row)):
            findings.add(f"pull row {sort} of {partition} does not begin where the row before it ends", _SEEK)
        before = int(sort), row


def _follows(before: tuple[int, PullRow], after: tuple[int, PullRow]) -> bool:
    """Returns whether a row begins where the row before it ends. Of rows that are not neighbours, and of seeks, nothing
    is known: the rows between were removed, and a seek begins anywhere."""
    sought = SOUGHT in (before[1].outcome, after[1].outcome)
    return sought or after[0] != before[0] + 1 or after[1].first == before[1].end


def check_names(findings: Findings, store: Store, listed: SubjectList, partitions: list[str]) -> None:
    """Checks the records of subjects and groups, which are in these partitions, and that all subjects are listed."""
    names = {entry.name for entry in listed.entries(store=store)}
    for partition in partitions:
        for sort, record in items_of(store, Table.META, partition):
            _check_name(findings, partition, sort, record, names)


def _check_name(findings: Findings, partition: str, sort: str, record: Record, names: set[str]) -> None:
    kind: type[Subject] | type[Group] = Subject if sort == SUBJECT_SORT else Group
    try:
        value = msgspec.msgpack.decode(record.value, type=kind)
    except UNDECODABLE as error:
        findings.add(f"the record {sort} of {partition} cannot be read: {error}", _RESTORE)
        return
    if isinstance(value, Group):
        findings.report.groups += not value.deleted
        return
    findings.report.subjects += not value.deleted
    if value.name not in names:
        findings.add(f"subject {value.name} is missing from the list of subjects", _AGAIN)
