import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hourwheel import __version__
from hourwheel.cli.app import hoist
from hourwheel.embedded.options import ServeOptions
from tests.unit.cli.conftest import Shell
from tests.unit.client.broker_records import RETRY
from tests.unit.client.fake import TOKEN


def bury(shell: Shell, *bodies: str) -> list[str]:
    """Puts messages into the dead letters; their ids."""
    shell.ok("produce", "orders", *bodies)
    with shell.server.broker.changed:
        broker = shell.server.broker
        [pull] = broker.pull("orders", "billing", {})["pulls"]
        broker.settle("orders", "billing", {"settle": [{"receipt": pull["receipt"], "dead": list(range(len(bodies)))}]})
        return [letter["dead_id"] for letter in broker.group("orders", "billing").dead]


def test_subjects(shell: Shell) -> None:
    assert "queues             2" in shell.ok("subject", "create", "orders", "--queues", "2")
    assert shell.json("subject", "create", "orders", "--retention", "60")[0]["retention_seconds"] == 60
    assert shell.json("subject", "show", "orders")[0]["queues"] == 2
    assert shell.json("subject", "create", "orders", "--clamp-delays")[0]["clamp_delays"]
    assert shell.json("subject", "create", "orders", "--queues", "3")[0]["clamp_delays"]
    assert not shell.json("subject", "create", "orders", "--no-clamp-delays")[0]["clamp_delays"]
    shell.ok("subject", "create", "returns")
    assert [subject["subject"] for subject in shell.json("subject", "list")] == ["orders", "returns"]
    assert "returns" in shell.ok("subject", "list")
    assert shell.ok("subject", "delete", "returns", "--yes") == "deleted returns\n"
    assert shell.json("subject", "delete", "orders", "-y") == []
    assert shell.json("subject", "list") == []
    assert shell.ok("subject", "list") == "none\n"


def test_a_read_only_subject(shell: Shell) -> None:
    assert shell.json("subject", "create", "orders", "--read-only")[0]["read_only"]
    refused = shell("produce", "orders", "a")
    assert (refused.exit_code, "read-only" in refused.stderr) == (1, True)
    assert shell.json("subject", "create", "orders", "--queues", "2")[0]["read_only"]
    assert not shell.json("subject", "create", "orders", "--no-read-only")[0]["read_only"]
    shell.ok("produce", "orders", "a")


def test_a_detail_of_dead_letters_needs_a_reason(shell: Shell) -> None:
    bury(shell, "a")
    refused = shell("dead", "redrive", "orders", "billing", "--all", "--detail", "no price")
    assert (refused.exit_code, "--detail needs --reason" in refused.stderr) == (2, True)
    assert len(shell.json("dead", "list", "orders", "billing")) == 1


def test_peeks(shell: Shell) -> None:
    shell.ok("produce", "orders", "a", "b", "c")
    assert [each["body"] for each in shell.json("subject", "peek", "orders")] == ["a", "b", "c"]
    assert [each["offset"] for each in shell.json("subject", "peek", "orders", "--newest", "--limit", "2")] == [2, 1]
    assert [each["body"] for each in shell.json("subject", "peek", "orders", "--offset", "1")] == ["b", "c"]
    assert "produced at" in shell.ok("subject", "peek", "orders")
    shell.ok("subject", "peek", "orders", "--time", "2026-11-20T10:00:00+01:00")
    assert "time=2026-11-20T09%3A00%3A00.000Z" in shell.server.calls("peek")[-1].target
    assert shell("subject", "peek", "orders", "--offset", "1", "--time", "2026-11-20T10:00:00Z").exit_code == 2
    shell.ok("produce", "orders", *("x" for _ in range(200)))
    assert len(shell.json("subject", "peek", "orders", "--limit", "150")) == 150


def test_traces(shell: Shell) -> None:
    with shell.server.broker.changed:
        shell.server.broker.produce("orders", {"messages": [{"body": "a", "id": "mine"}]})
    shell.ok("group", "create", "orders", "billing")
    shell.ok("group", "create", "orders", "mail")
    shown = shell.ok("message", "show", "orders", "0:0")
    assert shown.startswith("mine at 0:0: accepted")
    assert "group billing: waiting" in shown
    assert [
        each["group"] for each in shell.json("message", "show", "orders", "0:0", "--group", "mail")[0]["groups"]
    ] == ["mail"]
    (found,) = shell.json("message", "find", "orders", "mine", "--from", "2026-11-20T10:00:00+01:00")
    assert found["offset"] == 0
    assert "from=2026-11-20T09%3A00%3A00.000Z" in shell.server.calls("trace")[-1].target
    unknown = shell("message", "show", "orders", "0:1")
    assert unknown.exit_code == 1
    assert "hourwheel pipeline run trace --data DIRECTORY --subject orders --message 0:1" in unknown.stderr


def test_groups(shell: Shell) -> None:
    shell.ok("produce", "orders", "a", "b")
    shell.ok("group", "create", "orders", "billing", "--start", "latest", "--max-attempts", "3")
    assert shell.json("group", "show", "orders", "billing")[0]["max_attempts"] == 3
    assert [group["group"] for group in shell.json("group", "list", "orders")] == ["billing"]
    assert "billing" in shell.ok("group", "list", "orders")
    assert shell.json("group", "seek", "orders", "billing", "--to", "end") == [[{"queue": 0, "offset": 2}]]
    assert shell.json("group", "seek", "orders", "billing", "--queue", "0", "--offset", "1") == [
        [{"queue": 0, "offset": 1}]
    ]
    assert "0" in shell.ok("group", "seek", "orders", "billing", "--time", "2026-11-20T10:00:00+01:00")
    assert shell.server.calls("seek")[-1].body == {"time": "2026-11-20T09:00:00.000Z"}
    assert shell.ok("group", "delete", "orders", "billing", "--yes") == "deleted billing of orders\n"


def test_limits_of_a_group(shell: Shell) -> None:
    limits = ("--max-in-flight", "10", "--messages-per-second", "2.5")
    (made,) = shell.json("group", "create", "orders", "billing", *limits)
    assert (made["max_in_flight"], made["messages_per_second"]) == (10, 2.5)
    (changed,) = shell.json("group", "create", "orders", "billing", "--max-in-flight", "0")
    assert (changed["max_in_flight"], changed["messages_per_second"]) == (0, 2.5)
    assert shell.server.calls("put_group")[-1].body == {"max_in_flight": 0}


def test_pauses(shell: Shell) -> None:
    shell.ok("produce", "orders", "a")
    shell.ok("group", "create", "orders", "billing")
    assert shell.json("group", "pause", "orders", "billing")[0]["paused"]
    assert "limited by: paused" in shell.ok("lag", "orders", "billing")
    assert "True" in shell.ok("group", "list", "orders")
    assert not shell.json("group", "resume", "orders", "billing")[0]["paused"]
    assert shell.json("subject", "pause", "orders")[0]["paused"]
    assert shell.json("lag", "orders", "billing")[0]["limited_by"] == "subject_paused"
    assert not shell.json("subject", "resume", "orders")[0]["paused"]
    assert "limited" not in shell.ok("lag", "orders", "billing")
    assert shell("group", "pause", "orders", "mail").exit_code == 1


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        ([], {}),
        (["--retry-first", "1.5"], {"retry": {"first_seconds": 1.5}}),
        (
            ["--retry-first", "1", "--retry-factor", "3", "--retry-cap", "600"],
            {"retry": {"first_seconds": 1, "factor": 3, "cap_seconds": 600}},
        ),
        (["--retry-delays", "1,10,0.5"], {"retry": {"delays_seconds": [1, 10, 0.5]}}),
    ],
)
def test_retry_policies(shell: Shell, args: list[str], sent: dict[str, object]) -> None:
    assert shell.json("group", "create", "orders", "billing", *args)[0]["retry"] == sent.get("retry", RETRY)
    assert shell.server.calls("put_group")[0].body == sent


def test_a_retry_policy_is_shown(shell: Shell) -> None:
    shell.ok("group", "create", "orders", "billing", "--retry-first", "1", "--retry-factor", "2")
    assert "first_seconds=1.0, factor=2.0" in shell.ok("group", "show", "orders", "billing")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--retry-delays", "1,ten"], "1,10,60"),
        (["--retry-delays", ""], "1,10,60"),
        (["--retry-delays", "1", "--retry-cap", "5"], "stands alone"),
        (["--retry-first", "-1"], "from 0 to 2,592,000"),
        (["--retry-factor", "0.5"], "from 1 to 100"),
        (["--retry-cap", "2592001"], "from 0 to 2,592,000"),
    ],
)
def test_bad_retry_policies(shell: Shell, args: list[str], says: str) -> None:
    result = shell("group", "create", "orders", "billing", *args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not shell.server.requests


@pytest.mark.parametrize("args", [[], ["--to", "start", "--time", "2026-11-20"], ["--queue", "0"], ["--time", "noon"]])
def test_seek_needs_one_target(shell: Shell, args: list[str]) -> None:
    assert shell("group", "seek", "orders", "billing", *args).exit_code == 2


def test_dead_letters(shell: Shell) -> None:
    first, second, third = bury(shell, "a", "b", "c")
    assert [letter["body"] for letter in shell.json("dead", "list", "orders", "billing")] == ["a", "b", "c"]
    assert len(shell.json("dead", "list", "orders", "billing", "--limit", "2")) == 2
    assert "rejected" in shell.ok("dead", "list", "orders", "billing")
    assert shell.json("dead", "show", "orders", "billing", second)[0]["body"] == "b"
    shown = dict(line.split(maxsplit=1) for line in shell.ok("dead", "show", "orders", "billing", second).splitlines())
    assert (shown["body"], shown["reason"], "text" in shown) == ("b", "rejected", False)
    assert shell.ok("dead", "redrive", "orders", "billing", first) == "redriven 1\n"
    assert shell.json("dead", "drop", "orders", "billing", "--from", "2026-11-20T00:00:00Z", "--yes") == [
        {"dropped": 2}
    ]
    assert shell.server.calls("drop")[0].body == {"from": "2026-11-20T00:00:00.000Z"}
    assert shell.ok("dead", "redrive", "orders", "billing", "--all") == ("redriven 0: billing has no dead letters\n")
    assert third


def test_a_dead_letter_that_does_not_exist_is_an_error(shell: Shell) -> None:
    first, second = bury(shell, "a", "b")
    for command in (["redrive"], ["drop", "--yes"]):
        result = shell("dead", *command, "orders", "billing", "9-9")
        assert (result.exit_code, result.stderr) == (1, "hourwheel: there is no dead letter '9-9'\n")
    result = shell("dead", "redrive", "orders", "billing", first, "9-9", first, "--json")
    assert (result.exit_code, result.stdout) == (1, '{"redriven":1}\n')
    assert result.stderr == "hourwheel: 1 of the 2 dead letters does not exist; redriven 1\n"
    assert shell.ok("dead", "redrive", "orders", "billing", second, second) == "redriven 1\n"


@pytest.mark.parametrize(
    "time", ["2026-11-20", "2026-11-20T09:00:00", "2026-11-20T09:00Z", "2026-02-30T09:00:00Z", "noon"]
)
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["group", "seek", "orders", "billing", "--time"], "--time"),
        (["dead", "redrive", "orders", "billing", "--from"], "--from"),
        (["dead", "drop", "orders", "billing", "--yes", "--to"], "--to"),
        (["produce", "orders", "a", "--deliver-at"], "deliver_at"),
        (["scheduled", "move", "some", "--deliver-at"], "deliver_at"),
    ],
)
def test_a_time_without_a_zone_is_refused_by_every_command(
    shell: Shell, command: list[str], name: str, time: str
) -> None:
    result = shell(*command, time)
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert f"{name} must be an RFC 3339 time with seconds and a zone, such as 2026-11-20T09:00:00Z" in said
    assert "out of range" not in said
    assert not shell.server.requests


def test_orphans_of_a_deleted_subject(shell: Shell) -> None:
    accepted = shell.json("produce", "orders", "a", "b", "c", "--delay", "1h")
    shell.ok("subject", "delete", "orders", "--yes")
    for position in accepted:
        shell.server.broker.fall_due(position["scheduled_id"])
    orphans = shell.json("dead", "orphans", "orders", "--limit", "2")
    assert [(orphan["body"], orphan["due_at"]) for orphan in orphans] == [
        ("a", "2026-11-20T10:00:00.000Z"),
        ("b", "2026-11-20T10:00:00.000Z"),
    ]
    assert "2026-11-20 10:00:00Z" in shell.ok("dead", "orphans", "orders")
    assert shell.json("dead", "orphans", "returns") == []
    assert shell.ok("dead", "orphans", "returns") == "none\n"


@pytest.mark.parametrize("args", [[], ["1-0", "--all"], ["--all", "--to", "2026-11-20"]])
def test_dead_letters_are_chosen_in_one_way(shell: Shell, args: list[str]) -> None:
    assert shell("dead", "drop", "orders", "billing", *args, "--yes").exit_code == 2


def test_lag(shell: Shell) -> None:
    shell.ok("produce", "orders", "a", "b")
    shell.ok("group", "create", "orders", "billing")
    assert shell.json("lag", "orders", "billing")[0]["waiting"] == 2
    shell.server.broker.group("orders", "billing").backing_off.append((60, {}))
    assert "2 waiting, 0 in flight, 0 retrying, 1 backing off, 0 dead\n" in shell.ok("lag", "orders", "billing")
    shell.server.broker.group("orders", "billing").expired_unread = 7
    assert shell.json("lag", "orders", "billing")[0]["expired_unread"] == 7
    assert "1 backing off, 0 dead, 7 expired unread\n" in shell.ok("lag", "orders", "billing")


def test_lag_is_watched_until_something_goes_wrong(shell: Shell) -> None:
    shell.ok("group", "create", "orders", "billing")
    shell.server.fail("lag", before=lambda: None)
    shell.server.fail("lag", before=lambda: None)
    shell.server.fail("lag", status=507)
    result = shell("lag", "orders", "billing", "--watch", "--interval", "0.1")
    assert result.exit_code == 1
    assert result.stdout.count("0 waiting") == 2, "each count is written into a pipe"
    result = shell("lag", "orders", "gone", "--watch", "--json", "--interval", "0.1")
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "args",
    [["subject", "delete", "orders"], ["group", "delete", "orders", "g"], ["dead", "drop", "orders", "g", "--all"]],
)
def test_what_cannot_be_undone_needs_yes_where_nobody_can_answer(shell: Shell, args: list[str]) -> None:
    result = shell(*args)
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert not shell.server.requests


def test_refusals_are_one_line_and_exit_status_1(shell: Shell) -> None:
    result = shell("subject", "show", "orders")
    assert (result.exit_code, result.stderr) == (1, "hourwheel: there is no subject 'orders'\n")


def test_an_unreachable_server_is_one_line_and_exit_status_1(shell: Shell) -> None:
    result = shell("subject", "list", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    advice = "(is the server running, and is this its address?)"
    assert result.stderr == f"hourwheel: the server at 127.0.0.1:1 cannot be reached: Connection refused {advice}\n"


def test_all_groups_are_listed_however_many(shell: Shell) -> None:
    with shell.server.broker.changed:
        for number in range(250):
            shell.server.broker.put_group("orders", f"g{number:03}", {})
    assert [group["group"] for group in shell.json("group", "list", "orders")] == [f"g{n:03}" for n in range(250)]
    assert shell.json("subject", "show", "orders")[0]["more_groups"]


def test_wrong_usage_is_exit_status_2(shell: Shell) -> None:
    assert shell("subject", "show").exit_code == 2
    assert shell("nonsense").exit_code == 2
    assert shell("subject", "list", "--url", "localhost").exit_code == 2


def test_the_token_comes_from_the_line_or_the_environment(shell: Shell) -> None:
    shell.server.token = TOKEN
    assert shell("subject", "list").exit_code == 1
    assert shell("subject", "list", "--token", TOKEN).exit_code == 0
    assert shell("subject", "list", f"--token={TOKEN}").exit_code == 0
    assert shell("subject", "list", HOURWHEEL_TOKEN=TOKEN).exit_code == 0


def test_a_token_that_is_missing_and_one_that_is_wrong_are_told_apart(shell: Shell) -> None:
    shell.server.token = TOKEN
    missing, wrong = shell("subject", "list"), shell("subject", "list", "--token", "other")
    assert (missing.exit_code, wrong.exit_code) == (1, 1)
    assert "none was given: give --token-file" in missing.stderr
    assert "does not know the token that was given" in wrong.stderr


def test_requests_are_signed_when_the_line_or_the_environment_says_so(shell: Shell) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_CONFIG_FILE": os.devnull}
    sign = ["--sign", "aws", "--region", "eu-west-1"]
    assert shell("subject", "list", *sign, **keys).exit_code == 0
    assert shell("produce", "orders", "a", *sign[2:], HOURWHEEL_SIGN="aws", **keys).exit_code == 0
    assert shell("consume", "orders", "billing", "--once", *sign, **keys).exit_code == 0
    for request in shell.server.requests:
        assert "/eu-west-1/execute-api/aws4_request" in request.headers["Authorization"]
    assert shell("subject", "list", *sign, "--token", TOKEN, **keys).exit_code == 2
    assert shell("produce", "orders", "a", *sign, "--token", TOKEN, **keys).exit_code == 2
    assert shell("subject", "list", "--sign", "gcp").exit_code == 2


def test_shared_options_may_stand_anywhere() -> None:
    assert hoist(["lag", "a", "--json", "b", "--url", "u"]) == ["--json", "--url", "u", "lag", "a", "b"]
    assert hoist(["produce", "s", "--", "--json"]) == ["produce", "s", "--", "--json"]
    assert hoist(["--token=t", "lag", "--token"]) == ["--token=t", "--token", "lag"]
    assert hoist(["lag", "--sign", "aws", "--region", "r"]) == ["--sign", "aws", "--region", "r", "lag"]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServeOptions]:
    """Returns the options with which a server would have been started."""
    found: list[ServeOptions] = []
    server = ModuleType("server")
    server.serve = lambda given: found.append(given) or 7
    monkeypatch.setitem(sys.modules, "hourwheel.embedded.server", server)
    return found


def test_the_help_of_serve_has_the_tokens_too(shell: Shell) -> None:
    shown = shell.ok("serve", "--help")
    for option in ("--token ", "--token-file", "--read-only-token"):
        assert any(line.lstrip("│ ").startswith(option) for line in shown.splitlines()), option
    assert "HOURWHEEL_TOKEN_FILE" in shown


def test_serve_takes_where_it_runs_from_variables_and_an_option_decides(
    shell: Shell, served: list[ServeOptions], tmp_path: Path
) -> None:
    where = {"HOURWHEEL_DATA": str(tmp_path), "HOURWHEEL_HOST": "127.0.0.2", "HOURWHEEL_PORT": "7421"}
    assert shell("serve", **where).exit_code == 7
    assert shell("serve", "--port", "7422", **where).exit_code == 7
    assert served == [ServeOptions(data=tmp_path, host="127.0.0.2", port=port) for port in (7_421, 7_422)]


def test_serve_hands_its_options_over(shell: Shell, served: list[ServeOptions], tmp_path: Path) -> None:
    where = ["--data", str(tmp_path), "--port", "0"]
    result = shell(
        "serve", *where, "--synchronous", "NORMAL", "--token", TOKEN, "--bucket-minutes", "5", "--archive-every", "60"
    )
    assert result.exit_code == 7
    expected = ServeOptions(
        data=tmp_path, port=0, tokens=(TOKEN,), synchronous="NORMAL", bucket_minutes=5, archive_seconds=60
    )
    assert served == [expected]
    assert shell("serve", *where, "--bucket-minutes", "4").exit_code == 2
    assert shell("serve", "--data", str(tmp_path), "--synchronous", "OFF").exit_code == 2


def test_a_server_has_the_tokens_of_the_line_the_file_and_the_environment(
    shell: Shell, served: list[ServeOptions], tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    file.write_text("# of the office\n\ntoken-1\ntoken-2 read-only\n")
    file.chmod(0o600)
    line = ["serve", "--data", str(tmp_path), "--token-file", str(file), "--read-only-token", "token-3"]
    assert shell(*line, "--token", "token-4", "--token", "token-5").exit_code == 7
    assert shell(*line, HOURWHEEL_TOKEN="token-4 token-5").exit_code == 7
    for options in served:
        assert (options.tokens, options.read_only_tokens) == (("token-4", "token-5", "token-1"), ("token-2", "token-3"))


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        (["--token", ""], {}),
        (["--token", " "], {}),
        (["--token", "one", "--token="], {}),
        (["--read-only-token", ""], {}),
        (["--token-file", ""], {}),
        ([], {"HOURWHEEL_TOKEN": ""}),
        ([], {"HOURWHEEL_TOKEN": "  "}),
        ([], {"HOURWHEEL_TOKEN_FILE": ""}),
        (["--token", "two words"], {}),
        (["--token", "é"], {}),
        (["--token", "both", "--read-only-token", "both"], {}),
    ],
)
def test_a_token_that_is_blank_or_none_does_not_open_the_server(
    shell: Shell, served: list[ServeOptions], tmp_path: Path, line: list[str], environment: dict[str, str]
) -> None:
    result = shell("serve", "--data", str(tmp_path), *line, **environment)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert served == []


def test_a_client_sends_one_token_and_takes_it_from_a_file(shell: Shell, tmp_path: Path) -> None:
    shell.server.token = TOKEN
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    assert shell("subject", "list", "--token-file", str(file)).exit_code == 0
    assert shell("subject", "list", HOURWHEEL_TOKEN_FILE=str(file)).exit_code == 0
    assert shell("subject", "list", HOURWHEEL_TOKEN="").exit_code == 2
    both = shell("subject", "list", "--token-file", str(file), "--token", "other")
    assert both.exit_code == 2
    assert "one token" in both.output


def test_version_is_told_before_anything_slow_is_imported(shell: Shell) -> None:
    program = "import sys, hourwheel.cli.main as m; sys.argv[1:] = ['--version']; m.run(); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    version, modules = done.stdout.splitlines()
    assert version == f"hourwheel {__version__}"
    assert not {"typer", "rich", "msgspec"} & set(json.loads(modules.replace("'", '"')))
    assert shell.ok("--version") == version + "\n"


def test_the_client_imports_nothing_heavy() -> None:
    program = "import sys, hourwheel.client; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    heavy = {"typer", "rich", "pydantic", "boto3", "botocore", "uvloop", "asyncio", "aws_lambda_powertools"}
    assert not heavy & set(json.loads(done.stdout.replace("'", '"')))


def test_dead_letters_are_listed_with_what_the_consumer_said(shell: Shell) -> None:
    broker = shell.server.broker
    with broker.changed:
        broker.put_group("orders", "billing", {"max_attempts": 1})
        broker.produce("orders", {"messages": [{"body": "a"}]})
        (pull,) = broker.pull("orders", "billing", {"consumer": "c", "max_messages": 1})["pulls"]
        retry = [{"index": 0, "detail": "ValueError: no price"}]
        broker.settle("orders", "billing", {"settle": [{"receipt": pull["receipt"], "retry": retry}]})
    head, _, letter, *_ = shell.ok("dead", "list", "orders", "billing").strip().splitlines()
    assert head.split() == ["dead", "id", "died", "at", "reason", "detail", "attempt", "id", "body"]
    assert "attempts" in letter
    assert "ValueError: no price" in letter
