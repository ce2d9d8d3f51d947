import functools
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hourwheel.api.routes import ROUTES, HttpRoute, keys_of
from hourwheel.aws.policies import consumer_policy, producer_policy, url_policy
from hourwheel.errors import Rejected
from hourwheel.model.groups import Group
from hourwheel.model.wakeup_names import queue_name, queue_prefix

API = "arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5/$default"
WAITING = ["sqs:ChangeMessageVisibility", "sqs:ReceiveMessage"]
PRODUCE, DELAYED, CONSUME = keys_of("produce"), keys_of("delayed"), keys_of("consume")
DEAD_LETTERS, SEEK, PAUSE = keys_of("dead letters"), keys_of("seek"), keys_of("pause")
ALL = PRODUCE | DELAYED | CONSUME | DEAD_LETTERS | SEEK | PAUSE
OPERATORS = {
    "POST /v1/messages",  # many subjects in one request: no path can say which
    "GET /v1/health",
    "GET /v1/openapi.json",
    "GET /v1/attention",
    "GET /v1/overview",
    "GET /v1/subjects/{subject}/history",
    "GET /v1/scheduled",
    "GET /v1/delayed",
    "GET /v1/wheels",
    "GET /v1/archive",
    "GET /v1/subjects/{subject}/overview",
    "GET /v1/subjects",
    "GET /v1/subjects/{subject}",
    "PUT /v1/subjects/{subject}",
    "DELETE /v1/subjects/{subject}",
    "POST /v1/subjects/{subject}/pause",
    "POST /v1/subjects/{subject}/resume",
    "GET /v1/subjects/{subject}/groups",
    "GET /v1/subjects/{subject}/dead",
    "GET /v1/subjects/{subject}/queues/{queue}/messages",
    "GET /v1/subjects/{subject}/messages/{id}",
    "POST /v1/subjects/{subject}/queues",
    "POST /v1/subjects/{subject}/queues/{queue}/move",
    "POST /v1/subjects/{subject}/spread",
    "GET /v1/routes/{subject}",
    "DELETE /v1/routes/{subject}/pending",
    "GET /v1/cells",
    "GET /v1/cells/{cell}",
    "PUT /v1/cells/{cell}",
    "DELETE /v1/cells/{cell}",
    "POST /v1/cells/{cell}/drain",
    "GET /v1/subjects/{subject}/groups/{group}",
    "PUT /v1/subjects/{subject}/groups/{group}",
    "DELETE /v1/subjects/{subject}/groups/{group}",
    "GET /v1/subjects/{subject}/groups/{group}/consumers",
    "GET /v1/subjects/{subject}/groups/{group}/leases",
    "GET /v1/subjects/{subject}/groups/{group}/retries",
    "POST /v1/subjects/{subject}/groups/{group}/retries",
    "POST /v1/subjects/{subject}/groups/{group}/consumers/{consumer}/leave",
    "GET /v1/subjects/{subject}/groups/{group}/push",  # tells the signing secret
}

# Short names of few characters are often equal, prefixes of each other, or different in one place; others are random.
NAMES = (st.text("aA.-_1", min_size=1, max_size=3) | st.from_regex(r"\A[A-Za-z0-9._-]{1,100}\Z")).filter(
    lambda name: name not in {".", ".."}
)
IDS = st.text(min_size=1, max_size=12)


def allows(policy: dict[str, Any], request: str) -> bool:
    """Decides as IAM does: "*" is any text and "?" any character, slashes too; case counts."""
    statement, *queues = policy["Statement"]
    assert all(found["Action"] == WAITING for found in queues)
    assert (policy["Version"], statement["Effect"], statement["Action"]) == (
        "2012-10-17",
        "Allow",
        "execute-api:Invoke",
    )
    return any(_expression(resource).fullmatch(request) for resource in statement["Resource"])


@functools.cache
def _expression(resource: str) -> re.Pattern[str]:
    parts = ({"*": ".*", "?": "."}.get(character) or re.escape(character) for character in resource)
    return re.compile("".join(parts), re.DOTALL)


def request(route: HttpRoute, path: str) -> str:
    return f"{API}/{route.method}{path}"


def path(route: HttpRoute, subject: str, group: str, some_id: str = "12-0") -> str:
    return route.template.format(
        subject=subject, group=group, id=some_id, dead_id=some_id, queue="0", cell="fast", consumer="c"
    )


@st.composite
def spelled(draw: st.DrawFn, name: str) -> str:
    """Returns the name with some of its characters percent-encoded."""
    return "".join(draw(st.sampled_from([each, f"%{ord(each):02X}", f"%{ord(each):02x}"])) for each in name)


def everything(subject: str, group: str) -> dict[str, Any]:
    return consumer_policy(API, subject, group, dead_letters=True, seek=True, pause=True)


KEY = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def test_a_consumer_decrypts_wakeups_under_a_key_of_the_customer_and_nothing_else() -> None:
    functions = ["arn:aws:lambda:eu-west-1:111122223333:function:hourwheel-pull"]
    for with_key, without in (
        (consumer_policy(API, "orders", "billing", key_arn=KEY), consumer_policy(API, "orders", "billing")),
        (
            url_policy(functions, [("orders", "billing")], key_arn=KEY),
            url_policy(functions, [("orders", "billing")]),
        ),
    ):
        *others, of_key = with_key["Statement"]
        assert others == without["Statement"]
        assert of_key == {
            "Effect": "Allow",
            "Action": "kms:Decrypt",
            "Resource": KEY,
            "Condition": {"StringEquals": {"kms:ViaService": "sqs.eu-west-1.amazonaws.com"}},
        }
    assert url_policy(functions, key_arn=KEY) == url_policy(functions), "it waits at no queue"


@pytest.mark.parametrize("arn", ["", "*", "alias/orders", f"{KEY} ", KEY.replace("key/", "alias/"), f"{KEY}*"])
def test_only_the_arn_of_a_key_is_taken(arn: str) -> None:
    with pytest.raises(ValueError, match="REGION:ACCOUNT:key/ID"):
        consumer_policy(API, "orders", "billing", key_arn=arn)


def test_every_route_is_granted_or_left_to_operators() -> None:
    keys = {route.key for route in ROUTES}
    assert keys >= ALL
    assert keys - ALL <= OPERATORS


@settings(deadline=None)  # the machine may be busy
@given(subject=NAMES, group=NAMES, some_id=IDS)
def test_a_policy_allows_what_it_is_for_and_nothing_else(subject: str, group: str, some_id: str) -> None:
    granted = [
        (producer_policy(API, subject), PRODUCE),
        (producer_policy(API, subject, delayed=True), PRODUCE | DELAYED),
        (consumer_policy(API, subject, group), CONSUME),
        (consumer_policy(API, subject, group, dead_letters=True), CONSUME | DEAD_LETTERS),
        (consumer_policy(API, subject, group, seek=True), CONSUME | SEEK),
        (consumer_policy(API, subject, group, pause=True), CONSUME | PAUSE),
        (everything(subject, group), CONSUME | DEAD_LETTERS | SEEK | PAUSE),
    ]
    for policy, keys in granted:
        for route in ROUTES:
            enabled = route.key in keys
            assert allows(policy, request(route, path(route, subject, group, some_id))) == enabled, route.key


@settings(deadline=None)  # the machine may be busy
@given(subject=NAMES, other=NAMES, group=NAMES, some_id=IDS, data=st.data())
def test_no_policy_reaches_another_subject(
    subject: str, other: str, group: str, some_id: str, data: st.DataObject
) -> None:
    assume(subject != other)
    text = data.draw(spelled(other))
    policies = [
        producer_policy(API, subject),
        producer_policy(API, subject, delayed=True),
        everything(subject, group),
        everything(subject, other),
    ]
    for route in ROUTES:
        if "{subject}" in route.template:
            for own in (group, subject, other):
                asked = path(route, text, own, some_id)
                decoded = path(route, unquote(text), own, some_id)
                for policy in policies:
                    assert not allows(policy, request(route, asked))
                    assert not allows(policy, request(route, decoded))


@settings(deadline=None)  # the machine may be busy
@given(subject=NAMES, group=NAMES, other=NAMES, some_id=IDS, data=st.data())
def test_no_policy_reaches_another_group(
    subject: str, group: str, other: str, some_id: str, data: st.DataObject
) -> None:
    assume(group != other)
    text = data.draw(spelled(other))
    for route in ROUTES:
        if "{group}" in route.template:
            for policy in (everything(subject, group), producer_policy(API, subject, delayed=True)):
                assert not allows(policy, request(route, path(route, subject, text, some_id)))
                assert not allows(policy, request(route, path(route, subject, unquote(text), some_id)))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("a", "a.b"), ("a.b", "a"), ("a", "a-b"), ("a", "ab"), ("a.b", "a-b"), ("orders", "Orders"), ("a", "messages")],
)
def test_names_that_look_alike(mine: str, theirs: str) -> None:
    for route in ROUTES:
        if "{subject}" in route.template:
            assert not allows(everything(mine, "g"), request(route, path(route, theirs, "g")))
            assert not allows(producer_policy(API, mine), request(route, path(route, theirs, "g")))
        if "{group}" in route.template:
            assert not allows(everything("s", mine), request(route, path(route, "s", theirs)))


def test_wildcards_stand_behind_all_names() -> None:
    for policy in (everything("a", "g"), producer_policy(API, "a", delayed=True)):
        for resource in policy["Statement"][0]["Resource"]:
            assert re.fullmatch(re.escape(API) + r"/[A-Z]+/v1(/[A-Za-z]+)+(/\*)?", resource)


@settings(deadline=None)  # the machine may be busy
@given(subject=NAMES, group=NAMES, other=NAMES, again=st.integers(1, 3))
def test_a_consumer_receives_from_the_queues_of_its_group_and_no_other(
    subject: str, group: str, other: str, again: int
) -> None:
    def queue(subject: str, group: str, cell: str = "flights") -> str:
        record = Group(
            subject=subject,
            subject_generation=again,
            name=group,
            generation=again,
            start="earliest",
            max_attempts=1,
            created_ms=0,
        )
        return f"arn:aws:sqs:eu-west-1:111122223333:{queue_prefix(cell)}{queue_name(record)}"

    _, statement = consumer_policy(API, subject, group, cell="flights")["Statement"]
    (resource,) = statement["Resource"]
    assert _expression(resource).fullmatch(queue(subject, group))
    assert len(queue(subject, group, "x" * 30).rpartition(":")[2]) <= 80
    assert not _expression(resource).fullmatch(queue(subject, group, "flights-2"))
    if other != group:
        assert not _expression(resource).fullmatch(queue(subject, other))
    if other != subject:
        assert not _expression(resource).fullmatch(queue(other, group))


@pytest.mark.parametrize("cell", ["", "*", "Flights", "a_b", "x" * 31])
def test_what_is_no_name_of_a_deployment_is_refused(cell: str) -> None:
    with pytest.raises(ValueError, match="hourwheel:cell"):
        consumer_policy(API, "orders", "billing", cell=cell)


def test_a_policy_as_it_is_written() -> None:
    assert producer_policy(API, "orders") == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "execute-api:Invoke",
                "Resource": [f"{API}/POST/v1/subjects/orders/messages"],
            }
        ],
    }


@pytest.mark.parametrize(
    "name", ["", ".", "..", "*", "a*", "a?", "a/b", "${aws:username}", "a b", "ä", "a" * 101, "a\n"]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(Rejected, match="must match"):
        producer_policy(API, name)
    with pytest.raises(Rejected, match="must match"):
        consumer_policy(API, "orders", name)


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "*",
        "arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5",
        "arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5/",
        "arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5/prod/",
        "arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5/*",
        "arn:aws:execute-api:eu-west-1:111122223333:*/prod",
        "arn:aws:execute-api:*:111122223333:a1b2c3d4e5/prod",
        "arn:aws:execute-api:eu-west-1:*:a1b2c3d4e5/prod",
        "arn:aws:s3:eu-west-1:111122223333:a1b2c3d4e5/prod",
        "arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5/prod\n",
    ],
)
def test_what_is_no_api_is_refused(arn: str) -> None:
    with pytest.raises(ValueError, match="execute-api:REGION:ACCOUNT:API/STAGE"):
        producer_policy(arn, "orders")


def test_the_policy_of_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "iam.md").read_text(encoding="utf-8")
    shown = page.partition("```json\n")[2].partition("```")[0]
    assert json.loads(shown) == consumer_policy(API, "orders", "billing")


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws-cn:execute-api:cn-north-1:111122223333:a1b2c3d4e5/prod",
        "arn:aws-us-gov:execute-api:us-gov-west-1:111122223333:a1b2c3d4e5/v2_x-y",
    ],
)
def test_any_partition_and_stage(arn: str) -> None:
    assert producer_policy(arn, "orders")["Statement"][0]["Resource"] == [f"{arn}/POST/v1/subjects/orders/messages"]


PRODUCE_ARN = "arn:aws:lambda:eu-west-1:111122223333:function:hourwheel-produce"
META_ARN = "arn:aws:lambda:eu-west-1:111122223333:function:hourwheel-meta"


def test_functions_may_be_invoked_through_their_urls_and_in_no_other_way() -> None:
    assert url_policy([PRODUCE_ARN, META_ARN]) == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "lambda:InvokeFunctionUrl",
                "Resource": [PRODUCE_ARN, META_ARN],
                "Condition": {"StringEquals": {"lambda:FunctionUrlAuthType": "AWS_IAM"}},
            },
            {
                "Effect": "Allow",
                "Action": "lambda:InvokeFunction",
                "Resource": [PRODUCE_ARN, META_ARN],
                "Condition": {"Bool": {"lambda:InvokedViaFunctionUrl": "true"}},
            },
        ],
    }


@settings(deadline=None)  # the machine may be busy
@given(groups=st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3))
def test_a_caller_of_urls_waits_at_the_queues_that_the_policies_of_consumers_name(
    groups: list[tuple[str, str]],
) -> None:
    *_, waiting = url_policy([META_ARN, PRODUCE_ARN], groups, cell="flights")["Statement"]
    assert (waiting["Effect"], waiting["Action"]) == ("Allow", WAITING)
    assert "Condition" not in waiting
    assert waiting["Resource"] == [
        resource
        for subject, group in groups
        for resource in consumer_policy(API, subject, group, cell="flights")["Statement"][1]["Resource"]
    ]


def test_the_queues_are_in_the_partition_and_account_of_the_functions() -> None:
    arn = "arn:aws-cn:lambda:cn-north-1:444455556666:function:hourwheel-pull"
    (resource,) = url_policy([arn], [("orders", "billing")])["Statement"][2]["Resource"]
    assert resource.startswith("arn:aws-cn:sqs:cn-north-1:444455556666:hourwheel-wake-hourwheel_")


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "*",
        "arn:aws:lambda:eu-west-1:111122223333:function:*",
        "arn:aws:lambda:eu-west-1:111122223333:function:",
        "arn:aws:lambda:*:111122223333:function:hourwheel-meta",
        "arn:aws:lambda:eu-west-1:*:function:hourwheel-meta",
        f"{META_ARN}:1",
        f"{META_ARN}\n",
        API,
    ],
)
def test_what_is_no_function_is_refused(arn: str) -> None:
    with pytest.raises(ValueError, match="ARN of a function"):
        url_policy([PRODUCE_ARN, arn])


def test_a_policy_names_a_function_and_exact_groups() -> None:
    with pytest.raises(ValueError, match="at least one function"):
        url_policy([], [("orders", "billing")])
    for group in (("orders", "*"), ("o*", "billing"), ("orders", ""), ("orders", "a/b")):
        with pytest.raises(Rejected, match="must match"):
            url_policy([META_ARN], [group])
    with pytest.raises(ValueError, match="hourwheel:cell"):
        url_policy([META_ARN], [("orders", "billing")], cell="*")
