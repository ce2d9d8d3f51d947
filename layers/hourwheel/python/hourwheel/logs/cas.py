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
        self, expect: bytes | None, value: S, *, token: bytes | None = None, expires_ms: int | None = None
    ) -> CasResult[S]:
        """Stores the value if the record has the token ``expect`` (None: if the key is empty). One write. A repetition
        with the same ``token`` after a lost answer counts as stored."""
        offered = Versioned(value, token or self.ids.token())
        refused = self.store.put(self.key, Record(_encoder.encode(value), offered.token, expires_ms), expect=expect)
        # A refusal with this very token: an earlier try was stored, and its answer was lost.
        if refused is None or (refused.current is not None and refused.current.token == offered.token):
            return CasResult(True, offered)
        return CasResult(False, self.opened(refused.current))

    def opened(self, record: Record | None) -> Versioned[S] | None:
        """Decodes a record that the caller has read. Raises ``Corrupt``."""
        if record is None:
            return None
        try:
            return Versioned(msgspec.msgpack.decode(record.value, type=self.kind), record.token)
        except UNDECODABLE as error:
            raise Corrupt(f"{self.key}: {error}") from error
