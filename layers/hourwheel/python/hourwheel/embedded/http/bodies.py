"""Where the body of a request ends."""

import re
from typing import Protocol

from hourwheel.embedded.http.heads import Malformed, check_trailer

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})([ \t]*;[\t -~\x80-\xff]*)?")
_EOL = b"\r\n"


class TooMuch(Exception):
    """Extensions of chunks, the framing of tiny chunks, and trailers take more than they may."""


class Body(Protocol):
    complete: bool

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Takes bytes from the connection. Returns what belongs to the body, and the rest: fed again with more behind
        it, or, once the body is complete, part of the next request. Raises ``Malformed``, ``TooMuch``."""


class SizedBody:
    def __init__(self, length: int) -> None:
        self._missing = length
        self.complete = not length

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        part = data[: self._missing]
        self._missing -= len(part)
        self.complete = not self._missing
        return part, data[len(part) :]


class ChunkedBody:
    """Extensions of chunks and trailers are dropped. All of them together, and by how much the sizes and line ends of
    chunks exceed their content, may take ``extra_bytes``."""

    def __init__(self, extra_bytes: int) -> None:
        self.complete = False
        self._extra_bytes = extra_bytes
        self._missing = 0
        """Of the chunk, its end of line included."""
        self._in_trailers = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        parts: list[bytes] = []
        position = 0
        while position < len(data) and not self.complete:
            if self._missing:
                position += self._take_chunk(data, position, parts)
                continue
            end = data.find(_EOL, position)
            if end < 0:
                # A line that is longer than all that may come is refused before it ends.
                self._check_extra(len(data) - position - 16)
                break
            self._take_line(data[position:end])
            position = end + len(_EOL)
        return b"".join(parts), data[position:]

    def _take_chunk(self, data: bytes, position: int, parts: list[bytes]) -> int:
        """Returns how many bytes were taken."""
        content = self._missing - len(_EOL)
        if content > 0:
            parts.append(data[position : position + content])
            self._missing -= len(parts[-1])
            return len(parts[-1])
        if data[position] != _EOL[-self._missing]:
            raise Malformed("a chunk is longer than it says")
        self._missing -= 1
        return 1

    def _take_line(self, line: bytes) -> None:
        if self._in_trailers:
            self._take_trailer(line)
            return
        size = _SIZE.fullmatch(line)
        if size is None:
            raise Malformed("the size of a chunk is not a number")
        length = int(size[1], 16)
        # Thousands of chunks of a byte or two cost far more to read than their content is worth.
        framing = max(0, len(line) - len(size[2] or b"") + 2 * len(_EOL) - length) if length else 0
        self._extra_bytes -= len(size[2] or b"") + framing
        self._check_extra(0)
        self._missing = length + len(_EOL) if length else 0
        self._in_trailers = not length

    def _take_trailer(self, line: bytes) -> None:
        if not line:
            self.complete = True
            return
        self._extra_bytes -= len(line) + len(_EOL)
        self._check_extra(0)
        check_trailer(line)

    def _check_extra(self, more: int) -> None:
        if more > self._extra_bytes:
            raise TooMuch
