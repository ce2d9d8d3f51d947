"""Starts a server as the command line would. Arguments: the options as JSON; how many pages the database may have.

SIGUSR1 takes the limit on pages away: there is room again.
"""

import signal
import sqlite3
import sys

from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.server import serve

NO_LIMIT = 1 << 30


def limit_pages(pages: int) -> None:
    prepare = SqliteStore._prepare

    def limited(store: SqliteStore) -> None:
        prepare(store)
        writer: sqlite3.Connection = store._writer
        writer.execute(f"PRAGMA max_page_count = {pages}")
        signal.signal(signal.SIGUSR1, lambda *_: writer.execute(f"PRAGMA max_page_count = {NO_LIMIT}").fetchall())

    SqliteStore._prepare = limited  # type: ignore[method-assign]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        limit_pages(int(sys.argv[2]))
    sys.exit(serve(ServeOptions.model_validate_json(sys.argv[1])))
