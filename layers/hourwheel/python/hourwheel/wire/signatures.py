"""Signs deliveries over HTTPS as Standard Webhooks specifies (github.com/standard-webhooks/standard-webhooks).

    webhook-id           names the delivery; another delivery of the same messages has the same id
    webhook-timestamp    Unix seconds
    webhook-signature    "v1," and base64 of HMAC-SHA-256 over {id}.{timestamp}.{body}; one signature
                         for each secret, separated by spaces

A group's secret is derived from the deployment's secret: no record contains one that could leak.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode

from hourwheel.model.groups import Group

_PREFIX = "whsec_"


def group_secret(deployment_secret: bytes, group: Group, version: int) -> str:
    """Returns the secret with which receivers verify a group's deliveries. Each version has another secret."""
    text = f"push {group.subject}~{group.subject_generation}/{group.member}/{version}"
    return _PREFIX + b64encode(hmac.digest(deployment_secret, text.encode(), hashlib.sha256)).decode()


def secrets_of(deployment_secret: bytes, group: Group) -> tuple[str, ...]:
    """Returns the secrets that sign the group's deliveries: the current one and the one before, which receivers know
    that have not changed yet. Empty for a group without an HTTPS target."""
    if group.push is None or group.push.kind != "https":
        return ()
    version = group.push.secret_version
    return tuple(group_secret(deployment_secret, group, number) for number in range(version, max(version - 2, 0), -1))


def signed_headers(secrets: tuple[str, ...], delivery_id: str, now_ms: int, body: bytes) -> dict[str, str]:
    """Returns the headers that sign the body of a delivery with each of the secrets."""
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
