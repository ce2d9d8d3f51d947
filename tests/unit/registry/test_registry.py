"""Subjects and groups: their settings, their lists, and names that are used again."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import Conflict, Corrupt, NotFound
from hourwheel.ports.storage import Key, Record, Table
from tests.support import Bench, CallByCall


def test_settings_that_are_left_out_keep_their_value(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=4, retention_seconds=60)
    assert bench.deployment.subjects.put("orders").queues == 4
    assert bench.deployment.subjects.put("orders", queues=5).retention_seconds == 60
    bench.deployment.groups.put("orders", "g", max_attempts=2)
    assert bench.deployment.groups.put("orders", "g").max_attempts == 2


def test_queues_cannot_shrink_and_a_start_cannot_change(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=4)
    with pytest.raises(Conflict, match="4 queues"):
        bench.deployment.subjects.put("orders", queues=3)
    bench.deployment.groups.put("orders", "g", start="latest")
    with pytest.raises(Conflict, match="use seek"):
        bench.deployment.groups.put("orders", "g", start="earliest")


def test_subjects_are_listed_page_by_page_by_name(bench: Bench) -> None:
    for name in ("c", "a", "d", "b"):
        bench.deployment.subjects.put(name)
    bench.deployment.subjects.delete("b")
    page, following = bench.deployment.subjects.page("", 2)
    assert [one.name for one in page] == ["a", "c"]
    assert following == "c"
    assert [one.name for one in bench.deployment.subjects.page("c", 2)[0]] == ["d"]


def test_a_deleted_subject_comes_back_empty(bench: Bench) -> None:
    bench.send("old")
    bench.take()
    bench.deployment.subjects.delete("orders")
    with pytest.raises(NotFound):
        bench.deployment.subjects.get("orders")
    bench.send("new")
    assert bench.bodies() == ["new"]
    assert bench.deployment.groups.lag("orders", "billing").queues[0].end == 1


def test_a_record_that_has_not_changed_stays_the_same_object_when_it_is_read_again(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "g")
    registry = bench.deployment.registry
    subject = registry.subject("orders")
    group = registry.group(subject, "g")
    bench.clock.pass_time(61)
    assert registry.subject("orders") is subject
    assert registry.group(subject, "g") is group
    bench.another_process().groups.put("orders", "g", max_attempts=2)
    bench.another_process().subjects.put("orders", retention_seconds=120)
    bench.clock.pass_time(61)
    assert registry.subject("orders").retention_seconds == 120
    assert registry.group(subject, "g").max_attempts == 2


def test_a_read_of_an_unknown_name_is_told_how_to_list_those_that_exist(bench: Bench) -> None:
    with pytest.raises(NotFound, match=r"'ordres': hourwheel subject list shows those that exist$"):
        bench.deployment.subjects.get("ordres")
    bench.send("a")
    with pytest.raises(NotFound, match=r"'biling': hourwheel group list orders shows those that exist$"):
        bench.deployment.groups.lag("orders", "biling")


def calls_for(group: str, groups: int, damaged: str = "") -> list[str]:
    """Returns the calls that a new process makes for a subject and one of its groups."""
    store = CallByCall(MemoryStore())
    bench = Bench(store)
    for number in range(groups):
        bench.deployment.groups.put("orders", f"g{number}")
    if damaged:
        key = Key(Table.META, "subject/orders", damaged)
        current = store.get(key)
        assert current is not None
        assert store.put(key, Record(b"damaged", b"1" * 16), expect=current.token) is None
    registry = bench.another_process().registry
    del store.calls[:]
    subject, found = registry.subject_and_group("orders", group)
    assert (subject.name, found.name) == ("orders", group)
    return [verb for verb, _ in store.calls]


def test_a_subject_and_one_of_its_first_groups_are_one_query() -> None:
    assert calls_for("g0", groups=1) == calls_for("g6", groups=7) == ["scan"]


def test_a_group_behind_the_first_ones_is_read_by_itself() -> None:
    assert calls_for("g7", groups=8) == ["scan", "get"]


def test_a_damaged_record_of_another_group_does_not_matter() -> None:
    assert calls_for("g0", groups=2, damaged="g1") == ["scan"]
    with pytest.raises(Corrupt):
        calls_for("g0", groups=2, damaged="g0")


def test_a_deleted_subject_or_group_is_not_found_with_the_other(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.groups.delete("orders", "billing")
    with pytest.raises(NotFound, match="no group"):
        bench.another_process().registry.subject_and_group("orders", "billing")
    bench.deployment.subjects.delete("orders")
    with pytest.raises(NotFound, match="no subject"):
        bench.another_process().registry.subject_and_group("orders", "billing")


def test_older_records_are_dropped_and_younger_ones_kept() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store)
    bench.deployment.groups.put("orders", "billing")
    registry = bench.another_process().registry
    registry.subject_and_group("orders", "billing")
    now_ms = bench.clock.now_ms()
    del store.calls[:]
    registry.forget_older("orders", now_ms)
    registry.subject_and_group("orders", "billing")
    assert store.calls == []
    registry.forget_older("orders", now_ms + 1)
    registry.subject_and_group("orders", "billing")
    assert [verb for verb, _ in store.calls] == ["scan"]
