"""Bodies of requests and answers, packed by gzip (RFC 1952)."""

import zlib

_FAST = 1
_FORM = 31
"""Of ``zlib``: the header and checksum of gzip."""

MAGIC = b"\x1f\x8b"


class TooLong(ValueError):
    """It unpacks to more than was allowed."""


def pack(data: bytes) -> bytes:
    packer = zlib.compressobj(_FAST, wbits=_FORM)
    return packer.compress(data) + packer.flush()


def unpack(data: bytes, most: int) -> bytes:
    """What was packed. No more memory is taken than for ``most`` bytes: raises ``TooLong`` for more, ``ValueError`` for
    what is cut off, followed by something else, or not packed at all."""
    unpacker = zlib.decompressobj(wbits=_FORM)
    try:
        found = unpacker.decompress(data, max_length=most + 1)
    except zlib.error as error:
        raise ValueError(f"the body is not what gzip makes: {error}") from error
    if len(found) > most:
        raise TooLong(f"the body unpacks to more than {most} bytes")
    if not unpacker.eof:
        raise ValueError("the body is cut off before the end that gzip makes")
    if unpacker.unused_data:
        raise ValueError("the body goes on behind the end that gzip makes")
    return found
