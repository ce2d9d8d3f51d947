"""Finds the end of a request's body."""

import re
from typing import Protocol

from hourwheel.embedded.http.heads import Malformed, check_trailer

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})([ \t]*;[\t -~\x80-\xff]*)?")
_EOL = b"\r\n"


class TooMuch(Exception):
    """Says that the extensions of chunks, the framing of tiny chunks, and the trailers exceed their bound."""


class Body(Protocol):
    complete: bool

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Takes bytes from the connection. Returns the content of the body in them, and the rest. While the body is
        incomplete, the caller feeds the rest again, together with later bytes; afterwards the rest belongs to the next
        request. Raises ``Malformed`` and ``TooMuch``."""


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
    """A chunked body. Its extensions and trailers are dropped. They may take ``extra_bytes`` in all, including the
    bytes by which the size and the line ends of a chunk exceed its content."""

    def __init__(self, extra_bytes: int) -> None:
        self.complete = False
        self._extra_bytes = extra_bytes
        self._missing = 0
        """The number of bytes of the current chunk, with its line end, that have not come."""
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
                # Refuses a line that is longer than the rest of the bound before its end has come; 16 digits of a size
                # are no extra bytes.
                self._check_extra(len(data) - position - 16)
                break
            self._take_line(data[position:end])
            position = end + len(_EOL)
        return b"".join(parts), data[position:]

    def _take_chunk(self, data: bytes, position: int, parts: list[bytes]) -> int:
        """Moves content of the chunk from ``data`` to ``parts``, or checks a byte of its line end. Returns the number
        of bytes taken."""
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
        # Reading thousands of chunks of a byte or two costs far more than reading their content at once.
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
