"""Remembers which idempotency keys a process has used lately, so that it reads the record of a repeated key first."""

from dataclasses import dataclass, field

_MOST = 20_000
"""The number of keys after which older ones are forgotten: about 2 MB in all, more than ten minutes of 30 keys a
second."""


@dataclass
class SeenKeys:
    """The last ``most`` keys at least, and twice as many at most. Keeps hashes and no names: a key that is taken for
    another one costs a read. Thread-safe."""

    most: int = _MOST
    _newer: set[int] = field(default_factory=set)
    _older: set[int] = field(default_factory=set)

    def add(self, keyspace: str, key: str) -> bool:
        """Adds the key, and returns whether it was used before."""
        digest = hash((keyspace, key))
        newer = self._newer
        if digest in newer:
            return True
        used = digest in self._older
        newer.add(digest)
        if len(newer) >= self.most:
            # Two threads may do so at once: keys are forgotten earlier then, which costs no more than their look-up.
            self._older, self._newer = newer, set()
        return used
