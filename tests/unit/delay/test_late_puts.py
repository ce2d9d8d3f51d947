"""A put of a wheel that was replaced may reach the store late: its row is the one that the dispatch log names."""

from contextlib import suppress

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import Unavailable
from hourwheel.ports.storage import Key, Record, Refused, Table
from tests.support import Bench, CallByCall


class Late(CallByCall):
    """A store that holds the first put into a queue back, and answers that it failed."""

    held: tuple[Key, Record] | None = None

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if key.table is Table.CONSUME and self.held is None:
            self.held = key, record
            raise Unavailable("no answer")
        return super().put(key, record, expect=expect)

    def land(self) -> Refused | None:
        assert self.held is not None
        return super().put(*self.held, expect=None)


def test_the_first_row_of_a_queue_whose_put_lands_late_holds_the_message_once() -> None:
    store = Late(MemoryStore())
    bench = Bench(store)
    bench.deployment.groups.put("orders", "billing")
    bench.send_later("a", delay=30)
    with suppress(Unavailable):
        bench.turn(40)
    assert store.held is not None
    bench.deployment = bench.another_process()
    bench.clock.pass_time(40)
    bench.deployment.sweeper.sweep()
    bench.turn(120)
    refused = store.land()
    assert refused is not None, "the next wheel has put the same row"
    assert refused.current is not None
    assert refused.current.token == store.held[1].token
    assert bench.bodies() == ["a"]
    bench.clock.pass_time(5)
    assert bench.bodies() == []
    assert bench.deployment.context.log("orders~1/0").totals().rows == 1, "no other row was reserved"
