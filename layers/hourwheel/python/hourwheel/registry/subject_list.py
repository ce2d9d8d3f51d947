"""Lists the names of all subjects, apart from their records, in shards.

    table      meta
    partition  subjects/{shard}                                  subjects
    sort       {subject}                                         shards
    value      the last generation that is erased, msgpack       the number of shards, msgpack

A process that creates a subject puts the entry before the record: a crash between the two leaves an entry without a
record, which readers pass over, and never a record without an entry. An entry is never removed, as a slow process may
be about to store its record.

An entry whose subject is erased says so, and readers need no record of it. Two rules keep such an entry from hiding a
subject that was created again:

- Each creation changes the token of the entry, before it stores the record.
- An erasure reads the token, then stores that the subject is erased, and then changes the entry by that token. A
  creation that was faster than the second step has to store its record anew, and so follows the first rule again.

The number of shards is a power of two and only grows. The shard of a name is its checksum modulo the number that the
creating process knew, which may be an older one. So a reader merges all shards, and an entry may be in the shard of any
earlier number. A deployment with few subjects has one shard, which costs as little as an unsharded list. A number that
cannot be decoded counts as the largest one, until a sweep replaces it by that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple
from zlib import crc32

import msgspec

from hourwheel.context import Context
from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.ports.storage import Key, Record, Store, Table, transactional
from hourwheel.times import within

_MOST_NAMES = 5_000
"""More shards are used from this many names a shard on, which a sweep reads with some 50 units."""

_MOST_SHARDS = 64
_NUMBERS = [1 << power for power in range(_MOST_SHARDS.bit_length())]

_KNOWN_MS = 600_000
"""A process uses the number of shards that it knows for this long, where it may miss new subjects."""

_FIRST_PAGE = 102  # names: enough for a page of 100 subjects, and to see whether there is another
_LEAST_PAGE = 10
_LARGEST_PAGE = 1_000

_NEVER = -(1 << 62)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(int)


class ListedSubject(NamedTuple):
    """A subject in the list. ``erased``: the last generation of the subject, if it was deleted and its logs are
    erased; else 0."""

    name: str
    erased: int = 0


@dataclass
class SubjectList:
    """The list of the subjects of a deployment. Thread-safe."""

    context: Context
    _shards: int = 1
    _read_ms: int = _NEVER
    _damaged: bool = False
    """The stored number could not be decoded when it was read last."""

    def add(self, store: Store, name: str) -> None:
        """Stores the entry of a subject that is about to be created, with a new token. One write for a name that was
        never used. ``store`` is the home store, or that of a transaction."""
        keys = _keys(name, self._known(store))
        tokens = _tokens(store, keys) if len(keys) > 1 else {}
        if not tokens:
            self._renew(store, keys[-1], None)
        for key, token in tokens.items():
            self._renew(store, key, token)

    def tokens(self, name: str) -> dict[Key, bytes]:
        """Returns the tokens of the entries of a subject, for ``mark_erased``."""
        return _tokens(self.context.store, _keys(name, self._current(self.context.store)))

    def mark_erased(self, tokens: dict[Key, bytes], generation: int) -> None:
        """Notes in these entries that this generation of the subject is erased, unless the subject was created again
        since the tokens were read."""
        value = _encoder.encode(generation)
        for key, token in tokens.items():
            self.context.store.put(key, Record(value, self.context.ids.token()), expect=token)

    def entries(
        self, after: str = "", *, prefix: str = "", consistent: bool = True, store: Store | None = None
    ) -> Iterator[ListedSubject]:
        """Yields the entries behind the name ``after`` whose names begin with ``prefix``, by name. Without
        ``consistent`` it may miss recent ones. ``store``: the home store, or that of a transaction."""
        store = store or self.context.store
        shards = self._current(store) if consistent else self._known(store)
        start = max(prefix, after + "\x00" if after else "")
        last = ""
        # An entry of a subject that was created again sorts before one that says that the subject is erased.
        for entry in merge(*(_shard(store, shard, shards, start, consistent) for shard in range(shards))):
            if not entry.name.startswith(prefix):
                return  # no name sorts between two names that begin with the prefix
            if entry.name != last:
                last = entry.name
                yield entry

    def divide(self, subjects: int) -> None:
        """Raises the number of shards if this many subjects need more, and replaces a damaged one. Reads nothing if the
        known number suffices."""
        shards = 1
        while shards * _MOST_NAMES < subjects and shards < _MOST_SHARDS:
            shards *= 2
        # Where a partition has no limit of its own, each further shard would only be one more to read.
        if transactional(self.context.store) or (shards <= self._shards and not self._damaged):
            return
        head = self._read(self.context.store, consistent=True)
        needed = max(shards, self._shards)
        if self._damaged or needed > self._shards:
            before = None if head is None else Versioned(needed, head.token)
            if self._head(self.context.store).swap(before, needed).stored:
                self._shards, self._damaged = needed, False
            # Refused: another sweeper has raised the number, which this process reads after a while.

    def _renew(self, store: Store, key: Key, expect: bytes | None) -> None:
        record = Record(_encoder.encode(0), self.context.ids.token())
        refused = store.put(key, record, expect=expect)
        # A refusal with this token: an earlier try was stored, and its answer was lost.
        while refused is not None:
            current = refused.current
            if current is not None and current.token == record.token:
                return
            refused = store.put(key, record, expect=None if current is None else current.token)

    def _known(self, store: Store) -> int:
        """Returns the number of shards that was read some minutes ago at most."""
        if not (transactional(self.context.store) or within(self._read_ms, self.context.clock.now_ms(), _KNOWN_MS)):
            self._read(store, consistent=False)
        return self._shards

    def _current(self, store: Store) -> int:
        if not transactional(self.context.store):
            self._read(store, consistent=True)
        return self._shards

    def _read(self, store: Store, *, consistent: bool) -> Record | None:
        """Reads the number of shards. Returns its record."""
        now_ms, head = self.context.clock.now_ms(), self._head(store)
        record = store.get(head.key, consistent=consistent)
        shards = _shards_of(head, record)
        self._shards, self._damaged, self._read_ms = shards or _MOST_SHARDS, not shards, now_ms
        return record

    def _head(self, store: Store) -> CasRecord[int]:
        return CasRecord(store, self.context.ids, Key(Table.META, "subjects", "shards"), int)


def _keys(name: str, shards: int) -> list[Key]:
    """Returns the keys under which the entry of a name may be, the one for this number of shards last."""
    checksum = crc32(name.encode())
    numbers = [1 << power for power in range(shards.bit_length())]
    return [Key(Table.META, _partition(shard), name) for shard in dict.fromkeys(checksum % n for n in numbers)]


def _shard(store: Store, shard: int, shards: int, start: str, consistent: bool) -> Iterator[ListedSubject]:
    """Yields the entries of a shard from this name on. Reads few at first, and more as more are shards."""
    partition, page = _partition(shard), max(_LEAST_PAGE, _FIRST_PAGE // shards)
    while True:
        items = store.scan(Table.META, partition, start=start, limit=page, consistent=consistent)
        yield from (ListedSubject(name, _erased(record)) for name, record in items)
        if len(items) < page:
            return
        start, page = items[-1][0] + "\x00", min(2 * page, _LARGEST_PAGE)


def _partition(shard: int) -> str:
    return f"subjects/{shard}"


def _tokens(store: Store, keys: Iterable[Key]) -> dict[Key, bytes]:
    records = ((key, store.get(key)) for key in keys)
    return {key: record.token for key, record in records if record is not None}


def _shards_of(head: CasRecord[int], record: Record | None) -> int:
    """Returns the number of shards in this record; 0 if it is damaged."""
    try:
        current = head.opened(record)
    except Corrupt:
        return 0
    shards = 1 if current is None else current.value
    return shards if shards in _NUMBERS else 0


def _erased(record: Record) -> int:
    try:
        return _decoder.decode(record.value)
    except UNDECODABLE:
        return 0  # the record of the subject tells
