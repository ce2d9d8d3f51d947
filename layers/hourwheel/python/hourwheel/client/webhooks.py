"""Checks that a request comes from Hourwheel: for applications to which groups push over HTTPS.

The signatures are those of Standard Webhooks 1.0.0, so that other libraries check them too
(github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md).
"""

import hashlib
import hmac
import re
from base64 import b64decode
from collections.abc import Mapping

from hourwheel.errors import HourwheelError
from hourwheel.ports.machine import Clock
from hourwheel.system import SystemClock

__all__ = ["Unverified", "verify"]

_PREFIX = "whsec_"
_SECONDS = re.compile(r"\d{1,15}", re.ASCII)


class Unverified(HourwheelError):
    """Says that a request must not be trusted, and why. Answer it with 401 and do nothing else.

    Example:
        >>> str(webhooks.Unverified("the header webhook-id is missing"))
        'the header webhook-id is missing'
    """


def verify(
    secret: str,
    headers: Mapping[str, str],
    body: bytes | str,
    *,
    tolerance_seconds: int = 300,
    clock: Clock | None = None,
) -> None:
    """Checks that a request was signed with ``secret``, and was made within ``tolerance_seconds`` of now.

    ``secret`` is ``Api.push(subject, group).signing_secret``. ``body`` is the body as it arrived, before anything
    parses it; a text is encoded as UTF-8. A request that arrives twice passes twice: its ``webhook-id`` is the same.

    Raises:
        Unverified: a header is missing, no signature is right, or the request is too old, or too far in the future.
        ValueError: ``secret`` is not a signing secret.

    Example:
        >>> def receive(request, secret):
        ...     try:
        ...         webhooks.verify(secret, request.headers, request.body)
        ...     except webhooks.Unverified:
        ...         return 401
        ...     return 200
        >>> class Request:
        ...     headers, body = {"webhook-id": "7"}, b"{}"
        >>> receive(Request, "whsec_c2VjcmV0")
        401
    """
    key = _key(secret)
    lowered = {name.lower(): value for name, value in headers.items()}
    message_id, seconds, signatures = (_header(lowered, f"webhook-{name}") for name in ("id", "timestamp", "signature"))
    if not _SECONDS.fullmatch(seconds):
        raise Unverified("the header webhook-timestamp is not a time in Unix seconds")
    age_seconds = (clock or SystemClock()).now_ms() / 1_000 - int(seconds)
    if abs(age_seconds) > tolerance_seconds:
        side = "old" if age_seconds > 0 else "new"
        raise Unverified(f"the request is too {side}: webhook-timestamp is {abs(age_seconds):.0f} s from now")
    content = body.encode(errors="surrogatepass") if isinstance(body, str) else bytes(body)
    # A header may hold surrogates, which UTF-8 cannot encode; then no signature matches.
    expected = hmac.digest(key, f"{message_id}.{seconds}.".encode(errors="replace") + content, hashlib.sha256)
    if not any(hmac.compare_digest(expected, signature) for signature in _signatures(signatures)):
        raise Unverified(
            "no v1 signature of webhook-signature is right: it was made with another secret, or another body"
        )


def _key(secret: str) -> bytes:
    try:
        key = b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not key or not secret.startswith(_PREFIX):
        raise ValueError(f"a signing secret is {_PREFIX} and base64: use signing_secret of Api.push")
    return key


def _header(headers: dict[str, str], name: str) -> str:
    if not headers.get(name):
        raise Unverified(f"the header {name} is missing")
    return headers[name]


def _signatures(header: str) -> list[bytes]:
    """Returns the v1 signatures in the header. Skips other versions, and texts that are not base64."""
    signatures = []
    for entry in header.split(" "):
        version, _, text = entry.partition(",")
        if version == "v1":
            try:
                signatures.append(b64decode(text, validate=True))
            except ValueError:
                continue
    return signatures
