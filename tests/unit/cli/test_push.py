import pytest

from tests.unit.cli.conftest import Shell

ARN = "arn:aws:{}:eu-west-1:111122223333:{}"
FUNCTION = ARN.format("lambda", "function:bill")
QUEUE = ARN.format("sqs", "orders")
BUS = ARN.format("events", "event-bus/default")


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("https://example.com/a?b=c", {"kind": "https", "url": "https://example.com/a?b=c"}),
        ("http://127.0.0.1:8000/a", {"kind": "https", "url": "http://127.0.0.1:8000/a"}),
        (FUNCTION, {"kind": "lambda", "arn": FUNCTION}),
        (QUEUE, {"kind": "sqs", "arn": QUEUE}),
        (QUEUE.replace("arn:aws", "arn:aws-cn"), {"kind": "sqs", "arn": QUEUE.replace("arn:aws", "arn:aws-cn")}),
        (BUS, {"kind": "eventbridge", "arn": BUS}),
        (f"notify:{BUS}", {"kind": "notify", "arn": BUS}),
        ("python:bill", {"kind": "python", "name": "bill"}),
        ("none", None),
    ],
)
def test_a_target_is_told_by_its_form(shell: Shell, target: str, sent: object) -> None:
    shell.ok("group", "create", "orders", "billing", "--push", target)
    assert shell.server.calls("put_group")[0].body == {"push": sent}


def test_the_settings_of_a_target(shell: Shell) -> None:
    settings = ["--push-batch", "50", "--push-concurrency", "4", "--push-timeout", "25", "--push-secret-version", "2"]
    [made] = shell.json("group", "create", "orders", "billing", "--push", "https://example.com", *settings)
    assert shell.server.calls("put_group")[0].body["push"] == made["push"]
    assert made["push"] == {
        "kind": "https",
        "url": "https://example.com",
        "batch": 50,
        "concurrency": 4,
        "timeout_seconds": 25,
        "secret_version": 2,
    }
    assert "push                      kind=https, url=https://example.com, batch=50" in shell.ok(
        "group", "show", "orders", "billing"
    )
    assert "https" in shell.ok("group", "list", "orders")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--push", "ftp://example.com"], "is no target"),
        (["--push", "arn:aws:sns:eu-west-1:111122223333:t"], "is no target"),
        (["--push", f"notify:{QUEUE}"], "is no target"),
        (["--push", "python:"], "is no target"),
        (["--push", ""], "is no target"),
        (["--push-batch", "5"], "set as a whole"),
        (["--push", "none", "--push-timeout", "5"], "set as a whole"),
        (["--push", FUNCTION, "--push-batch", "0"], "from 1 to 1,000"),
        (["--push", FUNCTION, "--push-concurrency", "21"], "from 1 to 20"),
        (["--push", FUNCTION, "--push-timeout", "301"], "from 1 to 300"),
        (["--push", FUNCTION, "--push-secret-version", "0"], "from 1 to 1,000,000"),
    ],
)
def test_what_is_no_target(shell: Shell, args: list[str], says: str) -> None:
    result = shell("group", "create", "orders", "billing", *args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not shell.server.requests


def test_how_the_delivery_goes(shell: Shell) -> None:
    shell.ok("group", "create", "orders", "billing", "--push", "https://example.com")
    shown = shell.ok("group", "push", "orders", "billing")
    for line in (
        "state           paused",
        "paused_until    2026-11-20 09:00:00Z",
        "failures        5",
        "last_error      answered 500",
        "signing_secret  whsec_c2VjcmV0",
    ):
        assert line in shown.splitlines()
    [status] = shell.json("group", "push", "orders", "billing")
    assert (status["state"], status["paused_until"]) == ("paused", "2026-11-20T09:00:00.000Z")
    shell.ok("group", "create", "orders", "billing", "--push", "none")
    assert shell("group", "push", "orders", "billing").exit_code == 1
