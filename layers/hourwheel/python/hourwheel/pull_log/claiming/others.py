"""Tells a consumer which others claim from the same log, by the rows that they have put."""

from collections.abc import Iterable
from typing import NamedTuple

from hourwheel.pull_log.records import OPEN, PullRow


class Others(NamedTuple):
    """The ``names`` of the other consumers of some rows. ``beside``: the consumer itself has an open one among these
    rows."""

    names: frozenset[str] = frozenset()
    beside: bool = False

    def joined(self, rows: Iterable[PullRow], consumer: str) -> "Others":
        """Returns also the others that have claimed these rows, as this consumer sees them. A seek claims nothing."""
        claimed = [row for row in rows if row.consumer]
        names = self.names.union(row.consumer for row in claimed if row.consumer != consumer)
        beside = any(row.consumer == consumer and row.state == OPEN for row in claimed)
        return Others(names, self.beside or beside)
