"""Two archivers at once: one is slow, and the other goes on from what it has committed."""

from collections.abc import Callable

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.ports.storage import Key, Record, Refused, Table
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.watermarks import watermark
from tests.support import Bench, CallByCall
from tests.unit.archive.archiving import run
from tests.unit.archive.reading import contents


class Slow(CallByCall):
    """Runs ``meanwhile`` before the first watermark of the archive is moved."""

    meanwhile: Callable[[], object] | None = None

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        meanwhile = self.meanwhile
        if meanwhile is not None and (key.table, key.partition) == (Table.META, "archive"):
            self.meanwhile = None
            meanwhile()
        return super().put(key, record, expect=expect)


def test_an_archiver_that_was_overtaken_after_its_commit_moves_no_mark_back(bench: Bench, archive: MemoryBlobs) -> None:
    store = Slow(bench.store)
    slow = Bench(store, bench.blobs, bench.clock, settings=bench.settings)
    bench.send("a")

    def meanwhile() -> None:
        bench.send("b")
        bench.send("c")
        assert run(bench, archive).complete

    store.meanwhile = meanwhile
    run(slow, archive)
    assert watermark(bench.deployment.context, MESSAGES, "orders~1/0") == 3
    bench.send("d")
    run(bench, archive)
    found = contents(archive)
    assert set(found.rows.values()) == {1}
    assert found.bodies("orders~1/0") == [*"abcd"]
