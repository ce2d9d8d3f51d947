"""Broadcast groups: each consumer gets every message, is remembered under its name, and forgotten after it was away."""

import msgspec
import pytest

from hourwheel.context import Settings
from hourwheel.errors import Conflict, NotFound, Rejected
from hourwheel.groups.broadcast import parse_any_dead_id
from hourwheel.groups.seeks import offsets
from hourwheel.model.fields import MAX_BROADCAST_CONSUMERS
from hourwheel.model.groups import PushTarget, TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.registry import broadcast
from tests.support import AT_ONCE, Bench

DAY = 86_400


@pytest.fixture
def screens(bench: Bench) -> Bench:
    """Returns a cell with the broadcast group ``screens`` of the subject ``orders``."""
    bench.deployment.groups.put("orders", "screens", broadcast=True, max_attempts=2)
    return bench


def pull(bench: Bench, consumer: str, *, settle: list[Settlement] | None = None, lease: int = 30) -> list[Pull]:
    request = PullRequest(consumer=consumer, settle=settle, lease_seconds=lease)
    return bench.deployment.pull("orders", "screens", request).pulls


def bodies(pulls: list[Pull]) -> list[str | None]:
    return [message.body for one in pulls for message in one.messages]


def settle(bench: Bench, pulled: Pull, **how: object) -> str:
    (settled,) = bench.deployment.settle(
        "orders", "screens", [msgspec.convert({"receipt": pulled.receipt, **how}, Settlement)]
    )
    return settled.status


def consumers(bench: Bench) -> list[str]:
    return [lag.consumer for lag in bench.deployment.groups.lag("orders", "screens").consumers]


def test_each_consumer_gets_every_message(screens: Bench) -> None:
    screens.send("a", "b")
    assert bodies(pull(screens, "hall")) == ["a", "b"]
    assert bodies(pull(screens, "lobby")) == ["a", "b"]
    screens.send("c")
    assert bodies(pull(screens, "lobby")) == ["c"]
    assert bodies(pull(screens, "hall")) == ["c"]


def test_a_consumer_that_leaves_messages_wakes_its_own_pulls_alone(screens: Bench) -> None:
    for consumer in ("hall", "lobby"):
        pull(screens, consumer)
    screens.send("a", "b")
    screens.wakeups.announced.clear()
    screens.deployment.pull("orders", "screens", PullRequest(consumer="hall", max_messages=1))
    assert screens.wakeups.announced == [("orders", "screens+1+hall")]


def test_a_consumer_that_comes_back_goes_on_where_it_was(screens: Bench) -> None:
    screens.send("a")
    pull(screens, "hall")
    screens.send("b")
    screens.deployment = screens.another_process()
    assert bodies(pull(screens, "hall")) == ["b"]


def test_a_new_consumer_begins_at_the_latest_message_where_the_group_says_so(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True, start="latest")
    bench.send("before")
    assert bodies(pull(bench, "hall")) == []
    bench.send("after")
    assert bodies(pull(bench, "hall")) == ["after"]


def test_retries_and_dead_letters_are_those_of_one_consumer(screens: Bench) -> None:
    screens.send("a", "b")
    (mine,) = pull(screens, "hall")
    (theirs,) = pull(screens, "lobby")
    assert settle(screens, mine, retry=[0], dead=[1]) == "settled"
    assert settle(screens, theirs) == "settled"
    assert (bodies(pull(screens, "lobby")), bodies(pull(screens, "hall"))) == ([], ["a"])
    page = screens.deployment.dead_letters("orders", "screens").page(after=None, limit=10)
    assert [(message.dead_id, message.body) for message in page.messages] == [("hall:0-0", "b")]


def test_a_settlement_comes_with_the_next_pull_or_with_that_of_another_consumer(screens: Bench) -> None:
    screens.send("a")
    (mine,) = pull(screens, "hall")
    (theirs,) = pull(screens, "lobby")
    request = PullRequest(
        consumer="hall", settle=[Settlement(receipt=mine.receipt), Settlement(receipt=theirs.receipt)]
    )
    result = screens.deployment.pull("orders", "screens", request)
    assert [settled.status for settled in result.settled or ()] == ["settled", "settled"]
    assert screens.deployment.groups.lag("orders", "screens").in_flight == 0


def test_an_ended_lease_brings_messages_back_to_their_consumer_by_the_policy_of_the_group(screens: Bench) -> None:
    screens.send("a")
    for _ in range(3):  # the first end of a lease counts no attempt
        assert bodies(pull(screens, "hall", lease=5)) == ["a"]
        screens.clock.pass_time(6)
        screens.deployment.sweeper.sweep()
    assert bodies(pull(screens, "hall")) == []
    assert screens.deployment.groups.lag("orders", "screens").dead == 1


def test_dead_letters_of_all_consumers_are_listed_page_by_page_and_redriven_by_their_ids(screens: Bench) -> None:
    screens.send("a", "b")
    for consumer in ("hall", "lobby"):
        (one,) = pull(screens, consumer)
        settle(screens, one, dead=[0, 1])
    ids: list[str | None] = []
    after: str | None = None
    while True:
        page = screens.deployment.dead_letters("orders", "screens").page(after=after, limit=3)
        ids += [message.dead_id for message in page.messages]
        after = page.next
        if after is None:
            break
    assert ids == ["hall:0-0", "hall:0-1", "lobby:0-0", "lobby:0-1"]
    assert screens.deployment.dead_letters("orders", "screens").get("lobby:0-1").body == "b"
    with pytest.raises(NotFound):
        screens.deployment.dead_letters("orders", "screens").get("nobody:0-1")
    chosen = parse_any_dead_id("lobby:0-1", "ids[0]")
    assert screens.deployment.dead_letters("orders", "screens").redrive(lambda position, _: position == chosen) == 1
    assert (bodies(pull(screens, "hall")), bodies(pull(screens, "lobby"))) == ([], ["b"])
    assert screens.deployment.dead_letters("orders", "screens").drop(lambda *_: True) == 3


def test_lag_is_the_sum_over_all_consumers_and_that_of_each(screens: Bench) -> None:
    screens.send("a", "b")
    pull(screens, "hall")
    pull(screens, "lobby")
    screens.send("c")
    pull(screens, "hall")
    lag = screens.deployment.groups.lag("orders", "screens")
    assert (lag.waiting, lag.in_flight) == (1, 5)
    assert [(each.consumer, each.waiting, each.in_flight) for each in lag.consumers] == [
        ("hall", 0, 3),
        ("lobby", 1, 2),
    ]
    assert [(queue.offset, queue.end) for queue in lag.queues] == [(2, 3)]


def test_a_seek_moves_every_consumer(screens: Bench) -> None:
    screens.send("a", "b")
    for consumer in ("hall", "lobby"):
        pull(screens, consumer)
    assert offsets(screens.deployment.seeks().seek("orders", "screens", to="start")) == {0: 0}
    assert [bodies(pull(screens, consumer)) for consumer in ("hall", "lobby")] == [["a", "b"], ["a", "b"]]


def test_the_filter_of_the_group_is_that_of_every_consumer(screens: Bench) -> None:
    pull(screens, "hall")
    screens.deployment.groups.put("orders", "screens", filter=TagFilter(tags_any=("eu",)))
    screens.deployment.produce("orders", [NewMessage(body="a", tags=["us"]), NewMessage(body="b", tags=["eu"])])
    assert [bodies(pull(screens, consumer)) for consumer in ("hall", "lobby")] == [["b"], ["b"]]


def test_lists_show_the_group_and_no_groups_of_consumers(screens: Bench) -> None:
    screens.send("a")
    pull(screens, "hall")
    groups, following = screens.deployment.groups.page("orders")
    assert ([group.name for group in groups], following) == (["screens"], None)


def test_a_consumer_that_was_away_is_forgotten_and_starts_anew(screens: Bench) -> None:
    screens.send("a")
    (one,) = pull(screens, "hall")
    settle(screens, one)
    pull(screens, "lobby")
    for _ in range(4):
        screens.clock.pass_time(DAY)
        screens.deployment.sweeper.sweep()
        pull(screens, "lobby")
    assert consumers(screens) == ["lobby"]
    screens.send("b")
    assert bodies(pull(screens, "hall")) == ["b"]
    assert consumers(screens) == ["hall", "lobby"]


def test_a_pull_that_may_not_create_makes_no_consumer_that_another_process_has_forgotten() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=2))
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    pull(bench, "hall")
    bench.clock.pass_time(DAY)
    subject = bench.deployment.registry.subject("orders")
    remembered = bench.deployment.registry.group(subject, "screens+1+hall")
    bench.another_process().groups.leave("orders", "screens", "hall", forget=True)
    with pytest.raises(NotFound, match="has no consumer 'hall'"):
        bench.deployment.pull("orders", "screens", PullRequest(consumer="hall", create=False))
    assert consumers(bench) == []
    (record,) = (group for group in bench.another_process().registry.all_groups(subject) if group.consumer)
    assert (record.deleted, record.generation) == (True, remembered.generation)
    pull(bench, "hall")
    assert consumers(bench) == ["hall"]


def test_a_consumer_that_pulls_in_vain_is_not_forgotten(screens: Bench) -> None:
    screens.deployment.groups.put("orders", "screens", consumer_expires_seconds=60)
    for _ in range(10):
        pull(screens, "hall")
        screens.clock.pass_time(30)
        screens.deployment.sweeper.sweep()
    assert consumers(screens) == ["hall"]


def test_a_consumer_with_an_open_lease_is_not_forgotten(screens: Bench) -> None:
    screens.deployment.groups.put("orders", "screens", consumer_expires_seconds=60)
    screens.send("a")
    (one,) = pull(screens, "hall", lease=600)
    screens.clock.pass_time(300)
    screens.deployment.sweeper.sweep()
    assert consumers(screens) == ["hall"]
    assert settle(screens, one) == "settled"
    screens.deployment.sweeper.sweep()
    assert consumers(screens) == []


def test_the_place_of_a_consumer_is_written_about_once_an_hour(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    pull(bench, "hall")
    writes: list[int] = []
    for _ in range(240):
        bench.clock.pass_time(60)
        before = bench.deployment.registry.group(bench.deployment.registry.subject("orders"), "screens+1+hall").seen_ms
        pull(bench, "hall")
        after = bench.deployment.registry.group(bench.deployment.registry.subject("orders"), "screens+1+hall").seen_ms
        writes += [after] * (after != before)
    assert len(writes) == 4


def test_a_deleted_group_takes_its_consumers_along_and_a_new_one_begins_without_them(screens: Bench) -> None:
    screens.send("a")
    (one,) = pull(screens, "hall")
    screens.deployment.groups.delete("orders", "screens")
    screens.deployment.groups.put("orders", "screens", broadcast=True)
    assert (consumers(screens), settle(screens, one)) == ([], "stale")
    assert bodies(pull(screens, "hall")) == ["a"]


def test_the_sweeper_deletes_consumers_that_a_cut_off_deletion_has_left(screens: Bench) -> None:
    screens.send("a")
    pull(screens, "hall")
    subject = screens.deployment.registry.subject("orders")
    screens.deployment.registry.delete_group(subject, "screens")
    screens.deployment.sweeper.sweep()
    left = [group for group in screens.deployment.registry.all_groups(subject) if not group.erased]
    assert left == []


def test_the_sweeper_counts_no_messages_as_waiting_for_the_group_itself(screens: Bench) -> None:
    screens.send("a", "b")
    pull(screens, "hall")
    screens.meter.metrics.clear()
    screens.deployment.sweeper.sweep()
    assert "WaitingMessages" not in dict(screens.meter.metrics)


def test_a_group_gets_no_consumers_beyond_the_limit(screens: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_BROADCAST_CONSUMERS == 1_000
    monkeypatch.setattr(broadcast, "MAX_BROADCAST_CONSUMERS", 2)
    pull(screens, "hall")
    pull(screens, "lobby")
    with pytest.raises(Conflict, match="broadcasts to 2 consumers"):
        pull(screens, "roof")
    assert pull(screens, "hall") == []


def test_the_quota_of_groups_counts_consumers() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0, max_groups=2))
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    pull(bench, "hall")
    with pytest.raises(Conflict, match="2 groups"):
        pull(bench, "lobby")


def test_settings_that_exclude_one_another_are_refused(screens: Bench) -> None:
    screens.deployment.groups.put("orders", "plain")
    with pytest.raises(Conflict, match="created with broadcast true"):
        screens.deployment.groups.put("orders", "screens", broadcast=False)
    with pytest.raises(Conflict, match="created with broadcast false"):
        screens.deployment.groups.put("orders", "plain", broadcast=True)
    with pytest.raises(Rejected, match="its consumers pull"):
        screens.deployment.groups.put("orders", "screens", push=PushTarget(kind="python", address="bill"))
    with pytest.raises(Rejected, match="is a setting of broadcast groups"):
        screens.deployment.groups.put("orders", "plain", consumer_expires_seconds=60)
