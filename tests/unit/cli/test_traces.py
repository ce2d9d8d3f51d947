"""How traces of messages are written for people."""

import pytest

from hourwheel.cli.messages.messages import write_traces
from hourwheel.client.records.trace import MessageTrace


def test_the_trace_of_a_delayed_message_names_the_id_that_cancels_it(capsys: pytest.CaptureFixture[str]) -> None:
    write_traces([MessageTrace(subject="orders", id="order-7", state="waiting", scheduled_id="6b0aa620-60-0-0-0-1")])
    assert capsys.readouterr().out.splitlines() == ["order-7: waiting", "  scheduled id  6b0aa620-60-0-0-0-1"]
