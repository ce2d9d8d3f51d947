"""Refuses a data directory whose database has lost transactions, unless somebody accepts the loss."""

import logging
import sqlite3
from pathlib import Path

from hourwheel.adapters.sqlite_writer import translated
from hourwheel.adapters.syncedmark import NOTHING, Synced, SyncedMark, last_transaction
from hourwheel.context import Context
from hourwheel.errors import Corrupt, Lost
from hourwheel.ports import Blobs
from hourwheel.retention.watermarks import rows_beyond
from hourwheel.times import rfc3339
from hourwheel.words import counted

_logger = logging.getLogger("hourwheel")


def check_whole(database: Path, mark: SyncedMark, *, accept_loss: bool) -> None:
    """Compares the database with the mark beside it, before anything is written to it. Raises ``Lost``; with
    ``accept_loss`` it logs what is missing instead, and sets the mark back."""
    # The mark first: another server may be committing meanwhile.
    expected = mark.read()
    try:
        found = last_transaction(database)
    except sqlite3.Error as error:
        raise translated(error) from error
    if expected is None:
        _logger.warning("%s is damaged: whether transactions are missing is not known", database.with_name("synced"))
        mark.reset(found)
    elif expected.number > found.number:
        told = _told(database, expected, found)
        if not accept_loss:
            raise Lost(
                f"{told}. Put its files back as they were, or rebuild it from its archive, or start once with"
                " --accept-loss to go on without what is missing"
            )
        _logger.warning("%s: accepted", told)
        mark.reset(found)


def check_archived(context: Context, archive: Blobs, *, accept_loss: bool) -> None:
    """Compares the logs with what the archive has of them. Raises ``Lost``; with ``accept_loss`` it logs what is
    missing instead."""
    try:
        missing = rows_beyond(context, archive)
    except Corrupt as error:
        _logger.warning("whether the archive has more than the database is not known: %s", error)
        return
    if not missing:
        return
    log, rows = max(missing.items(), key=lambda one: one[1])
    told = (
        f"the archive has {counted(sum(missing.values()), 'row')} of {counted(len(missing), 'log')}"
        f" that the database does not have, {rows}"
        f" of them of {log}: it has lost them, or an older copy is in its place"
    )
    if not accept_loss:
        raise Lost(
            f"{told}. Rebuild it from the archive, or start with --accept-loss to go on without them; nothing more is"
            " archived then"
        )
    _logger.warning("%s: accepted", told)


def _told(database: Path, expected: Synced, found: Synced) -> str:
    since = "" if found == NOTHING else f" since {rfc3339(found.at_ms)}"
    missing = expected.number - found.number
    return (
        f"{counted(missing, 'transaction')} {'is' if missing == 1 else 'are'} missing from"
        f" {database.name}, of {expected.number}, all"
        f"{since} until {rfc3339(expected.at_ms)}: its write-ahead log ({database.name}-wal) is damaged or gone, or an"
        " older copy is in its place"
    )
