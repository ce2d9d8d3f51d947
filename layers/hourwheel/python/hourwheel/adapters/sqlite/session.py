"""Implements the calls of the store on one connection of SQLite, and the writes that run in transactions."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import cast

from hourwheel.adapters.limits import check_value
from hourwheel.adapters.transacted import TransactedWrites
from hourwheel.errors import Sealed
from hourwheel.ports.storage import Counter, Key, Record, Refused, Store, Table

# Rows that one transaction removes: other writers wait meanwhile.
_TRIM_ROWS = 50  # a row may have 350 KB
_COLLECT_ROWS = 2_000  # rows that expire are small


class SqliteSession:
    """The calls of ``Store`` on one connection, inside a transaction or for reading only.

    Counters to which a transaction adds are read once and written once, before it is committed (``write_counters``):
    nobody else can change them meanwhile.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.transaction: object | None = None
        self._added: dict[str, Counter] = {}

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        before = self.counter(counter)
        if before.sealed:
            raise Sealed(counter)
        after = self._added[counter] = Counter(before.rows + rows, before.numbers + numbers)
        return after

    def write_counters(self) -> None:
        """Writes the counters to which the transaction has added."""
        if self._added:
            self.connection.executemany(
                "INSERT INTO counters (name, rows, numbers) VALUES (?1, ?2, ?3)"
                " ON CONFLICT (name) DO UPDATE SET rows = ?2, numbers = ?3",
                [(name, totals.rows, totals.numbers) for name, totals in self._added.items()],
            )
            self._added.clear()

    def forget_counters(self) -> None:
        """Forgets what the transaction has added, which was undone."""
        self._added.clear()

    def touch(self) -> None:
        """Writes a row with the value that it has, so that the transaction has something to commit."""
        self.connection.execute("UPDATE commits SET number = number")

    def begin(self, counter: str, *, numbers: int) -> Counter:
        self.write_counters()
        self.connection.execute(
            "INSERT INTO counters (name, rows, numbers) VALUES (?, 0, ?) ON CONFLICT (name) DO NOTHING",
            (counter, numbers),
        )
        return self.counter(counter)

    def seal(self, counter: str) -> Counter:
        self.write_counters()
        row = self.connection.execute(
            "INSERT INTO counters (name, rows, numbers, sealed) VALUES (?, 0, 0, 1)"
            " ON CONFLICT (name) DO UPDATE SET sealed = 1 RETURNING rows, numbers",
            (counter,),
        ).fetchone()
        return Counter(row[0], row[1], sealed=True)

    def counter(self, counter: str) -> Counter:
        added = self._added.get(counter)
        if added is not None:
            return added
        row = self.connection.execute(
            "SELECT rows, numbers, sealed FROM counters WHERE name = ?", (counter,)
        ).fetchone()
        return Counter(0, 0) if row is None else Counter(row[0], row[1], bool(row[2]))

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        rows = self.connection.execute(
            f"SELECT name, rows, numbers, sealed FROM counters WHERE name IN ({','.join('?' * len(counters))})",  # noqa: S608 - question marks alone
            tuple(counters),
        ).fetchall()
        stored = {row[0]: Counter(row[1], row[2], bool(row[3])) for row in rows}
        added = {name: self._added[name] for name in counters if name in self._added} if self._added else {}
        return dict.fromkeys(counters, Counter(0, 0)) | stored | added

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        row = self.connection.execute(
            f"SELECT value, token, expires_ms FROM {key.table} WHERE partition = ? AND sort = ?",  # noqa: S608 - the name of a table, of the enumeration
            (key.partition, key.sort),
        ).fetchone()
        return None if row is None else Record(*row)

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        records = ((sort, self.get(Key(table, partition, sort))) for sort in sorts)
        return {sort: record for sort, record in records if record is not None}

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        records = ((key, self.get(key)) for key in keys)
        return {key: record for key, record in records if record is not None}

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        check_value(record)
        values = (record.value, record.token, record.expires_ms, key.partition, key.sort)
        if expect is None:
            done = self.connection.execute(
                f"INSERT INTO {key.table} (value, token, expires_ms, partition, sort) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - the name of a table, of the enumeration
                " ON CONFLICT DO NOTHING",
                values,
            )
        else:
            done = self.connection.execute(
                f"UPDATE {key.table} SET value = ?, token = ?, expires_ms = ?"  # noqa: S608 - the name of a table, of the enumeration
                " WHERE partition = ? AND sort = ? AND token = ?",
                (*values, expect),
            )
        return None if done.rowcount == 1 else Refused(self.get(key))

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        done = self.connection.execute(
            f"DELETE FROM {key.table} WHERE partition = ? AND sort = ? AND token = ?",  # noqa: S608 - the name of a table, of the enumeration
            (key.partition, key.sort, expect),
        )
        return None if done.rowcount == 1 else Refused(self.get(key))

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        self.connection.executemany(
            f"DELETE FROM {table} WHERE partition = ? AND sort = ?",  # noqa: S608 - the name of a table, of the enumeration
            [(partition, sort) for sort in sorts],
        )

    def scan(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        limit: int,
        reverse: bool = False,
        consistent: bool = True,
    ) -> list[tuple[str, Record]]:
        rows = self.connection.execute(
            f"SELECT sort, value, token, expires_ms FROM {table} WHERE partition = ? AND sort >= ?"  # noqa: S608 - the name of a table, of the enumeration
            f" ORDER BY sort {'DESC' if reverse else 'ASC'} LIMIT ?",
            (partition, start, limit),
        ).fetchall()
        return [(row[0], Record(row[1], row[2], row[3])) for row in rows]

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        while _trim_slice(table, partition, below)(self):
            pass

    def collect(self, table: Table, now_ms: int) -> None:
        while _collect_slice(table, now_ms)(self):
            pass

    def remove(self, table: Table, where: str, values: tuple[str | int, ...], rows: int) -> bool:
        """Removes up to ``rows`` of the items for which the condition holds. Returns whether more may be left."""
        done = self.connection.execute(
            f"DELETE FROM {table} WHERE (partition, sort) IN"  # noqa: S608 - the name of a table, of the enumeration
            f" (SELECT partition, sort FROM {table} WHERE {where} LIMIT ?)",
            (*values, rows),
        )
        return done.rowcount == rows


class SqliteWrites(TransactedWrites):
    """The writes of a store on SQLite. Removals take one transaction for each slice, so that other writers get their
    turn."""

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        while self.transact(_trim_slice(table, partition, below)):
            pass

    def collect(self, table: Table, now_ms: int) -> None:
        while self.transact(_collect_slice(table, now_ms)):
            pass


def _trim_slice(table: Table, partition: str, below: str) -> Callable[[Store], bool]:
    """Returns work that removes some of the items below ``below``, and returns whether more may be left."""
    where = "partition = ? AND sort < ?"
    return lambda store: cast("SqliteSession", store).remove(table, where, (partition, below), _TRIM_ROWS)


def _collect_slice(table: Table, now_ms: int) -> Callable[[Store], bool]:
    """Returns work that removes some of the items that have expired, and returns whether more may be left."""
    return lambda store: cast("SqliteSession", store).remove(table, "expires_ms <= ?", (now_ms,), _COLLECT_ROWS)
