"""Parses answers in HTTP/1.1 while their bytes come."""

import http.client
from collections.abc import Mapping

from hourwheel.client.transport.endpoint import GRANT_HEADER, Reply

_HEAD_BYTES = 64 << 10  # the limit of http.client for one line of a head; proxies allow less for the whole head
_LENGTH_DIGITS = 18  # ``int`` refuses thousands of digits with an error of its own
_NO_BODY = frozenset({204, 304})  # these answers end with their head (RFC 9112), whatever length it names


class AnswerParser:
    """Parses one answer. ``reply`` holds the answer once ``feed`` or ``end`` has returned True; then ``reusable`` says
    whether the connection may carry another request. Both raise ``http.client.HTTPException`` for bytes that are no
    answer."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.reusable = False
        self._data = bytearray()
        self._status = 0
        self._fields: Mapping[str, str] | None = None  # once the head is complete
        self._length: int | None = None  # of the body; None: chunked, or up to the end of the connection
        self._chunks: _Chunks | None = None

    @property
    def missing_bytes(self) -> int:
        """The number of bytes of the body that have not come; 0 where the head did not name its length, or has not
        come itself."""
        return 0 if self._length is None else self._length - len(self._data)

    def feed(self, data: bytes) -> bool:
        """Takes the next bytes. Returns whether the answer is complete."""
        self._data += data
        while self._fields is None:
            if not self._parse_head():
                return False
        if self._chunks is not None:
            body = self._chunks.take(self._data)
            return body is not None and self._complete(body)
        if self._length is None or len(self._data) < self._length:
            return False
        with memoryview(self._data) as view:  # a slice of the array would be one copy more
            body = bytes(view[: self._length])
        del self._data[: self._length]
        return self._complete(body)

    def end(self) -> bool:
        """Takes the end of the connection, which completes an answer without a length, and returns True. Raises
        ``http.client.HTTPException`` if the answer is not complete."""
        if self._fields is None:
            if self._data:
                raise http.client.BadStatusLine(self._data[:100].decode("latin-1"))
            raise http.client.RemoteDisconnected("the server closed the connection without an answer")
        if self._chunks is not None or self._length is not None:
            raise http.client.IncompleteRead(bytes(self._data[:100]))
        return self._complete(bytes(self._data))

    def _parse_head(self) -> bool:
        """Parses a head if all of it has come. Returns whether it had."""
        end = self._data.find(b"\r\n\r\n")
        # Checked from the first bytes on: a server of another protocol may send no line end.
        if not self._data.startswith(b"HTTP/1."[: len(self._data)]):
            raise http.client.BadStatusLine(self._data[:100].decode("latin-1"))
        if end < 0:
            if len(self._data) > _HEAD_BYTES:
                raise http.client.LineTooLong("head of the answer")
            return False
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        del self._data[: end + 4]
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if not code.isdecimal() or len(code) < 3:
            raise http.client.BadStatusLine(first[:100])
        if code[0] != "1":  # 1xx is an interim answer, which another one follows
            self._begin_body(version, int(code), _fields(lines))
        return True

    def _begin_body(self, version: str, status: int, fields: Mapping[str, str]) -> None:
        self._status, self._fields = status, fields
        options = [option.strip() for option in fields.get("connection", "").lower().split(",")]
        self.reusable = version == "HTTP/1.1" and "close" not in options
        if status in _NO_BODY:
            self._length = 0
        elif "transfer-encoding" in fields:
            if fields["transfer-encoding"].lower() != "chunked":
                raise http.client.UnknownTransferEncoding(fields["transfer-encoding"][:100])
            self._chunks = _Chunks()
        elif "content-length" in fields:
            length = fields["content-length"]
            if not (length.isascii() and length.isdecimal() and len(length) <= _LENGTH_DIGITS):
                raise http.client.HTTPException(f"the answer has the length {length[:100]!r}, which is no number")
            self._length = int(length)
        else:
            self.reusable = False

    def _complete(self, body: bytes) -> bool:
        assert self._fields is not None
        value = self._fields.get
        encoding, kind = value("content-encoding"), value("content-type")
        self.reply = Reply(self._status, value("retry-after"), value("date"), encoding, kind, body, value(GRANT_HEADER))
        # Bytes behind the answer would be read as the next answer.
        self.reusable = self.reusable and not self._data
        return True


def _fields(lines: list[str]) -> dict[str, str]:
    """Returns the first value of each header field, by its name in lower case."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.lower(), value.strip())
    return fields


class _Chunks:
    """Collects the chunks of a body."""

    def __init__(self) -> None:
        self._body = bytearray()

    def take(self, data: bytearray) -> bytes | None:
        """Removes the complete chunks from ``data``. Returns the body once the last chunk and the trailers have come;
        None before."""
        while (end := data.find(b"\r\n")) >= 0:
            text = data[:end].partition(b";")[0].strip()
            try:
                size = int(text, 16) if text[:1].isalnum() else -1
            except ValueError:
                size = -1
            if size < 0:
                raise http.client.HTTPException(f"a chunk of the answer has the size {bytes(text[:20])!r}")
            if size == 0:
                return self._after_trailers(data, end)
            start, after = end + 2, end + 2 + size
            if len(data) < after + 2:
                return None
            if data[after : after + 2] != b"\r\n":
                raise http.client.HTTPException(f"a chunk of the answer is longer than the {size} bytes that it claims")
            self._body += data[start:after]
            del data[: after + 2]
        return None

    def _after_trailers(self, data: bytearray, end: int) -> bytes | None:
        """Removes the trailers and the empty line behind them, and returns the body; None if they have not come."""
        last = data.find(b"\r\n\r\n", end)
        if last < 0:
            return None
        del data[: last + 4]
        return bytes(self._body)
