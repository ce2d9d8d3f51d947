"""``hourwheel produce``, ``subject peek``, ``message`` and ``dead`` send, show and refuse the right messages."""

import pytest

from hourwheel.client import Api, Message, Settlement
from tests.integration.commands.conftest import Shell


def give_up(api: Api, *bodies: str) -> None:
    """Sends messages, and makes each a dead letter of ``billing``."""
    api.produce("orders", [Message(body, id=f"id-{body}") for body in bodies])
    api.put_group("orders", "billing")
    (pull,) = api.pull("orders", "billing", "host-1").pulls
    api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=list(range(len(bodies))))])


def test_a_message_goes_to_the_queue_that_the_option_names(shell: Shell) -> None:
    shell.ok("subject", "create", "orders", "--queues", "4")
    assert "queue 3 offset 0" in shell.ok("produce", "orders", "a", "--queue", "3")
    lines = '{"body": "b", "queue": 3}\n{"body": "c", "queue": 1}\n'
    sent = shell.json("produce", "orders", "--jsonl", stdin=lines)
    assert [(each["queue"], each["offset"]) for each in sent] == [(3, 1), (1, 0)]
    assert "has 4 queues, numbered from 0" in shell.failed("produce", "orders", "a", "--queue", "4")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("a", "--file", "pyproject.toml"), "give bodies or --file, not both"),
        (("--jsonl", "--key", "k"), "with --jsonl, key, tags, headers, delays, queues and ids stand in the objects"),
        (("--jsonl", "--queue", "0"), "with --jsonl, key, tags, headers, delays, queues and ids stand in the objects"),
        (("--jsonl", "--id", "7"), "with --jsonl, key, tags, headers, delays, queues and ids stand in the objects"),
        (("a", "b", "--id", "7"), "an id names one message: give one BODY"),
        (("--id", "7"), "an id names one message: give one BODY"),
        (("a", "--queue", "99999999999999999999999"), "must be a whole number from 0 to 63"),
        (("a", "--delay", "-5s"), "delay must be 0 or more, got -5s"),
        (("a", "--header", "trace"), "a header is NAME=VALUE, got 'trace'"),
        (("a", "--header", "=abc"), "a header is NAME=VALUE, got '=abc'"),
        (("a", "--delay", "1h30m"), "a delay has one unit: 90m instead of 1h30m"),
        (("a", "--delay", "1h", "--deliver-at", "2030-01-01T00:00:00Z"), "not both"),
    ],
)
def test_options_of_produce_that_exclude_one_another_are_refused(
    shell: Shell, options: tuple[str, ...], sentence: str
) -> None:
    assert sentence in shell.refused("produce", "orders", *options)


def test_a_line_that_is_no_message_is_named_by_its_number(shell: Shell) -> None:
    result = shell("produce", "orders", "--jsonl", stdin='{"body": "a"}\n{"bodies": "b"}\n')
    assert result.exit_code == 2
    assert "message 2" in result.stderr


def test_peek_shows_pages_forwards_and_backwards(shell: Shell, api: Api) -> None:
    for start in range(0, 120, 60):
        api.produce("orders", [Message(str(number)) for number in range(start, start + 60)])
    shown = shell.json("subject", "peek", "orders", "--limit", "110")
    assert [message["body"] for message in shown] == [str(number) for number in range(110)]
    newest = shell.json("subject", "peek", "orders", "--newest", "--limit", "3")
    assert [message["offset"] for message in newest] == [119, 118, 117]
    before = shell.json("subject", "peek", "orders", "--newest", "--offset", "1")
    assert [message["offset"] for message in before] == [1, 0]
    assert shell.json("subject", "peek", "orders", "--offset", "119")["body"] == "119"
    assert shell.ok("subject", "peek", "orders", "--offset", "120") == "none"


def test_peek_refuses_two_beginnings_and_a_queue_that_is_not_there(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a")])
    both = ("--offset", "0", "--time", "2026-11-20T09:00:00Z")
    assert "give --offset or --time, not both" in shell.refused("subject", "peek", "orders", *both)
    assert "has 1 queue, numbered from 0" in shell.failed("subject", "peek", "orders", "--queue", "1")
    assert "no subject 'parcels'" in shell.failed("subject", "peek", "parcels")


def test_a_trace_tells_of_a_message_through_retry_death_and_redrive(shell: Shell, api: Api) -> None:
    give_up(api, "a")
    told = shell.ok("message", "show", "orders", "0:0")
    assert "id-a at 0:0: accepted" in told
    assert "group billing: dead" in told
    assert shell.ok("dead", "redrive", "orders", "billing", "--all") == "redriven 1"
    assert shell.ok("consume", "orders", "billing", "--once") == "a"
    trace = shell.json("message", "find", "orders", "id-a", "--from", "2026-01-01T00:00:00Z", "--group", "billing")
    assert trace["groups"][0]["state"] == "acknowledged"
    events = [event["event"] for event in trace["groups"][0]["events"]]
    assert events == ["pulled", "dead", "redriven", "pulled", "acknowledged"]


def test_a_trace_of_a_delayed_message_names_its_state(shell: Shell, api: Api) -> None:
    (sent,) = api.produce("orders", [Message("a", id="order-7", delay="1h")])
    assert sent.scheduled_id is not None
    assert "order-7: scheduled" in shell.ok("message", "show", "orders", sent.scheduled_id)
    found = ("message", "find", "orders", "--from", "2026-01-01T00:00:00Z")
    assert "order-7: scheduled" in shell.ok(*found, "order-7")
    assert "no message with the id 'order-8'" in shell.failed(*found, "order-8")
    api.cancel(sent.scheduled_id)
    assert "order-7: cancelled" in shell.ok("message", "show", "orders", sent.scheduled_id)
    api.put_subject("parcels")
    assert "this delayed message is of subject 'orders'" in shell.failed(
        "message", "show", "parcels", sent.scheduled_id
    )


def test_show_names_the_command_that_finds_the_id_of_a_sender(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a", id="order 7")])
    assert shell.failed("message", "show", "orders", "order 7") == (
        "hourwheel: a sender's id does not tell when the message came: "
        "hourwheel message find orders 'order 7' --from TIME, or hourwheel message show orders QUEUE:OFFSET"
    )


def test_a_trace_of_a_message_that_is_not_there_says_so(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a")])
    assert shell.failed("message", "show", "orders", "0:7") == (
        "hourwheel: there is no message at 0:7: queue 0 of 'orders' ends at offset 1, which the next message gets"
    )
    command = "hourwheel pipeline run trace --data DIRECTORY --subject orders --message order-7"
    lake = f"the lake keeps messages that expired or were removed: {command}"
    assert lake in shell.failed("message", "find", "orders", "order-7", "--from", "2026-01-01T00:00:00Z")
    assert "no group 'mail'" in shell.failed("message", "show", "orders", "0:0", "--group", "mail")


def test_dead_letters_are_chosen_in_one_way(shell: Shell, api: Api) -> None:
    give_up(api, "a", "b", "c")
    for options, sentence in {
        (): "say which: dead ids, --all, --reason, or --from and --to",
        ("0-0", "--all"): "give one of these, not 2: dead ids, --all",
        ("--all", "--to", "2030-01-01T00:00:00Z"): "give one of these, not 2: --all, --from and --to",
    }.items():
        assert sentence in shell.refused("dead", "redrive", "orders", "billing", *options)
    assert "give --yes" in shell.refused("dead", "drop", "orders", "billing", "--all")
    assert shell.ok("dead", "drop", "orders", "billing", "--to", "2026-01-01T00:00:00Z", "--yes") == (
        "dropped 0: no dead letter of billing matches"
    )
    other = ("--reason", "rejected", "--detail", "no such detail")
    assert shell.ok("dead", "redrive", "orders", "billing", *other) == (
        "redriven 0: no dead letter of billing matches; hourwheel dead reasons orders billing lists reasons and details"
    )
    assert shell.json("dead", "redrive", "orders", "billing", *other) == {"redriven": 0}
    assert shell.ok("dead", "drop", "orders", "billing", "--from", "2026-01-01T00:00:00Z", "--yes") == "dropped 3"
    assert shell.ok("dead", "list", "orders", "billing") == "none"


def test_dead_letters_that_do_not_exist_are_counted(shell: Shell, api: Api) -> None:
    give_up(api, "a")
    dead_id = shell.json("dead", "list", "orders", "billing")["dead_id"]
    assert "there is no dead letter '7-0'" in shell.failed("dead", "redrive", "orders", "billing", "7-0")
    both = shell.failed("dead", "drop", "orders", "billing", dead_id, "7-0", "--yes")
    assert "1 of the 2 dead letters does not exist; dropped 1" in both
    assert "dead-id-invalid" not in shell.failed("dead", "show", "orders", "billing", "7-0")


def test_a_subject_is_deleted_once_somebody_confirms(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a")])
    assert "give --yes" in shell.refused("subject", "delete", "orders")
    assert shell.ok("subject", "delete", "orders", "--yes") == "deleted orders"
    assert "no subject 'orders'" in shell.failed("subject", "show", "orders")


def test_a_subject_keeps_its_queues(shell: Shell) -> None:
    shell.ok("subject", "create", "orders", "--queues", "3")
    assert "has 3 queues and cannot have fewer" in shell.failed("subject", "create", "orders", "--queues", "2")
    assert shell.json("subject", "create", "orders", "--retention", "60")["queues"] == 3
    short = shell.refused("subject", "create", "orders", "--retention", "59")
    assert "must be a whole number from 60 to 2,592,000" in short


def test_consume_says_what_keeps_messages_from_the_group(shell: Shell, api: Api) -> None:
    shell.ok("group", "create", "orders", "billing")
    api.produce("orders", [Message("a")])
    for noun, names in (("group", ("orders", "billing")), ("subject", ("orders",))):
        shell.ok(noun, "pause", *names)
        waiting = shell("consume", "orders", "billing", "--once")
        assert (waiting.exit_code, waiting.stdout) == (0, "")
        assert f"the {noun} is paused: hourwheel {noun} resume {' '.join(names)}" in waiting.stderr
        shell.ok(noun, "resume", *names)
    assert shell.ok("consume", "orders", "billing", "--once") == "a"


def test_consume_says_that_nothing_was_sent_to_a_subject_that_it_creates(shell: Shell, api: Api) -> None:
    said = (
        "hourwheel: nothing was sent to 'ordres': there was no such subject before this command, which created it;"
        " hourwheel subject list shows the others\n"
    )
    first = shell("consume", "ordres", "billing", "--once")
    assert (first.exit_code, first.stdout, first.stderr) == (0, "", said)
    again = shell("consume", "ordres", "billing", "--once")
    assert (again.exit_code, again.stderr) == (0, "")
    api.produce("orders", [Message("a")])
    new_group = shell("consume", "orders", "billing", "--once")
    assert (new_group.stdout, new_group.stderr) == ("a\n", "")


def test_a_named_consumer_of_a_broadcast_group_goes_on_where_it_was(shell: Shell, api: Api) -> None:
    shell.ok("group", "create", "orders", "screens", "--broadcast")
    api.produce("orders", [Message("a")])
    assert shell.ok("consume", "orders", "screens", "--once", "--consumer", "hall") == "a"
    api.produce("orders", [Message("b")])
    assert shell.ok("consume", "orders", "screens", "--once", "--consumer", "hall") == "b"
    assert shell.ok("consume", "orders", "screens", "--once", "--consumer", "door") == "a b"


def test_a_broadcast_group_needs_the_name_of_the_consumer(shell: Shell, api: Api) -> None:
    shell.ok("group", "create", "orders", "screens", "--broadcast")
    for how in ("--once", "--follow"):
        refused = shell.refused("consume", "orders", "screens", how)
        assert "keeps a position for each consumer" in refused
        assert "such as --consumer host-1" in refused
    assert api.list_consumers("orders", "screens") == []


def test_a_message_is_found_by_the_id_that_the_option_gave(shell: Shell) -> None:
    assert shell.ok("produce", "orders", "a", "--id", "order-7").startswith("order-7 queue 0")
    assert "order-7 at 0:0" in shell.ok("message", "find", "orders", "order-7", "--from", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("span", "sentence"),
    [
        (("2026-01-02T00:00:00Z", "--to", "2026-01-02T00:00:00Z"), "to must be later than from"),
        (("2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"), "to must be later than from"),
        (("2999-01-01T00:00:00Z",), "from is in the future"),
    ],
)
def test_a_span_without_any_time_is_refused(shell: Shell, span: tuple[str, ...], sentence: str) -> None:
    shell.ok("subject", "create", "orders")
    assert sentence in shell.failed("message", "find", "orders", "order-7", "--from", *span)


def test_a_delayed_message_of_another_subject_is_refused_with_the_name_of_its_subject(shell: Shell) -> None:
    shell.ok("subject", "create", "orders")
    sent = shell.json("produce", "parcels", "a", "--delay", "1h")
    refused = shell.failed("message", "show", "orders", sent["scheduled_id"])
    assert refused.endswith("this delayed message is of subject 'parcels': name that subject instead of 'orders'")


def test_a_read_only_subject_says_which_command_lets_it_take_messages_again(shell: Shell) -> None:
    shell.ok("subject", "create", "orders", "--read-only")
    refused = shell.failed("produce", "orders", "a")
    command = "hourwheel subject create orders --no-read-only"
    assert command in refused
    shell.ok(*command.split()[1:])
    assert "queue 0" in shell.ok("produce", "orders", "a")


def test_a_negative_offset_is_told_to_be_no_place(shell: Shell) -> None:
    shell.ok("produce", "orders", "a")
    assert "0:-4 is no QUEUE:OFFSET: offsets are numbers from 0" in shell.failed("message", "show", "orders", "0:-4")
