"""Manifests: what belongs to the archive.

    key      manifests/{number:012d}        0, 1, 2 … without a gap
    bytes    JSON

A manifest is one commit: the segments that it names hold exactly the rows of its spans. Manifests are written once,
each under the next number, by whoever comes first: who finds the number taken has archived nothing. So the archive is
read from its objects alone, and each row of a log is in it once.
"""

from collections.abc import Iterator

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt, NotFound
from hourwheel.ports import Blobs

FORMAT = 1
PREFIX = "manifests/"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one log in a segment: ``[start, end)``, and the sequences of their messages, ``[first, following)`` (a
    pull log's and a dispatch log's are 0). Of a pull log ``messages`` were handed out, of a dispatch log handed over.
    Rows between them may lie in another segment, where their time is another hour's."""

    log: str
    start: int
    end: int
    first: int
    following: int
    messages: int


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """``earliest_ms`` and ``latest_ms``: the times of its rows. ``checksum``: CRC-32 of the object."""

    key: str
    kind: str
    bytes: int
    checksum: int
    rows: int
    messages: int
    earliest_ms: int
    latest_ms: int
    parts: list[Part]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The rows ``[start, end)`` of a log are archived, with so many messages. ``behind``: as many rows were there that
    are not."""

    kind: str
    log: str
    start: int
    end: int
    messages: int
    behind: int


class UnreadableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row whose messages could not be read."""

    log: str
    row: int
    messages: int
    error: str


class MissingRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows ``[start, end)`` of a log were removed before they could be archived."""

    log: str
    start: int
    end: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``complete_ms``: all that was stored before is archived with it, or 0 where that is not known. ``catalog``: the
    digest of the catalog, where it is in one of the segments."""

    format: int = FORMAT
    number: int
    began_ms: int
    ended_ms: int
    complete_ms: int
    segments: list[Segment]
    spans: list[Span]
    unreadable: list[UnreadableRow]
    missing: list[MissingRows]
    catalog: str = ""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)


def manifest_key(number: int) -> str:
    return f"{PREFIX}{number:012d}"


def commit(archive: Blobs, manifest: Manifest) -> bool:
    """Whether the manifest is in the archive now: not if another one has its number."""
    key, data = manifest_key(manifest.number), _encoder.encode(manifest)
    archive.put(key, data)
    return archive.get(key) == data


def read(archive: Blobs, number: int) -> Manifest | None:
    """None when there is none yet; raises ``Corrupt``."""
    key = manifest_key(number)
    try:
        data = archive.get(key)
    except NotFound:
        return None
    try:
        found = _decoder.decode(data)
    except UNDECODABLE as error:
        raise Corrupt(f"{key} is no manifest: {error}") from error
    if found.format != FORMAT or found.number != number:
        raise Corrupt(f"{key} has format {found.format} and number {found.number}, this version reads {FORMAT}")
    return found


def manifests(archive: Blobs, start: int = 0) -> Iterator[Manifest]:
    """The manifests from that number on, in order, up to the last one."""
    number = start
    while (found := read(archive, number)) is not None:
        yield found
        number += 1
