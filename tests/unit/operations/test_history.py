"""The history of an hour: a point a minute of each group that moved, in bounded memory."""

import tracemalloc

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import NotFound
from hourwheel.model.overview import GroupHistory
from hourwheel.operations.history import GroupReading, HistoryRequest, LastHour, history_page
from tests.support import Bench, CallByCall

MINUTE_MS = 60_000


def history(bench: Bench, group: str | None = None) -> list[GroupHistory]:
    return history_page(bench.deployment.overview, HistoryRequest("orders", group)).groups


def minute(bench: Bench) -> None:
    """Lets a minute pass, and looks as a server does."""
    bench.clock.pass_time(60)
    bench.deployment.overview.look()


def reading(minutes: int, number: int = 0, **how: int) -> GroupReading:
    numbers = dict.fromkeys(("accepted", "settled", "waiting", "oldest_seconds", "dead"), number)
    return GroupReading(**{"at_ms": (minutes + 1) * MINUTE_MS, "seeks": 0, **numbers, **how})


def test_a_group_that_moved_has_a_point_a_minute(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send("a")
    bench.deployment.overview.look()
    assert history(bench) == []
    bench.send(*(str(number) for number in range(120)))
    minute(bench)
    for pull in bench.pull(61):
        bench.settle(pull, dead=[0])
    minute(bench)
    (billing,) = history(bench, "billing")
    assert billing.waiting == [121, 60]
    assert billing.accepted_per_second == [2.0, 0.0]
    assert billing.pulled_per_second == [0.0, pytest.approx(61 / 60, abs=0.001)]
    assert billing.oldest_seconds == [60, 120]
    assert billing.dead == [0, 1]
    assert len(billing.at) == 2
    assert history(bench) == [billing]


def test_a_group_that_is_still_has_no_history(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send("a")
    for _ in range(3):
        minute(bench)
    assert history(bench) == []


def test_a_group_that_has_been_still_for_an_hour_is_forgotten(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    minute(bench)
    bench.send("a")
    minute(bench)
    for _ in range(58):
        minute(bench)
    (billing,) = history(bench)
    assert len(billing.at) == 59
    for _ in range(3):
        minute(bench)
    assert history(bench) == []


def test_a_seek_is_no_rate_of_pulls(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send(*"abc")
    minute(bench)
    bench.deployment.seeks().seek_offset("orders", "billing", 0, 2)
    minute(bench)
    (billing,) = history(bench)
    assert (billing.waiting, billing.pulled_per_second) == ([1], [None])


def test_pages_that_are_read_often_add_a_point_a_minute(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    for number in range(40):
        bench.send(str(number))
        bench.clock.pass_time(3)
        bench.deployment.attention.page(1)
    (billing,) = history(bench)
    assert len(billing.at) == 2
    assert billing.accepted_per_second[1] == pytest.approx(1 / 3, abs=0.02)


def test_what_needs_attention_has_a_rate_at_the_first_look_of_a_person(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    minute(bench)
    for _ in range(2):
        bench.send(*(str(number) for number in range(150)))
        minute(bench)
        bench.pull(1)
    page = bench.deployment.attention.page(10)
    (growing,) = [concern for concern in page.concerns if concern.kind == "growing"]
    assert growing.rise_per_second == pytest.approx(2.5, abs=0.2)


def test_a_deleted_group_leaves_no_points_to_one_of_its_name(bench: Bench) -> None:
    for _ in range(2):
        bench.deployment.groups.put("orders", "billing")
        minute(bench)
        assert history(bench) == []
        bench.send("a")
        minute(bench)
        assert len(history(bench)) == 1
        bench.deployment.groups.delete("orders", "billing")
        assert history(bench) == []


def test_no_such_group(bench: Bench) -> None:
    bench.send("a")
    with pytest.raises(NotFound):
        history(bench, "billing")


def test_without_transactions_no_history_is_kept() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.deployment.groups.put("orders", "billing")
    for _ in range(3):
        bench.send("a")
        bench.clock.pass_time(60)
        bench.deployment.attention.page(1)
    page = history_page(bench.deployment.overview, HistoryRequest("orders"))
    assert (page.since, page.groups) == (None, [])


def test_a_server_tells_since_when_it_keeps_points(bench: Bench) -> None:
    bench.send("a")
    # Before its first look, too: a server that has just begun is not one that keeps nothing.
    since = history_page(bench.deployment.overview, HistoryRequest("orders")).since
    minute(bench)
    bench.deployment.overview.look()
    page = history_page(bench.deployment.overview, HistoryRequest("orders"))
    assert since == page.since
    assert page.since is not None
    assert page.since < page.at


def test_a_clock_that_was_set_back_begins_anew() -> None:
    kept = LastHour()
    first = kept.follow("orders", {}, {"billing": reading(10, 1)})
    second = kept.follow("orders", first, {"billing": reading(5, 2)})
    kept.follow("orders", second, {"billing": reading(6, 3)})
    (billing,) = kept.of("orders", ["billing"], 8 * MINUTE_MS)
    assert billing.waiting == [3]


def test_ten_thousand_busy_groups_take_twenty_megabytes_at_most() -> None:
    names = [(f"subject-{number // 10}", f"group-{number}") for number in range(10_100)]
    kept = LastHour()
    tracemalloc.start()
    try:
        for number in range(70):
            for subject, group in names:
                kept.follow(subject, {group: reading(number, number)}, {group: reading(number + 1, number + 1)})
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 20_000_000
    shown = [kept.of(subject, [group], 72 * MINUTE_MS) for subject, group in names]
    assert sum(map(bool, shown)) == 10_000
    assert all(len(each[0].at) == 60 for each in shown if each)
