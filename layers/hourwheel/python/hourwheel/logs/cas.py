"""Changes a record by compare-and-set: read the record, decide, and replace it if nobody else has changed it."""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.ports.machine import Ids
from hourwheel.ports.storage import Key, Record, Store

S = TypeVar("S")

_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True)
class Versioned(Generic[S]):
    """A record's value and the token that the record had when it was read."""

    value: S
    token: bytes
    stored: bytes = b""
    """The bytes from which the value was decoded. Empty where this version has encoded the value, which then has no
    field that it does not know."""

    def changed(self, value: S) -> "Versioned[S]":
        """Returns another value under this token, with the fields of the stored one that this version does not
        know."""
        return Versioned(value, self.token, self.stored)

    def replaced(self) -> "Versioned[S]":
        """Returns the version for a swap by a record that does not continue this one: the fields that this version does
        not know are dropped."""
        return Versioned(self.value, self.token)


def value_of(current: Versioned[S] | None) -> S | None:
    """Returns the value; None where there is none."""
    return None if current is None else current.value


def token_of(current: Versioned[S] | None) -> bytes | None:
    """Returns the token by which a swap replaces this record; None for a key that was empty."""
    return None if current is None else current.token


class CasResult(NamedTuple, Generic[S]):
    """Says whether the value was stored. ``current`` is the content of the key now: the stored value, or the value that
    another writer stored (None: the key is empty)."""

    stored: bool
    current: Versioned[S] | None

    @property
    def written(self) -> Versioned[S] | None:
        """The value that was stored; None if it was refused."""
        return self.current if self.stored else None


@dataclass(frozen=True)
class CasRecord(Generic[S]):
    """A key whose values have one type."""

    store: Store
    ids: Ids
    key: Key
    kind: type[S]

    def load(self, *, consistent: bool = True) -> Versioned[S] | None:
        """Reads the value, or returns None for an empty key. Raises ``Corrupt``."""
        return self.opened(self.store.get(self.key, consistent=consistent))

    def swap(
        self, before: Versioned[S] | None, value: S, *, token: bytes | None = None, expires_ms: int | None = None
    ) -> CasResult[S]:
        """Stores the value if the record still is the one ``before`` (None: if the key is empty). Fields of ``before``
        that this version does not know are kept. One write. A repetition with the same ``token`` after a lost answer
        counts as stored."""
        data, kept = _encoder.encode(value), b""
        # Most values are the writer's own. The others are encoded again, in 0.5 us, and compared.
        if before is not None and before.stored and before.stored != _encoder.encode(before.value):
            from hourwheel.logs.kept_fields import with_kept  # only while two versions run at once

            data = kept = with_kept(self.kind, before.stored, data)
        offered = Versioned(value, token or self.ids.token(), kept)
        expect = None if before is None else before.token
        refused = self.store.put(self.key, Record(data, offered.token, expires_ms), expect=expect)
        # A refusal with this very token: an earlier try was stored, and its answer was lost.
        if refused is None or (refused.current is not None and refused.current.token == offered.token):
            return CasResult(True, offered)
        return CasResult(False, self.opened(refused.current))

    def opened(self, record: Record | None) -> Versioned[S] | None:
        """Decodes a record that the caller has read. Raises ``Corrupt``."""
        if record is None:
            return None
        try:
            return Versioned(msgspec.msgpack.decode(record.value, type=self.kind), record.token, record.value)
        except UNDECODABLE as error:
            raise Corrupt(f"{self.key}: {error}") from error
