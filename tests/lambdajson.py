"""Encodes events and decodes answers as the runtime of Lambda does: JSON with the body as text."""

import json
from typing import Any

MOST_EVENT_BYTES = 6_291_456
MOST_ANSWER_BYTES = 6_291_556


def as_lambda_encodes(document: Any) -> bytes:
    """Encodes as ``awslambdaric`` does from Python 3.12 on: characters beyond ASCII as they are, blanks after
    separators."""
    return json.dumps(document, ensure_ascii=False).encode()
