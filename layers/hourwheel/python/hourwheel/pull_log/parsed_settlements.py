"""Reads a settlement: checks its lists, and says for each message of the pull what the consumer asks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b

import msgspec

from hourwheel.errors import Rejected
from hourwheel.model.due import limited_delay_ms
from hourwheel.model.fields import BATCH_MESSAGES, DETAILS_BYTES
from hourwheel.model.pulls import Rejection, RetryLater, Settlement


@dataclass(frozen=True)
class ParsedSettlement:
    """A settlement's request for each message of a pull, by its index.

    ``retried`` messages are tried again, after their delay in ``delays_ms`` or else as the group's policy says.
    ``released`` messages are given back without an attempt being counted, ``dead`` ones become dead letters, and every
    other message of ``named`` is acknowledged. ``details`` say why messages are retried or become dead letters. With
    ``extend_seconds`` the lease is extended, and nothing is settled. ``mark`` is a digest by which a repeated
    settlement is recognised. ``ended``: the lease of the ``retried`` messages is over, and nobody decided about them.
    """

    named: frozenset[int]
    mark: bytes
    retried: frozenset[int] = frozenset()
    delays_ms: Mapping[int, int] = field(default_factory=dict)
    released: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    details: Mapping[int, str] = field(default_factory=dict)
    extend_seconds: int | None = None
    ended: bool = False

    @property
    def moves(self) -> bool:
        """Whether messages go to another log."""
        return bool(self.retried or self.released or self.dead)

    @property
    def acknowledged(self) -> frozenset[int]:
        """The messages that the settlement acknowledges."""
        return self.named - self.retried - self.released - self.dead

    @property
    def only_acknowledges(self) -> bool:
        """Whether every message that the settlement names is acknowledged."""
        return self.extend_seconds is None and not self.moves

    def acknowledges(self, claimed: int) -> bool:
        """Returns whether the settlement acknowledges all of the ``claimed`` messages of a claim."""
        return self.only_acknowledges and len(self.named) == claimed

    def shifted(self, base: int) -> "ParsedSettlement":
        """Returns the settlement with indexes that are larger by ``base``, and the same mark."""

        def indexes(named: frozenset[int]) -> frozenset[int]:
            return frozenset(base + index for index in named)

        return replace(
            self,
            named=indexes(self.named),
            retried=indexes(self.retried),
            delays_ms={base + index: delay_ms for index, delay_ms in self.delays_ms.items()},
            released=indexes(self.released),
            dead=indexes(self.dead),
            details={base + index: detail for index, detail in self.details.items()},
        )


def parse_settlement(settlement: Settlement, size: int, base: int = 0) -> ParsedSettlement:
    """Returns what a settlement asks for a pull of ``size`` messages, which are numbered from ``base`` on in the pull's
    row. Raises ``Rejected`` when the settlement names an index beyond the pull, names one twice, or both extends the
    lease and settles messages."""
    parsed = _parse(settlement, size)
    return parsed.shifted(base) if base else parsed


def _parse(settlement: Settlement, size: int) -> ParsedSettlement:
    if settlement.ack is settlement.retry is settlement.release is settlement.dead is None:
        # Nearly every settlement acknowledges a whole pull.
        return ParsedSettlement(named=_all_of(size), mark=_ALL_ACKED, extend_seconds=settlement.extend_seconds)
    retried, dead = _indexes(settlement.retry), _indexes(settlement.dead)
    lists = {"ack": settlement.ack, "retry": retried, "release": settlement.release, "dead": dead}
    seen: set[int] = set()
    for name, indexes in lists.items():
        if indexes is not None and settlement.extend_seconds is not None:
            raise Rejected(
                "field-invalid",
                "extend_seconds cannot be combined with the lists: leave out one or the other",
                field=name,
            )
        _add(seen, indexes or (), size, name)
    return ParsedSettlement(
        named=_all_of(size) if settlement.ack is None else frozenset(seen),
        retried=frozenset(retried or ()),
        delays_ms=_delays_ms(settlement),
        released=frozenset(settlement.release or ()),
        dead=frozenset(dead or ()),
        details=_details(settlement),
        mark=_digest(settlement.ack, settlement.retry, settlement.release, settlement.dead),
        extend_seconds=settlement.extend_seconds,
    )


def _indexes(entries: Sequence[RetryLater | Rejection | int] | None) -> list[int] | None:
    return None if entries is None else [_index(entry) for entry in entries]


def _add(seen: set[int], indexes: Iterable[int], size: int, field: str) -> None:
    """Adds the indexes of a list to those that were ``seen`` in other lists. Raises ``Rejected``."""
    for index in indexes:
        if index >= size:
            raise Rejected(
                "field-invalid",
                f"index {index} is beyond the pull's {size} messages, which count from 0",
                field=field,
            )
        if index in seen:
            raise Rejected("field-invalid", f"index {index} is named twice: settle a message one way", field=field)
        seen.add(index)


@lru_cache(BATCH_MESSAGES)
def _all_of(size: int) -> frozenset[int]:
    return frozenset(range(size))


def _digest(*lists: object) -> bytes:
    return blake2b(msgspec.msgpack.encode(lists), digest_size=8).digest()


_ALL_ACKED = _digest(None, None, None, None)
"""The mark of a settlement that acknowledges all messages of a pull."""


def _index(entry: int | RetryLater | Rejection) -> int:
    return entry if isinstance(entry, int) else entry.index


def _details(settlement: Settlement) -> dict[int, str]:
    """Returns the details of rejected and retried messages, as many as fit into the record of the pull. The others stay
    without: a refusal would keep a consumer from settling these messages."""
    details: dict[int, str] = {}
    left_bytes = DETAILS_BYTES
    for entry in (*(settlement.dead or ()), *(settlement.retry or ())):
        if not isinstance(entry, int) and entry.detail is not None:
            left_bytes -= len(entry.detail.encode())
            if left_bytes < 0:
                break
            details[entry.index] = entry.detail
    return details


def _delays_ms(settlement: Settlement) -> dict[int, int]:
    delays = {}
    for i, entry in enumerate(settlement.retry or ()):
        if isinstance(entry, RetryLater) and entry.delay is not None:
            field_name = f"retry[{i}].delay"
            delays[entry.index] = limited_delay_ms(entry.delay, field_name)
    return delays
