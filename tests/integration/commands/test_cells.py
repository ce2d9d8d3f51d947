"""``hourwheel queue`` and ``hourwheel cell``: moves, spreads, drains, and their dry runs."""

from collections.abc import Iterator

import pytest

from hourwheel.client import Api, Message
from tests.integration.commands.conftest import Shell


@pytest.fixture(autouse=True)
def cells(api: Api) -> Iterator[None]:
    for cell in ("fast", "old"):
        api.put_cell(cell, kinds=["real-time", "delay"])
        api.put_cell(cell, state="normal")
    yield
    for subject in api.list_subjects().subjects:
        api.delete_subject(subject.subject)


def where(shell: Shell) -> list[str]:
    """Returns the cell that takes the messages of each queue of ``orders``."""
    return [queue["mappings"][-1]["cell"] for queue in shell.json("queue", "list", "orders")["queues"]]


def test_a_dry_run_of_a_move_shows_the_route_and_changes_nothing(shell: Shell) -> None:
    shell.ok("subject", "create", "orders", "--queues", "2")
    told = shell.ok("queue", "move", "orders", "1", "--to", "fast", "--dry-run")
    assert "after (nothing was changed)" in told
    assert where(shell) == ["home", "home"]
    assert "after (nothing was changed)" not in shell.ok("queue", "move", "orders", "1", "--to", "fast")
    assert where(shell) == ["home", "fast"]


def test_a_dry_run_of_a_cell_says_that_nothing_was_changed(shell: Shell) -> None:
    for command in (("add", "fast", "--kind", "delay"), ("set-state", "fast", "draining")):
        before = shell.json("cell", "show", "fast")
        assert "nothing was changed" in shell.ok("cell", *command, "--dry-run")
        assert shell.json("cell", "show", "fast") == before
    shell.ok("cell", "drain", "fast")
    assert "nothing was changed" in shell.ok("cell", "remove", "fast", "--dry-run")
    assert "nothing was changed" not in shell.ok("cell", "show", "fast")


def test_messages_before_and_after_a_move_are_delivered_in_their_order(shell: Shell, api: Api) -> None:
    shell.ok("group", "create", "orders", "billing")
    api.produce("orders", [Message("a")])
    shell.ok("queue", "move", "orders", "0", "--to", "fast")
    assert "queue 0 offset 1" in shell.ok("produce", "orders", "b")
    assert sorted(shell.ok("consume", "orders", "billing", "--once").split()) == ["a", "b"]
    shown = shell.json("subject", "peek", "orders")
    assert [message["body"] for message in shown] == ["a", "b"]


def test_consume_once_gets_all_parts_of_a_queue_in_an_ordered_group(shell: Shell, api: Api) -> None:
    shell.ok("group", "create", "orders", "ledger", "--ordered")
    for body, cell in (("a", "fast"), ("b", "home"), ("c", "fast")):
        api.produce("orders", [Message(body, key="customer-42")])
        shell.ok("queue", "move", "orders", "0", "--to", cell)
    assert shell.ok("consume", "orders", "ledger", "--once").split() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("queue", "move", "orders", "7", "--to", "fast"), "has 2 queues, numbered from 0"),
        (("queue", "move", "orders", "0", "--to", "home"), "queue 0 of 'orders' is in cell 'home'"),
        (("queue", "move", "orders", "0", "--to", "nowhere"), "there is no cell 'nowhere'"),
        (("queue", "move", "parcels", "0", "--to", "fast"), "no subject 'parcels'"),
        (("queue", "spread", "orders", "--over", "nowhere"), "there is no cell 'nowhere'"),
        (("queue", "add", "orders", "1"), "cannot have fewer"),
        (("cell", "show", "nowhere"), "there is no cell 'nowhere'"),
        (("cell", "add", "nowhere"), "--cell nowhere=DIRECTORY"),
        (("cell", "set-state", "home", "draining"), "always normal"),
        (("cell", "drain", "home"), "cannot be drained"),
        (("cell", "remove", "fast", "--yes"), "drain it first"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(shell: Shell, command: tuple[str, ...], sentence: str) -> None:
    shell.ok("subject", "create", "orders", "--queues", "2")
    assert sentence in shell.failed(*command)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("add", "orders", "65"), "must be a whole number from 1 to 64"),
        (("move", "orders", "99999999999999999999999", "--to", "fast"), "must be a whole number from 0 to 63"),
        (("move", "orders", "-1", "--to", "fast"), "No such option: -1. Queues, their numbers and offsets are whole"),
    ],
)
def test_a_number_that_no_queue_has_is_refused(shell: Shell, command: tuple[str, ...], sentence: str) -> None:
    assert sentence in shell.refused("queue", *command)


def test_lag_and_consume_name_the_cell_in_which_messages_cannot_be_reached(shell: Shell, api: Api) -> None:
    shell.ok("subject", "create", "orders", "--queues", "2")
    shell.ok("group", "create", "orders", "billing")
    shell.ok("queue", "move", "orders", "1", "--to", "fast")
    api.produce("orders", [Message("away", queue=1)])
    shell.ok("queue", "move", "orders", "1", "--to", "home")
    api.produce("orders", [Message("here", queue=0)])
    assert "cells out of reach" not in shell.ok("lag", "orders", "billing")
    shell.ok("cell", "set-state", "fast", "offline")

    (first, second) = shell.json("lag", "orders", "billing")["queues"]
    assert first == {"queue": 0, "waiting": 1, "in_flight": 0, "offset": 0, "end": 1}
    assert second == {"queue": 1, "waiting": 0, "in_flight": 0, "offset": None, "end": 1, "cells_out": ["fast"]}
    shown = shell.ok("lag", "orders", "billing")
    assert "1 0+ 0+ - 1 fast" in shown
    assert "not counted: messages in cell fast, offline or out of reach" in shown

    once = shell("consume", "orders", "billing", "--once")
    assert (once.exit_code, once.stdout) == (0, "here\n")
    assert (
        "cell fast, offline or out of reach: messages that wait there were not pulled (queue 1 of orders)"
        in once.stderr
    )
    refused = shell.failed("message", "show", "orders", "1:0")
    assert "cell fast is offline: hourwheel cell set-state fast normal brings it back" in refused
    assert "if its storage can be reached; run the command again" in refused
    assert "idempotency" not in refused

    shell.ok("cell", "set-state", "fast", "normal")
    once = shell("consume", "orders", "billing", "--once")
    assert (once.stdout, once.stderr) == ("away\n", "")


def test_a_leave_and_a_list_of_consumers_name_the_cell_in_which_leases_stay(shell: Shell, api: Api) -> None:
    shell.ok("subject", "create", "orders")
    shell.ok("group", "create", "orders", "billing")
    shell.ok("queue", "move", "orders", "0", "--to", "fast")
    api.produce("orders", [Message("away")])
    assert len(api.pull("orders", "billing", "host-1", lease_seconds=3_600).pulls) == 1
    shell.ok("queue", "move", "orders", "0", "--to", "home")
    shell.ok("cell", "set-state", "fast", "offline")

    left = shell("group", "leave", "orders", "billing", "host-1")
    assert (left.exit_code, left.stdout) == (0, "released 0 messages of host-1\n")
    told = "hourwheel: cell fast, offline or out of reach: what host-1 holds there stays leased until its leases end"
    assert left.stderr.startswith(told)
    assert len(left.stderr.splitlines()) == 1
    assert "cell fast, offline or out of reach" in shell("group", "consumers", "orders", "billing").stderr

    shell.ok("cell", "set-state", "fast", "normal")
    left = shell("group", "leave", "orders", "billing", "host-1")
    assert (left.stdout, left.stderr) == ("released 1 message of host-1\n", "")


def test_a_subject_is_spread_evenly_and_gets_more_queues(shell: Shell) -> None:
    shell.ok("subject", "create", "orders", "--queues", "2")
    assert shell.json("queue", "add", "orders", "4", "--dry-run")["dry_run"]
    assert where(shell) == ["home", "home"]
    shell.ok("queue", "add", "orders", "4")
    shell.ok("queue", "spread", "orders", "--over", "home", "--over", "fast", "--dry-run")
    assert set(where(shell)) == {"home"}
    shell.ok("queue", "spread", "orders", "--over", "home", "--over", "fast")
    assert sorted(where(shell)) == ["fast", "fast", "home", "home"]
    assert shell.json("queue", "add", "orders", "4")["before"] == shell.json("queue", "list", "orders")


def test_a_cell_is_drained_and_removed_once_it_holds_nothing(shell: Shell, api: Api) -> None:
    shell.ok("subject", "create", "orders", "--queues", "2")
    shell.ok("queue", "move", "orders", "0", "--to", "old")
    foreseen = shell.ok("cell", "drain", "old", "--dry-run")
    assert "after (nothing was changed)" in foreseen
    assert where(shell)[0] == "old"
    shell.ok("cell", "drain", "old")
    assert "old" not in where(shell)
    assert shell.json("cell", "show", "old")["state"] == "draining"
    assert "is draining" in shell.failed("queue", "move", "orders", "0", "--to", "old")


def test_a_cell_is_removed_only_where_somebody_confirms(shell: Shell) -> None:
    assert "holds subjects and groups: it cannot be removed" in shell.failed("cell", "remove", "home")
    shell.ok("cell", "drain", "old")
    assert shell.ok("cell", "drain", "old") == "old holds nothing"
    assert "give --yes" in shell.refused("cell", "remove", "old")
    assert shell.json("cell", "remove", "old", "--dry-run")["cell"] == "old"
    assert shell.json("cell", "show", "old")["state"] == "draining"
    shell.ok("cell", "remove", "old", "--yes")
    assert [cell["cell"] for cell in shell.json("cell", "list")] == ["home", "fast"]


def test_a_cell_of_one_kind_takes_no_queues_of_the_other(shell: Shell) -> None:
    shell.ok("subject", "create", "orders")
    assert shell.json("cell", "add", "fast", "--kind", "delay", "--dry-run")["kinds"] == ["delay"]
    assert shell.json("cell", "show", "fast")["kinds"] == ["real-time", "delay"]
    shell.ok("cell", "add", "fast", "--kind", "delay")
    assert "takes no queues: it is of the kind delay" in shell.failed("queue", "move", "orders", "0", "--to", "fast")


def test_a_cell_to_which_queues_send_is_not_taken_off_line(shell: Shell) -> None:
    shell.ok("subject", "create", "orders")
    shell.ok("queue", "move", "orders", "0", "--to", "fast")
    assert "takes the messages of 1 queue (orders/0)" in shell.failed("cell", "set-state", "fast", "offline")
    assert shell.json("cell", "set-state", "old", "offline", "--dry-run")["state"] == "offline"
    assert shell.json("cell", "show", "old")["state"] == "normal"


def test_an_empty_part_that_has_expired_is_left_out_of_the_table_alone(shell: Shell) -> None:
    shell.ok("subject", "create", "plain")
    shell.ok("queue", "add", "plain", "2")
    assert "expired" not in shell.ok("queue", "list", "plain")
    route = shell.json("queue", "list", "plain")
    assert [mapping["state"] for mapping in route["queues"][0]["mappings"]] == ["expired", "normal"]


def test_a_command_with_nothing_to_do_says_so(shell: Shell) -> None:
    shell.ok("subject", "create", "orders", "--queues", "2")
    shell.ok("queue", "spread", "orders", "--over", "home", "--over", "fast")
    for command in (
        ("spread", "orders", "--over", "fast", "--over", "home"),
        ("add", "orders", "2"),
        ("withdraw", "orders"),
    ):
        assert shell.ok("queue", *command).startswith("nothing to do: ")
    assert "has no queue 7" in shell.failed("queue", "withdraw", "orders", "7")


def test_a_cell_that_goes_offline_names_its_closed_parts_with_messages(shell: Shell, api: Api) -> None:
    shell.ok("subject", "create", "orders")
    shell.ok("queue", "move", "orders", "0", "--to", "fast")
    api.produce("orders", [Message("a")])
    shell.ok("queue", "move", "orders", "0", "--to", "home")
    told = shell.ok("cell", "set-state", "fast", "offline", "--dry-run")
    assert "no group gets the messages of these parts while the cell is offline:" in told
    assert shell.json("cell", "set-state", "fast", "offline", "--dry-run")["unreadable"][0]["messages"] == 1
    assert shell.json("cell", "show", "fast")["unreadable"] == []
