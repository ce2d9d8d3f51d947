"""Packs and unpacks bodies of requests and answers with gzip (RFC 1952)."""

import zlib

_FAST = 1  # the fastest of nine levels: requests wait for it
_FORM = 31  # tells zlib to write and read the header and checksum of gzip

_RATIO = 200  # JSON of equal messages is packed to a fiftieth or so
_FREE_BYTES = 1 << 20  # below, unpacking takes a millisecond, whatever the ratio

MAGIC = b"\x1f\x8b"


class TooLong(ValueError):
    """Says that a body unpacks to more bytes than the caller allowed, or to far more than it has."""


def pack(data: bytes) -> bytes:
    packer = zlib.compressobj(_FAST, wbits=_FORM)
    return packer.compress(data) + packer.flush()


def unpack(data: bytes, most: int) -> bytes:
    """Returns the unpacked bytes, and takes memory for at most ``most`` of them. Raises ``TooLong`` if there are more,
    or more than a megabyte of them and 200 times the packed bytes: a small request would cost as much as a large one.
    Raises ``ValueError`` if the data is cut off, followed by other bytes, or no gzip."""
    most = min(most, max(_FREE_BYTES, _RATIO * len(data)))
    unpacker = zlib.decompressobj(wbits=_FORM)
    try:
        # One byte more than is allowed tells a body that is too long from one that just fits.
        unpacked = unpacker.decompress(data, max_length=most + 1)
    except zlib.error as error:
        raise ValueError(f"the body is not valid gzip: {error}") from error
    if len(unpacked) > most:
        raise TooLong(f"the body unpacks to more than {most} bytes")
    if not unpacker.eof:
        raise ValueError("the body ends before its gzip stream does")
    if unpacker.unused_data:
        raise ValueError("the body has bytes after its gzip stream")
    return unpacked
