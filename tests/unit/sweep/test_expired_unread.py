"""Messages that expire before a group pulled them are counted once, and named in the log."""

import logging

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.deployment.deployment import Deployment
from hourwheel.logs.log import Log, TrimMark
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.operations.overview import OverviewRequest
from hourwheel.pull_log.records import Position, Tail
from hourwheel.sweep.decisions import LostRow, unread_of
from tests.support import Bench, CallByCall

RETENTION_SECONDS = 3_600


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    store = MemoryStore()
    bench = Bench(CallByCall(store) if request.param == "call by call" else store)
    bench.deployment.subjects.put("orders", retention_seconds=RETENTION_SECONDS)
    for group in ("billing", "audit"):
        bench.deployment.groups.put("orders", group)
    return bench


def send(bench: Bench, count: int) -> None:
    bench.deployment.produce("orders", [NewMessage(body=str(number)) for number in range(count)])


def pull(bench: Bench, group: str, messages: int) -> list[Pull]:
    return bench.deployment.pull("orders", group, PullRequest(consumer="c", max_messages=messages)).pulls


def expired(bench: Bench) -> list[float]:
    return [value for name, value in bench.meter.metrics if name == "ExpiredUnread"]


def test_each_group_counts_what_it_had_not_pulled(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    send(bench, 4)
    pull(bench, "billing", 3)
    pull(bench, "audit", 4)
    bench.clock.pass_time(RETENTION_SECONDS / 2)
    send(bench, 2)
    bench.clock.pass_time(RETENTION_SECONDS / 2 + 1)
    with caplog.at_level(logging.WARNING, "hourwheel"):
        bench.deployment.sweeper.sweep()
    assert expired(bench) == [1]
    assert [record.getMessage() for record in caplog.records if "expired" in record.getMessage()] == [
        "1 messages of orders expired before group billing had pulled them"
    ]


def shown(deployment: Deployment) -> dict[str, list[int]]:
    """Returns what each view shows of the groups, by name."""
    groups = ("audit", "billing")
    overview = {group.group: group.expired_unread for group in deployment.overview.groups("orders", "", 10).groups}
    (subject,) = deployment.overview.page(OverviewRequest()).subjects
    return {
        "lag": [deployment.groups.lag("orders", group).expired_unread for group in groups],
        "overview of the groups": [overview[group] for group in groups],
        "overview of the subject": [subject.expired_unread],
    }


def test_lag_and_overview_show_what_expired_in_every_process(bench: Bench) -> None:
    send(bench, 4)
    handled = [Settlement(receipt=each.receipt) for each in pull(bench, "billing", 3)]
    bench.deployment.settle("orders", "billing", handled)
    assert shown(bench.another_process()) == {
        "lag": [0, 0],
        "overview of the groups": [0, 0],
        "overview of the subject": [0],
    }
    bench.clock.pass_time(RETENTION_SECONDS + 1)
    bench.deployment.sweeper.sweep()
    send(bench, 2)
    bench.clock.pass_time(RETENTION_SECONDS + 1)
    bench.another_process().sweeper.sweep()
    for deployment in (bench.deployment, bench.another_process()):
        bench.clock.pass_time(60)  # an overview is kept for some seconds
        assert shown(deployment) == {
            "lag": [6, 3],
            "overview of the groups": [6, 3],
            "overview of the subject": [9],
        }


def test_a_group_that_is_created_again_begins_at_zero(bench: Bench) -> None:
    send(bench, 4)
    bench.clock.pass_time(RETENTION_SECONDS + 1)
    bench.deployment.sweeper.sweep()
    bench.deployment.groups.delete("orders", "audit")
    bench.deployment.groups.put("orders", "audit")
    assert [bench.deployment.groups.lag("orders", group).expired_unread for group in ("audit", "billing")] == [0, 4]


def test_a_broadcast_group_shows_each_consumer_and_their_sum(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    for consumer in ("hall", "lobby"):
        bench.deployment.pull("orders", "screens", PullRequest(consumer=consumer, max_messages=1))
    send(bench, 3)
    bench.deployment.pull("orders", "screens", PullRequest(consumer="hall", max_messages=1))
    bench.clock.pass_time(RETENTION_SECONDS + 1)
    bench.deployment.sweeper.sweep()
    lag = bench.deployment.groups.lag("orders", "screens")
    assert lag.expired_unread == 5
    assert [(each.consumer, each.expired_unread) for each in lag.consumers] == [("hall", 2), ("lobby", 3)]
    assert shown(bench.deployment)["overview of the subject"] == [3 + 3 + 5]


def test_later_sweeps_do_not_count_again(bench: Bench) -> None:
    send(bench, 4)
    bench.clock.pass_time(RETENTION_SECONDS + 1)
    for _ in range(2):
        bench.deployment.sweeper.sweep()
        bench.another_process().sweeper.sweep()
    assert expired(bench) == [4, 4]


def test_a_sweeper_that_was_slower_counts_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    send(bench, 4)
    bench.clock.pass_time(RETENTION_SECONDS + 1)
    trim = Log.trim

    def overtaken(log: Log, below: int, mark: TrimMark | None = None) -> bool:
        trim(log, below)  # another sweeper, after this one has read the mark
        return trim(log, below, mark)

    monkeypatch.setattr(Log, "trim", overtaken)
    bench.deployment.sweeper.sweep()
    assert expired(bench) == []


FIRST_CLAIMS = {
    Position(0): 9,
    Position(3, 2): 9,
    Position(4, 1): 8,
    Position(5): 4,
    Position(6, 3): 1,
    Position(7): 0,
}


@pytest.mark.parametrize(("first", "messages"), FIRST_CLAIMS.items())
def test_rows_behind_the_next_claim_are_unread(first: Position, messages: int) -> None:
    assert unread_of([LostRow(4, 5), LostRow(6, 4)], Tail(0, first, 0)) == messages


def test_nothing_is_counted_where_the_leases_could_not_be_read() -> None:
    assert unread_of([LostRow(4, 5)], None) == 0
