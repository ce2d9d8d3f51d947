"""A claim whose put is refused looks again, also where the refusal does not tell which row stands there."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.ports.storage import Key, Record, Refused, Table
from tests.support import AT_ONCE, Bench, CallByCall


class RefusingStore(CallByCall):
    """Refuses the next claims without content: the row that stood there is gone by the time at which it is read."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.refusals = 0

    def put(self, key: Key, record: Record, **how: Any) -> Refused | None:
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
