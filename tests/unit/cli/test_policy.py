import json

import pytest

from hourwheel.aws.policies import consumer_policy, producer_policy, url_policy
from tests.unit.cli.conftest import Shell

API = "arn:aws:execute-api:eu-west-1:111122223333:a1b2c3d4e5"
URL = "https://a1b2c3d4e5.execute-api.eu-west-1.amazonaws.com"


def test_a_policy_is_printed_to_be_read_or_passed_on(shell: Shell) -> None:
    printed = shell.ok("policy", "producer", "orders", "--api-arn", f"{API}/prod")
    assert json.loads(printed) == producer_policy(f"{API}/prod", "orders")
    assert '\n  "Version": "2012-10-17",\n' in printed
    assert shell.json("policy", "producer", "orders", "--api-arn", f"{API}/prod") == [json.loads(printed)]
    assert not shell.server.requests


def test_what_more_is_allowed(shell: Shell) -> None:
    arn = f"{API}/$default"
    delayed = shell.json("policy", "producer", "orders", "--api-arn", arn, "--delayed")
    assert delayed == [producer_policy(arn, "orders", delayed=True)]
    assert shell.json("policy", "consumer", "orders", "billing", "--api-arn", arn) == [
        consumer_policy(arn, "orders", "billing")
    ]
    key = "arn:aws:kms:eu-west-1:111122223333:key/abc"
    assert shell.json("policy", "consumer", "orders", "billing", "--api-arn", arn, "--key-arn", key) == [
        consumer_policy(arn, "orders", "billing", key_arn=key)
    ]
    function = "arn:aws:lambda:eu-west-1:111122223333:function:hourwheel-pull"
    urls = shell.json("policy", "urls", "--function-arn", function, "--group", "a/b", "--key-arn", key)
    assert urls == [url_policy([function], [("a", "b")], key_arn=key)]
    more = shell.json("policy", "consumer", "orders", "billing", "--api-arn", arn, "--dead-letters", "--seek")
    assert more == [consumer_policy(arn, "orders", "billing", dead_letters=True, seek=True)]


@pytest.mark.parametrize(
    ("url", "arn"),
    [
        (URL, f"{API}/$default"),
        (f"{URL}/", f"{API}/$default"),
        (f"{URL}/prod", f"{API}/prod"),
        (
            "https://a1.execute-api.cn-north-1.amazonaws.com.cn",
            "arn:aws-cn:execute-api:cn-north-1:111122223333:a1/$default",
        ),
        (
            "https://a1.execute-api.us-gov-west-1.amazonaws.com",
            "arn:aws-us-gov:execute-api:us-gov-west-1:111122223333:a1/$default",
        ),
    ],
)
def test_the_api_of_the_url(shell: Shell, url: str, arn: str) -> None:
    given = ["--url", url, "--account", "111122223333"]
    assert shell.json("policy", "producer", "orders", *given) == [producer_policy(arn, "orders")]
    assert shell.json("policy", "consumer", "orders", "billing", *given) == [consumer_policy(arn, "orders", "billing")]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "say which API"),
        (["--account", "111122223333"], "say which API"),
        (["--url", URL], "say which API"),
        (["--url", URL, "--account", "me"], "REGION:ACCOUNT:API/STAGE"),
        (["--url", f"{URL}/a/b", "--account", "111122223333"], "REGION:ACCOUNT:API/STAGE"),
        (["--api-arn", f"{API}/*"], "REGION:ACCOUNT:API/STAGE"),
    ],
)
def test_an_api_that_cannot_be_told(shell: Shell, args: list[str], says: str) -> None:
    for command in (["producer", "orders"], ["consumer", "orders", "billing"]):
        result = shell("policy", *command, *args)
        assert result.exit_code == 2
        assert says in result.stderr


def test_wildcards_are_no_names(shell: Shell) -> None:
    result = shell("policy", "producer", "orders*", "--api-arn", f"{API}/prod")
    assert result.exit_code == 1
    assert "subject must match" in result.stderr


PULL, META = (f"arn:aws:lambda:eu-west-1:111122223333:function:hourwheel-{name}" for name in ("pull", "meta"))


def test_functions_through_their_urls(shell: Shell) -> None:
    given = ["policy", "urls", "--function-arn", PULL, "--function-arn", META]
    assert shell.json(*given) == [url_policy([PULL, META])]
    groups = ["--group", "orders/billing", "--group", "paid/audit", "--cell", "flights"]
    assert shell.json(*given, *groups) == [
        url_policy([PULL, META], [("orders", "billing"), ("paid", "audit")], cell="flights")
    ]
    assert not shell.server.requests


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ([], 2, "--function-arn"),
        (["--function-arn", "hourwheel-meta"], 2, "the ARN of a function"),
        (["--function-arn", META, "--group", "orders"], 2, "SUBJECT/GROUP"),
        (["--function-arn", META, "--group", "orders/*"], 1, "group must match"),
        (["--function-arn", META, "--group", "orders/billing", "--cell", "A"], 2, "hourwheel:cell"),
    ],
)
def test_wrong_functions_and_groups(shell: Shell, args: list[str], code: int, says: str) -> None:
    result = shell("policy", "urls", *args)
    assert result.exit_code == code
    assert says in result.stderr
