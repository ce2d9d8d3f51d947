"""The page of what needs an operator: exact numbers of groups in trouble, and what is in the way of every message."""

from dataclasses import replace
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.model.groups import RetryPolicy, TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.operations.overview import OverviewRequest
from hourwheel.ports.storage import CellStorage, VolumeSpace
from hourwheel.times import rfc3339
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.delay.test_cells_out_of_reach import ALL, Outage


def found(bench: Bench) -> list[tuple[str, str | None, str | None]]:
    page = bench.deployment.attention.page(100)
    return [(concern.kind, concern.subject or concern.name, concern.group) for concern in page.concerns]


def look_later(bench: Bench, seconds: float) -> list[tuple[str, str | None, str | None]]:
    """Looks twice: first now, so that the process has watched the groups, then this much later."""
    found(bench)
    bench.clock.pass_time(seconds)
    return found(bench)


def test_nothing_needs_an_operator_where_consumers_are_in_time(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send("a")
    bench.pull()
    assert found(bench) == []
    page = bench.deployment.attention.page(100)
    assert (page.total, page.complete) == (0, True)


def test_a_group_without_consumers_is_named_once_its_messages_have_waited(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send("a")
    assert look_later(bench, 59) == []
    assert look_later(bench, 2) == [("no_consumers", "orders", "billing")]


def test_a_consumer_that_finds_nothing_is_a_consumer(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", filter=TagFilter(tags_any=("blue",)))
    bench.deployment.produce("orders", [NewMessage(body="a", tags=["red"])])
    assert look_later(bench, 70) == [("no_consumers", "orders", "billing")]
    bench.deployment.pull("orders", "billing", PullRequest(consumer="c", max_messages=1, wait_seconds=0))
    assert look_later(bench, 2) == []


def test_a_limit_is_named_before_the_pulls_that_it_keeps_back(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", messages_per_second=0.01)
    bench.send("a", "b")
    (pull,) = bench.pull(1)
    bench.settle(pull, ack=[0])
    assert look_later(bench, 70) == [("limited", "orders", "billing")]
    assert look_later(bench, 40) == [("no_consumers", "orders", "billing")]


@pytest.fixture
def operator() -> Bench:
    """Returns a bench whose calls go one by one: another process than the one of ``poll`` serves its operators."""
    return Bench(CallByCall(MemoryStore()))


def poll(bench: Bench, seconds: float) -> list[list[str]]:
    """Lets a consumer of each group pull every 20 seconds from another process. Returns the kinds that each look
    finds."""
    consumers, kinds = bench.another_process(), []
    for _ in range(round(seconds / 20)):
        bench.clock.pass_time(20)
        for group in bench.deployment.overview.groups("orders", "", 100).groups:
            consumers.pull("orders", group.group, PullRequest(consumer="c", max_messages=1))
        kinds.append([kind for kind, _, _ in found(bench)])
    return kinds


def fail_first(bench: Bench, **settings: Any) -> None:
    """Leaves an ordered group whose first message has failed, with another one of its key behind it."""
    bench.deployment.groups.put("orders", "ledger", ordered=True, **settings)
    bench.send("1", "2", key="k")
    (pull,) = bench.pull(1, group="ledger")
    bench.settle(pull, group="ledger", retry=[0])


def test_a_consumer_that_a_stopped_key_keeps_from_messages_is_one(operator: Bench) -> None:
    fail_first(operator, max_attempts=1, when_dead="stop")
    assert poll(operator, 120) == [["stopped_keys"]] * 6


def test_a_consumer_waits_with_a_key_that_backs_off_and_is_missed_behind_that(operator: Bench) -> None:
    fail_first(operator, retry=RetryPolicy(delays_seconds=(3_600,)))
    assert poll(operator, 120) == [[]] * 6
    operator.clock.pass_time(3_600 - 120 + 50)
    assert found(operator) == []
    operator.clock.pass_time(70)
    assert found(operator) == [("no_consumers", "orders", "ledger")]


def test_a_consumer_that_the_rate_keeps_from_messages_is_one(operator: Bench) -> None:
    operator.deployment.groups.put("orders", "billing", messages_per_second=0.01)
    operator.send("a", "b", "c", "d")
    operator.pull(1)
    assert {kind for kinds in poll(operator, 200) for kind in kinds} == {"limited"}


def test_a_process_that_sees_no_pulls_does_not_wait_for_them(operator: Bench) -> None:
    operator.deployment.groups.put("orders", "billing")
    operator.send("a")
    operator.clock.pass_time(61)
    (concern,) = operator.deployment.attention.page(100).concerns
    assert (concern.kind, concern.level) == ("no_consumers", "warning")
    assert concern.text == "1 message waits, and nothing was handed out yet."


def test_the_last_pull_of_another_process_is_known_by_its_row(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send("a", "b")
    (pull,) = bench.pull(1)
    bench.settle(pull, ack=[0])
    at = rfc3339(bench.clock.now_ms())
    bench.deployment = bench.another_process()
    assert look_later(bench, 59) == []
    assert look_later(bench, 2) == [("no_consumers", "orders", "billing")]
    (concern,) = bench.deployment.attention.page(1).concerns
    assert concern.since == at


def test_a_backlog_that_grows_is_named_with_its_rates(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send(*map(str, range(200)))
    (held,) = bench.pull(1)
    found(bench)
    bench.clock.pass_time(40)
    bench.send(*map(str, range(100)))
    (pull,) = bench.pull(20)
    bench.settle(pull)
    bench.deployment.settle("orders", "billing", [Settlement(receipt=held.receipt, extend_seconds=600)])
    (concern,) = bench.deployment.attention.page(100).concerns
    assert (concern.kind, concern.messages) == ("growing", 279)
    assert (concern.rise_per_second, concern.pulled_per_second) == (2.0, 0.5)
    assert concern.drain_seconds == 558.0


def test_time_alone_makes_a_concern_of_numbers_that_are_not_read_again(bench: Bench) -> None:
    for number in range(40):
        bench.deployment.groups.put(f"s-{number:02}", "billing")
        bench.send("a", subject=f"s-{number:02}")
    assert found(bench) == []
    read_at = rfc3339(bench.clock.now_ms())
    bench.deployment.overview._share.left_ms = -1_000_000
    bench.clock.pass_time(30)
    bench.pull(subject="s-07")
    bench.clock.pass_time(31)
    page = bench.deployment.attention.page(100)
    assert {concern.kind for concern in page.concerns} == {"no_consumers"}
    assert (page.total, page.oldest_read_at, page.complete) == (39, read_at, True)
    assert "s-07" not in {concern.subject for concern in page.concerns}


def busy(bench: Bench) -> None:
    """Leaves a group of which a minute of looks is known: 200 of its 1,500 messages are pulled, and wait for long."""
    bench.deployment.groups.put("orders", "billing")
    for _ in range(15):
        bench.send(*map(str, range(100)))
    bench.pull(100)
    bench.clock.pass_time(1_000)
    found(bench)
    bench.clock.pass_time(20)
    bench.pull(100)


def test_a_seek_back_is_no_growth(bench: Bench) -> None:
    busy(bench)
    bench.deployment.seeks().seek("orders", "billing", "start")
    bench.pull(10)
    assert found(bench) == []


def test_a_seek_forward_drains_nothing(bench: Bench) -> None:
    busy(bench)
    bench.deployment.seeks().seek_offset("orders", "billing", 0, 400)
    bench.pull(10)
    assert found(bench) == []


def test_a_cell_that_comes_back_into_reach_brings_no_growth() -> None:
    fast = Outage()
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = Bench(settings=settings, cells={"fast": CellStorage(fast, MemoryBlobs())})
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.routes.move("orders", 0, "fast")
    for number in range(15):
        bench.send(*map(str, range(100)), key=str(number))
    bench.pull(1)
    bench.clock.pass_time(40)
    fast.down = ALL
    found(bench)
    bench.clock.pass_time(40)
    fast.down = frozenset()
    bench.pull(1)
    assert found(bench) == []


def test_thousands_of_dead_letters_are_counted_exactly_and_leave_other_numbers_exact(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=1)
    died_at = ""
    for _ in range(26):
        bench.send(*map(str, range(100)))
        (pull,) = bench.pull(100)
        died_at = died_at or rfc3339(bench.clock.now_ms())
        bench.settle(pull, dead=list(range(100)))
        bench.clock.pass_time(1)
    (group,) = bench.deployment.overview.groups("orders", "", 10).groups
    assert (group.dead, group.dead_since, group.inexact, group.complete) == (2_600, died_at, [], True)
    (subject,) = bench.deployment.overview.page(OverviewRequest()).subjects
    assert (subject.dead, subject.waiting, subject.complete, subject.inexact) == (2_600, 0, True, [])
    (concern,) = bench.deployment.attention.page(100).concerns
    assert (concern.kind, concern.messages, concern.since) == ("dead", 2_600, died_at)


def test_a_count_that_stops_marks_its_own_number_alone() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.deployment.groups.put("orders", "billing", max_attempts=1)
    for number in range(1_001):
        bench.send(str(number))
        (pull,) = bench.pull(1)
        bench.settle(pull, dead=[0])
        if not number % 500:
            bench.deployment.overview.groups("orders", "", 10)  # a look reads 1,000 new pull rows at most
    bench.send("waits")
    (group,) = bench.deployment.overview.groups("orders", "", 10).groups
    assert (group.dead, group.waiting, group.inexact, group.complete) == (1_000, 1, ["dead"], False)
    (subject,) = bench.deployment.overview.page(OverviewRequest()).subjects
    assert (subject.inexact, subject.complete) == (["dead"], False)


def test_pauses_and_stopped_keys_are_named_with_the_gravest_first(bench: Bench) -> None:
    how = {"ordered": True, "max_attempts": 1, "when_dead": "stop", "retry": RetryPolicy(delays_seconds=(60,))}
    bench.deployment.groups.put("orders", "ledger", **how)
    bench.deployment.groups.put("orders", "mail")
    bench.deployment.groups.pause("orders", "mail", paused=True)
    bench.send("a", key="a")
    (pull,) = bench.pull(1, group="ledger")
    bench.settle(pull, group="ledger", retry=[0])
    assert found(bench) == [("stopped_keys", "orders", "ledger"), ("paused", "orders", "mail")]
    bench.deployment.subjects.pause("orders", paused=True)
    bench.clock.pass_time(30)
    assert ("paused", "orders", "ledger") in found(bench)


def test_a_volume_that_is_nearly_full_is_named(bench: Bench) -> None:
    class Nearly:
        def check(self, cell: str) -> None:
            pass

        def volumes(self) -> list[VolumeSpace]:
            return [VolumeSpace("home", 100 << 20, 64 << 20)]

    deployment = replace(bench.deployment, context=replace(bench.deployment.context, reserve=Nearly()))
    assert [concern.kind for concern in deployment.attention.page(100).concerns] == ["disk"]


def test_a_wheel_that_nobody_turns_is_named(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send_later("a", delay="2h")
    bench.clock.pass_time(3 * 3_600 + 60)
    assert [kind for kind, _, _ in found(bench)] == ["wheel_overdue"]


def test_a_page_has_no_more_than_its_limit_and_tells_the_total(bench: Bench) -> None:
    for group in "abc":
        bench.deployment.groups.put("orders", group)
        bench.deployment.groups.pause("orders", group, paused=True)
    page = bench.deployment.attention.page(2)
    assert (len(page.concerns), page.total) == (2, 3)


def test_the_concerns_of_a_deleted_subject_are_gone(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "mail")
    bench.deployment.groups.pause("orders", "mail", paused=True)
    assert len(found(bench)) == 1
    bench.deployment.subjects.delete("orders")
    assert found(bench) == []
