"""Frames of zstd come back one after the other from one decompressor, and a bad frame spoils none after it."""

import random
import threading
from contextlib import suppress
from unittest.mock import patch

import pytest

from hourwheel.errors import Corrupt
from hourwheel.logs import compression
from hourwheel.logs.compression import decompressed, zstd

NOISE = random.Random(3).randbytes(5_000)


def packed(raw: bytes, *, checksum: bool = False) -> memoryview:
    options = {zstd.CompressionParameter.checksum_flag: int(checksum)}
    return memoryview(zstd.compress(raw, options=options))


def texts(count: int) -> list[bytes]:
    dice = random.Random(count)
    return [b"%d " % number * dice.randrange(1, 60_000) + NOISE[: dice.randrange(5_000)] for number in range(count)]


def test_frames_come_back_one_after_the_other() -> None:
    assert [decompressed(packed(raw), len(raw)) for raw in texts(50)] == texts(50)


def test_a_thread_makes_one_decompressor_for_all_its_frames() -> None:
    made: list[object] = []

    def make() -> zstd.ZstdDecompressor:
        made.append(decompressor := zstd_decompressor())
        return decompressor

    zstd_decompressor = zstd.ZstdDecompressor
    with patch.object(compression.zstd, "ZstdDecompressor", make):
        thread = threading.Thread(target=lambda: [decompressed(packed(raw), len(raw)) for raw in texts(20)])
        thread.start()
        thread.join()
    assert len(made) == 1


def test_a_frame_with_a_checksum_of_its_own_is_read_and_its_checksum_holds() -> None:
    frame = packed(b"abc" * 1_000, checksum=True)
    assert decompressed(frame, 3_000) == b"abc" * 1_000
    with pytest.raises(Corrupt, match="checksum"):
        decompressed(memoryview(bytes(frame[:-1]) + b"!"), 3_000)


@pytest.mark.parametrize("size", [1, 2_999])
def test_a_frame_with_more_than_it_claims_is_refused(size: int) -> None:
    with pytest.raises(Corrupt, match=f"more than the {size} bytes"):
        decompressed(packed(b"abc" * 1_000), size)


def test_a_frame_with_less_than_it_claims_returns_what_it_has() -> None:
    assert decompressed(packed(b"abc" * 1_000), 5_000) == b"abc" * 1_000


def test_a_frame_that_breaks_off_is_refused_or_short() -> None:
    frame = packed(NOISE + b"abc" * 100_000)
    for length in range(0, len(frame), 7):
        try:
            assert len(decompressed(frame[:length], 305_000)) < 305_000
        except Corrupt:
            continue


def test_a_frame_whose_end_looks_like_a_checksum_is_read() -> None:
    # The bytes behind the frame are read as its checksum: here they are the correct one.
    frame = packed(b"abc" * 1_000)
    checksum = packed(b"abc" * 1_000, checksum=True)[-4:]
    assert decompressed(memoryview(bytes(frame) + bytes(checksum)), 3_000) == b"abc" * 1_000


def test_after_a_bad_frame_the_next_one_is_read() -> None:
    dice = random.Random(5)
    for raw in texts(40):
        frame = bytearray(packed(raw))
        frame[dice.randrange(len(frame))] ^= 1 << dice.randrange(8)
        with suppress(Corrupt):
            decompressed(memoryview(frame), len(raw))
        assert decompressed(packed(raw), len(raw)) == raw


def test_where_an_error_resets_no_decompressor_each_frame_gets_its_own() -> None:
    class Spent:
        """A decompressor that fails after its first error."""

        def __init__(self) -> None:
            self._real, self._failed, self.eof = real(), False, False

        def decompress(self, data: bytes, max_length: int = -1) -> bytes:
            if self._failed:
                raise zstd.ZstdError("spent")
            try:
                raw: bytes = self._real.decompress(data, max_length)
            except zstd.ZstdError:
                self._failed = True
                raise
            self.eof = self._real.eof
            return raw

    real = zstd.ZstdDecompressor
    with (
        patch.object(compression.zstd, "ZstdDecompressor", Spent),
        patch.object(compression, "_threads", threading.local()),
    ):
        assert [decompressed(packed(raw), len(raw)) for raw in texts(5)] == texts(5)
