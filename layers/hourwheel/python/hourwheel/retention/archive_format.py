"""Reads and writes the record of the format of an archive.

    key      format/{format:04d}
    bytes    StoreFormat, JSON

Objects are written once, so each format that was ever written has an object, and the last one counts. An archive from
before the record was introduced has none; each of its manifests states its format.
"""

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.formats import StoreFormat, check, raised
from hourwheel.ports.storage import Blobs

PREFIX = "format/"

_decoder = msgspec.json.Decoder(StoreFormat)


def check_archive(archive: Blobs) -> StoreFormat | None:
    """Returns the format of the archive; None for one without the record. Raises ``DataVersion`` if this version must
    not use the archive. One listing, and one read."""
    keys = archive.list(PREFIX)
    if not keys:
        return None
    try:
        stated = _decoder.decode(archive.get(keys[-1]))
    except UNDECODABLE as error:
        how = "remove it, unless a later version has written to the archive"
        raise Corrupt(f"{keys[-1]} does not hold the format of an archive ({error}): {how}") from error
    check(stated, "the archive")
    return stated


def keep_archive_format(archive: Blobs) -> None:
    """Does what ``check_archive`` does, and stores the format if it is not stored, or is older than that of this
    version."""
    if (after := raised(check_archive(archive))) is not None:
        archive.put(f"{PREFIX}{after.format:04d}", msgspec.json.encode(after))
