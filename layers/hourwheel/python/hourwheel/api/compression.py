"""Answers of functions packed by gzip, for clients that take it: on AWS each gigabyte that leaves is paid for.

A packed answer is bytes, which Lambda takes as base64: it is given where that is shorter than the answer as it was, so
that what could be answered still can. The embedded server does not pack: its clients are near.
"""

import re
from base64 import b64encode

from hourwheel import gzipped
from hourwheel.api.events import Event, Response

_WORTHWHILE_BYTES = 4_096
_ACCEPTED = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?P<weight>[01](?:\.\d{0,3})?)\s*)?(?:,|$)", re.IGNORECASE)


def packed(event: Event, response: Response) -> Response:
    """The response for the client that sent the event."""
    body: str = response.get("body") or ""
    if len(body) < _WORTHWHILE_BYTES or not _accepts(event):
        return response
    # In base64 four bytes stand for three.
    data = body.encode()
    short = gzipped.pack(data)
    if 4 * len(short) >= 3 * len(data):
        return response
    headers = {**response["headers"], "content-encoding": "gzip", "vary": "accept-encoding"}
    return {**response, "headers": headers, "body": b64encode(short).decode(), "isBase64Encoded": True}


def _accepts(event: Event) -> bool:
    named = _ACCEPTED.search(str((event.get("headers") or {}).get("accept-encoding", "")))
    return named is not None and float(named["weight"] or 1) > 0
