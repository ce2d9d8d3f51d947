"""Packs and unpacks bodies of requests and answers with gzip (RFC 1952)."""

import zlib

_FAST = 1  # the fastest of nine levels: requests wait for it
_FORM = 31  # tells zlib to write and read the header and checksum of gzip

MAGIC = b"\x1f\x8b"


class TooLong(ValueError):
    """Says that a body unpacks to more bytes than the caller allowed."""


def pack(data: bytes) -> bytes:
    packer = zlib.compressobj(_FAST, wbits=_FORM)
    return packer.compress(data) + packer.flush()


def unpack(data: bytes, most: int) -> bytes:
    """Returns the unpacked bytes, and takes memory for at most ``most`` of them. Raises ``TooLong`` if there are more,
    ``ValueError`` if the data is cut off, followed by other bytes, or no gzip."""
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
