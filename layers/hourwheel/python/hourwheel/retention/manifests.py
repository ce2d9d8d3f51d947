"""Reads and commits manifests, which say what belongs to the archive.

    key      manifests/{number:012d}        0, 1, 2 … without a gap
    bytes    JSON

A manifest is one commit: the segments that it names hold exactly the rows of its spans. Each manifest is written once,
under the next number. Of several archivers that write the same number the first one wins; the others have archived
nothing. So readers need only the objects of the archive, and each row of a log is in the archive once.
"""

from collections.abc import Iterator

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt, NotFound
from hourwheel.ports.storage import Blobs

FORMAT = 3
"""Raised with each change after which an older version would misread a manifest, or this version an older manifest."""

PREFIX = "manifests/"


class SegmentPart(msgspec.Struct, frozen=True, kw_only=True):
    """The rows ``[start, end)`` of one log in a segment, and the sequences of their messages, ``[first, following)``
    (both 0 for pull logs and dispatch logs). ``messages`` counts the messages in the rows: those that a pull log's rows
    handed out, or a dispatch log's rows handed over. Some rows of the range may be in another segment, because their
    time lies in another hour."""

    log: str
    start: int
    end: int
    first: int
    following: int
    messages: int


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of the archive. ``earliest_ms`` and ``latest_ms`` bound the times of its rows. ``checksum`` is the
    CRC-32 of the object."""

    key: str
    kind: str
    bytes: int
    checksum: int
    rows: int
    messages: int
    earliest_ms: int
    latest_ms: int
    parts: list[SegmentPart]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The rows ``[start, end)`` of a log that a manifest adds to the archive, with the number of their messages.
    ``behind``: the number of rows that the log had beyond ``end``."""

    kind: str
    log: str
    start: int
    end: int
    messages: int
    behind: int


class UnreadableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row whose messages the archiver could not read."""

    log: str
    row_no: int
    messages: int
    error: str


class MissingRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows ``[start, end)`` of a log were removed before they could be archived."""

    log: str
    start: int
    end: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of the archive. ``complete_ms``: with this manifest, everything that was stored before this time is
    archived (0: not known). ``registry``: the digest of the snapshot of subjects and groups, if a segment contains
    one."""

    format: int = FORMAT
    number: int
    began_ms: int
    ended_ms: int
    complete_ms: int
    segments: list[Segment]
    spans: list[Span]
    unreadable: list[UnreadableRow]
    missing: list[MissingRows]
    registry: str = ""


class _Format(msgspec.Struct):
    format: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)
_format_decoder = msgspec.json.Decoder(_Format)


def manifest_key(number: int) -> str:
    return f"{PREFIX}{number:012d}"


def commit(archive: Blobs, manifest: Manifest) -> bool:
    """Writes the manifest; returns whether it is in the archive now. False: another manifest has its number."""
    key, data = manifest_key(manifest.number), _encoder.encode(manifest)
    # Objects are written once: a put to a taken key changes nothing, and the read below tells whose manifest won.
    archive.put(key, data)
    return archive.get(key) == data


def read(archive: Blobs, number: int) -> Manifest | None:
    """Returns the manifest of this number, None if it is not written yet; raises ``Corrupt``."""
    key = manifest_key(number)
    try:
        data = archive.get(key)
    except NotFound:
        return None
    try:
        # The format is read alone first: a manifest of another format need not have the other fields.
        stated = _format_decoder.decode(data).format
        if stated != FORMAT:
            raise Corrupt(
                f"{key} has format {stated}, and this version of Hourwheel reads format {FORMAT}: use the version that"
                " wrote the archive"
            )
        manifest = _decoder.decode(data)
    except UNDECODABLE as error:
        raise Corrupt(f"{key} is no manifest: {error}") from error
    # A copy under another name would be applied twice, and its rows would count twice.
    if manifest.number != number:
        raise Corrupt(f"{key} contains manifest {manifest.number}")
    return manifest


def manifests(archive: Blobs, start: int = 0, below: int | None = None) -> Iterator[Manifest]:
    """Yields the manifests from the number ``start`` on, in order, up to the first missing one, or those ``below`` a
    number."""
    number = start
    while (below is None or number < below) and (manifest := read(archive, number)) is not None:
        yield manifest
        number += 1
