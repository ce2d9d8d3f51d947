"""Opens a data directory for a command of the command line; a server may have it open at the same time."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.adapters.polling import PollingWakeups
from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.adapters.synced_mark import SyncedMark
from hourwheel.context import Context, Settings
from hourwheel.embedded.directory import INLINE_BYTES, database, prepare, synced
from hourwheel.embedded.loss import check_complete
from hourwheel.system import SystemClock, SystemIds


class ServerTimers:
    """Ignores timers, because a command turns no wheels. The server finds due wheels at its start and each minute."""

    def at(self, when_ms: int, bucket: str) -> None:
        pass


@contextmanager
def opened(data: Path, *, accept_loss: bool = False) -> Iterator[Context]:
    """Opens the directory for a block. Raises the store's errors, ``OSError``, and ``Lost`` unless ``accept_loss``."""
    prepare(data)
    clock = SystemClock()
    with closing(SyncedMark(synced(data))) as mark, ExitStack() as opening:
        check_complete(database(data), mark, accept_loss=accept_loss)
        store = opening.enter_context(closing(SqliteStore(database(data), mark=mark)))
        yield Context(
            store=store,
            blobs=FileBlobs(data),
            clock=clock,
            ids=SystemIds(),
            wakeups=PollingWakeups(clock),
            meter=CountingMeter(),
            timers=ServerTimers(),
            settings=Settings(inline_bytes=INLINE_BYTES),
        )
