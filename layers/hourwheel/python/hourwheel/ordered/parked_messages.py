"""Keeps the parked messages of an ordered group on one log, by the digests of their keys. Reads and writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from hourwheel.model.fields import DETAILS_BYTES, MAX_PARKED
from hourwheel.ordered.later_messages import BLOCK, LaterMessages, packed
from hourwheel.pull_log.ordered_rows import STOPPED_MS, LastFailure, Parked, ParkedKey

_encoder = msgspec.msgpack.Encoder()


@dataclass(kw_only=True)
class ParkedMessages:
    """``parked`` holds the first parked messages of each key digest in order."""

    parked: dict[bytes, tuple[Parked, ...]] = field(default_factory=dict)
    later: dict[bytes, LaterMessages] = field(default_factory=dict)
    """The parked messages behind those of ``parked``, for the digests of which many were never handed out."""
    retries: dict[bytes, int] = field(default_factory=dict)
    """When the first message of a digest is tried again, for the digests of which it has failed."""
    stops: dict[bytes, LastFailure] = field(default_factory=dict)
    """Why messages stopped their keys, by digest, as many as fit into a snapshot: see ``DETAILS_BYTES``."""
    stops_bytes: int = 0
    total: int = 0
    """The number of parked messages."""

    def _open_parked(self, key: ParkedKey) -> None:
        first, later = key.first, LaterMessages.of(key.blocks)
        if later is not None and len(first) < BLOCK:
            behind, later = later.divided()
            first += behind
        self._put(key.digest, first)
        if later is not None:
            self.later[key.digest] = later
            self.total += later.total

    def _parked_keys(self) -> tuple[tuple[ParkedKey, ...], bytes]:
        """Returns the parked messages of each digest, and the checksum of all. It does not depend on the blocks in
        which a process has its messages."""
        keys, contents = [], []
        for digest, entries in sorted(self.parked.items()):
            later = self.later.get(digest)
            fresh = next((at for at in range(len(entries), 0, -1) if entries[at - 1].due_ms), 0)
            blocks = [packed(entries[fresh:])] if fresh < len(entries) else []
            keys.append(ParkedKey(digest, entries[:fresh], (*blocks, *(later.packed_blocks() if later else ()))))
            last = later.last_one if later else entries[-1]
            contents.append((digest, entries[:fresh], entries[0].position, last.position, self.parked_of(digest)))
        return tuple(keys), blake2b(_encoder.encode(contents), digest_size=16).digest()

    @property
    def held_keys(self) -> int:
        """The number of digests of which the first parked message was handed out before, and failed or was released."""
        return len(self.retries)

    @property
    def room(self) -> int:
        """The number of messages that may still be parked. With 0 the queue waits at the next message whose key is
        busy."""
        return max(0, MAX_PARKED - self.total)

    def parked_of(self, digest: bytes) -> int:
        """Returns the number of parked messages of a digest."""
        later = self.later.get(digest) if self.later else None
        return len(self.parked[digest]) + (later.total if later is not None else 0)

    def due_ms(self) -> int | None:
        """Returns the earliest time at which a parked message may be handed out, if its key is not in flight; None if
        nothing is parked."""
        # A digest without a retry waits for nothing but the end of an earlier message of its key.
        return 0 if len(self.retries) < len(self.parked) else min(self.retries.values(), default=None)

    def next_due_ms(self, now_ms: int) -> int | None:
        """Returns the earliest time after ``now_ms`` at which a failed message is tried again; None if there is
        none."""
        return min((due_ms for due_ms in self.retries.values() if now_ms < due_ms < STOPPED_MS), default=None)

    def _with_later(self, digest: bytes, entries: tuple[Parked, ...], most: int) -> tuple[Parked, ...]:
        """Returns the messages of ``parked`` whose turn it is, and the ones behind them if it is the turn of all."""
        later = self.later.get(digest)
        if later is None or len(entries) >= most or len(entries) < len(self.parked[digest]):
            return entries
        return entries + later.first(most - len(entries))

    def stop_of(self, digest: bytes, parked: Parked) -> LastFailure | None:
        """Returns why this message stopped its key; None where that is not known."""
        stop = self.stops.get(digest)
        return stop if stop is not None and parked.at(stop.row_no, stop.in_row) else None

    def _note_stop(self, digest: bytes, stop: LastFailure) -> None:
        """Notes why a key stopped, if there is room: the snapshot must fit into a record of the store."""
        self._forget_stop(digest)
        if self.stops_bytes + stop.stored_bytes <= DETAILS_BYTES:
            self.stops[digest] = stop
            self.stops_bytes += stop.stored_bytes

    def _forget_stop(self, digest: bytes) -> None:
        stop = self.stops.pop(digest, None)
        if stop is not None:
            self.stops_bytes -= stop.stored_bytes

    def _park_fresh(self, parks: Sequence[tuple[bytes, Parked]]) -> None:
        """Parks messages that no row has handed out yet."""
        parked, later = self.parked, self.later
        for digest, message in parks:
            entries = parked.get(digest)
            if entries is None:
                parked[digest] = (message,)
            elif later and digest in later:
                later[digest] = later[digest].added(message)
            elif entries[-1].row_no < message.row_no or entries[-1] < message:
                if len(entries) < BLOCK:
                    parked[digest] = (*entries, message)
                else:
                    later[digest] = LaterMessages((), 0, (message,))
            else:
                self._park(digest, message)
                continue
            self.total += 1

    def _park(self, digest: bytes, parked: Parked) -> None:
        entries = self.parked.get(digest)
        if entries is None:
            self.parked[digest] = (parked,)
            self.total += 1
            if parked.due_ms:
                self.retries[digest] = parked.due_ms
        # A message that failed goes back to its place, before those that were parked behind it meanwhile.
        elif entries[-1] > parked:
            self._put(digest, tuple(sorted((*entries, parked))))
        else:
            self._put(digest, (*entries, parked))

    def _unpark(self, digest: bytes) -> None:
        """Removes the only message of a digest in ``parked``."""
        self.total -= 1
        if self.retries:
            self.retries.pop(digest, None)
            self._forget_stop(digest)
        self._empty(digest)

    def _empty(self, digest: bytes) -> None:
        """Gives a digest, of which ``parked`` had the last message, the first of its later ones."""
        later = self.later.get(digest) if self.later else None
        if later is None:
            self.parked.pop(digest, None)
            return
        self.parked[digest], left = later.divided()
        if left is None:
            del self.later[digest]
        else:
            self.later[digest] = left

    def _put(self, digest: bytes, entries: tuple[Parked, ...]) -> None:
        self.total += len(entries) - len(self.parked.get(digest, ()))
        if not entries:
            self.retries.pop(digest, None)
            self._forget_stop(digest)
            self._empty(digest)
            return
        self.parked[digest] = entries
        if entries[0].due_ms:
            self.retries[digest] = entries[0].due_ms
        elif self.retries:
            self.retries.pop(digest, None)
        if self.stops and entries[0].due_ms != STOPPED_MS:
            self._forget_stop(digest)
