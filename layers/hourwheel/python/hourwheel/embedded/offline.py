"""A data directory, opened by a command and not by the server; the server may have it open as well."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.adapters.polling import PollingArrivals
from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.adapters.system import SystemClock, SystemIds
from hourwheel.context import Context, Settings
from hourwheel.embedded.directory import INLINE_BYTES, database, prepare


class ServerTimers:
    """``Timers`` of who turns no wheels: the server looks for what should turn when it starts, and each minute."""

    def at(self, when_ms: int, bucket: str) -> None:
        pass


@contextmanager
def opened(data: Path) -> Iterator[Context]:
    """Raises the store's errors and ``OSError``."""
    prepare(data)
    clock = SystemClock()
    with closing(SqliteStore(database(data))) as store:
        yield Context(
            store=store,
            blobs=FileBlobs(data),
            clock=clock,
            ids=SystemIds(),
            arrivals=PollingArrivals(clock),
            meter=CountingMeter(),
            timers=ServerTimers(),
            settings=Settings(inline_bytes=INLINE_BYTES),
        )
