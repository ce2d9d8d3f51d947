"""A request whose header says that it is a repetition reserves no offsets, in whatever process it arrives."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from tests.support import Bench, CallByCall
from tests.unit.api.conftest import MESSAGES, Api

BATCH = {"messages": [{"body": "a"}, {"body": "b"}], "idempotency_key": "once"}
SPANNING = {"messages": [{"body": "a", "subject": "orders"}], "idempotency_key": "once"}


@pytest.mark.parametrize(("target", "batch"), [(MESSAGES, BATCH), ("/v1/messages", SPANNING)])
def test_a_repetition_that_says_so_reserves_nothing(target: str, batch: object) -> None:
    bench = Bench(CallByCall(MemoryStore()))
    first = Api(bench).respond("POST", target, batch)
    ends = bench.store.counter("orders~1/0")
    for _ in range(3):
        bench.deployment = bench.another_process()
        again = Api(bench).respond("POST", target, batch, headers={"x-hourwheel-repeat": "1"})
        assert (again["statusCode"], again["body"]) == (first["statusCode"], first["body"])
    assert bench.store.counter("orders~1/0") == ends
