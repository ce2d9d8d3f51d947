"""What a process keeps by the name of a subject or group goes with the name."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.operations.history import GroupReading
from hourwheel.operations.overview import OverviewRequest
from hourwheel.registry.removed_names import RemovedNames
from tests.support import AT_ONCE, Bench, CallByCall

KINDS = ("plain", "ordered", "broadcast")
_NO_MEMORY = {"store", "_store", "blobs", "_closing", "meter", "pending_counts", "_delayed"}
"""A store in memory keeps its rows in tables, and a meter has the names of metrics. Delayed messages outlive their
subject: their counts go with the bucket."""

KEPT = {
    "leases._watches",
    "ends._ends",
    "group_logs._kept",
    "flow._states",
    "key_states._states",
    "key_states._rows",
    "key_states.decoded_rows._rows",
    "seen_pulls._pulls",
    "registry._records._seen",
    "overview._entries",
    "overview.history._rings",
    "sweeper._memory.ends._seen",
    "sweeper._memory.extended_ms",
}
"""Tables that are known to keep names: the walk must see them grow."""

_TABLES = (dict, set, list, deque)


def tables(root: object) -> Counter[str]:
    """Returns the number of entries of each table that objects of the product hold below ``root``, by its path."""
    sizes: Counter[str] = Counter()
    seen = set[int]()

    def visit(value: object, path: str) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, _TABLES):
            sizes[path] += len(value)
            for each in list(value.values() if isinstance(value, dict) else value):
                visit(each, f"{path}[]")
        elif type(value).__module__.startswith("hourwheel."):
            for name, each in attributes(value):
                visit(each, f"{path}.{name}")

    visit(root, type(root).__name__)
    return sizes


def attributes(value: object) -> Iterator[tuple[str, object]]:
    names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
    return ((name, getattr(value, name, None)) for name in names if name not in _NO_MEMORY)


def use(deployment: Deployment, subject: str, **settings: bool) -> None:
    """Uses a subject and a group of it in all ways that a process remembers."""
    deployment.groups.put(subject, "workers", max_in_flight=None if settings else 50, **settings)
    deployment.produce(subject, [NewMessage(body=str(number), key=str(number)) for number in range(3)])
    deployment.produce(subject, [NewMessage(body="later", delay=3_600)])
    for indexes in ([0], []):
        for pull in deployment.pull(subject, "workers", PullRequest(consumer="c", max_messages=1)).pulls:
            deployment.settle(subject, "workers", [Settlement(receipt=pull.receipt, retry=indexes)])
    deployment.pull(subject, "workers", PullRequest(consumer="c", max_messages=9))
    deployment.pull(subject, "workers", PullRequest(consumer="c", max_messages=9))
    deployment.groups.lag(subject, "workers")
    busy = {"workers": GroupReading(at_ms=60_000, accepted=1, settled=1, waiting=1, oldest_seconds=1, dead=1, seeks=0)}
    deployment.overview.history.follow(subject, {"workers": GroupReading(*[0] * 7)}, busy)


def use_all(deployment: Deployment, names: range) -> None:
    for number in names:
        use(deployment, f"plain-{number}")
        use(deployment, f"ordered-{number}", ordered=True)
        use(deployment, f"broadcast-{number}", broadcast=True)
    deployment.overview.page(OverviewRequest())
    deployment.sweeper.sweep()


def delete_all(deployment: Deployment, names: range) -> None:
    """Deletes the groups, then every other subject before its tombstones of groups are swept, then the rest."""
    for number in names:
        for kind in KINDS:
            deployment.groups.delete(f"{kind}-{number}", "workers")
            if number % 2:
                deployment.subjects.delete(f"{kind}-{number}")
    deployment.sweeper.sweep()
    for number in names:
        for kind in KINDS:
            if not number % 2:
                deployment.subjects.delete(f"{kind}-{number}")


def check_dropped(root: object, deployment: Deployment, names: range, delete: Callable[[range], None]) -> None:
    """Uses names, deletes them with ``delete``, and checks that each table below ``root`` is as large as before."""
    use_all(deployment, range(2))
    delete(range(2))
    before = tables(root)
    use_all(deployment, names)
    used = tables(root)
    grown = {path.rpartition("eployment.")[2] for path in used if used[path] >= before[path] + len(names)}
    assert grown >= KEPT
    delete(names)
    after = tables(root)
    assert {path: (before[path], after[path]) for path in after if after[path] > before[path]} == {}


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    store = MemoryStore()
    settings = Settings(retry=AT_ONCE, sweep_rest_seconds=600, archive=True)
    return Bench(CallByCall(store) if request.param == "call by call" else store, settings=settings)


def test_three_hundred_deleted_subjects_and_their_groups_are_dropped(bench: Bench) -> None:
    check_dropped(bench.deployment, bench.deployment, range(2, 102), partial(delete_all, bench.deployment))


def test_a_sweep_drops_names_that_another_process_has_deleted(bench: Bench) -> None:
    other = bench.another_process()

    def delete(names: range) -> None:
        delete_all(other, names)
        bench.deployment.sweeper.sweep()

    check_dropped(bench.deployment, bench.deployment, range(2, 12), delete)


def test_a_server_drops_removed_names(tmp_path: Path) -> None:
    with closing(Runtime(ServeOptions(data=tmp_path, archive_seconds=60))) as runtime:
        check_dropped(runtime, runtime.deployment, range(2, 12), partial(delete_all, runtime.deployment))


def test_a_new_subject_or_group_keeps_its_entries_beside_tombstones(bench: Bench) -> None:
    deleted = RemovedNames()
    for again in (True, False):
        bench.deployment.groups.put("orders", "workers")
        if again:
            bench.deployment.groups.delete("orders", "workers")
            bench.deployment.subjects.delete("orders")
    subject = bench.deployment.subjects.get("orders")
    deleted.add_subject(subject)
    group = bench.deployment.groups.get("orders", "workers")
    deleted.add_group(group)
    old, new = "workers~1@orders~1/0", f"{group.member}@orders~{subject.generation}/0"
    assert deleted.has_log(old)
    assert not deleted.has_log(new)
    assert not deleted.has_log("schedule/20260101T00-1h")
    assert not deleted.has_group("orders", "workers")
