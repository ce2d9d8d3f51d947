"""Refuses a data directory whose database has lost transactions, unless the operator accepts the loss."""

import logging
import sqlite3
from pathlib import Path

from hourwheel.adapters.sqlite.synced_mark import NOTHING, Synced, SyncedMark, last_transaction
from hourwheel.adapters.sqlite.writer import translated
from hourwheel.context import Context
from hourwheel.errors import Corrupt, Lost
from hourwheel.ports.storage import Blobs
from hourwheel.retention.archive_format import check_archive
from hourwheel.retention.archive_progress import rows_beyond
from hourwheel.times import rfc3339
from hourwheel.wire.words import counted

_logger = logging.getLogger("hourwheel")


def check_complete(database: Path, mark: SyncedMark, *, accept_loss: bool) -> None:
    """Compares the database with the synced mark beside it, before the server writes to the database.

    Raises ``Lost`` if transactions are missing. With ``accept_loss`` it logs their number instead, and resets the mark.
    """
    # The mark is read before the database: another server may commit between the two, and then the database is ahead.
    expected = mark.read()
    try:
        actual = last_transaction(database)
    except sqlite3.Error as error:
        raise translated(error) from error
    if expected is None:
        _logger.warning("%s is damaged: whether transactions are missing is not known", database.with_name("synced"))
        mark.reset(actual)
    elif expected.number > actual.number:
        loss = _description(database, expected, actual)
        if not accept_loss:
            raise Lost(
                f"{loss}. Put its files back as they were, or rebuild it from its archive, or start once with"
                " --accept-loss to go on without what is missing"
            )
        _logger.warning("%s: accepted", loss)
        mark.reset(actual)


def check_archived(context: Context, archive: Blobs, *, accept_loss: bool) -> None:
    """Compares the ends of the logs with those in the archive.

    Raises ``Lost`` if the archive has rows that the database lacks; with ``accept_loss`` it logs their number instead.
    Raises ``DataVersion`` if this version must not use the archive.
    """
    try:
        check_archive(archive)
        missing = rows_beyond(context, archive)
    except Corrupt as error:
        _logger.warning("whether the archive has more than the database is not known: %s", error)
        return
    if not missing:
        return
    log, rows = max(missing.items(), key=lambda item: item[1])
    loss = (
        f"the archive has {counted(sum(missing.values()), 'row')} of {counted(len(missing), 'log')}"
        f" that the database does not have, {rows}"
        f" of them of {log}: it has lost them, or an older copy is in its place"
    )
    if not accept_loss:
        raise Lost(
            f"{loss}. Rebuild it from the archive, or start with --accept-loss to go on without them; nothing more is"
            " archived then"
        )
    _logger.warning("%s: accepted", loss)


def _description(database: Path, expected: Synced, actual: Synced) -> str:
    since = "" if actual == NOTHING else f" since {rfc3339(actual.at_ms)}"
    missing = expected.number - actual.number
    return (
        f"{counted(missing, 'transaction')} {'is' if missing == 1 else 'are'} missing from"
        f" {database.name}, of {expected.number}, all"
        f"{since} until {rfc3339(expected.at_ms)}: its write-ahead log ({database.name}-wal) is damaged or gone, or an"
        " older copy is in its place"
    )
