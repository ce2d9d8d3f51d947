"""The functions open other cells when a call needs them, and only those that belong to their deployment."""

import json

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.aws.cells import AwsCells, CellLocation
from hourwheel.aws.services import Environment
from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.cells.store_formats import FORMAT_KEY, check_formats
from hourwheel.context import Settings
from hourwheel.errors import CellUnavailable, Conflict, NoAccess, Unavailable
from hourwheel.logs.formats import FORMAT, StoreFormat
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import CellStorage, Record
from hourwheel.system import SystemIds
from tests.support import AT_ONCE, Bench, CallByCall, HandClock

PLACES = {
    "fast": CellLocation(prefix="queue.fast", bucket="queue-fast"),
    "old": CellLocation(prefix="queue.old", bucket="queue-old", kinds=("delay",)),
}
ARN = "arn:aws:lambda:eu-west-1:111122223333:function:wheel"
VARIABLES = {
    "HOURWHEEL_TABLE_PREFIX": "queue",
    "HOURWHEEL_BUCKET": "queue-batches",
    "HOURWHEEL_WHEEL_FUNCTION": ARN,
    "HOURWHEEL_TIMER_GROUP": "queue",
    "HOURWHEEL_TIMER_ROLE": "arn:aws:iam::111122223333:role/timers",
}


class Account:
    """The tables and buckets of an account. ``opened``: the prefixes of tables that were opened, in order."""

    def __init__(self) -> None:
        self.stores: dict[str, CallByCall] = {}
        self.blobs: dict[str, MemoryBlobs] = {}
        self.opened: list[str] = []

    def store(self, prefix: str) -> CallByCall:
        return self.stores.setdefault(prefix, CallByCall(MemoryStore()))

    def open_storage(self, location: CellLocation) -> CellStorage:
        self.opened.append(location.prefix)
        return CellStorage(self.store(location.prefix), self.blobs.setdefault(location.bucket, MemoryBlobs()))

    def deployed(self, prefix: str = "queue") -> Bench:
        """Returns the functions of a deployment, in a new process."""
        bench = Bench(self.store(prefix), settings=Settings(retry=AT_ONCE, registry_seconds=0))
        cells = AwsCells(PLACES, self.open_storage, bench.store, bench.clock, SystemIds())
        context = bench.deployment.context
        guarded = GuardedCells(cells, bench.store, bench.clock, SystemIds(), seconds=0, rest_seconds=5)
        context.__dict__["cells"] = guarded
        return bench


@pytest.fixture
def account() -> Account:
    return Account()


def test_nothing_is_opened_until_a_queue_is_there(account: Account) -> None:
    bench = account.deployed()
    bench.send("a")
    assert bench.bodies() == ["a"]
    assert account.opened == []


def test_a_queue_moves_and_a_new_process_opens_its_cell_with_three_reads(account: Account) -> None:
    bench = account.deployed()
    added = bench.deployment.cells.add("fast")
    assert (added.location, added.kinds) == ("dynamodb:queue.fast, s3://queue-fast", ("real-time", "delay"))
    bench.send("a")
    bench.deployment.routes.move("orders", 0, "fast")
    account.store("queue.fast").calls.clear()
    other = account.deployed()
    assert [placed.offset for placed in other.deployment.produce("orders", [NewMessage(body="b")])] == [1]
    assert account.store("queue.fast").calls[:2] == [("get", "meta"), ("get", "meta")]
    calls = len(account.opened)
    assert other.bodies() == ["a", "b"]
    assert len(account.opened) == calls


def test_a_cell_is_added_with_the_kinds_of_its_setting_unless_the_operator_names_others(account: Account) -> None:
    bench = account.deployed()
    assert bench.deployment.cells.add("old", dry_run=True).kinds == ("delay",)
    assert bench.deployment.cells.add("old").kinds == ("delay",)
    assert bench.deployment.cells.add("old", ("real-time",)).kinds == ("real-time",)
    assert bench.deployment.cells.add("old").kinds == ("real-time",)


def test_tables_of_another_deployment_are_not_added_and_not_opened(account: Account) -> None:
    account.deployed("queue").deployment.cells.add("fast")
    other = account.deployed("another")
    with pytest.raises(Conflict, match="belongs to cell 'fast' of another deployment"):
        other.deployment.cells.add("fast")
    with pytest.raises(CellUnavailable, match="belongs to another deployment"):
        other.deployment.context.log("fast:orders~1/0.1").totals()


def test_tables_of_another_cell_are_not_added(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = account.deployed()
    bench.deployment.cells.add("fast")
    monkeypatch.setitem(PLACES, "mixed", PLACES["fast"])
    with pytest.raises(Conflict, match="belongs to cell 'fast' of this deployment"):
        account.deployed().deployment.cells.add("mixed")


def test_new_tables_of_a_cell_that_has_held_queues_are_not_opened(account: Account) -> None:
    bench = account.deployed()
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders")
    bench.deployment.routes.move("orders", 0, "fast")
    del account.stores["queue.fast"]
    with pytest.raises(Unavailable, match="is not marked as this deployment's"):
        account.deployed().send("a")
    with pytest.raises(Conflict, match="is empty, and the cell has messages"):
        account.deployed().deployment.cells.add("fast")
    with pytest.raises(Unavailable, match="is not marked as this deployment's"):
        account.deployed().send("a")


def test_the_sweeper_is_silent_about_cells_that_are_not_added(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    check_formats(account.deployed().deployment.context, keep=True)
    assert caplog.records == []


def test_a_cell_without_rights_or_tables_is_out_of_reach_and_said_so(account: Account) -> None:
    bench = account.deployed()
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.routes.move("orders", 1, "fast")

    def refuse(*_: object, **__: object) -> None:
        raise NoAccess("ResourceNotFoundException: no such table")

    store = account.store("queue.fast")
    for call in ("get", "counter", "counters", "add", "scan"):
        setattr(store, call, refuse)
    other = account.deployed()
    other.deployment.produce("orders", [NewMessage(body="here", queue=0)])
    assert other.bodies() == ["here"]
    assert other.deployment.groups.lag("orders", "billing").cells_out == ["fast"]
    assert not other.deployment.cells.show("fast").reachable


def test_a_cell_that_did_not_answer_is_not_called_for_five_seconds() -> None:
    calls = 0

    class Silent(MemoryStore):
        def counter(self, counter: str) -> object:
            nonlocal calls
            calls += 1
            raise Unavailable("no answer")

    bench = Bench(MemoryStore(), clock=HandClock(), cells={"fast": CellStorage(Silent(), MemoryBlobs())})
    cells = GuardedCells(bench.deployment.context.cells.inner, bench.store, bench.clock, SystemIds())
    for seconds, expected in ((0, 1), (4, 1), (2, 2), (4, 2)):
        bench.clock.pass_time(seconds)
        with pytest.raises(CellUnavailable, match=r"^the storage of cell fast does not answer$"):
            cells.storage("fast").store.counter("fast:orders~1/0.1")
        assert calls == expected


def test_the_variable_names_the_storage_of_each_cell() -> None:
    text = json.dumps({"fast": {"prefix": "queue.fast", "bucket": "queue-fast", "kinds": ["real-time"]}})
    locations = Environment.read({**VARIABLES, "HOURWHEEL_CELLS": text}).parse_cells()
    assert locations == {"fast": CellLocation(prefix="queue.fast", bucket="queue-fast", kinds=("real-time",))}
    assert Environment.read(VARIABLES).parse_cells() == {}
    for wrong, why in (
        ('"fast"', "Expected `object`"),
        ('{"fast": {}}', "prefix"),
        ('{"fast": {"prefix": "queue.fast", "bucket": "b"}}', "length >= 3"),
    ):
        with pytest.raises(ValueError, match=why):
            Environment.read({**VARIABLES, "HOURWHEEL_CELLS": wrong})


def test_a_cell_whose_format_only_later_versions_read_is_out_of_reach_with_a_sentence(account: Account) -> None:
    bench = account.deployed()
    bench.deployment.cells.add("fast")
    bench.send("a", subject="home")
    bench.send("b")
    bench.deployment.routes.move("orders", 0, "fast")
    store = account.store("queue.fast")
    current = store.get(FORMAT_KEY)
    assert current is not None
    later = StoreFormat(format=FORMAT + 1, least_reader=FORMAT + 1, written_by="0.2.0")
    store.put(FORMAT_KEY, Record(msgspec.msgpack.encode(later), b"t"), expect=current.token)
    other = account.deployed()
    with pytest.raises(CellUnavailable, match=r"^cell fast has format 4, of Hourwheel 0\.2\.0, and"):
        other.send("c")
    assert other.bodies(subject="home") == ["a"]
