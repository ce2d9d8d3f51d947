"""The functions do what their roles allow, and their roles allow what they do."""

from collections import Counter
from collections.abc import Iterator

from . import rare
from .policies import Call, Grant, grants
from .recorded import calls_of
from .system import System
from .template import ACCOUNT, CELL, REGION

BY_LAMBDA = {
    "logs:CreateLogStream": "Lambda writes the log",
    "logs:PutLogEvents": "Lambda writes the log",
    "sqs:SendMessage": "Lambda sends what came to nothing to the queue of failures",
    "dynamodb:DescribeStream": "Lambda reads the stream",
    "dynamodb:GetRecords": "Lambda reads the stream",
    "dynamodb:GetShardIterator": "Lambda reads the stream",
    "dynamodb:ListStreams": "Lambda reads the stream",
    "sqs:DeleteMessage": "Lambda reads the queue of timers",
    "sqs:GetQueueAttributes": "Lambda reads the queue of timers",
    "sqs:ReceiveMessage": "Lambda reads the queue of timers",
}
"""Calls that AWS makes under a function's role, not its code."""

NOT_MET = {
    ("produce", "dynamodb:GetItem", "table/flights-schedule"): "a numbered batch of delayed messages that is repeated"
    " after ten minutes: the message would stay in its bucket beyond the job",
    ("sweep", "sqs:DeleteQueue", "hourwheel-wake-flights_*"): "the wake-up queue of a consumer of a broadcast group who"
    " stayed away: tests/unit/groups has it, and the job has no broadcast group",
    ("wheel", "dynamodb:GetItem", "table/flights-consume"): "a row that a former owner had put and that was trimmed"
    " since: it takes an owner that was cut off amid a hand-over, and a successor after the retention",
    ("wheel", "dynamodb:GetItem", "table/flights-schedule"): "a row that an eventually consistent read has missed:"
    " ministack's reads miss nothing",
}
"""The reason why the steps of the job do not make the call, by function, action and the end of the resource."""

SOMETIMES = {
    **{
        (
            function,
            f"dynamodb:{verb}",
            f"table/flights-{table}",
        ): "an ordered group, or one with a limit: tests/infra asks each function for what it calls then"
        for function, verb, table in (
            *(("pull", "BatchGetItem", "consume"), ("pull", "BatchGetItem", "pull"), ("ack", "GetItem", "pull")),
            *(("push", "BatchGetItem", "consume"), ("push", "BatchGetItem", "pull")),
            *(("meta", "BatchGetItem", "pull"), ("sweep", "BatchGetItem", "pull"), ("pull", "Query", "meta")),
        )
    },
    ("push", "dynamodb:DeleteItem", "table/flights-meta"): "the record of a group that has lost its target, where"
    " somebody was started for it at that moment",
    ("pull", "dynamodb:DeleteItem", "table/flights-meta"): "the record of the pushes to a former group, where push has"
    " not removed it first",
}
"""Calls that only some runs of the job make, with the reason."""


def calls(system: System) -> Iterator[Call]:
    """Returns the calls of all functions in the whole job."""
    for step in rare.STEPS:
        system.once(step)
    for entry in system.entries():
        if "function" in entry:
            yield from calls_of(entry)


def granted(system: System) -> dict[str, list[Grant]]:
    return {function: grants(system.template, role) for function, role in system.roles.items()}


def test_each_call_is_allowed(system: System) -> None:
    allowed = granted(system)
    made = Counter(calls(system))
    assert {call.function for call in made} == set(allowed)
    refused = [call for call in made if not any(grant.allows(call) for grant in allowed[call.function])]
    assert refused == []


def test_what_is_allowed_is_used(system: System) -> None:
    """Or a reason is given. Calls that a step makes only where a function is slow may come in any run."""
    made = set(calls(system))
    all_allowed, unused = set(), set()
    for function, allowed in granted(system).items():
        calls_made = [call for call in made if call.function == function]
        for grant in allowed:
            which = (function, grant.action, grant.resource.partition(f":{ACCOUNT}:")[2] or grant.resource)
            all_allowed.add(which)
            if not any(map(grant.allows, calls_made)) and not _by_lambda(grant.action, which[2]):
                unused.add(which)
    explained = {*SOMETIMES, *NOT_MET}
    assert unused - explained == set()
    assert explained - all_allowed == set(), "a reason for what is not allowed any more"


def _by_lambda(action: str, resource: str) -> bool:
    return action in BY_LAMBDA and (action != "sqs:SendMessage" or "Failures" in resource)


def test_scheduler_may_start_what_it_is_told_to(system: System) -> None:
    """A service can get only the roles that functions and template pass to it."""
    role_arns = {call.resource for call in calls(system) if call.action == "iam:PassRole"}
    targets = [schedule["Target"] for _, schedule in system.template.of_type("Scheduler::Schedule")]
    started = {"wheel": role_arns}
    for function in ("delayed", "archive"):
        started[function] = {target["RoleArn"] for target in targets if target["Arn"].endswith(f"-{function}")}
    for function, (role,) in started.items():
        (grant,) = grants(system.template, role.rpartition("/")[2])
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{CELL}-{function}"
        assert (grant.action, grant.resource) == ("lambda:InvokeFunction", arn)
