"""Stores where the next sweep goes on, if the time of a sweep ends before its subjects do.

    table      meta
    partition  sweep
    sort       position                 one share
               position {share}/{shares}
    value      SweepPosition, msgpack array

Each share has a position of its own, which says nothing of the subjects of another share, or of another number of
shares. The record is only a hint: a sweep that loses it begins anew. Several sweepers may store it, and each leaves out
only subjects that a sweep has tended, or begun to tend, since the position before. A subject at which each process dies
is left out for the rest of the round, so that the subjects behind it have their turn. Of subjects that were tended
together, the process that follows tends one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.ports.storage import Key, Table
from hourwheel.sweep.memory import SweepMemory
from hourwheel.sweep.shares import WHOLE, Share
from hourwheel.times import within

_STORE_MS = 10_000
"""The time after which a sweep stores how far it is: a few writes a sweep, and none in a sweep that is over before."""

_FORGET_MS = 900_000
"""A position that no sweep has renewed for this long counts no more: sweeps of other processes have come to the end
since, or there were none."""


class SweepPosition(msgspec.Struct, array_like=True, frozen=True):
    """Says where a sweep goes on, and since when."""

    after: str
    """The name of the last subject that was tended."""
    began_ms: int
    """When the round through all subjects began."""
    is_under_way: bool = False
    """The sweep was about to tend the subject ``after``, or some behind it. A new process that finds this true follows
    one that died."""
    busy: int = 0
    """The number of busy subjects in this round."""
    unknown: int = 0
    """The number of subjects in this round at which a process looked for the first time, and found nothing to do."""


@dataclass
class StoredPosition:
    """Loads and stores the position of one sweep of a share. For one thread."""

    context: Context
    memory: SweepMemory
    share: Share = WHOLE
    follows_death: bool = False
    """A process died at one of the next subjects: this sweep tends them one after the other."""
    _before: Versioned[SweepPosition] | None = None
    _stored_ms: int = 0

    def load(self) -> SweepPosition:
        """Returns where this sweep begins. Reads nothing in a process whose last sweep came to the end. Removes a
        record that cannot be decoded, and raises ``Corrupt``."""
        now_ms = self.context.clock.now_ms()
        if self._complete in self.memory.done_ms:
            self._stored_ms = now_ms
            return SweepPosition("", now_ms)
        current = self._read(now_ms)
        # A clock that was set back would make the round seem endless.
        if current is None or current.value.began_ms > now_ms:
            return SweepPosition("", now_ms)
        self.follows_death = current.value.is_under_way
        return current.value

    def pass_on(self, reached: SweepPosition, names: Sequence[str]) -> None:
        """Stores that the sweep has come to ``reached`` and is about to tend these subjects, at which the process may
        die. A new process does so at its first subjects, then each once in ten seconds, and one that follows a death at
        each subject."""
        if self.follows_death or not within(self._stored_ms, self.context.clock.now_ms(), _STORE_MS):
            # Subjects that are tended together are not left out because of one of them.
            after = names[0] if len(names) == 1 else reached.after
            self._store(msgspec.structs.replace(reached, after=after, is_under_way=True))

    def stop(self, position: SweepPosition) -> None:
        """Stores where the next sweep goes on."""
        self._store(position)

    def complete(self) -> None:
        """Removes the stored position of this sweep, as the sweep has come to the end of the subjects."""
        self.forget()
        self.memory.done_ms[self._complete] = self.context.clock.now_ms()

    def forget(self) -> None:
        """Removes the stored position of this sweep: the next one begins anew."""
        if self._before is not None:
            self.context.store.delete(self._record.key, expect=self._before.token)

    def _read(self, now_ms: int) -> Versioned[SweepPosition] | None:
        record = self.context.store.get(self._record.key)
        if record is None:
            return None
        try:
            current = self._record.opened(record)
        except Corrupt:
            self.context.store.delete(self._record.key, expect=record.token)
            raise
        self._before = current
        return None if record.expires_ms is None or record.expires_ms <= now_ms else current

    def _store(self, position: SweepPosition) -> None:
        follows_death, self.follows_death = self.follows_death, False
        # Before the write: one that fails is not repeated before each subject.
        self._stored_ms = self.context.clock.now_ms()
        self.memory.done_ms.pop(self._complete, None)
        for _ in range(2):  # refused: another sweeper has stored its position meanwhile, or left it
            stored = self._record.swap(self._before, position, expires_ms=self._stored_ms + _FORGET_MS)
            self._before = stored.current
            if stored.stored:
                self.follows_death = follows_death
                return

    @property
    def _complete(self) -> str:
        """The name under which the memory keeps that the last sweep of the share came to the end."""
        return f"round{self.share.name}"

    @property
    def _record(self) -> CasRecord[SweepPosition]:
        key = Key(Table.META, "sweep", f"position{self.share.name}")
        return CasRecord(self.context.store, self.context.ids, key, SweepPosition)
