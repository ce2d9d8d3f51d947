"""Signatures of deliveries over HTTPS, as Standard Webhooks has them (github.com/standard-webhooks/standard-webhooks).

    webhook-id           names the delivery; the same when the same messages come again
    webhook-timestamp    Unix seconds
    webhook-signature    "v1," and base64 of HMAC-SHA-256 over {id}.{timestamp}.{body}; one for each secret, with
                         spaces between them

A group's secret is derived from the cell's, so that nothing is stored and nothing leaks with a record.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode

from hourwheel.model import Group

_PREFIX = "whsec_"


def group_secret(cell_secret: bytes, group: Group, version: int) -> str:
    """What receivers check a group's deliveries with; another one for each version."""
    text = f"push {group.subject}~{group.subject_generation}/{group.member}/{version}"
    return _PREFIX + b64encode(hmac.digest(cell_secret, text.encode(), hashlib.sha256)).decode()


def secrets_of(cell_secret: bytes, group: Group) -> tuple[str, ...]:
    """The secrets that sign: the current one and, until the receivers know that, the one before."""
    if group.push is None or group.push.kind != "https":
        return ()
    version = group.push.secret_version
    return tuple(group_secret(cell_secret, group, each) for each in range(version, max(version - 2, 0), -1))


def signed_headers(secrets: tuple[str, ...], delivery_id: str, now_ms: int, body: bytes) -> dict[str, str]:
    seconds = str(now_ms // 1_000)
    content = f"{delivery_id}.{seconds}.".encode() + body
    signatures = (
        b64encode(hmac.digest(b64decode(secret.removeprefix(_PREFIX)), content, hashlib.sha256)).decode()
        for secret in secrets
    )
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
