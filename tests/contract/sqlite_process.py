"""Runs the process of ``services.SqliteProcess``."""

import pickle
import sys
from contextlib import suppress
from typing import Any

from hourwheel.adapters.sqlite.store import SqliteStore


def main() -> None:
    stores: dict[str, SqliteStore] = {}
    with suppress(EOFError):
        while True:
            path, calls = pickle.load(sys.stdin.buffer)
            answer: tuple[bool, Any]
            try:
                store = stores.get(path) or stores.setdefault(path, SqliteStore(path))
                answer = (False, [getattr(store, method)(*args, **kwargs) for method, args, kwargs in calls])
                if calls[-1][0] == "close":
                    del stores[path]
            except Exception as error:
                answer = (True, error)
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    for store in stores.values():
        store.close()


main()
