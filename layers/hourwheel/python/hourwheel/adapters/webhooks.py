"""Delivers over HTTPS to addresses that users choose. No delivery may reach a host in a private network of this
machine.

A host name is resolved once for each delivery. Each of its addresses must be public, and the connection goes to one of
these addresses, whatever the name resolves to a moment later. Redirects are not followed. The time of a delivery is
bounded as a whole (the system's resolver has its own bound), and so is the size of the answer.

A URL may name any port. The receiver must first prove, in a TLS handshake, that it has a certificate for the host of
the URL. A server that speaks another protocol, or that belongs to another host, gets no byte that a user wrote.
"""

import http.client
import io
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from hourwheel import __version__
from hourwheel.errors import Rejected
from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import Outcome, PushDelivery, answered, failure, unreached
from hourwheel.ports.machine import Clock
from hourwheel.wire.signatures import signed_headers

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Iterable[str]]

CONNECT_SECONDS = 5.0  # leaves time within a delivery for the other addresses of the name
ANSWER_BYTES = 1 << 20  # bounds the memory that a receiver can make a pusher take
URL_CHARACTERS = 2_000  # the record of the group, which every wake-up reads, has the URL
_ADDRESSES = 4  # bounds the tries for a name with many addresses
_PORTS = {"https": 443, "http": 80}
_BUSY = frozenset({429, 503})
_LONGEST_WAIT_SECONDS = 86_400.0  # of a Retry-After header, whose number may be of any size

_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,62})\.)*[a-z0-9_][a-z0-9_-]{0,62}")
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
"""Matches every notation that the system takes for an IPv4 address."""

# Written out: Python's own list of private networks has changed from version to version.
_PRIVATE = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",
            "100.64.0.0/10",  # behind the provider's translator
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's own, which every machine there sees
            "169.254.0.0/16",  # the link; metadata with credentials on every cloud
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",  # multicast, reserved, broadcast
        ),
    )
)
_INTERNET = IPv6Network("2000::/3")
_NOT_INTERNET = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols, among them Teredo, which hides an IPv4 address
            "2001:db8::/32",
            "2002::/16",  # 6to4, which hides an IPv4 address
            "3fff::/20",
        ),
    )
)
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""Addresses of networks that have only IPv6, which stand for IPv4 addresses (NAT64)."""


class Forbidden(Exception):
    """Says that no delivery may connect to an address."""


class Webhooks:
    """Delivers over HTTPS. Thread-safe. With ``loopback``, which is for development, also delivers to this machine,
    over plain HTTP too. Without it, the refusal of such a delivery gives ``advice``."""

    def __init__(
        self, clock: Clock, *, loopback: bool = False, resolve: Resolve | None = None, advice: str = ""
    ) -> None:
        self._clock = clock
        self._loopback = loopback
        self._advice = f"; {advice}" if advice else ""
        self._resolve = resolve or resolved

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def check(self, target: PushTarget) -> None:
        """Raises ``Rejected`` for a URL to which no delivery may ever go. Does not resolve names, as each delivery
        does."""
        try:
            parts = self._parts(target.address)
            literal = _literal(parts)
            if literal is not None:
                self._allow(parts, literal)
        except (Forbidden, ValueError) as error:
            raise Rejected("field-invalid", f"push.url: {error}", field="push.url") from None

    def deliver(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        deadline = monotonic() + target.timeout_seconds
        try:
            parts = self._parts(target.address)
            sock = self._connected(parts, deadline)
        except (OSError, ValueError, Forbidden) as error:
            return unreached(f"cannot be reached: {_reason(error)}")
        body = delivery.encoded()
        headers = {
            "connection": "close",
            "content-type": "application/json",
            "user-agent": f"hourwheel/{__version__}",
            **signed_headers(delivery.secrets, delivery.id, self._clock.now_ms(), body),
        }
        with sock:
            try:
                answer, data = _exchange(parts, sock, body, headers, deadline)
            except (OSError, ValueError, http.client.HTTPException) as error:
                return failure(delivery, f"no answer: {_reason(error)}")
        return _outcome(delivery, answer, data)

    def _parts(self, url: str) -> SplitResult:
        if len(url) > URL_CHARACTERS or not (url.isascii() and url.isprintable()) or " " in url:
            raise ValueError(f"a URL has at most {URL_CHARACTERS} characters, ASCII, none of them a space")
        parts = urlsplit(url)
        self._check_scheme(parts)
        if parts.fragment:
            raise ValueError("a URL for deliveries has no fragment")
        if parts.port == 0:  # reading the port raises ``ValueError`` if it is no number
            raise ValueError("port 0 is not a port")
        if _literal(parts) is None:
            _check_host(parts.hostname or "")
        return parts

    def _check_scheme(self, parts: SplitResult) -> None:
        """Raises ``ValueError`` unless the URL is one of https without a password."""
        if parts.scheme not in ({"https", "http"} if self._loopback else {"https"}) or not parts.hostname:
            raise ValueError(f"use an https:// URL with a host{self._advice if parts.scheme == 'http' else ''}")
        if parts.username is not None or parts.password is not None:
            raise ValueError("no user and password in a URL: check the signature of deliveries")

    def _connected(self, parts: SplitResult, deadline: float) -> socket.socket:
        """Checks all addresses of the host, and connects to one of them. Over TLS it returns only after the receiver
        has shown its certificate. Raises ``OSError`` and ``Forbidden``."""
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        addresses = [ip_address(text) for text in dict.fromkeys(self._resolve(host, port))]
        for address in addresses:
            self._allow(parts, address)
        # Tries several addresses, IPv4 first: this machine may be unable to reach those of one kind.
        tried = sorted(addresses, key=lambda address: address.version)[:_ADDRESSES]
        refused: Exception = Forbidden(f"{host} has no address")
        for address in tried:
            try:
                sock = socket.create_connection((str(address), port), min(CONNECT_SECONDS, _left(deadline)))
                return self._trusted(sock, host, deadline) if parts.scheme == "https" else sock
            except OSError as error:
                refused = error
        raise refused

    def _trusted(self, sock: socket.socket, host: str, deadline: float) -> ssl.SSLSocket:
        with sock:  # closes the socket if the handshake fails; a successful one detaches it
            sock.settimeout(_left(deadline))
            return self._tls.wrap_socket(sock, server_hostname=host)

    def _allow(self, parts: SplitResult, address: Address) -> None:
        plain = unmapped(address)
        if self._loopback and plain.is_loopback:
            return
        if parts.scheme != "https":
            raise Forbidden(f"plain http goes to this machine alone, not to {address}")
        if not public(plain):
            raise Forbidden(f"{address} is not a public address{self._advice if plain.is_loopback else ''}")


def resolved(host: str, port: int) -> list[str]:
    """Returns the addresses of a host name from the system's resolver. Raises ``OSError``."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]).partition("%")[0] for *_, address in entries]


def public(address: Address) -> bool:
    """Returns whether an address belongs to the public Internet. For an IPv6 address that stands for an IPv4 address,
    the IPv4 address counts."""
    address = unmapped(address)
    if isinstance(address, IPv6Address) and address in _TRANSLATED:
        address = IPv4Address(int(address) & 0xFFFFFFFF)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _PRIVATE)
    return address in _INTERNET and not any(address in network for network in _NOT_INTERNET)


def unmapped(address: Address) -> Address:
    """Returns the IPv4 address that an IPv6 address of the form ::ffff:a.b.c.d stands for; any other address
    unchanged."""
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _check_host(name: str) -> None:
    """Raises ``ValueError`` unless this could be the name of a host."""
    if not _NAME.fullmatch(name) or _NUMBER.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is no host: a name without a dot at its end, or an IP address")


def _literal(parts: SplitResult) -> Address | None:
    """Returns the host of the URL if it is an IP address, or None for a name. Raises ``ValueError`` for an address with
    a zone, and for brackets without an address."""
    host = parts.hostname or ""
    if ":" in host or "[" in parts.netloc:
        if "%" in host:
            raise ValueError("an address with a zone (%) belongs to a link of this machine: give a public address")
        return ip_address(host)
    try:
        return ip_address(host)
    except ValueError:
        return None


class _Timed(io.RawIOBase):
    """Reads a socket until a deadline. The time-out of the socket itself would start anew with every byte."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


class _Lines(io.BufferedReader):
    """Refuses a line without an end. ``http.client`` would take the end of the connection for that of the headers, and
    a part of an answer for the whole."""

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n") and len(line) != size:
            raise http.client.HTTPException("the connection ended early")
        return line


class _TimedAnswer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        super().__init__(sock, method="POST")
        self.fp.close()
        self.fp = _Lines(_Timed(sock, deadline))


def _exchange(
    parts: SplitResult, sock: socket.socket, body: bytes, headers: dict[str, str], deadline: float
) -> tuple[_TimedAnswer, bytes]:
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or _PORTS[parts.scheme])
    connection.default_port = _PORTS[parts.scheme]
    connection.sock = sock
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sock.settimeout(_left(deadline))
    with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
        # A receiver that refuses a body for its size may close the connection before the body is sent, after its
        # answer.
        connection.request("POST", path, body, headers)
    with _TimedAnswer(sock, deadline) as answer:
        answer.begin()
        if not 200 <= answer.status < 300:
            return answer, b""
        data = answer.read(ANSWER_BYTES + 1)
        if len(data) > ANSWER_BYTES:
            raise http.client.HTTPException(f"an answer of more than {ANSWER_BYTES} bytes")
        if answer.length:
            raise http.client.HTTPException("the connection ended early")
        return answer, data


def _outcome(delivery: PushDelivery, answer: _TimedAnswer, data: bytes) -> Outcome:
    status = answer.status
    if status in _BUSY:
        wait_seconds = _seconds(answer.headers.get("retry-after"))
        # 503 counts as an answer: a gateway before the target may answer so if a message makes the target crash.
        return unreached(f"status {status}", wait_seconds, answered=status == 503)
    if status == 413:
        return Outcome(too_large=True, error="status 413")
    if 300 <= status < 400:
        return failure(delivery, f"status {status}: redirects are not followed")
    if not 200 <= status < 300:
        return failure(delivery, f"status {status}")
    if data and answer.headers.get("content-encoding", "identity").lower() != "identity":
        return failure(delivery, "the answer is compressed, which was not asked for: it may name failures")
    return answered(delivery, data)


def _left(deadline: float) -> float:
    """Returns the seconds until the deadline. Raises ``TimeoutError`` if it has passed."""
    seconds = deadline - monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


def _seconds(text: str | None) -> float:
    try:
        seconds = float(text or 0)
    except ValueError:
        return 0.0  # a date: the pusher's own pauses are enough
    return min(max(seconds, 0.0), _LONGEST_WAIT_SECONDS) if seconds == seconds else 0.0


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    # A part of the text may come from the receiver, and a terminal would obey control characters in it.
    return "".join(character if character.isprintable() else " " for character in text)
