from fnmatch import fnmatchcase

from infra.permissions import CALLS_PUSH, LISTS_BUCKET, OBJECT_ACTIONS, TABLE_ACTIONS
from infra.tables import NAMES
from tests.infra.synthesis import ACCOUNT, REGION, Synthesis, listed

# Resources that end with * in a policy of ours, and nothing else does.
BELOW = (
    "arn:aws:s3:::*/segments/*",
    "arn:aws:s3:::*/scheduled/*",
    f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/*/*",
    f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/*-consume/stream/*",
    f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders-*",  # set so, in push_targets
)


def allowed(synthesis: Synthesis, function: str) -> set[tuple[str, str]]:
    """Each action on each resource that a function's role allows."""
    statements = synthesis.statements(synthesis.functions()[function]["Role"])
    assert all(statement["Effect"] == "Allow" for statement in statements)
    return {(action, resource) for found in statements for action in found["Action"] for resource in found["Resource"]}


def wanted(synthesis: Synthesis, function: str) -> set[tuple[str, str]]:
    """What the tables of ``infra.permissions`` say, and what every function of its kind needs."""
    (bucket,) = (key for key in synthesis.resources("S3::Bucket") if "Segments" in key)
    (queue,) = synthesis.resources("SQS::Queue")
    (role,) = (key for key in synthesis.resources("IAM::Role") if "WheelCaller" in key)
    cell, aws = synthesis.cell, f"{REGION}:{ACCOUNT}"
    log = f"arn:aws:logs:{aws}:/aws/lambda/{cell}-{function}"
    found = {("logs:CreateLogStream", log), ("logs:PutLogEvents", log)}
    found |= {
        (f"dynamodb:{verb}", f"arn:aws:dynamodb:{aws}:table/{cell}-{table}")
        for table, verbs in TABLE_ACTIONS[function].items()
        for verb in verbs
    }
    found |= {
        (f"s3:{verb}", f"arn:aws:s3:::{bucket}/{folder}*")
        for folder, verbs in OBJECT_ACTIONS[function].items()
        for verb in verbs
    }
    if function in LISTS_BUCKET:
        found.add(("s3:ListBucket", f"arn:aws:s3:::{bucket}"))
    found.add(("scheduler:CreateSchedule", f"arn:aws:scheduler:{aws}:schedule/{cell}/*"))
    found.add(("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{role}"))
    found.add(("lambda:InvokeFunction", f"arn:aws:lambda:{aws}:function:{cell}-wheel"))
    if "push" in synthesis.functions() and function in CALLS_PUSH:
        found.add(("lambda:InvokeFunction", f"arn:aws:lambda:{aws}:function:{cell}-push"))
    if function in {"sweep", "wheel", "push"}:
        found.add(("sqs:SendMessage", f"arn:aws:sqs:{aws}:{queue}"))
    if function == "push":
        consume = f"arn:aws:dynamodb:{aws}:table/{cell}-consume/stream"
        found |= {
            (f"dynamodb:{verb}", f"{consume}/label") for verb in ("DescribeStream", "GetRecords", "GetShardIterator")
        }
        found.add(("dynamodb:ListStreams", f"{consume}/*"))
    return found


def test_each_function_may_do_what_the_table_says_and_nothing_else(each: Synthesis) -> None:
    for function in each.functions():
        targets = set()
        if function == "push" and "push_targets" in each.settings:
            targets = {
                ("lambda:InvokeFunction", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:ship"),
                ("sqs:SendMessage", f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders-*"),
                ("events:PutEvents", f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/shop"),
            }
        assert allowed(each, function) == wanted(each, function) | targets, function


def test_the_tables_of_permissions_name_what_there_is(defaults: Synthesis) -> None:
    assert TABLE_ACTIONS.keys() == OBJECT_ACTIONS.keys() == defaults.functions().keys()
    assert {table for tables in TABLE_ACTIONS.values() for table in tables} == set(NAMES)
    assert all(tables["counters"] for tables in TABLE_ACTIONS.values())
    for tables in TABLE_ACTIONS.values():
        for table, verbs in tables.items():
            items = {"BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query"}
            assert set(verbs) <= ({"GetItem", "UpdateItem"} if table == "counters" else items), table


def test_no_policy_has_a_wildcard_but_below_a_folder_of_ours(each: Synthesis) -> None:
    for policy in each.properties("IAM::Policy"):
        for statement in policy["PolicyDocument"]["Statement"]:
            assert "NotAction" not in statement
            assert "NotResource" not in statement
            assert not any("*" in action for action in listed(statement["Action"])), policy["PolicyName"]
            wild = [resource for resource in listed(statement["Resource"]) if "*" in resource]
            for resource in wild:
                assert any(fnmatchcase(resource, pattern) for pattern in BELOW), resource
                assert resource.count("*") == 1, resource


def test_roles_have_no_policies_of_others_and_are_taken_by_one_service(each: Synthesis) -> None:
    for role in each.properties("IAM::Role"):
        assert "ManagedPolicyArns" not in role
        assert "Policies" not in role
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"]["Service"] in {"lambda.amazonaws.com", "scheduler.amazonaws.com"}


def test_a_function_passes_only_one_role_and_only_to_scheduler(each: Synthesis) -> None:
    for name, function in each.functions().items():
        (passing,) = (found for found in each.statements(function["Role"]) if found["Action"] == ["iam:PassRole"])
        assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}, name
        assert passing["Resource"] == [function["Environment"]["Variables"]["HOURWHEEL_TIMER_ROLE"]], name


def test_scheduler_starts_the_wheel_and_the_sweeper_for_schedules_of_this_cell(each: Synthesis) -> None:
    started = set()
    group = f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule-group/{each.cell}"
    for key, found in each.resources("IAM::Role").items():
        (trust,) = each.resolved(found["Properties"])["AssumeRolePolicyDocument"]["Statement"]
        if trust["Principal"]["Service"] != "scheduler.amazonaws.com":
            continue
        assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": group}}
        (statement,) = each.statements(key)
        assert statement["Action"] == ["lambda:InvokeFunction"]
        started |= {resource.rpartition("-")[2] for resource in statement["Resource"]}
    assert started == {"wheel", "sweep"}
