"""Saves the snapshots of ordered groups. The parked keys of one that is too large for a record are divided into pages.

    table      meta                            meta
    partition  log/{group}~{gen}@{source log}  parked/{group}~{gen}@{source log}
    sort       parked                          {row:016d}-{token of the set}-{page:04d}
    value      Snapshot                        msgpack array of ParkedKey

Pages never change. They are stored before the record that names them, and removed after a later record has taken its
place. A writer whose record is refused removes its own. One that dies between leaves pages that nobody names: the next
one with pages removes those of lower rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import msgspec

from hourwheel.context import Context
from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.rows import sort_of
from hourwheel.model.log_names import records_of
from hourwheel.ports.storage import Key, Record, Store, Table, items_of
from hourwheel.pull_log.ordered_rows import ParkedKey, Snapshot
from hourwheel.pull_log.pull_log import PullLog

PAGE_BYTES = 280 * 1024
"""A snapshot of more bytes has pages of about this size. A record (``MAX_VALUE_BYTES``) has room for one piece more, or
beside the names of the pages for more than a thousand half-settled pulls and the details of stopped keys."""

_PIECE_BLOCKS = 64  # some 20 KB: the blocks of one key may fill several pages
_LAST = "~"  # behind the names of pages, which begin with digits
_SCANNED_PAGES = 2  # pages that a scan reads at once: DynamoDB answers 1 MB
_RELOADS = 10  # a reader that finds this many snapshots in a row replaced gives up

_encoder = msgspec.msgpack.Encoder()
_page = msgspec.msgpack.Decoder(tuple[ParkedKey, ...])


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one pull log."""

    context: Context
    source: str
    partition: str

    @classmethod
    def of(cls, log: PullLog) -> "Snapshots":
        return cls(log.context, log.source.name, log.partition)

    @property
    def record(self) -> CasRecord[Snapshot]:
        """The record of the last snapshot, without its pages."""
        return CasRecord(self._store, self.context.ids, Key(Table.META, records_of(self.partition), "parked"), Snapshot)

    def load(self) -> Snapshot | None:
        """Returns the last snapshot, with the keys of its pages; None if there is none. Raises ``Corrupt``."""
        current, missing = self.record.load(), ""
        for _ in range(_RELOADS):
            if current is None:
                return None
            pages, missing = self._pages(current.value.pages)
            if not missing:
                return current.value.with_pages(pages)
            # A later snapshot has taken its place meanwhile, if nothing is damaged.
            last, current = current, self.record.load()
            if current is not None and current.token == last.token:
                break
        raise Corrupt(f"{self.record.key}: page {missing} is missing")

    def save(self, before: Versioned[Snapshot] | None, snapshot: Snapshot, token: bytes | None = None) -> bool:
        """Saves the snapshot in the place of the one ``before``. Returns False, and changes nothing that is read, if
        another one has taken that place. A repetition with the same ``token`` counts as saved."""
        token = token or self.context.ids.token()
        if snapshot.parked and len(_encoder.encode(snapshot)) > PAGE_BYTES:
            pages = self._put(snapshot.row_no, token, divided(snapshot.parked))
            snapshot = msgspec.structs.replace(snapshot, parked=(), pages=pages)
        if not self.record.swap(before, snapshot, token=token).stored:
            self._delete(snapshot.pages)
            return False
        self._delete(before.value.pages if before is not None else ())
        if snapshot.pages:
            self._remove_pages(below=sort_of(snapshot.row_no))
        return True

    def remove(self) -> None:
        """Removes the snapshot of a deleted group."""
        record = self.record
        current = record.load()
        while current is not None:
            # Before the record: a caller that is cut off, or the next one, finds by the record that pages may be left.
            self._remove_pages(below=None)
            refused = record.store.delete(record.key, expect=current.token)
            current = None if refused is None else record.opened(refused.current)

    @property
    def _store(self) -> Store:
        return self.context.store_of(self.source)

    def _put(self, row_no: int, token: bytes, pages: Sequence[Sequence[ParkedKey]]) -> tuple[str, ...]:
        names = tuple(f"{sort_of(row_no)}-{token.hex()}-{number:04d}" for number in range(len(pages)))
        for name, page in zip(names, pages, strict=True):
            # Refused only if an earlier try has stored this very page.
            self._store.put(self._key(name), Record(_encoder.encode(page), token), expect=None)
        return names

    def _pages(self, names: Sequence[str]) -> tuple[list[ParkedKey], str]:
        """Returns the keys of these pages, and the name of a page that is missing."""
        keys: list[ParkedKey] = []
        for name in names:
            record = self._store.get(self._key(name))
            if record is None:
                return [], name
            try:
                keys += _page.decode(record.value)
            except UNDECODABLE as error:
                raise Corrupt(f"{self._key(name)}: {error}") from error
        return keys, ""

    def _delete(self, names: Sequence[str]) -> None:
        """Removes the pages of a snapshot that nobody reads."""
        for name in names:
            self._store.delete(self._key(name), expect=_token_of(name))

    def _remove_pages(self, *, below: str | None) -> None:
        """Removes the pages of lower rows; with None all. A page of this row or a higher one may belong to a snapshot
        that another process is saving."""
        end = _LAST if below is None else below
        items = items_of(self._store, Table.META, self._key("").partition, page=_SCANNED_PAGES)
        for name, record in takewhile(lambda item: item[0] < end, items):
            self._store.delete(self._key(name), expect=record.token)

    def _key(self, name: str) -> Key:
        return Key(Table.META, f"parked/{self.partition}", name)


def _token_of(page: str) -> bytes:
    return bytes.fromhex(page.split("-")[1])


def divided(keys: Sequence[ParkedKey]) -> list[Sequence[ParkedKey]]:
    """Divides parked keys into pages. A key with many blocks may lie in several, in order."""
    pages: list[list[ParkedKey]] = [[]]
    room = PAGE_BYTES
    for piece in _pieces(keys):
        size = len(_encoder.encode(piece))
        if size > room and pages[-1]:
            pages.append([])
            room = PAGE_BYTES
        pages[-1].append(piece)
        room -= size
    return [*pages]


def _pieces(keys: Sequence[ParkedKey]) -> Iterator[ParkedKey]:
    for key in keys:
        yield ParkedKey(key.digest, key.first, key.blocks[:_PIECE_BLOCKS])
        for start in range(_PIECE_BLOCKS, len(key.blocks), _PIECE_BLOCKS):
            yield ParkedKey(key.digest, (), key.blocks[start : start + _PIECE_BLOCKS])
