from fnmatch import fnmatchcase

from hourwheel.aws.services import ARCHIVE_PREFIX, LAKE_PREFIX
from hourwheel.model.last_runs import file_of
from infra.lake import ARCHIVE, LAKE, LAST_RUNS
from infra.permissions import (
    CALLS_PUSH,
    LAKE_ACTIONS,
    OBJECT_ACTIONS,
    ORDERS_WHEELS,
    TABLE_ACTIONS,
    TABLE_ACTIONS_WITH_QUOTA,
    TOGGLES_STREAM,
    WAKEUP_ACTIONS,
    lists,
)
from infra.tables import NAMES
from tests.infra.synthesis import ACCOUNT, REGION, Synthesis, listed

# The only resources of the policies that end with *.
BELOW = (
    "arn:aws:s3:::*/batches/*",
    "arn:aws:s3:::*/scheduled/*",
    "arn:aws:s3:::*/archive/*",
    "arn:aws:s3:::*/lake/*",
    "arn:aws:s3:::*/reports/*",
    "arn:aws:s3:::*/logs/*",
    f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/*/*",
    f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/*-consume/stream/*",
    f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders-*",  # from the setting push_targets
    f"arn:aws:sqs:{REGION}:{ACCOUNT}:hourwheel-wake-*_*",
)


def allowed(synthesis: Synthesis, function: str) -> set[tuple[str, str]]:
    """Returns each action on each resource that a function's role allows."""
    statements = synthesis.statements(synthesis.functions()[function]["Role"])
    assert all(statement["Effect"] == "Allow" for statement in statements)
    return {(action, resource) for found in statements for action in found["Action"] for resource in found["Resource"]}


def wanted(synthesis: Synthesis, function: str) -> set[tuple[str, str]]:
    """Returns the permissions in the tables of ``infra.permissions``, and those that every function of its kind
    needs."""
    queue = synthesis.failures
    (role,) = (key for key in synthesis.resources("IAM::Role") if "WheelCaller" in key)
    cell, aws = synthesis.cell, f"{REGION}:{ACCOUNT}"
    log = f"arn:aws:logs:{aws}:/aws/lambda/{cell}-{function}"
    found = {("logs:CreateLogStream", log), ("logs:PutLogEvents", log)}
    quota = TABLE_ACTIONS_WITH_QUOTA.get(function, {}) if synthesis.settings.get("max_subjects") else {}
    found |= {
        (f"dynamodb:{verb}", f"arn:aws:dynamodb:{aws}:table/{cell}-{table}")
        for table, verbs in (*TABLE_ACTIONS[function].items(), *quota.items())
        for verb in verbs
    }
    of_lake = LAKE_ACTIONS.get(function, {}) if "archive" in synthesis.functions() else {}
    for purpose, folders in (("Batches", OBJECT_ACTIONS[function]), ("Lake", of_lake)):
        (bucket,) = (key for key in synthesis.resources("S3::Bucket") if purpose in key)
        found |= {
            (f"s3:{verb}", f"arn:aws:s3:::{bucket}/{folder}*") for folder, verbs in folders.items() for verb in verbs
        }
        if lists(folders):
            found.add(("s3:ListBucket", f"arn:aws:s3:::{bucket}"))
    if function in ORDERS_WHEELS:
        found.add(("scheduler:CreateSchedule", f"arn:aws:scheduler:{aws}:schedule/{cell}/*"))
        found.add(("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{role}"))
        found.add(("lambda:InvokeFunction", f"arn:aws:lambda:{aws}:function:{cell}-wheel"))
    found |= of_calls(synthesis, function)
    if synthesis.settings.get("wake") != "false":
        queues = f"arn:aws:sqs:{aws}:hourwheel-wake-{cell}_*"
        found |= {(f"sqs:{verb}", queues) for verb in WAKEUP_ACTIONS.get(function, ())}
    if function in {"delayed", "sweep", "wheel", "push", "archive"}:
        found.add(("sqs:SendMessage", f"arn:aws:sqs:{aws}:{queue}"))
    for mapping in synthesis.resources("Lambda::EventSourceMapping"):
        if function == "delayed" if "Timers" in mapping else function in TOGGLES_STREAM:
            arn = f"arn:aws:lambda:{aws}:event-source-mapping:{mapping}"
            found |= {(f"lambda:{verb}EventSourceMapping", arn) for verb in ("Get", "Update")}
    if function == "push":
        consume = f"arn:aws:dynamodb:{aws}:table/{cell}-consume/stream"
        found |= {
            (f"dynamodb:{verb}", f"{consume}/label") for verb in ("DescribeStream", "GetRecords", "GetShardIterator")
        }
        found.add(("dynamodb:ListStreams", f"{consume}/*"))
    return found | of_timers(synthesis, function) | synthesis.key_uses()


def of_calls(synthesis: Synthesis, function: str) -> set[tuple[str, str]]:
    """Returns the permissions to start other functions than the wheel."""
    called = ["sweep"] if function == "delayed" else []
    called += ["push"] if "push" in synthesis.functions() and function in CALLS_PUSH else []
    arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{synthesis.cell}-"
    return {("lambda:InvokeFunction", arn + name) for name in called}


def of_timers(synthesis: Synthesis, function: str) -> set[tuple[str, str]]:
    """Returns the permissions on the queue of precise timers, if there is one."""
    verbs = {"SendMessage"} if function in ORDERS_WHEELS else set()
    if function == "wheel":
        verbs |= {"DeleteMessage", "GetQueueAttributes", "ReceiveMessage"}
    queues = [key for key in synthesis.resources("SQS::Queue") if "Timers" in key]
    return {(f"sqs:{verb}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}") for queue in queues for verb in verbs}


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


def test_the_tables_of_permissions_name_what_there_is(everything: Synthesis) -> None:
    assert TABLE_ACTIONS.keys() == OBJECT_ACTIONS.keys() == everything.functions().keys()
    assert LAKE_ACTIONS.keys() <= TABLE_ACTIONS.keys()
    assert (ARCHIVE, LAKE) == (ARCHIVE_PREFIX, LAKE_PREFIX)
    assert f"{LAKE_PREFIX}{file_of('compact')}".startswith(LAST_RUNS)
    assert "PutObject" not in LAKE_ACTIONS["meta"][LAST_RUNS]
    assert not lists(LAKE_ACTIONS["meta"]), "the API lists no bucket of the lake"
    assert {table for tables in TABLE_ACTIONS.values() for table in tables} == set(NAMES)
    assert all(tables["counters"] for tables in TABLE_ACTIONS.values())
    for tables in TABLE_ACTIONS.values():
        for table, verbs in tables.items():
            items = {"BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query"}
            assert set(verbs) <= ({"BatchGetItem", "GetItem", "UpdateItem"} if table == "counters" else items), table


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
        services = ("lambda", "scheduler", "emr-serverless")
        assert statement["Principal"]["Service"] in {f"{service}.amazonaws.com" for service in services}


def test_a_function_passes_only_one_role_and_only_to_scheduler(each: Synthesis) -> None:
    for name, function in each.functions().items():
        if name not in ORDERS_WHEELS:
            continue
        (passing,) = (found for found in each.statements(function["Role"]) if found["Action"] == ["iam:PassRole"])
        assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}, name
        assert passing["Resource"] == [function["Environment"]["Variables"]["HOURWHEEL_TIMER_ROLE"]], name


def test_scheduler_starts_what_it_should_for_schedules_of_this_cell(each: Synthesis) -> None:
    started = set()
    group = f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule-group/{each.cell}"
    for key, found in each.resources("IAM::Role").items():
        (trust,) = each.resolved(found["Properties"])["AssumeRolePolicyDocument"]["Statement"]
        if trust["Principal"]["Service"] != "scheduler.amazonaws.com":
            continue
        assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": group}}
        first, *more = each.statements(key)
        if first["Action"] == ["lambda:InvokeFunction"]:
            assert not more
            started |= {resource.rpartition("-")[2] for resource in first["Resource"]}
        else:
            of_key = {action for action, _ in each.key_uses()}
            actions = {action for one in (first, *more) for action in one["Action"]}
            assert actions == {"emr-serverless:StartJobRun", "iam:PassRole", "sqs:SendMessage"} | of_key
            started.add("job")
    assert started == {"wheel", "delayed"} | ({"archive", "job"} if "archive" in each.functions() else set())
