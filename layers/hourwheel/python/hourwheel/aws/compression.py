"""Compresses answers with gzip for clients that accept it: AWS charges for each gigabyte that leaves.

Lambda takes a compressed answer as base64. An answer is compressed only where its base64 is shorter than the plain
answer, so that no answer outgrows Lambda's limit by compression. The embedded server does not compress, because its
clients are near.
"""

import re
from base64 import b64encode

from hourwheel.api.events import Event, Response
from hourwheel.wire import gzipped

_WORTHWHILE_BYTES = 4_096  # below, compression saves too little traffic
_ACCEPTED = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?P<weight>[01](?:\.\d{0,3})?)\s*)?(?:,|$)", re.IGNORECASE)


def compressed(event: Event, response: Response) -> Response:
    """Returns the response as Lambda takes it: bytes as base64, and compressed where the client accepts gzip and the
    response becomes shorter."""
    body: str | bytes = response.get("body") or ""
    plain = (
        response if isinstance(body, str) else {**response, "body": b64encode(body).decode(), "isBase64Encoded": True}
    )
    if len(body) < _WORTHWHILE_BYTES or not _accepts(event):
        return plain
    data = body.encode() if isinstance(body, str) else body
    gzip = gzipped.pack(data)
    # Base64 encodes three bytes as four. A body of bytes becomes base64 with or without compression, a text only with.
    if 4 * len(gzip) >= (3 if isinstance(body, str) else 4) * len(data):
        return plain
    headers = {**response["headers"], "content-encoding": "gzip", "vary": "accept-encoding"}
    return {**response, "headers": headers, "body": b64encode(gzip).decode(), "isBase64Encoded": True}


def _accepts(event: Event) -> bool:
    coding = _ACCEPTED.search(str((event.get("headers") or {}).get("accept-encoding", "")))
    return coding is not None and float(coding["weight"] or 1) > 0
