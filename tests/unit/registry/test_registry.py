"""Subjects and groups: their settings, their lists, and names that are used again."""

import pytest

from hourwheel.errors import Conflict, NotFound
from tests.support import Bench


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
