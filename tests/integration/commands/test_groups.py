"""``hourwheel group``: settings, ordered and broadcast groups, filters, limits, pauses, seeks and consumers."""

import re

import pytest

from hourwheel.client import Api, Message, Rejection, Settlement
from tests.integration.commands.conftest import Shell

ANEW = "which cannot change: delete the group and create it again, or create another one"


def test_a_group_takes_its_settings_and_keeps_those_that_are_left_out(shell: Shell) -> None:
    shell.json("group", "create", "orders", "billing", "--max-attempts", "5", "--retry-delays", "1,10,60")
    group = shell.json("group", "create", "orders", "billing", "--max-in-flight", "7")
    assert (group["max_attempts"], group["retry"]["delays_seconds"], group["max_in_flight"]) == (5, [1, 10, 60], 7)
    growing = shell.json("group", "create", "orders", "billing", "--retry-first", "2", "--retry-cap", "20")
    assert (growing["retry"]["first_seconds"], growing["retry"]["cap_seconds"]) == (2, 20)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--retry-first", "1", "--retry-delays", "1,2"), "--retry-delays stands alone"),
        (("--retry-delays", "1,soon"), "--retry-delays are seconds such as 1,10,60, got '1,soon'"),
        (("--no-filter", "--tags-any", "eu"), "--no-filter stands alone"),
        (("--push-batch", "5"), "a target is set as a whole"),
        (("--push", "none", "--push-timeout", "5"), "a target is set as a whole"),
        (("--push", "somewhere"), "'somewhere' is no target"),
    ],
)
def test_options_of_a_group_that_exclude_one_another_are_refused(
    shell: Shell, options: tuple[str, ...], sentence: str
) -> None:
    assert sentence in shell.refused("group", "create", "orders", "billing", *options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--max-attempts", "0"), "'--max-attempts': must be a whole number from 1 to 1,000"),
        (("--max-in-flight", "-1"), "'--max-in-flight': must be a whole number from 0 to 1,000,000"),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_its_range(
    shell: Shell, options: tuple[str, ...], sentence: str
) -> None:
    assert sentence in shell.refused("group", "create", "orders", "billing", *options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--max-held", "5"), "max_held is a setting of ordered groups"),
        (("--when-dead", "stop"), "when_dead is a setting of ordered groups"),
        (("--ordered", "--broadcast"), "an ordered group has no broadcast"),
        (("--ordered", "--tags-any", "eu"), "an ordered group has no filter"),
        (
            ("--consumer-expires", "60"),
            "consumer_expires_seconds is a setting of broadcast groups: leave it out, or create the group with"
            " broadcast (--broadcast)",
        ),
        (("--broadcast", "--push", "https://example.org/hook"), "a group with broadcast has no target"),
        (("--tags-all", "eu", "--tags-none", "eu"), "this filter takes no message"),
    ],
)
def test_settings_that_the_server_refuses_are_told_in_its_sentence(
    shell: Shell, options: tuple[str, ...], sentence: str
) -> None:
    assert sentence in shell.failed("group", "create", "orders", "billing", *options)


@pytest.mark.parametrize(
    ("first", "then", "sentence"),
    [
        ("--start=earliest", "--start=latest", "start earliest, which cannot change: use seek to move the group"),
        ("--broadcast", "--ordered", f"ordered false, {ANEW}"),
        ("--max-attempts=3", "--ordered", f"ordered false, {ANEW}"),
        ("--max-attempts=3", "--broadcast", f"broadcast false, {ANEW}"),
    ],
)
def test_a_setting_that_is_fixed_at_creation_cannot_be_changed(
    shell: Shell, first: str, then: str, sentence: str
) -> None:
    shell.ok("group", "create", "orders", "billing", first)
    assert sentence in shell.failed("group", "create", "orders", "billing", then)


def test_a_filter_is_set_as_a_whole_and_removed(shell: Shell, api: Api) -> None:
    made = shell.ok("group", "create", "orders", "europe", "--tags-any", "eu,uk", "--tags-none", "test")
    assert made == "stored europe of orders: filter tags_any=eu, uk, tags_none=test"
    assert shell.ok("group", "create", "orders", "europe") == "stored europe of orders"
    changed = shell.ok("group", "create", "orders", "europe", "--max-attempts", "5", "--max-in-flight", "9")
    assert changed == "stored europe of orders: max_attempts 5, max_in_flight 9"
    assert shell.json("group", "show", "orders", "europe")["filter"] == {
        "tags_any": ["eu", "uk"],
        "tags_all": [],
        "tags_none": ["test"],
    }
    api.produce("orders", [Message("a", tags=["eu"]), Message("b"), Message("c", tags=["uk", "test"])])
    assert shell.ok("consume", "orders", "europe", "--once") == "a"
    shell.ok("group", "create", "orders", "europe", "--tags-all", "eu")
    assert shell.json("group", "show", "orders", "europe")["filter"]["tags_all"] == ["eu"]
    shell.ok("group", "create", "orders", "europe", "--no-filter")
    assert shell.json("group", "show", "orders", "europe").get("filter") is None


def test_a_paused_group_gets_nothing_until_it_is_resumed(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a")])
    shell.ok("group", "create", "orders", "billing")
    assert shell.ok("group", "pause", "orders", "billing") == "paused billing of orders"
    assert shell.ok("consume", "orders", "billing", "--once") == ""
    assert "limited by: paused" in shell.ok("lag", "orders", "billing")
    assert shell.ok("group", "resume", "orders", "billing") == "resumed billing of orders"
    assert shell.ok("consume", "orders", "billing", "--once") == "a"


def test_a_resumed_subject_leaves_the_pauses_of_its_groups(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a")])
    for group in ("billing", "mail"):
        shell.ok("group", "create", "orders", group)
    shell.ok("group", "pause", "orders", "mail")
    shell.ok("subject", "pause", "orders")
    assert api.pull("orders", "billing", "host-1").limited_by == "subject_paused"
    shell.ok("subject", "resume", "orders")
    assert shell.ok("consume", "orders", "billing", "--once") == "a"
    assert api.pull("orders", "mail", "host-1").limited_by == "paused"


def test_a_read_only_subject_refuses_messages_and_delivers_those_it_has(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a")])
    shell.ok("group", "create", "orders", "billing")
    shell.ok("subject", "create", "orders", "--read-only")
    assert "read-only" in shell.failed("produce", "orders", "b")
    assert shell.ok("consume", "orders", "billing", "--once") == "a"
    shell.ok("subject", "create", "orders", "--no-read-only")
    assert "offset 1" in shell.ok("produce", "orders", "b")


def test_consumers_are_listed_and_one_that_left_gives_its_messages_back(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a")])
    shell.ok("group", "create", "orders", "billing")
    api.pull("orders", "billing", "host-1", lease_seconds=3_600)
    listed = shell.json("group", "consumers", "orders", "billing")
    assert (listed["consumer"], listed["in_flight"], listed["leases"]) == ("host-1", 1, 1)
    assert shell.ok("group", "leave", "orders", "billing", "host-1") == "released 1 message of host-1"
    assert shell.ok("group", "leave", "orders", "billing", "host-1") == "released 0 messages of host-1"
    (pull,) = api.pull("orders", "billing", "host-2").pulls
    assert [(message.body, message.attempt) for message in pull.messages] == [("a", 1)]


def test_a_queue_that_is_full_of_held_keys_waits_and_says_so(shell: Shell, api: Api) -> None:
    stops = ("--ordered", "--when-dead", "stop", "--max-attempts", "1", "--max-held", "1")
    shell.ok("group", "create", "orders", "ledger", *stops)
    api.produce("orders", [Message("a1", key="a")])
    (pull,) = api.pull("orders", "ledger", "host-1").pulls
    assert "so waiting" not in shell.ok("lag", "orders", "ledger")
    api.settle("orders", "ledger", [Settlement(receipt=pull.receipt, dead=[0])])
    api.produce("orders", [Message("b1", key="b")])
    assert api.pull("orders", "ledger", "host-1").pulls == []
    assert "full of held keys, so waiting: queue 0" in shell.ok("lag", "orders", "ledger")
    shell.ok("group", "decide", "orders", "ledger", "dead", "--all")
    assert "so waiting" not in shell.ok("lag", "orders", "ledger")
    (pull,) = api.pull("orders", "ledger", "host-1").pulls
    assert [message.body for message in pull.messages] == ["b1"]


def test_a_stopped_key_waits_for_a_decision(shell: Shell, api: Api) -> None:
    shell.ok("group", "create", "orders", "ledger", "--ordered", "--when-dead", "stop", "--max-attempts", "1")
    api.produce("orders", [Message("a1", key="a"), Message("a2", key="a"), Message("b1", key="b")])
    (pull,) = api.pull("orders", "ledger", "host-1").pulls
    rejected = [Rejection(index=0, detail="no such customer")]
    api.settle("orders", "ledger", [Settlement(receipt=pull.receipt, dead=rejected)])
    lag = shell.ok("lag", "orders", "ledger")
    assert "1 waiting, 0 in flight, 0 retrying, 0 backing off, 1 stopped, 0 dead" in lag
    assert "1 held key, 2 parked messages" in lag
    assert "key a: queue 0 offset 0, stopped (rejected: no such customer), 1 behind" in lag
    assert "say which keys: --key KEY, once or more, or --all" in shell.refused(
        "group", "decide", "orders", "ledger", "retry"
    )
    both = ("retry", "--key", "a", "--all")
    assert "give only one of the two" in shell.refused("group", "decide", "orders", "ledger", *both)
    refused = shell.failed("group", "decide", "orders", "ledger", "retry", "--key", "b")
    assert "key 'b' of group 'ledger' of subject 'orders' is not stopped" in refused
    assert shell.ok("group", "decide", "orders", "ledger", "dead", "--key", "a") == "decided 1 key"
    letter = shell.json("dead", "list", "orders", "ledger")
    assert (letter["body"], letter["reason"], letter["detail"]) == ("a1", "rejected", "no such customer")
    assert shell.ok("group", "decide", "orders", "ledger", "dead", "--all") == "decided 0 keys"
    shown = shell.ok("message", "show", "orders", "0:0")
    assert re.search(r"stopped +1 +- +- +rejected +no such customer", shown)
    assert re.search(r"decided +- +- +- +dead +-", shown)
    assert re.search(r"dead +1 +- +- +rejected +no such customer", shown)
    assert shell.ok("consume", "orders", "ledger", "--once") == "a2"


def test_a_decision_is_for_ordered_groups(shell: Shell) -> None:
    shell.ok("group", "create", "orders", "billing")
    assert "is not ordered" in shell.failed("group", "decide", "orders", "billing", "retry", "--all")


def test_each_consumer_of_a_broadcast_group_has_a_row_in_the_lag(shell: Shell, api: Api) -> None:
    shell.ok("group", "create", "orders", "screens", "--broadcast", "--consumer-expires", "3600")
    api.produce("orders", [Message("a"), Message("b")])
    for consumer in ("hall", "door"):
        api.pull("orders", "screens", consumer, max_messages=1)
    assert [(each["consumer"], each["waiting"], each["in_flight"]) for each in _consumers(shell)] == [
        ("door", 1, 1),
        ("hall", 1, 1),
    ]
    assert "2 waiting, 2 in flight" in shell.ok("lag", "orders", "screens")


def _consumers(shell: Shell) -> list[dict[str, object]]:
    return list(shell.json("lag", "orders", "screens")["consumers"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "give one of --to, --time, and --queue with --offset"),
        (("--to", "end", "--time", "2026-11-20T09:00:00Z"), "give one of --to, --time, and --queue with --offset"),
        (("--queue", "0"), "--queue and --offset go together"),
        (("--time", "yesterday"), "--time must be an RFC 3339 time"),
    ],
)
def test_a_seek_has_one_target(shell: Shell, options: tuple[str, ...], sentence: str) -> None:
    assert sentence in shell.refused("group", "seek", "orders", "billing", *options)


def test_a_seek_moves_a_group_and_tells_its_next_offsets(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a"), Message("b"), Message("c")])
    shell.ok("group", "create", "orders", "billing")
    assert shell.json("group", "seek", "orders", "billing", "--to", "end") == [{"queue": 0, "offset": 3}]
    assert shell.ok("consume", "orders", "billing", "--once") == ""
    moved = shell.json("group", "seek", "orders", "billing", "--queue", "0", "--offset", "1")
    assert moved == [{"queue": 0, "offset": 1}]
    assert shell.ok("consume", "orders", "billing", "--once") == "b c"
    assert "has 1 queue, numbered from 0" in shell.failed(
        "group", "seek", "orders", "billing", "--queue", "5", "--offset", "0"
    )


def test_a_group_without_a_target_has_no_state_of_pushes(shell: Shell) -> None:
    shell.ok("group", "create", "orders", "billing")
    assert "has no target: set push" in shell.failed("group", "push", "orders", "billing")


def test_a_target_is_removed_and_a_former_secret_does_not_come_back(shell: Shell) -> None:
    target = ("--push", "https://example.org/hook", "--push-secret-version")
    shell.ok("group", "create", "orders", "mail", *target, "2")
    assert "secret_version 1 was replaced" in shell.failed("group", "create", "orders", "mail", *target, "1")
    shell.ok("group", "create", "orders", "mail", "--push", "none")
    assert shell.json("group", "show", "orders", "mail").get("push") is None


def test_a_deletion_is_confirmed_where_somebody_can_be_asked(shell: Shell) -> None:
    shell.ok("group", "create", "orders", "billing")
    assert "give --yes where nobody can be asked" in shell.refused("group", "delete", "orders", "billing")
    assert shell.ok("group", "delete", "orders", "billing", "--yes") == "deleted billing of orders"
    assert "no group 'billing'" in shell.failed("group", "show", "orders", "billing")


def test_leaving_says_that_the_consumer_is_not_known(shell: Shell, api: Api) -> None:
    api.produce("orders", [Message("a")])
    api.pull("orders", "billing", "host-1")
    known, unknown = (shell("group", "leave", "orders", "billing", name) for name in ("host-1", "host-2"))
    assert (known.exit_code, known.stdout, known.stderr) == (0, "released 1 message of host-1\n", "")
    assert (unknown.exit_code, unknown.stdout) == (0, "released 0 messages of host-2\n")
    assert "billing of orders knows no consumer 'host-2'" in unknown.stderr


def test_a_seek_to_a_queue_that_the_subject_does_not_have_says_which_queues_it_has(shell: Shell) -> None:
    shell.ok("group", "create", "orders", "billing")
    command = ("group", "seek", "orders", "billing", "--offset", "0", "--queue")
    assert "subject 'orders' has no queue 9: it has 1 queue, numbered from 0" in shell.failed(*command, "9")
    assert "must be a whole number from 0 to 63" in shell.refused(*command, "99")
