"""Reads a whole data directory, changes nothing, and reports what must not be.

Every invariant that can be seen at rest:

- the database is sound and has all its transactions;
- each row can be read, is below its counter and behind the rows before it, and so can its batch or object;
- pull rows follow one another, and cover what their source gave out;
- subjects are listed, and buckets with messages are registered.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.adapters.polling import PollingWakeups
from hourwheel.adapters.sqlite.session import SqliteSession
from hourwheel.adapters.sqlite.synced_mark import NOTHING, Synced, SyncedMark
from hourwheel.adapters.sqlite.writer import translated
from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.embedded.checks.log_checks import LogCheck
from hourwheel.embedded.checks.record_checks import check_names, check_pull_log
from hourwheel.embedded.checks.report import CheckReport, Findings
from hourwheel.embedded.directories.directory import database, stored_format, synced
from hourwheel.embedded.offline import ServerTimers
from hourwheel.errors import Broken, Corrupt
from hourwheel.logs.log import Log
from hourwheel.model.log_names import is_schedule
from hourwheel.ports.storage import Key, Table
from hourwheel.registry.records import partition_of
from hourwheel.registry.subject_list import SubjectList
from hourwheel.system import SystemClock, SystemIds

_RESTORE = "restore a backup, or rebuild the directory from its archive"
_REGISTER = "a message to the same hour registers the bucket; restore a backup if none will come"


def check(data: Path) -> CheckReport:
    """Checks a data directory as it is at one moment. Raises ``Broken`` for a directory that is none, ``DataVersion``
    for one that this version must not use, and the errors of a database that cannot be read."""
    if not database(data).exists() or stored_format(data) is None:
        raise Broken(f"{data} is no data directory: name that of hourwheel serve")
    findings = Findings()
    # Read before the database: a server may commit between the two, and then the database is ahead.
    expected = _mark_of(findings, data)
    try:
        with _opened(data) as connection:
            _check_database(findings, connection, expected)
            _check_content(findings, connection, data)
    except sqlite3.Error as error:
        reason = translated(error)
        if not isinstance(reason, Corrupt):
            raise reason from error
        findings.add(f"the database is damaged, and was not read to its end: {error}", _RESTORE)
    return findings.report


@contextmanager
def _opened(data: Path) -> Iterator[sqlite3.Connection]:
    """Opens the database for reading, in one transaction."""
    location = f"{database(data).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(location, uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield connection


def _mark_of(findings: Findings, data: Path) -> Synced:
    """Returns the last transaction that a server has synced, as far as is known."""
    if not synced(data).exists():
        return NOTHING
    with closing(SyncedMark(synced(data))) as mark:
        expected = mark.read()
    if expected is None:
        findings.add(f"{synced(data)} is damaged", "the next start of the server writes it again")
    return expected or NOTHING


def _check_database(findings: Findings, connection: sqlite3.Connection, expected: Synced) -> None:
    for (problem,) in connection.execute("PRAGMA integrity_check(100)"):
        if problem != "ok":
            findings.add(f"the database is damaged: {problem}", _RESTORE)
    (number,) = connection.execute("SELECT number FROM commits").fetchone()
    findings.report.transaction = number
    if expected.number > number:
        findings.add(f"{expected.number - number} transactions are missing, of {expected.number}", _RESTORE)


def _check_content(findings: Findings, connection: sqlite3.Connection, data: Path) -> None:
    session, blobs, clock, ids = SqliteSession(connection), FileBlobs(data), SystemClock(), SystemIds()
    context = Context(
        store=session,
        blobs=blobs,
        clock=clock,
        ids=ids,
        wakeups=PollingWakeups(clock),
        meter=CountingMeter(),
        timers=ServerTimers(),
    )
    logs = LogCheck(findings, blobs, clock.now_ms())
    for log in _logs(connection):
        logs.check(Log(session, clock, ids, context.meter, log))
    for partition in _partitions(connection, Table.PULL):
        if "@" in partition:  # the states of dead letters are in the same table
            check_pull_log(findings, session, partition)
    subjects = partition_of("")
    names = [partition for partition in _partitions(connection, Table.META) if partition.startswith(subjects)]
    check_names(findings, session, SubjectList(context), names)
    _check_buckets(findings, session, connection)
    objects = {key for folder in ("batches/", "scheduled/") for key in blobs.list(folder)}
    findings.report.objects, findings.report.unnamed_objects = len(objects), len(objects - logs.named)


def _logs(connection: sqlite3.Connection) -> list[str]:
    # The table of schedule logs has the requested changes of delayed messages, too.
    return [*_partitions(connection, Table.CONSUME), *filter(is_schedule, _partitions(connection, Table.SCHEDULE))]


def _partitions(connection: sqlite3.Connection, table: Table) -> list[str]:
    rows = connection.execute(f"SELECT DISTINCT partition FROM {table} ORDER BY partition")  # noqa: S608 - the name of a table, of the enumeration
    return [partition for (partition,) in rows]


def _check_buckets(findings: Findings, session: SqliteSession, connection: sqlite3.Connection) -> None:
    for log in filter(is_schedule, _partitions(connection, Table.SCHEDULE)):
        findings.report.buckets += 1
        name = Bucket.of_log(log).name
        if session.get(Key(Table.META, "buckets", name)) is None:
            findings.add(f"bucket {name} has messages and is not registered: no wheel turns for it", _REGISTER)
