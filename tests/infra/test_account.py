"""``make deploy`` chooses settings that fit the account."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import NoCredentialsError
from botocore.stub import Stubber

from hourwheel.adapters.aws.clients import make_client
from infra import account
from infra.account import ANSWER_SECONDS, UNRESERVED, Account, check_tables, chosen, options
from infra.functions import RESERVED
from infra.settings import Settings, Wrong, operator_context

ROOT = Path(__file__).parents[2]


def lambda_with(limit: int, unreserved: int, reserved: dict[str, int] | None = None) -> Any:
    """Returns a client of Lambda for one request. ``reserved``: by function; None before the first deployment."""
    client = make_client("lambda", Config(), region="eu-west-1", endpoint_url="http://127.0.0.1:9")
    stub = Stubber(client)
    limits = {"ConcurrentExecutions": limit, "UnreservedConcurrentExecutions": unreserved}
    stub.add_response("get_account_settings", {"AccountLimit": limits})
    for name in ("pull", *RESERVED):
        if reserved is None:
            stub.add_client_error("get_function_concurrency", "ResourceNotFoundException")
        else:
            answer = {"ReservedConcurrentExecutions": reserved[name]} if name in reserved else {}
            stub.add_response("get_function_concurrency", answer, {"FunctionName": f"hourwheel-{name}"})
    stub.activate()
    return client


def held_by_pulls(settings: Settings) -> float:
    """Returns the most executions that any number of consumers can occupy."""
    if settings.pull_concurrency:
        return settings.pull_concurrency
    assert settings.pull_rate is not None
    assert settings.pull_burst is not None
    return settings.pull_burst + settings.pull_rate * (settings.max_wait_seconds + ANSWER_SECONDS)


@pytest.mark.parametrize("limit", [10, 11, 50, 100, 119, 120, 150, 200, 1_000, 10_000])
def test_consumers_that_wait_leave_half_of_the_executions_to_producers(limit: int) -> None:
    settings = Settings(**chosen(Account(limit=limit, unreserved=limit)))
    assert held_by_pulls(settings) <= limit / 2
    assert settings.pull_concurrency <= max(0, limit - UNRESERVED)
    assert settings.lambda_concurrency == limit


def test_where_others_have_reserved_much_pulls_get_what_is_left() -> None:
    assert chosen(Account(limit=1_000, unreserved=300))["pull_concurrency"] == 200
    assert "pull_concurrency" not in chosen(Account(limit=1_000, unreserved=110))


def test_a_new_account_gets_pulls_that_do_not_wait_and_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    text, why = options(lambda_with(10, 10), {})
    assert text == (
        "-c hourwheel:lambda_concurrency=10 -c hourwheel:max_wait_seconds=0"
        " -c hourwheel:pull_burst=2 -c hourwheel:pull_rate=15"
    )
    assert "10 Lambda executions at once, too few to reserve any" in why


def test_what_an_earlier_deployment_reserved_is_not_taken_twice() -> None:
    first, _ = options(lambda_with(1_000, 1_000), {})
    again, why = options(lambda_with(1_000, 500, {"pull": 500}), {})
    assert first == again == "-c hourwheel:lambda_concurrency=1000 -c hourwheel:pull_concurrency=500"
    assert "500 of them are reserved for pull" in why


def test_what_is_set_stays_as_it_is_set() -> None:
    text, why = options(lambda_with(1_000, 1_000), {"hourwheel:pull_concurrency": "7"})
    assert text == "-c hourwheel:lambda_concurrency=1000"
    assert "7 of them are reserved" in why


def test_what_lambda_would_refuse_ends_the_deployment_before_it_begins() -> None:
    for context in ({"hourwheel:pull_concurrency": "5"}, {"hourwheel:reserve_concurrency": "true"}):
        with pytest.raises(Wrong, match=r"can reserve 0 of its 10: Lambda keeps 100 free"):
            options(lambda_with(10, 10), context)


def tables_with(writes: int, reads: int) -> Any:
    """Returns a client of DynamoDB for one request."""
    client = make_client("dynamodb", Config(), region="eu-west-1", endpoint_url="http://127.0.0.1:9")
    stub = Stubber(client)
    stub.add_response("describe_limits", {"TableMaxWriteCapacityUnits": writes, "TableMaxReadCapacityUnits": reads})
    stub.activate()
    return client


@pytest.mark.parametrize(("name", "most"), [("warm_write_units", 40_000), ("warm_read_units", 60_000)])
def test_more_warm_units_than_a_table_may_have_end_the_deployment_before_it_begins(name: str, most: int) -> None:
    assert check_tables(lambda: tables_with(40_000, 60_000), {f"hourwheel:{name}": str(most)}) == ""
    with pytest.raises(Wrong, match=rf"^hourwheel:{name} is {most + 1:,}, .* has {most:,} units a second at most"):
        check_tables(lambda: tables_with(40_000, 60_000), {f"hourwheel:{name}": str(most + 1)})


def test_without_warm_units_nothing_is_asked_and_an_unknown_quota_is_said() -> None:
    def refused() -> Any:
        raise NoCredentialsError

    assert check_tables(refused, {}) == ""
    assert "quota of tables is not known" in check_tables(refused, {"hourwheel:warm_read_units": "20000"})


def test_functions_on_an_old_python_are_refused_unless_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "layers_runtime", lambda: "3.11")
    with pytest.raises(Wrong, match=r"^the layers are for Python 3\.11, .* hourwheel:runtime=3\.11$"):
        options(lambda_with(1_000, 1_000), {})
    options(lambda_with(1_000, 1_000), {"hourwheel:runtime": "3.11"})


def test_settings_come_from_the_file_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "cdk.context.json"
    file.write_text(json.dumps({"hourwheel:cell": "orders", "hourwheel:pull_rate": 3}))
    read = operator_context(["-c", "hourwheel:pull_rate=5", "--quiet", "--context=hourwheel:shards=2"], file)
    assert read == {"hourwheel:cell": "orders", "hourwheel:pull_rate": "5", "hourwheel:shards": "2"}
    assert operator_context([], tmp_path / "none.json") == {}


def test_without_credentials_it_says_so_and_leaves_the_rest_to_the_deployment(tmp_path: Path) -> None:
    variables = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
    nobody = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path), "AWS_REGION": "eu-west-1"}
    ended = subprocess.run(
        [sys.executable, "-m", "infra.account"], cwd=ROOT, env=variables | nobody, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "")
    assert "the account's Lambda limit is not known, so pulls get no share of it" in ended.stderr
