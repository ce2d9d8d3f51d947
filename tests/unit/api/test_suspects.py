"""An answer says in one place that a message is a suspect: at its pull, in JSON as in msgpack."""

import json

import msgspec
import pytest

from tests.unit.api.conftest import GROUP, Api
from tests.unit.api.test_both_forms import PACKED, PLAIN


@pytest.mark.parametrize("packed", [False, True])
def test_a_suspect_is_named_at_its_pull_and_not_in_its_message(packed: bool) -> None:
    api = Api()
    api.send("a")
    api.pull(lease_seconds=5)
    api.bench.clock.pass_time(60)
    body = {"consumer": "c2"}
    data = msgspec.msgpack.encode(body) if packed else json.dumps(body).encode()
    answer = api.respond("POST", f"{GROUP}/pull", raw=data, headers=PACKED if packed else PLAIN)
    (pull,) = (msgspec.msgpack.decode if packed else json.loads)(answer["body"])["pulls"]
    assert pull["suspect"] is True
    (message,) = pull["blocks"][0]["messages"] if packed else pull["messages"]
    assert (message["body"], message["attempt"]) == ("a", 1)
    assert "suspect" not in message
