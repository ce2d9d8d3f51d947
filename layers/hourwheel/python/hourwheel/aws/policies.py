"""Builds IAM policies for services that use one subject, or one group of it, and nothing else.

    producer_policy("arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5/$default", "orders")

API Gateway asks IAM about ``{API}/{method}{path}``, and the wildcards of IAM match any character, also ``/``. So each
resource is one exact path, and a ``*`` stands only for an id behind all names of the path. The name of a wake-up queue
has a digest of subject and group, behind which a ``*`` stands.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hourwheel.api.routes import ROUTES, keys_of
from hourwheel.model.fields import check_name
from hourwheel.model.wakeup_names import group_prefix, queue_prefix

_API_ARN = re.compile(r"arn:aws[a-z-]*:execute-api:[a-z0-9-]+:\d{12}:[a-z0-9]+/(\$default|[A-Za-z0-9_-]+)", re.ASCII)
_CELL = re.compile(r"[a-z][a-z0-9-]{1,28}[a-z0-9]")  # as ``hourwheel:cell`` of a deployment
_FUNCTION_ARN = re.compile(r"arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:[A-Za-z0-9_-]+", re.ASCII)
_KEY_ARN = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+", re.ASCII)
_ID = re.compile(r"\{(id|dead_id)\}")  # not known when a policy is written; the last part of a path


def producer_policy(api_arn: str, subject: str, *, delayed: bool = False) -> dict[str, Any]:
    """Returns a policy that allows sending to the subject, at once or delayed. ``api_arn`` is
    ``arn:…:execute-api:{region}:{account}:{api}/{stage}``.

    ``delayed`` also allows counting and listing the delayed messages of the subject, and looking up, moving and
    cancelling one by its id. The path of the last three requests names no subject, so a caller may make them for
    delayed messages **of all subjects** whose ids it knows.

    Raises ``ValueError`` for another ARN, ``Rejected`` for an invalid name.
    """
    return _policy(api_arn, keys_of("produce") | (keys_of("delayed") if delayed else frozenset()), {"subject": subject})


def consumer_policy(
    api_arn: str,
    subject: str,
    group: str,
    *,
    cell: str = "hourwheel",
    key_arn: str | None = None,
    dead_letters: bool = False,
    seek: bool = False,
    pause: bool = False,
) -> dict[str, Any]:
    """Returns a policy that allows pulling and settling the messages of the group, reading its lag, and waiting at its
    wake-up queue in the deployment of this ``cell``. ``dead_letters`` allows listing, redriving and dropping its dead
    letters, and deciding about stopped keys; ``seek`` allows moving the group, ``pause`` pausing and resuming it.
    ``key_arn`` is the key of a deployment with ``hourwheel:customer_key``, under which wake-ups are encrypted.

    Raises ``ValueError`` for a wrong ``cell`` or ``key_arn``, otherwise as ``producer_policy`` does."""
    chosen = ((dead_letters, keys_of("dead letters")), (seek, keys_of("seek")), (pause, keys_of("pause")))
    keys = keys_of("consume").union(*(keys for enabled, keys in chosen if enabled))
    policy = _policy(api_arn, keys, {"subject": subject, "group": group})
    policy["Statement"] += _waiting(api_arn, [(subject, group)], cell, key_arn)
    return policy


def url_policy(
    function_arns: Sequence[str],
    groups: Sequence[tuple[str, str]] = (),
    *,
    cell: str = "hourwheel",
    key_arn: str | None = None,
) -> dict[str, Any]:
    """Returns a policy that allows calling these functions through their URLs. It allows no direct invocation, with
    which an identity could claim to be any caller. The token of a caller says which subjects and groups it may use. The
    caller may also wait at the wake-up queues of ``groups``, each a subject and a name without wildcards, in the
    deployment of this ``cell``; ``key_arn`` as for ``consumer_policy``.

    Raises ``ValueError`` if ``function_arns`` is empty or names anything but functions, and for an invalid ``cell`` or
    ``key_arn``.
    Raises ``Rejected`` for an invalid name."""
    if not function_arns:
        raise ValueError("no function is named: name at least one function")
    for arn in function_arns:
        if not _FUNCTION_ARN.fullmatch(arn):
            raise ValueError(f"the ARN of a function is arn:aws:lambda:REGION:ACCOUNT:function:NAME, got {arn[:200]!r}")
    url = {"StringEquals": {"lambda:FunctionUrlAuthType": "AWS_IAM"}}
    through_url = {"Bool": {"lambda:InvokedViaFunctionUrl": "true"}}
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": action, "Resource": list(function_arns), "Condition": condition}
        for action, condition in (("lambda:InvokeFunctionUrl", url), ("lambda:InvokeFunction", through_url))
    ]
    if groups:
        statements += _waiting(function_arns[0], groups, cell, key_arn)
    return {"Version": "2012-10-17", "Statement": statements}


def _waiting(arn: str, groups: Sequence[tuple[str, str]], cell: str, key_arn: str | None) -> Iterator[dict[str, Any]]:
    """Yields the statements that allow waiting at the wake-up queues of the groups, in the account and region of the
    ARN."""
    if not _CELL.fullmatch(cell):
        raise ValueError(f"the name of a deployment is hourwheel:cell of its settings, got {cell[:200]!r}")
    for subject, group in groups:
        check_name(subject, "subject")
        check_name(group, "group")
    _, partition, _, region, account, _ = arn.split(":", 5)
    # The ``*`` stands for the generation of a group, so that the policy also holds for a group that is created anew.
    queues = f"arn:{partition}:sqs:{region}:{account}:{queue_prefix(cell)}"
    resources = [f"{queues}{group_prefix(subject, group)}*" for subject, group in groups]
    yield {"Effect": "Allow", "Action": ["sqs:ChangeMessageVisibility", "sqs:ReceiveMessage"], "Resource": resources}
    if key_arn is None:
        return
    if not _KEY_ARN.fullmatch(key_arn):
        raise ValueError(f"the ARN of a key is arn:aws:kms:REGION:ACCOUNT:key/ID, got {key_arn[:200]!r}")
    # Only SQS may use the key for the consumer, and only for the queues above: the key encrypts all messages.
    host = f"sqs.{region}.amazonaws.com" + (".cn" if partition == "aws-cn" else "")
    through_sqs = {"StringEquals": {"kms:ViaService": host}}
    yield {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": key_arn, "Condition": through_sqs}


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
