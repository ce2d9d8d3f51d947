"""Builds IAM policies for services that use one subject, or one group of it, and nothing else.

    producer_policy("arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5/$default", "orders")

API Gateway asks IAM about ``{API}/{method}{path}``, and IAM's ``*`` and ``?`` match any character, also ``/``. So each
resource is one exact path; a wildcard stands only behind a ``/`` that follows all names.
"""

import re
from typing import Any

from hourwheel.api.routes import ROUTES
from hourwheel.model.fields import check_name

PRODUCE = frozenset({"POST /v1/subjects/{subject}/messages"})
DELAYED = frozenset(
    {
        "GET /v1/subjects/{subject}/scheduled",
        "GET /v1/scheduled/{id}",
        "PATCH /v1/scheduled/{id}",
        "DELETE /v1/scheduled/{id}",
    }
)
CONSUME = frozenset(
    {
        "POST /v1/subjects/{subject}/groups/{group}/pull",
        "POST /v1/subjects/{subject}/groups/{group}/ack",
        "GET /v1/subjects/{subject}/groups/{group}/lag",
    }
)
SEEK = frozenset({"POST /v1/subjects/{subject}/groups/{group}/seek"})
PAUSE = frozenset(
    {
        "POST /v1/subjects/{subject}/groups/{group}/pause",
        "POST /v1/subjects/{subject}/groups/{group}/resume",
    }
)
DEAD_LETTERS = frozenset(
    {
        "POST /v1/subjects/{subject}/groups/{group}/held",
        "GET /v1/subjects/{subject}/groups/{group}/dead",
        "DELETE /v1/subjects/{subject}/groups/{group}/dead",
        "POST /v1/subjects/{subject}/groups/{group}/dead/redrive",
        "GET /v1/subjects/{subject}/groups/{group}/dead/{dead_id}",
    }
)

_API_ARN = re.compile(r"arn:aws[a-z-]*:execute-api:[a-z0-9-]+:\d{12}:[a-z0-9]+/(\$default|[A-Za-z0-9_-]+)", re.ASCII)
_ID = re.compile(r"\{(id|dead_id)\}")


def producer_policy(api_arn: str, subject: str, *, delayed: bool = False) -> dict[str, Any]:
    """Returns a policy that allows to send to the subject, at once or delayed. ``api_arn`` is
    ``arn:…:execute-api:{region}:{account}:{api}/{stage}``.

    ``delayed`` allows to look up, move and cancel delayed messages as well. The path of these requests names no
    subject, so the permission covers the delayed messages **of all subjects**, for callers that know their ids.

    Raises ``ValueError`` for another ARN, ``Rejected`` for an invalid name.
    """
    return _policy(api_arn, PRODUCE | (DELAYED if delayed else frozenset()), {"subject": subject})


def consumer_policy(
    api_arn: str, subject: str, group: str, *, dead_letters: bool = False, seek: bool = False, pause: bool = False
) -> dict[str, Any]:
    """Returns a policy that allows to pull and settle the messages of the group, and to read its lag. ``dead_letters``
    allows to list, redrive and drop its dead letters, and to decide about stopped keys; ``seek`` allows to move the
    group, ``pause`` to pause and resume it. Raises ``ValueError`` and ``Rejected`` as ``producer_policy`` does."""
    chosen = ((dead_letters, DEAD_LETTERS), (seek, SEEK), (pause, PAUSE))
    keys = CONSUME.union(*(keys for enabled, keys in chosen if enabled))
    return _policy(api_arn, keys, {"subject": subject, "group": group})


def _policy(api_arn: str, keys: frozenset[str], names: dict[str, str]) -> dict[str, Any]:
    if not _API_ARN.fullmatch(api_arn):
        raise ValueError(f"the ARN of an API is arn:aws:execute-api:REGION:ACCOUNT:API/STAGE, got {api_arn[:200]!r}")
    for field, name in names.items():
        check_name(name, field)
    resources = [
        f"{api_arn}/{route.method}{_ID.sub('*', route.template).format(**names)}"
        for route in ROUTES
        if route.key in keys
    ]
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resources}],
    }
