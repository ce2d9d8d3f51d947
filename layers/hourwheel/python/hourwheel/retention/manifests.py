"""Reads and commits manifests, which say what belongs to the archive.

    key      manifests/{number // 1000:09d}/{number % 1000:03d}        0, 1, 2 … without a gap
    bytes    JSON: {"format": …, "checksum": CRC-32 of the bytes of the manifest, "manifest": {…}}

A manifest is one commit: the segments that it names hold exactly the rows of its spans. Each manifest is written once,
under the next number. Of several archivers that write the same number the first one wins; the others have archived
nothing. So readers need only the objects of the archive, and each row of a log is in the archive once.

Each manifest names its store, and the digest of the manifest before it: see ``chain.py``. A thousand manifests are
folded into a bundle: see ``bundles.py``.
"""

import zlib
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt, NotFound
from hourwheel.ports.storage import Blobs

FORMAT = 4
"""Raised with each change after which an older version would misread a manifest, or this version an older manifest."""

PREFIX = "manifests/"

FORMER_FIRST = f"{PREFIX}{0:012d}"
"""The key of the first manifest in the format before this one."""

_FOLDER = 1_000  # a folder of this many names is listed quickly, on S3 with one request


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
    one. ``store`` names the store whose rows are archived. ``previous``: the digest of the manifest before this one; ""
    for the first one, and behind one that was lost."""

    number: int
    store: str
    previous: str
    began_ms: int
    ended_ms: int
    complete_ms: int
    segments: list[Segment]
    spans: list[Span]
    unreadable: list[UnreadableRow]
    missing: list[MissingRows]
    registry: str = ""


class _Sealed(msgspec.Struct):
    """A manifest as it is stored, with the checksum of its bytes."""

    format: int
    checksum: int
    manifest: msgspec.Raw


class _Format(msgspec.Struct):
    format: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)
_sealed_decoder = msgspec.json.Decoder(_Sealed)
_format_decoder = msgspec.json.Decoder(_Format)


class OtherFormat(Corrupt):
    """The manifest was written by a version with another format."""


class StoredManifest(NamedTuple):
    """The bytes of a manifest, under its number."""

    number: int
    data: bytes

    @property
    def digest(self) -> str:
        """The digest by which the next manifest names this one."""
        return blake2b(self.data, digest_size=16).hexdigest()

    def opened(self) -> Manifest:
        """Decodes the manifest; raises ``Corrupt``."""
        key = manifest_key(self.number)
        try:
            # The format is read alone first: a manifest of another format need not have the other fields.
            stated = _format_decoder.decode(self.data).format
            if stated != FORMAT:
                raise _other_format(key, stated)
            sealed = _sealed_decoder.decode(self.data)
            if zlib.crc32(sealed.manifest) != sealed.checksum:
                raise Corrupt(f"{key} fails its checksum")
            manifest = _decoder.decode(sealed.manifest)
        except UNDECODABLE as error:
            raise Corrupt(f"{key} is no manifest: {error}") from error
        # A copy under another name would be applied twice, and its rows would count twice.
        if manifest.number != self.number:
            raise Corrupt(f"{key} contains manifest {manifest.number}")
        return manifest


def manifest_key(number: int) -> str:
    return f"{folder_key(number // _FOLDER)}{number % _FOLDER:03d}"


def folder_key(folder: int) -> str:
    """Returns the prefix of the keys of a thousand manifests; the first has the number ``folder`` times 1,000."""
    return f"{PREFIX}{folder:09d}/"


def sealed(manifest: Manifest) -> StoredManifest:
    """Returns the manifest as it is stored."""
    raw = _encoder.encode(manifest)
    return StoredManifest(manifest.number, _encoder.encode(_Sealed(FORMAT, zlib.crc32(raw), msgspec.Raw(raw))))


def commit(archive: Blobs, manifest: Manifest) -> bool:
    """Writes the manifest; returns whether it is in the archive now. False: another manifest has its number."""
    key, data = manifest_key(manifest.number), sealed(manifest).data
    # Objects are written once: a put to a taken key changes nothing, and the read below tells whose manifest won.
    archive.put(key, data)
    return archive.get(key) == data


def stored(archive: Blobs, number: int) -> StoredManifest | None:
    """Returns the object of the manifest of this number; None if there is none. Looks into no bundle."""
    try:
        return StoredManifest(number, archive.get(manifest_key(number)))
    except NotFound:
        return None


def check_format(archive: Blobs) -> None:
    """Raises ``OtherFormat`` if the archive has manifests of the former format, which had other keys, and none of this
    one. For a reader that finds no manifest."""
    if stored(archive, 0) is not None:
        return
    try:
        stated = _format_decoder.decode(archive.get(FORMER_FIRST)).format
    except NotFound:
        return
    except UNDECODABLE as error:
        raise Corrupt(f"{FORMER_FIRST} is no manifest: {error}") from error
    raise _other_format(FORMER_FIRST, stated)


def _other_format(key: str, stated: int) -> OtherFormat:
    return OtherFormat(
        f"{key} has format {stated}, and this version of Hourwheel reads format {FORMAT}: use the version that wrote"
        " the archive"
    )


def numbers_from(archive: Blobs, start: int) -> list[int]:
    """Returns the numbers from ``start`` on of which there is an object, in order, up to a folder without any."""
    numbers: list[int] = []
    folder = start // _FOLDER
    while names := archive.list(folder_key(folder)):
        numbers += [folder * _FOLDER + int(name) for key in names if (name := key.rpartition("/")[2]).isdecimal()]
        folder += 1
    return [number for number in numbers if number >= start]
