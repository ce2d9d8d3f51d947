"""Decides which versions may use a store: by the format in which it was written, and the least one that reads it.

A format is raised with each change of keys or values after which an older version would misread what a newer one
stored. A new field needs no new format: older versions keep the fields that they do not know (``logs/kept_fields.py``).
A release reads the next format before another release writes it, so that an upgrade can be taken back.
"""

import msgspec

from hourwheel import __version__
from hourwheel.errors import DataVersion

FORMAT = 3
"""The format that this version writes."""

OLDEST_READ = 3
"""The oldest format that this version reads."""

BEFORE = 2
"""The format of stores from before the first release, whose records had other keys."""


class StoreFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a store about its format. ``least_reader``: versions that know no newer format than this one must
    not use the store. ``written_by``: the release that raised the format."""

    format: int
    least_reader: int
    written_by: str


CURRENT = StoreFormat(format=FORMAT, least_reader=FORMAT, written_by=__version__)


def check(stated: StoreFormat, store_name: str) -> None:
    """Raises ``DataVersion`` if this version must not use the store of this format. ``store_name`` names the store."""
    if stated.least_reader > FORMAT or stated.format < OLDEST_READ:
        raise DataVersion(store_name, expected=FORMAT, actual=stated.format, written_by=stated.written_by)


def raised(stated: StoreFormat | None) -> StoreFormat | None:
    """Returns the record to store once this version writes to the store; None if the stored one stays."""
    return CURRENT if stated is None or stated.format < FORMAT else None
