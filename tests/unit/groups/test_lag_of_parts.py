"""The lag of an ordered group counts what is parked in every part of a queue."""

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import CellStorage
from tests.support import AT_ONCE, Bench


def parked_group(bench: Bench) -> Bench:
    """Returns the bench with a group of which two messages are parked behind one in flight."""
    bench.deployment.groups.put("orders", "billing", ordered=True)
    bench.deployment.produce("orders", [NewMessage(body=key, key=key) for key in "aaab"])
    assert [bench.bodies(1), bench.bodies(1)] == [["a"], ["b"]]
    return bench


def numbers(bench: Bench) -> tuple[int, list[int], int]:
    """Returns the waiting messages: those of the group, of each queue, and of the group in the overview."""
    lag = bench.deployment.groups.lag("orders", "billing")
    (group,) = bench.deployment.overview.groups("orders", "", 1).groups
    return lag.waiting, [queue.waiting for queue in lag.queues], group.waiting


def test_parked_messages_count_after_queues_were_added(bench: Bench) -> None:
    parked_group(bench)
    before = numbers(bench)
    bench.deployment.subjects.put("orders", queues=2)
    bench.clock.pass_time(10)
    after = numbers(bench)
    assert (after[0], sum(after[1]), after[2]) == (before[0], sum(before[1]), before[2]) == (2, 2, 2)


def test_parked_messages_count_after_a_move_to_another_cell() -> None:
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = parked_group(Bench(settings=settings, cells={"two": CellStorage(MemoryStore(), MemoryBlobs())}))
    bench.deployment.cells.add("two")
    bench.deployment.routes.move("orders", 0, "two")
    bench.deployment.produce("orders", [NewMessage(body="new", key="c")])
    assert numbers(bench) == (3, [3], 3)
