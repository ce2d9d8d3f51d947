"""The roles of the functions allow the calls of the library, in particular the rare ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells.store_formats import check_format, check_formats
from hourwheel.context import Settings
from hourwheel.errors import Conflict, Unavailable
from hourwheel.groups.state import dead_reasons
from hourwheel.model.groups import TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.operations.overview import OverviewRequest
from hourwheel.ordered import key_state_cache, snapshots
from hourwheel.ports.storage import CellStorage, Key, Record, Refused, Table
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.registry.registry import Registry
from hourwheel.system import SystemIds
from infra.permissions import (
    CELL_TABLE_ACTIONS,
    HOME_ACTIONS_WITH_CELLS,
    TABLE_ACTIONS,
    TABLE_ACTIONS_WITH_QUOTA,
    Verbs,
)
from infra.tables import NAMES
from tests.support import AT_ONCE, Bench, CallByCall, HandPreciseTimers

ACTIONS = {
    "get": "GetItem",
    "get many": "BatchGetItem",
    "get keys": "BatchGetItem",
    "put": "PutItem",
    "delete": "DeleteItem",
    "remove many": "BatchWriteItem",
    "scan": "Query",
    "add": "UpdateItem",
    "begin": "UpdateItem",
    "seal": "UpdateItem",
    "counter": "GetItem",
    "counters": "BatchGetItem",
}
UNPAID = ("trim", "collect")
"""Ignores removals: DynamoDB removes expired items itself."""

GROUPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ordered": {"ordered": True},
    "limited": {"messages_per_second": 5.0, "max_in_flight": 50},
    "filtered": {"filter": TagFilter(tags_any=("a",))},
    "broadcast": {"broadcast": True},
}


def refused(function: str, store: CallByCall, actions: Verbs = TABLE_ACTIONS) -> set[tuple[str, str]]:
    """Returns the calls that the function's role does not allow."""
    made = {(ACTIONS[verb], name if name in NAMES else "counters") for verb, name in store.calls if verb not in UNPAID}
    return {(action, table) for action, table in made if action not in actions[function].get(table, ())}


def test_a_batch_with_a_key_may_make_its_subject() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store)
    key = IdempotencyKey("one", b"digest")
    bench.deployment.produce("orders", [NewMessage(body="a")], key)
    assert ("put", "keys") in store.calls
    assert refused("produce", store) == set()


@pytest.mark.parametrize("function", TABLE_ACTIONS)
def test_every_function_may_check_the_format_and_sweep_may_store_it(function: str) -> None:
    home, there = CallByCall(MemoryStore()), CallByCall(MemoryStore())
    bench = Bench(home, cells={"fast": CellStorage(there, MemoryBlobs())})
    check_formats(bench.deployment.context, keep=function == "sweep")
    if CELL_TABLE_ACTIONS[function]:  # the function delayed opens no other cell
        check_format(there, SystemIds(), "cell fast")
    assert refused(function, home) == set()
    assert refused(function, there, CELL_TABLE_ACTIONS) == set()


@pytest.mark.parametrize("way", ["finished", "cut off"])
def test_a_send_after_the_deletion_of_its_subject_deletes_nothing(way: str) -> None:
    functions = Functions()
    deployment = functions.bench.deployment
    deployment.groups.put("orders", "billing", ordered=True)
    deployment.cells.add("fast")
    deployment.routes.move("orders", 0, "fast")
    functions.work(1, ordered=True)
    with pytest.MonkeyPatch.context() as patch:
        if way == "cut off":
            patch.setattr("hourwheel.sweep.erasure.erase_group", lambda *_: None)
            patch.setattr(Registry, "_erased", lambda *_: None)
        deployment.subjects.delete("orders")
    with functions.called("produce"), nullcontext() if way == "finished" else pytest.raises(Unavailable):
        functions.bench.deployment.produce("orders", [NewMessage(body="new")])
    with functions.called("sweep"):
        functions.bench.deployment.sweeper.sweep_subjects()
    with functions.called("produce"):
        functions.bench.deployment.produce("orders", [NewMessage(body="new")])
    assert functions.refused == set()


@pytest.mark.parametrize("function", ["produce", "pull"])
def test_a_call_that_creates_a_subject_may_count_the_others_where_their_number_has_a_limit(function: str) -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(max_subjects=1))
    bench.send("a")
    store.calls.clear()
    with pytest.raises(Conflict, match="which is the limit"):
        bench.send("a", subject="parcels") if function == "produce" else bench.pull(subject="parcels")
    further = {(action, table) for table, actions in TABLE_ACTIONS_WITH_QUOTA[function].items() for action in actions}
    assert refused(function, store) == further


@pytest.mark.parametrize("call", ["list", "overview"])
def test_the_function_meta_may_list_subjects(call: str) -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store)
    bench.send("a")
    store.calls.clear()
    if call == "list":
        bench.deployment.subjects.page("", 10)
    else:
        bench.deployment.overview.page(OverviewRequest())
    assert ("get keys", "meta") in store.calls
    assert refused("meta", store) == set()


class Functions:
    """The functions of a deployment with another cell, each call in a new process: no cache saves a call."""

    def __init__(self) -> None:
        self.stores = {"home": CallByCall(MemoryStore()), "fast": CallByCall(MemoryStore())}
        settings = Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024)
        cells = {"fast": CellStorage(self.stores["fast"], MemoryBlobs())}
        self.bench = Bench(self.stores["home"], settings=settings, cells=cells)
        self.refused: set[tuple[str, ...]] = set()

    @contextmanager
    def called(self, function: str) -> Iterator[None]:
        """Runs the block as this function, and notes the calls that its role does not allow."""
        self.bench.deployment = self.bench.another_process()
        for store in self.stores.values():
            store.calls.clear()
        yield
        home = {
            (action, table)
            for action, table in refused(function, self.stores["home"])
            if action not in HOME_ACTIONS_WITH_CELLS.get(function, {}).get(table, ())
        }
        away = refused(function, self.stores["fast"], CELL_TABLE_ACTIONS)
        self.refused |= {(function, "home", *call) for call in home} | {(function, "fast", *call) for call in away}

    def pull(self, consumer: str, most: int) -> list[Pull]:
        with self.called("pull"):
            request = PullRequest(consumer=consumer, max_messages=most, lease_seconds=30)
            return self.bench.deployment.pull("orders", "billing", request).pulls

    def settle(self, pulls: list[Pull], how: Callable[[Pull], dict[str, Any]]) -> None:
        for pull in pulls:
            with self.called("ack"):
                self.bench.deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, **how(pull))])

    def work(self, rounds: int, *, ordered: bool) -> None:
        for _ in range(rounds):
            for number in range(30):
                tags = ["a" if number % 2 else "b"]
                with self.called("produce"):
                    messages = [NewMessage(body=f"{number}-{key}", key=key, tags=tags) for key in "abc"]
                    self.bench.deployment.produce("orders", messages)
            first, second = self.pull("c1", 10), self.pull("c2", 40)
            self.settle(first, lambda pull: {"retry": [0], "dead": [1] if len(pull.messages) > 1 else []})
            self.settle(second, lambda _: {"ack": [0]})
            self.look(ordered=ordered)
            self.settle(self.pull("c1", 100), lambda _: {})
            self.bench.clock.pass_time(200)

    def look(self, *, ordered: bool) -> None:
        with self.called("meta"):
            deployment = self.bench.deployment
            deployment.groups.lag("orders", "billing")
            deployment.groups.consumers("orders", "billing")
            deployment.overview.page(OverviewRequest())
            deployment.overview.groups("orders", "", 100)
            deployment.groups.state("orders", "billing").leases(deployment.leases)
            deployment.groups.state("orders", "billing").retries(deployment.pending_counts, deployment.opener)
            dead_reasons(deployment.dead_letters("orders", "billing").alive())
            deployment.background.due(None, None, None, "hour")
            deployment.background.due(None, None, None, "minute")
            deployment.background.wheels()
            deployment.background.archive()
            deployment.groups.leave("orders", "billing", "c1")
            deployment.dead_letters("orders", "billing").redrive(lambda *_: True)
        if ordered:
            with self.called("meta"):
                self.bench.deployment.groups.decide("orders", "billing", None, "retry")
        self.bench.clock.pass_time(40)
        with self.called("sweep"):
            self.bench.deployment.sweeper.sweep_subjects()
        with self.called("delayed"):
            self.bench.deployment.sweeper.delayed.tend()


@pytest.mark.parametrize("where", ["home", "fast"])
@pytest.mark.parametrize("kind", GROUPS)
def test_the_functions_may_serve_each_kind_of_group(kind: str, where: str) -> None:
    functions = Functions()
    deployment = functions.bench.deployment
    deployment.groups.put("orders", "billing", **GROUPS[kind])
    if where == "fast":
        deployment.cells.add("fast")
        deployment.routes.move("orders", 0, "fast")
    functions.work(3, ordered=kind == "ordered")
    assert functions.refused == set()


@pytest.mark.parametrize("where", ["home", "fast"])
def test_the_functions_may_divide_a_snapshot_into_pages_and_remove_them(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_state_cache, "_SNAPSHOT_ROWS", 1)
    monkeypatch.setattr(snapshots, "PAGE_BYTES", 20)
    monkeypatch.setattr(snapshots, "_PIECE_BLOCKS", 1)
    functions = Functions()
    deployment = functions.bench.deployment
    deployment.groups.put("orders", "billing", ordered=True)
    if where == "fast":
        deployment.cells.add("fast")
        deployment.routes.move("orders", 0, "fast")
    functions.work(2, ordered=True)
    with functions.called("produce"):
        messages = [NewMessage(body="-", key=key) for key in "ab" * 60]
        functions.bench.deployment.produce("orders", messages)
    for consumer in ("c1", "c2", "c3"):
        functions.pull(consumer, 1)
    functions.look(ordered=True)
    prefix = "parked/billing~1@" + ("fast:orders~1/0.1" if where == "fast" else "orders~1/0")
    assert functions.stores[where].scan(Table.META, prefix, limit=1) != []
    with functions.called("meta"):
        functions.bench.deployment.groups.delete("orders", "billing")
    assert functions.stores[where].scan(Table.META, prefix, limit=1) == []
    assert functions.refused == set()


@contextmanager
def ending_after(puts: int) -> Iterator[None]:
    """Runs the block as a process that ends after this many writes of rows and records."""
    left, put = iter(range(puts)), CallByCall.put

    def ending(store: CallByCall, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if next(left, None) is None:
            raise Unavailable("the end of the process")
        return put(store, key, record, expect=expect)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallByCall, "put", ending)
        yield


@pytest.mark.parametrize("precise", [False, True])
def test_delayed_work_may_finish_moves_that_were_cut_off_anywhere_and_remove_their_buckets(precise: bool) -> None:
    cut_off = 0
    for puts in range(20):
        functions = Functions()
        bench = functions.bench
        bench.precise = HandPreciseTimers(bench.timers, bench.clock) if precise else None
        bench.deployment = bench.another_process()
        (accepted,) = bench.deployment.produce("orders", [NewMessage(body="-" * 2_000, delay="2h")])
        assert accepted.scheduled_id is not None
        try:
            with ending_after(puts):
                bench.deployment.delayed.reschedule(accepted.scheduled_id, delay="8h")
        except Unavailable:
            cut_off += 1
        with functions.called("delayed"):
            bench.deployment.sweeper.delayed.tend()
        bench.turn(9 * 3_600)
        for _ in range(2):  # the first one closes what no wheel has closed
            bench.clock.pass_time(2 * 86_400)
            with functions.called("delayed"):
                bench.deployment.sweeper.delayed.tend()
        assert functions.refused == set()
        assert bench.store.scan(Table.META, "buckets", limit=1) == []
        if cut_off <= puts:
            break
    assert cut_off > 4


def test_the_pusher_may_do_what_pull_and_ack_may_do_with_groups() -> None:
    for actions in (TABLE_ACTIONS, CELL_TABLE_ACTIONS):
        for function in ("pull", "ack"):
            for table, verbs in actions[function].items():
                assert set(verbs) <= set(actions["push"].get(table, ())), (function, table)
