"""Puts TLS between a connection and its socket.

The TLS of the event loop does not tell how many bytes wait below it. So answers that no client reads would pile up, and
closing a connection would cut off an answer that the client reads more slowly than the end of TLS allows. It also hides
connections until their handshake is over. This layer therefore only encrypts and decrypts, and passes on the socket's
own reports of full and empty buffers.

OpenSSL keeps its buffers as large as their largest content. So bytes pass through them in slices, and they are dropped
with the connection.
"""

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

_SLICE_BYTES = 64 * 1024  # four records of TLS: larger slices are not encrypted faster


class Secure(asyncio.Protocol, asyncio.Transport):
    """Acts as a protocol towards the socket, and as a transport towards ``protocol``, from before the handshake on."""

    def __init__(self, context: ssl.SSLContext, protocol: asyncio.Protocol) -> None:
        super().__init__({"sslcontext": context})
        self._protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._dropped = False
        """Whether TLS has ended, and its objects are dropped."""
        self._socket: asyncio.Transport = cast(asyncio.Transport, None)
        self._established = False
        self._unsent: list[bytes] = []
        """Bytes that were written before the handshake was over."""

    # Called by the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        view = memoryview(data)
        for start in range(0, len(data), _SLICE_BYTES):
            if self.is_closing():
                return
            self._incoming.write(view[start : start + _SLICE_BYTES])
            self._decrypt()

    def eof_received(self) -> bool:
        """Ends the connection, as the other side reads nothing after the end of TLS, even if its TCP connection is
        open."""
        self._protocol.eof_received()
        return False

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop()
        protocol = self._protocol
        del self._protocol  # it refers to this object: both would stay until the garbage collector runs
        protocol.connection_lost(exc)

    # Called by the protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return super().get_extra_info(name) or self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_closing() or not data:
            return
        if not self._established:
            self._unsent.append(bytes(data))
            return
        self._socket.writelines(self._encrypt([data]))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Sends the bytes that were written, and then the end of TLS. Does not wait for the other side to end TLS."""
        if not self.is_closing() and self._established:
            with suppress(ssl.SSLError):  # raised until the other side has ended TLS too; the end is encoded before
                self._tls.unwrap()
            self._flush()
        self._socket.close()
        self._drop()

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._dropped or self._socket.is_closing()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    # TLS

    def _decrypt(self) -> None:
        """Passes on the bytes that have arrived."""
        try:
            if not self._established:
                self._shake_hands()
            while not self.is_closing():
                text = self._tls.read(_SLICE_BYTES)
                if not text:
                    self._end()
                    return
                self._protocol.data_received(text)
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError:
            self._flush()  # sends the alert, which tells the client the reason
            self._socket.close()
            self._drop()

    def _shake_hands(self) -> None:
        self._tls.do_handshake()
        self._established = True
        unsent, self._unsent = self._unsent, []
        self._flush()
        self._socket.writelines(self._encrypt(unsent))

    def _encrypt(self, texts: Iterable[bytes | bytearray | memoryview]) -> list[bytes]:
        """Returns the texts as records of TLS. The socket gets them in one call, and then knows how many bytes are
        unsent."""
        records = []
        for text in texts:
            view = memoryview(text)
            while view:
                view = view[self._tls.write(view[:_SLICE_BYTES]) :]
                records.append(self._outgoing.read())
        return records

    def _flush(self) -> None:
        if not self.is_closing() and self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    def _end(self) -> None:
        """Handles the end of TLS by the other side."""
        if not self._protocol.eof_received():
            self.close()

    def _drop(self) -> None:
        """Drops the objects of TLS. Later bytes of either side are dropped too."""
        if not self._dropped:
            self._dropped = True
            self._unsent = []
            del self._tls, self._incoming, self._outgoing
