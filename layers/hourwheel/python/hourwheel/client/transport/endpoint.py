"""Describes the server that a client talks to, and the errors of exchanges with it. Opens no connection."""

import http.client
import logging
import os
import ssl
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from hourwheel.client.errors import ClientError, Closed, ServerFault, ServerUnavailable, no_answer, problem_of

GRANT_HEADER = "x-hourwheel-token"
"""Holds the token of a request to a function URL, whose ``authorization`` header holds its signature. In an answer it
holds the next token, which replaces that of the request."""

REPEAT_HEADER = "x-hourwheel-repeat"
"""Says that the client has sent the request before: the server then looks for its idempotency key first."""

_TLS_ALERT = "\x15\x03"
"""The first bytes that a TLS server sends to a client that speaks plain HTTP: an alert (RFC 8446)."""


class Reply(NamedTuple):
    status: int
    retry_after: str | None
    date: str | None
    encoding: str | None
    kind: str | None
    body: bytes
    grant: str | None = None


class Endpoint:
    """The server at a URL. Raises ``ValueError`` for a URL that is not http or https or names no host, and for a
    ``ca_file`` without certificates."""

    def __init__(self, url: str, *, ca_file: str | os.PathLike[str] | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"the URL must begin with http:// or https:// and name a host, got {url!r}")
        self.prefix = parts.path.rstrip("/")
        self.host = parts.hostname
        self.port = parts.port
        self.security = _security(ca_file) if parts.scheme == "https" else None
        usual = 80 if self.security is None else 443
        self.connect_port = self.port or usual
        self._host = _host_field(self.host, None if self.port == usual else self.port)
        self.answered = False
        """Whether the server has answered before, so that the scheme of the URL is right."""

    def warn_of_clear_text(self) -> None:
        """Logs a warning, once for each host, where requests travel unencrypted to another machine."""
        if self.security is None and not is_loopback(self.host):
            _warn_of_clear_text(self.host)

    def encoded_request(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        """Returns a request in one piece, so that one call into the kernel sends it: for a head and a body that come
        one after the other the server would wake twice. Raises ``ValueError`` for a header that holds a line end."""
        lines = [f"{method} {target} HTTP/1.1", f"host: {self._host}"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        if body is not None or method != "GET":  # a request that could have a body says that it has none (RFC 9110)
            lines.append(f"content-length: {len(body or b'')}")
        head = "\r\n".join(lines)
        # A line end within a value would begin another header, or another request.
        if head.count("\n") + head.count("\r") != 2 * len(lines) - 2:
            raise ValueError("a header holds a line end: check that the token has none")
        return head.encode("latin-1") + b"\r\n\r\n" + (body or b"")

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> ServerFault:
        detail = (
            f"the certificate of {self.host} is not trusted ({error.verify_message}): "
            "give the certificate of its authority as ca_file, --ca-file or SSL_CERT_FILE"
        )
        return ServerFault(problem_of("certificate-untrusted", detail, title="certificate not trusted"))

    def failed(self, error: Exception, *, sent: bool, is_closed: bool) -> ClientError:
        """Returns the error of an exchange that failed. ``is_closed``: the caller has closed its connections."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._untrusted(error)
        if is_closed:
            return closed()
        return self._lost(error, sent=sent)

    def _lost(self, error: Exception, *, sent: bool) -> ServerUnavailable:
        """Returns the error of an exchange that brought no whole answer. ``sent``: the request may have reached the
        server."""
        verb = "did not answer" if sent else "cannot be reached"
        no_text = "timed out" if isinstance(error, TimeoutError) else type(error).__name__  # as those of asyncio
        reason = getattr(error, "strerror", None) or str(error) or no_text
        return no_answer(
            f"the server at {_host_field(self.host, self.port)} {verb}: {reason}{self._hint(error, sent)}", sent=sent
        )

    def _hint(self, error: Exception, sent: bool) -> str:
        """Returns advice if nothing listens at the URL, or if the first bytes of the answer suggest that its scheme is
        wrong; "" otherwise."""
        if isinstance(error, ConnectionRefusedError) and not sent:
            return " (is the server running, and is this its address?)"
        if isinstance(error, ssl.SSLError):
            return "; it may serve plain HTTP: then the URL begins with http://"
        broken = isinstance(error, http.client.BadStatusLine | ConnectionResetError | BrokenPipeError)
        if self.security is not None or not sent or not broken or self.answered:
            return ""
        if getattr(error, "line", "").startswith(_TLS_ALERT):
            return "; it serves HTTPS: the URL begins with https://"
        # A server that was stopped cuts connections as well.
        return "; if it serves HTTPS, the URL begins with https://"


def _host_field(host: str, port: int | None) -> str:
    """Returns the ``host`` header of a request, by which errors name the server too. ``port`` is None if it is the
    usual one of the scheme."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def closed() -> Closed:
    return Closed("the connection was closed")


def _security(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Returns the TLS context of all connections to a server: reading the certificates takes 10 ms or more.

    Raises ``ValueError`` if ``ca_file`` holds no certificates.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ValueError(f"{ca_file} holds no certificates in PEM: {error.strerror or error}") from error


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine, as its name or address tells without a look-up."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@cache
def _warn_of_clear_text(host: str) -> None:
    logging.getLogger("hourwheel.client").warning(
        "the token goes to %s over plain HTTP, where anybody on the way can read it: use an https URL", host
    )
