"""Implements AWS Signature Version 4 as its documents describe it, to check the requests that arrive at a server. It
shares nothing with the code that signs."""

import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import quote


class Authorization(NamedTuple):
    key_id: str
    scope: str
    signed: list[str]
    signature: str


def parsed(header: str) -> Authorization:
    algorithm, _, rest = header.partition(" ")
    assert algorithm == "AWS4-HMAC-SHA256"
    fields = dict(field.strip().split("=", 1) for field in rest.split(","))
    key_id, _, scope = fields["Credential"].partition("/")
    return Authorization(key_id, scope, fields["SignedHeaders"].split(";"), fields["Signature"])


def signature(
    secret: str, scope: str, method: str, target: str, headers: dict[str, str], signed: list[str], body: bytes
) -> str:
    """Returns the signature of a received request: its raw target, its headers by lower-case names, and its body."""
    path, _, query = target.partition("?")
    pairs = sorted(pair if "=" in pair else f"{pair}=" for pair in query.split("&") if pair)
    canonical = [method, quote(path, safe="/-_.~"), "&".join(pairs)]
    canonical += [f"{name}:{' '.join(headers[name].split())}" for name in signed]
    canonical += ["", ";".join(signed), hashlib.sha256(body).hexdigest()]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    return hmac.digest(key, text.encode(), hashlib.sha256).hex()
