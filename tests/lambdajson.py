"""Events and answers as the runtime of Lambda takes and gives them: JSON, whose body is text."""

import json
from typing import Any

MOST_EVENT_BYTES = 6_291_456
MOST_ANSWER_BYTES = 6_291_556


def as_lambda_encodes(document: Any) -> bytes:
    """As ``awslambdaric`` does from Python 3.12 on: characters beyond ASCII as they are, blanks after separators."""
    return json.dumps(document, ensure_ascii=False).encode()
