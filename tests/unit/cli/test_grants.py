"""The commands of tokens, against functions behind URLs of their own."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
from typer.testing import CliRunner, Result

from hourwheel.cli.app import app
from hourwheel.client.transport import signing
from tests.function_urls import ACCOUNT, OPERATOR_SESSION, SERVICE_SESSION, UrlDeployment, serving
from tests.support import Bench
from tests.unit.cli.conftest import Shell

Run = Callable[..., Result]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs ``hourwheel`` as an operator, or as the service ``shop``."""
    monkeypatch.setattr(signing, "LAMBDA_URL", re.compile(r"127\.0\.0\.1(?P<region>)"))

    def hourwheel(*args: str, key: str = "AKIAOPS", token: str | None = None) -> Result:
        environment = {
            "HOURWHEEL_URL": url,
            "AWS_DEFAULT_REGION": "eu-west-1",
            "HOURWHEEL_TOKEN": token,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "COLUMNS": "200",
            "TERM": "dumb",
        }
        return CliRunner().invoke(app, args, env=environment)

    with serving(UrlDeployment(bench.deployment), {"AKIASHOP": SERVICE_SESSION, "AKIAOPS": OPERATOR_SESSION}) as urls:
        url = urls["meta"]
        yield hourwheel


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_token_sends_and_pulls_what_it_names_until_its_time_is_over(run: Run, bench: Bench) -> None:
    ok(run("group", "create", "orders", "billing"))
    command = ["grant", "create", "--produce", "orders", "--produce", "paid-*", "--pull", "orders/billing"]
    token = json.loads(ok(run(*command, "--for", "90m", "--json")))["token"]
    for subject, code in (("orders", 0), ("paid-now", 0), ("other", 1)):
        assert run("produce", subject, "one", key="AKIASHOP", token=token).exit_code == code
    assert "the token does not allow" in run("produce", "other", "one", key="AKIASHOP", token=token).stderr
    assert json.loads(ok(run("lag", "orders", "billing", "--json", key="AKIASHOP", token=token)))["waiting"] == 1
    bench.clock.pass_time(5_399)
    ok(run("produce", "orders", "two", key="AKIASHOP", token=token))
    bench.clock.pass_time(1)
    assert "the token has expired" in run("produce", "orders", "x", key="AKIASHOP", token=token).stderr


def test_a_token_may_be_of_one_role(run: Run) -> None:
    create = ["grant", "create", "--produce", "orders", "--json", "--caller"]
    for role, code in (("shop", 0), ("other", 1)):
        token = json.loads(ok(run(*create, f"{ACCOUNT}:role/{role}")))["token"]
        sent = run("produce", "orders", "one", key="AKIASHOP", token=token)
        assert sent.exit_code == code, sent.output
        assert ("another role or user" in sent.stderr) == (role == "other")


def test_the_fields_of_a_token_are_printed(run: Run) -> None:
    create = ["grant", "create", "--produce", "orders", "--for", "1d", "--renew-for", "2d"]
    grant = json.loads(ok(run(*create, "--json")))
    assert grant.keys() == {"token", "expires_at", "renewable_until"}
    expires, until = (datetime.fromisoformat(grant[name]) for name in ("expires_at", "renewable_until"))
    assert until - expires == timedelta(days=1)
    fields = [line.split(None, 1) for line in ok(run(*create)).splitlines()]
    assert fields == [
        ["token", grant["token"]],
        ["expires_at", f"{expires:%Y-%m-%d %H:%M:%S}Z"],
        ["renewable_until", f"{until:%Y-%m-%d %H:%M:%S}Z"],
    ]


def test_delayed_messages_need_the_option(run: Run) -> None:
    sent = json.loads(ok(run("produce", "orders", "later", "--delay", "1h", "--json")))
    for options, code in (([], 1), (["--delayed"], 0)):
        token = json.loads(ok(run("grant", "create", "--produce", "orders", *options, "--json")))["token"]
        looked = run("scheduled", "show", sent["scheduled_id"], key="AKIASHOP", token=token)
        assert looked.exit_code == code, looked.output


def test_a_rotation_keeps_tokens_and_a_revocation_ends_them(run: Run, bench: Bench) -> None:
    token = json.loads(ok(run("grant", "create", "--produce", "orders", "--json")))["token"]
    assert ok(run("grant", "rotate")) == "tokens are now signed with key 2\n"
    bench.clock.pass_time(60)
    ok(run("produce", "orders", "one", key="AKIASHOP", token=token))
    assert json.loads(ok(run("grant", "rotate", "--revoke", "--json"))) == {"version": 3}
    bench.clock.pass_time(60)
    assert "revoked" in run("produce", "orders", "two", key="AKIASHOP", token=token).stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--for", "12"], 2, "such as 12h"),
        (["--for", "1.5h"], 2, "such as 12h"),
        (["--for", "12h", "--renew-for", "-1d"], 2, "such as 12h"),
        (["--for", "8d"], 1, "604800"),
        (["--produce", "a b"], 1, "produce"),
        (["--pull", "orders"], 1, "pull"),
    ],
)
def test_wrong_grants_are_refused(run: Run, args: list[str], code: int, says: str) -> None:
    result = run("grant", "create", "--produce", "orders", *args)
    assert result.exit_code == code, result.output
    assert says in result.stderr


def test_only_operators_create_tokens_and_rotate_keys(run: Run) -> None:
    token = json.loads(ok(run("grant", "create", "--produce", "*", "--pull", "*/*", "--delayed", "--json")))["token"]
    for command in (["grant", "create", "--produce", "orders"], ["grant", "rotate"]):
        refused = run(*command, key="AKIASHOP", token=token)
        assert refused.exit_code == 1
        assert "the token does not allow" in refused.stderr


@pytest.mark.parametrize("command", [("create", "--produce", "orders"), ("rotate",)])
def test_a_server_without_function_urls_is_said_to_have_no_grants(shell: Shell, command: tuple[str, ...]) -> None:
    result = shell("grant", *command)
    assert result.exit_code == 1
    assert result.stderr == (
        "hourwheel: the server has no grants: they are tokens of function URLs on AWS. A server on one machine takes"
        " the tokens of its --token or --token-file\n"
    )
