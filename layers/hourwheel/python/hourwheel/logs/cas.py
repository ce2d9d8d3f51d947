"""A record that is changed by compare-and-set: read it, decide, replace it if it is still the same."""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.ports import Ids, Key, Record, Store

S = TypeVar("S")

_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True)
class Versioned(Generic[S]):
    """A record's value and the token under which it was seen."""

    value: S
    token: bytes


class CasResult(NamedTuple, Generic[S]):
    """Whether a value was stored, and what the key holds now: the value, or what refused it."""

    stored: bool
    current: Versioned[S] | None


@dataclass(frozen=True)
class CasRecord(Generic[S]):
    """A key that holds values of one type."""

    store: Store
    ids: Ids
    key: Key
    kind: type[S]

    def load(self, *, consistent: bool = True) -> Versioned[S] | None:
        return self.opened(self.store.get(self.key, consistent=consistent))

    def swap(
        self, expect: bytes | None, value: S, *, token: bytes | None = None, expires_ms: int | None = None
    ) -> CasResult[S]:
        """Stores the value if the key holds the token ``expect`` (None: nothing). One write."""
        offered = Versioned(value, token or self.ids.token())
        refused = self.store.put(self.key, Record(_encoder.encode(value), offered.token, expires_ms), expect=expect)
        # Refused with our own token: our earlier try won, its answer was lost.
        if refused is None or (refused.current is not None and refused.current.token == offered.token):
            return CasResult(True, offered)
        return CasResult(False, self.opened(refused.current))

    def opened(self, record: Record | None) -> Versioned[S] | None:
        if record is None:
            return None
        try:
            return Versioned(msgspec.msgpack.decode(record.value, type=self.kind), record.token)
        except UNDECODABLE as error:
            raise Corrupt(f"{self.key}: {error}") from error
