"""A claim whose put is refused looks again, after a pause if that happens often, or in another queue."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from hourwheel.ports.storage import Key, Record, Refused, Table
from tests.support import AT_ONCE, Bench, CallByCall


class RefusingStore(CallByCall):
    """Refuses the next claims without content: the row that stood there is gone by the time at which it is read."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.refusals = 0
        self.claimed: list[str] = []
        """The pull logs to which claims were put."""

    def put(self, key: Key, record: Record, **how: Any) -> Refused | None:
        if key.table is Table.PULL and how["expect"] is None:
            self.claimed.append(key.partition)
        if self.refusals and key.table is Table.PULL and how["expect"] is None:
            self.refusals -= 1
            return Refused(None)
        return super().put(key, record, **how)


@pytest.mark.parametrize("refusals", [1, 2, 5])
@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
def test_a_claim_that_is_refused_without_content_is_made_again(ordered: bool, refusals: int) -> None:
    store = RefusingStore()
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.groups.put("orders", "billing", ordered=ordered)
    bench.send("a", "b")
    store.refusals = refusals
    assert bench.bodies() == ["a", "b"]
    assert store.refusals == 0


@pytest.mark.parametrize(("refusals", "pauses"), [(0, 0), (1, 0), (2, 1), (3, 2), (9, 8)])
def test_a_claim_that_has_lost_twice_pauses_before_it_tries_again(refusals: int, pauses: int) -> None:
    store = RefusingStore()
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("a")
    store.refusals = refusals
    began_ms = bench.clock.now_ms()
    assert bench.bodies() == ["a"]
    assert store.refusals == 0
    waited_ms = bench.clock.now_ms() - began_ms
    assert waited_ms <= sum(min(200, 10 * 2**pause) for pause in range(pauses))
    assert (waited_ms > 0) == (pauses > 0)


def test_a_claim_that_has_lost_twice_goes_on_to_another_queue() -> None:
    store = RefusingStore()
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.groups.put("orders", "billing")
    for number in range(8):
        bench.deployment.produce("orders", [NewMessage(body="a", key=str(number))])
    began_ms = bench.clock.now_ms()
    store.refusals = 2
    (pulled,) = bench.deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=1)).pulls
    assert bench.clock.now_ms() == began_ms, "no pause while another queue has messages"
    first, again, other = store.claimed
    assert first == again != other
    assert other.endswith(f"/{pulled.queue}")
