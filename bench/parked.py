"""Measures what the parked messages of an ordered group cost: the snapshot, a process that begins with it, and a pull.

`python -m bench.parked` runs this measurement alone. It needs no server.
"""

import time
import tracemalloc
from tempfile import TemporaryDirectory

from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.model.log_names import records_of
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.ordered.snapshots import Snapshots
from hourwheel.ports.storage import Table
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from tests.support import Bench

_SUBJECT, _GROUP = "orders", "billing"
_PULLS = 50


def parked(keys: int, messages: int) -> dict[str, float]:
    """Returns what this number of messages, parked behind the stopped messages of this number of keys, costs in bytes
    and CPU time."""
    with TemporaryDirectory() as folder:
        store = SqliteStore(f"{folder}/cell.db")
        bench = Bench(store)
        bench.deployment.groups.put(_SUBJECT, _GROUP, ordered=True, max_attempts=1, when_dead="stop", max_held=100_000)
        _park(bench, keys, messages)
        log = _log(bench)
        began = time.process_time()
        snapshot = bench.deployment.key_states.current(log).snapshot(0)
        made = time.process_time() - began
        assert Snapshots.of(log).save(Snapshots.of(log).record.load(), snapshot)
        records = _sizes(bench, log)
        another = bench.another_process()
        tracemalloc.start()
        another.key_states.current(_log(bench))
        memory, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        another = bench.another_process()
        began = time.process_time()
        state = another.key_states.current(_log(bench))
        loaded = time.process_time() - began
        pulled = _pulled(bench)
        store.close()
    return {
        "keys": keys,
        "parked": state.total,
        "records": len(records),
        "snapshot_kb": round(sum(records) / 1_000),
        "snapshot_ms": round(made * 1_000, 1),
        "load_ms": round(loaded * 1_000, 1),
        "memory_mb": round(memory / 1e6, 1),
        "pull_ms": round(pulled * 1_000, 2),
    }


def _park(bench: Bench, keys: int, messages: int) -> None:
    for start in range(0, keys, 1_000):
        _send(bench, [f"key-{number}" for number in range(start, min(start + 1_000, keys))])
    while pulls := bench.pull(1_000):
        for pull in pulls:
            bench.settle(pull, retry=list(range(len(pull.messages))))
    for start in range(0, messages, 1_000):
        _send(bench, [f"key-{number % keys}" for number in range(start, start + 1_000)])
        bench.pull(1_000)


def _send(bench: Bench, keys: list[str]) -> None:
    bench.deployment.produce(_SUBJECT, [NewMessage(body="-", key=key) for key in keys])


def _log(bench: Bench) -> PullLog:
    subject = bench.deployment.registry.subject(_SUBJECT, create=False)
    group = bench.deployment.registry.group(subject, _GROUP, create=False)
    return pull_logs(bench.deployment.context, subject, group)[1]


def _sizes(bench: Bench, log: PullLog) -> list[int]:
    """Returns the bytes of each record of the snapshot."""
    pages = bench.store.scan(Table.META, f"parked/{log.partition}", limit=1_000)
    records = bench.store.scan(Table.META, records_of(log.partition), limit=10)
    return [len(record.value) for name, record in [*pages, *records] if name == "parked" or (name, record) in pages]


def _pulled(bench: Bench) -> float:
    """Returns the seconds of CPU that a pull of 100 messages of other keys, which settles the one before, takes."""
    settle: list[Settlement] = []
    spent = 0.0
    for turn in range(_PULLS):
        _send(bench, [f"other-{turn}-{number}" for number in range(100)])
        began = time.process_time()
        request = PullRequest(consumer="c1", max_messages=100, settle=settle)
        pulls = bench.deployment.pull(_SUBJECT, _GROUP, request).pulls
        spent += time.process_time() - began
        settle = [Settlement(receipt=pull.receipt) for pull in pulls]
    return spent / _PULLS


if __name__ == "__main__":
    for keys, messages in ((1, 1_000), (1, 100_000), (1, 990_000), (9_000, 100_000), (9_000, 990_000), (99_000, 1_000)):
        print(parked(keys, messages))
