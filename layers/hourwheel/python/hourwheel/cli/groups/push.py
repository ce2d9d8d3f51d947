"""Parses the options for the push target of a group."""

import re
from typing import Annotated, Any

import typer

from hourwheel.client import NO_PUSH, PushTarget
from hourwheel.client.records.groups import NoPush

PushOption = Annotated[
    str | None,
    typer.Option(
        metavar="TARGET",
        help="Deliver the messages instead of having them pulled: https://…, the ARN of a function, queue or event "
        "bus, notify:ARN (tells an event bus that there are messages), python:NAME; none removes the target.",
    ),
]
# Plain HTTP is not refused here: a server may allow it for targets on its machine.
_KINDS: tuple[tuple[str, str, str], ...] = (
    (r"(https?://.+)", "https", "url"),
    (r"(arn:[^:]+:lambda:.+)", "lambda", "arn"),
    (r"(arn:[^:]+:sqs:.+)", "sqs", "arn"),
    (r"(arn:[^:]+:events:.+)", "eventbridge", "arn"),
    (r"notify:(arn:[^:]+:events:.+)", "notify", "arn"),
    (r"python:(.+)", "python", "name"),
)


def push_of(text: str | None, **settings: Any) -> PushTarget | NoPush | None:
    """Returns the target, ``NO_PUSH`` to remove that of the group, or None to keep it.

    Raises ``typer.BadParameter`` for settings without a target, because a new target replaces the former one as a
    whole.
    """
    if text is None or text == "none":
        if settings:
            raise typer.BadParameter("--push-… need --push TARGET: a target is set as a whole")
        return None if text is None else NO_PUSH
    for pattern, kind, field in _KINDS:
        match = re.fullmatch(pattern, text)
        if match is not None:
            return PushTarget(kind=kind, **{field: match[1]}, **settings)  # type: ignore[arg-type]  # mypy knows one type for all of **settings
    raise typer.BadParameter(
        f"{text!r} is no target: https://…, the ARN of a function, queue or event bus, notify:ARN, python:NAME, none"
    )
