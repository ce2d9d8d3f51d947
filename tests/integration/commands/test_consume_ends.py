"""``hourwheel consume --once`` says why it ends although messages are left."""

import pytest

from hourwheel.client import Api, Message, Settlement
from hourwheel.model.pulls import RetryLater
from tests.integration.commands.conftest import Shell


def test_a_flow_limit_is_told_only_where_it_ends_the_command(shell: Shell, api: Api) -> None:
    api.put_subject("orders")
    api.put_group("orders", "flow", max_in_flight=2)
    api.produce("orders", [Message(body) for body in "abcde"])
    once = shell("consume", "orders", "flow", "--once")
    assert (once.exit_code, once.stdout.split(), once.stderr) == (0, list("abcde"), "")
    api.produce("orders", [Message(body) for body in "fgh"])
    api.pull("orders", "flow", "host-1", max_messages=2)
    once = shell("consume", "orders", "flow", "--once")
    assert (once.stdout, once.exit_code) == ("", 0)
    assert "as many messages in flight as it allows" in once.stderr


@pytest.mark.parametrize("when_dead", ["stop", "continue"])
def test_messages_behind_held_keys_are_told(shell: Shell, api: Api, when_dead: str) -> None:
    api.put_subject("orders")
    api.put_group("orders", "ledger", ordered=True, when_dead=when_dead, max_held=1)
    api.produce("orders", [Message(body, key="k") for body in "abc"])
    api.produce("orders", [Message("d", key="other")])
    (pull,) = api.pull("orders", "ledger", "host-1", max_messages=1).pulls
    dead, retry = ([0], None) if when_dead == "stop" else (None, [RetryLater(index=0, delay=60)])
    settled = Settlement(receipt=pull.receipt, dead=dead, retry=retry)
    api.settle("orders", "ledger", [settled])
    once = shell("consume", "orders", "ledger", "--once")
    assert (once.stdout, once.exit_code) == ("", 0)
    assert "1 key held: messages of the same key wait until the first one is settled" in once.stderr
    assert "new messages of queue 0 wait as well" in once.stderr
    assert "hourwheel lag orders ledger shows the keys" in once.stderr
    assert ("hourwheel group decide orders ledger retry --all, or dead" in once.stderr) == (when_dead == "stop")
