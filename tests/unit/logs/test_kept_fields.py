"""A record with fields of a later version can be read, and keeps them when it is rewritten."""

from typing import Any, get_type_hints

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.model.groups import Group, RetryPolicy
from hourwheel.model.log_names import HOME
from hourwheel.model.routes import Mapping, Route
from hourwheel.model.subjects import DozingGroup, Subject
from hourwheel.ports.storage import Key, Record, Table
from hourwheel.pull_log.records import PullRow
from hourwheel.system import SystemIds
from tests.unit.logs.stored_types import (
    closed_forms,
    listed_in,
    rewritten_types,
    sample,
    stored_types,
    structs_in,
    with_more,
)

CLOSED = {"Reservation", "Extent", "BlockRange", "ListedSegment"}
KEY = Key(Table.META, "p", "s")
every_rewritten = pytest.mark.parametrize("kind", rewritten_types(), ids=str)
every_stored = pytest.mark.parametrize("kind", stored_types(), ids=str)


def later(kind: Any, value: Any) -> Any:
    """Returns what a later version would have stored for the value, without types."""
    return with_more(kind, msgspec.msgpack.decode(msgspec.msgpack.encode(value)))


def record_of(kind: Any, stored: Any) -> CasRecord[Any]:
    """Returns a record that holds these bytes, or this value without types."""
    store, ids = MemoryStore(), SystemIds()
    data = stored if isinstance(stored, bytes) else msgspec.msgpack.encode(stored)
    store.put(KEY, Record(data, ids.token()), expect=None)
    return CasRecord(store, ids, KEY, kind)


def loaded(record: CasRecord[Any]) -> Versioned[Any]:
    current = record.load()
    assert current is not None
    return current


def content(record: CasRecord[Any]) -> Any:
    stored = record.store.get(record.key)
    assert stored is not None
    return msgspec.msgpack.decode(stored.value)


def test_the_stored_types_are_found() -> None:
    names = {kind.__name__ for kind in rewritten_types()}
    assert {"Subject", "Group", "PullRow", "OrderedRow", "Checkpoint", "WheelOwner", "Remembered", "DeadState"} <= names
    assert {"Row", "Message", "Manifest", "Receipt"} <= {
        part.__name__ for kind in stored_types() for part in structs_in(kind)
    }


@every_stored
def test_no_part_of_a_stored_type_forbids_unknown_fields(kind: Any) -> None:
    assert [part.__name__ for part in structs_in(kind) if part.__struct_config__.forbid_unknown_fields] == []


def test_closed_forms_are_few_and_hold_no_records() -> None:
    """A named tuple takes no further field: a change of one needs a new format."""
    closed = dict.fromkeys(form for kind in stored_types() for form in closed_forms(kind))
    assert {form.__name__ for form in closed} == CLOSED
    assert [form.__name__ for form in closed for part in get_type_hints(form).values() if any(structs_in(part))] == []


@every_stored
@pytest.mark.parametrize("form", [msgspec.msgpack, msgspec.json], ids=["msgpack", "JSON"])
def test_a_value_with_fields_of_a_later_version_is_read(kind: Any, form: Any) -> None:
    value = sample(kind)
    encoded = form.encode(value)
    with_later_fields = form.encode(with_more(kind, form.decode(encoded)))
    assert with_later_fields != encoded
    assert form.encode(form.decode(with_later_fields, type=kind)) == encoded


@every_rewritten
def test_a_rewritten_record_keeps_every_field_of_a_later_version(kind: Any) -> None:
    written = later(kind, sample(kind))
    record = record_of(kind, written)
    for _ in range(2):
        current = loaded(record)
        swapped = record.swap(current, current.value)
        assert swapped.stored
        assert content(record) == written
    assert swapped.current is not None
    assert record.swap(swapped.current, swapped.current.value).stored  # without a read in between
    assert content(record) == written


@every_rewritten
def test_a_record_of_this_version_is_stored_as_it_is_encoded(kind: Any) -> None:
    value = sample(kind)
    record = record_of(kind, msgspec.msgpack.encode(value))
    current = loaded(record)
    assert record.swap(current, value).current == Versioned(value, record.store.get(KEY).token)  # type: ignore[union-attr]  # it was stored
    assert content(record) == msgspec.msgpack.decode(msgspec.msgpack.encode(value))


@every_rewritten
def test_a_record_of_an_earlier_version_gets_the_fields_that_it_lacks(kind: Any) -> None:
    value = sample(kind)
    whole = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    if not isinstance(whole, list) or msgspec.structs.fields(kind)[-1].required:
        return
    record = record_of(kind, whole[:-1])
    assert record.swap(loaded(record), value).stored
    assert content(record) == whole


def group(**fields: Any) -> Group:
    return Group(subject="orders", subject_generation=1, name="billing", generation=1, created_ms=1, **fields)


def test_a_changed_setting_keeps_what_stands_beside_it() -> None:
    before = group(retry=RetryPolicy(first_seconds=5))
    record = record_of(Group, later(Group, before))
    after = msgspec.structs.replace(before, paused=True, retry=RetryPolicy(first_seconds=9))
    assert record.swap(loaded(record), after).stored
    assert content(record) == later(Group, after)


def test_a_part_that_is_removed_takes_its_unknown_fields_along() -> None:
    before = group(retry=RetryPolicy(first_seconds=5))
    record = record_of(Group, later(Group, before))
    assert record.swap(loaded(record), group()).stored
    stored = content(record)
    assert (stored["retry"], stored["later"]) == (None, {"new": [1]})


def test_a_record_that_replaces_another_keeps_nothing_of_it() -> None:
    record = record_of(Group, later(Group, group(deleted=True)))
    assert record.swap(loaded(record).replaced(), group()).stored
    assert content(record) == msgspec.msgpack.decode(msgspec.msgpack.encode(group()))


def subject(*mappings: Mapping, dozing: tuple[str, ...] = ()) -> Subject:
    dozing_groups = tuple(DozingGroup(queue, 1) for queue in dozing)
    return Subject(
        name="orders", generation=1, created_ms=1, routes=(Route(mappings, parts=len(mappings)),), dozing=dozing_groups
    )


def marked(value: Subject) -> dict[str, Any]:
    """Returns the subject as a later version stores it, which numbers mappings and dozing groups."""
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    for mapping in stored["routes"][0][0]:
        mapping.append(f"of {mapping[0]}")
    for dozing in stored["dozing"]:
        dozing.append(f"of {dozing[0]}")
    return dict(stored)


def marks(record: CasRecord[Subject]) -> tuple[list[Any], list[Any]]:
    """Returns what the later version has written beside each mapping and dozing group."""
    stored = content(record)
    mappings = stored["routes"][0][0]
    known = len(msgspec.structs.fields(Mapping))
    return [mapping[known:] for mapping in mappings], [dozing[3:] for dozing in stored["dozing"]]


FIRST, LAST = Mapping(0, end=10, state="read_only"), Mapping(10, "b", 1)


def test_elements_that_move_and_change_keep_their_own_fields() -> None:
    before = subject(FIRST, LAST, dozing=("x", "y", "z"))
    record = record_of(Subject, marked(before))
    closed = msgspec.structs.replace(LAST, end=20, state="read_only")
    after = subject(closed, Mapping(20, HOME, 2), dozing=("z", "x"))
    assert record.swap(loaded(record), after).stored
    assert marks(record) == ([["of 10"], []], [["of z"], ["of x"]])


def test_elements_alike_keep_their_fields_in_order() -> None:
    before = subject(FIRST, LAST, dozing=("x", "x", "x"))
    stored = marked(before)
    for number, dozing in enumerate(stored["dozing"]):
        dozing[-1] = number
    record = record_of(Subject, stored)
    assert record.swap(loaded(record), subject(FIRST, LAST, dozing=("x", "x"))).stored
    assert marks(record)[1] == [[0], [1]]


def test_a_settlement_keeps_the_fields_of_the_row_that_a_later_version_claimed() -> None:
    row = sample(PullRow)
    record = record_of(PullRow, later(PullRow, row))
    settled = msgspec.structs.replace(row, settled=frozenset({1, 2}), transfers=(), moved=(*row.moved, *row.moved))
    assert record.swap(loaded(record), settled).stored
    stored = content(record)
    assert stored[-1] == ["new", 1]
    fields = [field.name for field in msgspec.structs.fields(PullRow)]
    assert [moved[-1] == ["new", 1] for moved in stored[fields.index("moved")]] == [True, False]


@every_rewritten
def test_the_elements_of_lists_say_what_names_them(kind: Any) -> None:
    assert [element.__name__ for element in listed_in(kind) if "NAMED_BY" not in vars(element)] == []


def test_an_element_in_the_place_of_a_removed_one_keeps_nothing_of_it() -> None:
    record = record_of(Subject, marked(subject(FIRST, LAST, dozing=("x", "y"))))
    assert record.swap(loaded(record), subject(FIRST, Mapping(10, "c", 1), dozing=("z", "y"))).stored
    assert marks(record) == ([["of 0"], []], [[], ["of y"]])


def test_a_transfer_in_the_place_of_another_of_its_kind_keeps_nothing_of_it() -> None:
    row = sample(PullRow)
    record = record_of(PullRow, later(PullRow, row))
    other = msgspec.structs.replace(row.transfers[0], log="b")
    assert record.swap(loaded(record), msgspec.structs.replace(row, transfers=(other,))).stored
    number = [field.name for field in msgspec.structs.fields(PullRow)].index("transfers")
    assert content(record)[number] == msgspec.msgpack.decode(msgspec.msgpack.encode((other,)))


def test_the_routes_of_queues_keep_their_fields_by_their_place() -> None:
    def routed(*cells: str) -> Subject:
        routes = tuple(Route((Mapping(0, cell),)) for cell in cells)
        return Subject(name="orders", generation=1, created_ms=1, queues=len(cells), routes=routes)

    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(routed("a", "a")))
    for queue, route in enumerate(stored["routes"]):
        route.append(queue)
    record = record_of(Subject, stored)
    assert record.swap(loaded(record), routed("b", "a")).stored
    assert [route[-1] for route in content(record)["routes"]] == [0, 1]
