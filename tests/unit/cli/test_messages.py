import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import Child
from tests.unit.cli.conftest import Shell


def test_bodies_on_the_line_are_sent_and_stored(shell: Shell) -> None:
    printed = shell.ok("produce", "orders", "a", "ä b", "--key", "k", "--tag", "eu", "--tag", "x", "--header", "t=1=2")
    assert [line.split()[1:] for line in printed.splitlines()] == [
        ["queue", "0", "offset", "0"],
        ["queue", "0", "offset", "1"],
    ]
    first, second = shell.server.broker.subject("orders").queues[0]
    assert (first["key"], first["tags"], first["headers"]) == ("k", ["eu", "x"], {"t": "1=2"})
    assert second["body"] == "ä b"


def test_lines_of_stdin_are_messages(shell: Shell) -> None:
    assert shell.ok("produce", "orders", stdin="a\r\n\nlast") == "3 messages\n"
    assert shell.server.bodies("orders") == ["a", "", "last"]


def test_a_line_that_is_no_text_is_sent_as_bytes(shell: Shell) -> None:
    shell.ok("produce", "orders", stdin=b"\xff\xfe\n")
    assert shell.server.broker.subject("orders").queues[0][0]["body_base64"] == "//4="


def test_lines_of_a_file_are_messages(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    assert shell.ok("produce", "orders", "--file", str(tmp_path / "in.txt")) == "1 message\n"


def test_whole_message_objects(shell: Shell) -> None:
    accepted = shell.json("produce", "orders", "--jsonl", stdin='{"body": "a", "id": "o-7"}\n{"body_base64": "AAE="}\n')
    assert [position["offset"] for position in accepted] == [0, 1]
    assert accepted[0] == {"id": "o-7", "queue": 0, "offset": 0}


@pytest.mark.parametrize(
    ("args", "due"),
    [
        (["--delay", "90d"], "2027-02-18T09:00:00.000Z"),
        (["--delay", "90"], "2026-11-20T09:01:30.000Z"),
        (["--delay", "0.5"], "2026-11-20T09:00:00.500Z"),
        (["--deliver-at", "2027-01-01T09:00:00Z"], "2027-01-01T09:00:00.000Z"),
        (["--deliver-at", "2027-01-01T10:00:00+01:00"], "2027-01-01T09:00:00.000Z"),
    ],
)
def test_messages_may_be_delayed(shell: Shell, args: list[str], due: str) -> None:
    first, second = shell.json("produce", "orders", "a", "b", *args)
    assert first == {"id": "m-2", "scheduled": due, "scheduled_id": "s-1"}
    assert second["scheduled"] == due


def test_messages_may_come_a_minute_late(shell: Shell) -> None:
    shell.ok("produce", "orders", "a", "--delay", "1h", "--precision", "minute")
    shell.ok("produce", "orders", "--jsonl", '{"body": "b", "delay": "1h", "precision": "minute"}')
    sent = [request.body["messages"][0] for request in shell.server.calls("produce")]
    assert [message["precision"] for message in sent] == ["minute", "minute"]


def test_a_delayed_message_is_told_with_its_time_and_id(shell: Shell) -> None:
    printed = shell.ok("produce", "orders", "a", "--deliver-at", "2027-01-01T09:00:00Z")
    assert printed == "m-2  scheduled 2027-01-01 09:00:00Z  s-1\n"
    assert shell.ok("produce", "orders", "--delay", "1h", stdin="b\nc\n") == "2 messages\n"
    assert len(shell.server.broker.scheduled) == 3


def test_each_message_object_has_its_own_delay(shell: Shell) -> None:
    lines = ['{"body": "a", "delay": "1h"}', '{"body": "b", "deliver_at": "2027-01-01T09:00:00Z"}', '{"body": "c"}']
    accepted = shell.json("produce", "orders", "--jsonl", stdin="\n".join(lines))
    assert [position.get("scheduled") for position in accepted] == [
        "2026-11-20T10:00:00.000Z",
        "2027-01-01T09:00:00.000Z",
        None,
    ]


@pytest.mark.parametrize(
    ("args", "stdin", "says"),
    [
        (["--jsonl"], '{"body": "a", "kee": 1}', "message 1"),
        (["--jsonl"], '{"key": "k"}', "one of body and body_base64"),
        (["--jsonl", "--key", "k"], "", "objects"),
        (["--header", "novalue"], "a", "NAME=VALUE"),
        (["a", "--file", __file__], "", "not both"),
        (["a", "--delay", "soon"], "", "such as '90d'"),
        (["a", "--delay", "nan"], "", "number of seconds"),
        (["a", "--delay", "1h30m"], "", "a delay has one unit: 90m instead of 1h30m"),
        (["a", "--delay", "1", "--deliver-at", "2027-01-01"], "", "not both"),
        (["a", "--deliver-at", "tomorrow"], "", "2026-11-20T09:00:00Z"),
        (["--jsonl", "--delay", "1"], "", "objects"),
        (["--jsonl", "--precision", "minute"], "", "objects"),
        (["a", "--precision", "minute"], "", "only a message with delay"),
        (["a", "--delay", "1h", "--precision", "hour"], "", "minute"),
        (["--jsonl"], '{"body": "a", "delay": "soon"}', "message 1: delay"),
        (["--jsonl"], '{"body": "a", "deliver_at": "2027-01-01T09:00:00"}', "message 1: deliver_at"),
    ],
)
def test_what_was_typed_wrong_is_told(shell: Shell, args: list[str], stdin: str, says: str) -> None:
    result = shell("produce", "orders", *args, stdin=stdin)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_refused_message_is_one_line_and_exit_status_1(shell: Shell) -> None:
    result = shell("produce", "orders", "a", "--key", "bad")
    assert result.exit_code == 1
    assert result.stderr == "hourwheel: the key is bad\n"


def test_consume_prints_and_acknowledges(shell: Shell) -> None:
    shell.ok("produce", "orders", "a", "b", "c")
    assert shell.ok("consume", "orders", "billing", "--max", "2") == "a\nb\n"
    assert shell.ok("consume", "orders", "billing", "--once") == "c\n"
    assert shell.ok("consume", "orders", "billing", "--once") == ""
    assert shell.server.broker.group("orders", "billing").acked == ["a", "b", "c"]


def test_consume_may_retry_or_reject_what_it_prints(shell: Shell) -> None:
    shell.ok("produce", "orders", "a", "b", "c")
    assert shell.ok("consume", "orders", "billing", "--max", "1", "--then", "reject") == "a\n"
    assert shell.ok("consume", "orders", "billing", "--max", "1", "--then", "retry", "--delay", "10m") == "b\n"
    assert shell.ok("consume", "orders", "billing", "--max", "1", "--then", "retry") == "c\n"
    calls = [*shell.server.calls("settle"), *shell.server.calls("pull")]
    entries = [entry for call in calls for entry in call.body.get("settle", [])]
    assert [entry.get("dead") for entry in entries] == [[0], None, None]
    assert [entry.get("retry") for entry in entries] == [None, [{"index": 0, "delay": "10m"}], [0]]
    assert shell.server.broker.group("orders", "billing").acked == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--delay", "10m"), "only retries have a delay: add --then retry"),
        (("--then", "retry", "--delay", "soon"), "soon"),
        (("--then", "drop"), "must be one of ack, retry, reject"),
    ],
)
def test_consume_refuses_outcomes_that_make_no_sense(shell: Shell, options: tuple[str, ...], told: str) -> None:
    result = shell("consume", "orders", "billing", *options)
    assert result.exit_code == 2
    assert told in result.stderr


def test_consume_as_json(shell: Shell) -> None:
    shell.ok("produce", "orders", "a", "--key", "k")
    [message] = shell.json("consume", "orders", "billing", "--once")
    assert (message["body"], message["key"], message["attempt"]) == ("a", "k", 1)
    assert "body_base64" not in message
    assert "due_at" not in message


def test_consume_as_json_says_when_a_message_was_due(shell: Shell) -> None:
    [accepted] = shell.json("produce", "orders", "a", "--delay", "1h")
    shell.server.broker.fall_due(accepted["scheduled_id"])
    [message] = shell.json("consume", "orders", "billing", "--once")
    assert (message["body"], message["due_at"]) == ("a", "2026-11-20T10:00:00.000Z")


def test_bytes_are_printed_as_they_are(shell: Shell) -> None:
    shell.ok("produce", "orders", stdin=b"\xff\n")
    result = shell("consume", "orders", "billing", "--once")
    assert result.stdout_bytes == b"\xff\n"


@pytest.mark.skipif(os.name == "nt", reason="no such pipes there")
def test_a_reader_that_leaves_gets_no_traceback_and_loses_nothing(shell: Shell) -> None:
    shell.server.broker.put_group("orders", "billing", {"max_attempts": 1})
    shell.ok("produce", "orders", *("x" * 50_000 + str(number) for number in range(8)))
    program = "from hourwheel.cli.main import run; run()"
    command = [sys.executable, "-c", program, "consume", "orders", "billing", "--once"]
    environment = {**os.environ, "HOURWHEEL_URL": shell.server.url}
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 0
    group = shell.server.broker.group("orders", "billing")
    assert len(group.acked) + len(group.retries) == 8
    assert group.retries
    assert {message["attempt"] for message in group.retries} == {1}
