"""Decompresses payloads with one decompressor for each thread.

``ZstdDecompressor`` serves one frame. A new one takes fresh memory and asks the processor for its features, which a
virtual machine answers slowly: measured, that took as long as it takes to decompress 100 messages of 200 bytes. An
error, however, resets a decompressor. So each frame is read as if a checksum followed it, and the checksum that it gets
is wrong: when the error comes, all data has been returned. A frame that cannot be read so is read with a new
decompressor, which decides what is wrong with it.

A block of 10 messages is read in 6 us instead of 21 to 33. No page promises that an error resets a decompressor;
where it does not, reading takes longer and is right. The package ``zstandard`` would be one more dependency.
"""

import sys
import threading

from hourwheel.errors import Corrupt

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# RFC 8878, 3.1.1: the magic number of a frame, and the bit of the byte behind it that announces a checksum.
_MAGIC = b"\x28\xb5\x2f\xfd"
_CHECKSUM = 0b100
_WRONG = b"\x00\x00\x00\x00"

_threads = threading.local()


def decompressed(stored: memoryview, size: int) -> bytes:
    """Returns the content of a frame that claims ``size`` bytes, or fewer bytes if it has fewer. Takes memory for one
    byte more at most. Raises ``Corrupt``."""
    raw = _with_kept_decompressor(stored, size)
    return _with_new_decompressor(stored, size) if raw is None else raw


def _with_kept_decompressor(stored: memoryview, size: int) -> bytes | None:
    """Returns None if the decompressor of this thread cannot read the frame."""
    frame = bytearray(stored)
    if len(frame) < 5 or not size or not frame.startswith(_MAGIC) or frame[4] & _CHECKSUM:
        return None
    frame[4] |= _CHECKSUM
    decompressor: zstd.ZstdDecompressor = getattr(_threads, "decompressor", None) or zstd.ZstdDecompressor()
    _threads.decompressor = None
    raw = None
    try:
        raw = decompressor.decompress(frame, max_length=size)
        if not decompressor.eof and not decompressor.decompress(b"", max_length=1):
            decompressor.decompress(_WRONG, max_length=1)
        # The frame goes on, or breaks off, or has bytes behind it that are its checksum by chance.
        return None
    except zstd.ZstdError:
        _threads.decompressor = decompressor
        return raw


def _with_new_decompressor(stored: memoryview, size: int) -> bytes:
    decompressor = zstd.ZstdDecompressor()
    try:
        raw = decompressor.decompress(stored, max_length=size)
        if decompressor.eof or not size:
            return raw
        # The end marker of the frame may still follow; one more byte of data is one too many.
        excess = decompressor.decompress(b"", max_length=1)
    except zstd.ZstdError as error:
        raise Corrupt(f"block does not unpack: {error}") from error
    if excess or not decompressor.eof:
        raise Corrupt(f"block unpacks to more than the {size} bytes it claims")
    return raw
