"""Makes benches for tests of moves between cells."""

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.ports.storage import CellStorage, Store
from tests.support import Bench


def with_a_queue_in_each_cell(settings: Settings, fast: Store) -> Bench:
    """Returns a bench with the cells ``fast``, on the given store, and ``old``. Queues 0, 1 and 2 of ``orders`` are in
    the home cell, in ``fast`` and in ``old``."""
    stores = {"fast": fast, "old": MemoryStore()}
    bench = Bench(settings=settings, cells={name: CellStorage(store, MemoryBlobs()) for name, store in stores.items()})
    bench.deployment.subjects.put("orders", queues=3)
    for queue, name in enumerate(stores, 1):
        bench.deployment.cells.add(name)
        bench.deployment.routes.move("orders", queue, name)
    return bench
