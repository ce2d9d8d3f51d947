"""What needs an operator is decided from numbers alone: a table of cases at the thresholds."""

import shlex
from typing import Any, NamedTuple

import msgspec
import pytest
import typer

from hourwheel.cli.app import app
from hourwheel.model.overview import BucketWheel, GroupOverview
from hourwheel.operations.concerns import (
    Concern,
    WatchedGroup,
    concerns_of_group,
    concerns_of_storages,
    concerns_of_volumes,
    concerns_of_wheels,
)
from hourwheel.operations.thresholds import THRESHOLDS, Thresholds
from hourwheel.operations.trends import LagHistory, LagPoint, Trend
from hourwheel.ports.storage import VolumeSpace
from hourwheel.times import rfc3339

NOW_MS = 1_800_000_000_000
MB = 1 << 20


def ago(seconds: float) -> str:
    return rfc3339(NOW_MS - round(seconds * 1_000))


class Case(NamedTuple):
    """The numbers of a group, and the kinds and levels of what they mean."""

    numbers: dict[str, Any]
    found: list[tuple[str, str]]
    trend: Trend | None = None
    watched_seconds: float = 3_600
    pullable: bool = True


def backlog(waiting: int, oldest_seconds: float, **more: Any) -> dict[str, Any]:
    return {"waiting": waiting, "oldest_at": ago(oldest_seconds), "in_flight": 1, **more}


GROWS, KEEPS, SHRINKS = Trend(2.0, 5.0), Trend(0.0, 5.0), Trend(-4.0, 5.0)

CASES = {
    "an idle group": Case({}, []),
    "messages that are pulled in time": Case(backlog(500, 29), [], GROWS),
    "few messages": Case(backlog(99, 900), [], GROWS),
    "a backlog of which one look is known": Case(backlog(500, 900), []),
    "a backlog that grows": Case(backlog(100, 30), [("growing", "warning")], GROWS),
    "a backlog that grows slowly": Case(backlog(100, 30), [], Trend(0.09, 5.0)),
    "a backlog that keeps its length": Case(backlog(5_000, 900), [], KEEPS),
    "a long backlog that shrinks": Case(backlog(1_000, 600), [("draining", "notice")], SHRINKS),
    "a shorter backlog that shrinks": Case(backlog(999, 600), [], SHRINKS),
    "nobody pulls": Case({"waiting": 1, "oldest_at": ago(60)}, [("no_consumers", "alarm")]),
    "nobody pulls retries": Case({"retrying": 1, "oldest_at": ago(60)}, [("no_consumers", "alarm")]),
    "nobody pulls, and it grows": Case({"waiting": 200, "oldest_at": ago(60)}, [("no_consumers", "alarm")], GROWS),
    "nobody has pulled for less than a minute": Case({"waiting": 1, "oldest_at": ago(59)}, []),
    "a consumer has pulled within a minute": Case({"waiting": 1, "oldest_at": ago(900), "pulled_at": ago(59)}, []),
    "a consumer holds messages": Case(backlog(1, 900), []),
    "a server that has just started": Case({"waiting": 1, "oldest_at": ago(900)}, [], watched_seconds=59),
    "a pushed group": Case({"waiting": 1, "oldest_at": ago(900), "pushed": True}, []),
    "a paused group": Case({"paused": True, "limited_by": "paused"}, [("paused", "notice")]),
    "a paused group with messages": Case(
        {"waiting": 9, "oldest_at": ago(900), "limited_by": "paused"}, [("paused", "warning")], GROWS
    ),
    "a paused subject": Case({"waiting": 9, "limited_by": "subject_paused"}, [("paused", "warning")]),
    "a paused broadcast group without consumers": Case({"paused": True}, [("paused", "notice")]),
    "a limited group": Case(backlog(9, 900, limited_by="max_in_flight"), [("limited", "notice")], GROWS),
    "a group at its rate that is not pulled": Case(
        {"waiting": 9, "oldest_at": ago(900), "limited_by": "messages_per_second"}, [("limited", "notice")]
    ),
    "messages that wait for their key": Case({"waiting": 9, "oldest_at": ago(900)}, [], pullable=False),
    "a stopped key": Case({"held": 2, "stopped": 1}, [("stopped_keys", "alarm")]),
    "held keys that are retried": Case({"held": 2}, []),
    "dead letters": Case({"dead": 2_500, "dead_since": ago(86_400)}, [("dead", "warning")]),
    "everything at once": Case(
        backlog(100, 30, stopped=1, dead=1),
        [("growing", "warning"), ("stopped_keys", "alarm"), ("dead", "warning")],
        GROWS,
    ),
}


def watched(case: Case, **more: Any) -> WatchedGroup:
    numbers = GroupOverview(group="billing", **case.numbers, **more)
    since_ms = NOW_MS - round(case.watched_seconds * 1_000)
    return WatchedGroup("orders", numbers, case.trend, since_ms, numbers.oldest_at if case.pullable else None)


def concerns(case: Case, **more: Any) -> list[Concern]:
    return concerns_of_group(watched(case, **more), THRESHOLDS, NOW_MS)


def wheel(state: Any, seconds: int) -> BucketWheel:
    """Returns the wheel of a bucket whose span began this long ago."""
    return BucketWheel(
        bucket="b",
        starts_at=ago(seconds),
        ends_at=ago(seconds - 3_600),
        state=state,
        owner=None,
        lease_until=None,
        wakes_at=None,
        messages=3,
    )


def typed(line: str) -> dict[str, Any]:
    """Returns the arguments and options that the command line reads from a line, without running the command."""
    words = shlex.split(line)[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    told: dict[str, Any] = command.make_context("hourwheel", words).params
    return told


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_group_is_named_from_its_thresholds_on(case: Case) -> None:
    found = concerns(case)
    assert [(concern.kind, concern.level) for concern in found] == case.found
    assert {(concern.subject, concern.group) for concern in found} <= {("orders", "billing")}
    assert all("orders billing" in concern.command or "subject resume" in concern.command for concern in found)


def test_a_process_that_sees_no_pulls_tells_what_it_knows() -> None:
    state = watched(CASES["nobody pulls"])._replace(watched_ms=None)
    (found,) = concerns_of_group(state, THRESHOLDS, NOW_MS)
    assert (found.level, found.text) == ("warning", "1 message waits, and nothing was handed out yet.")
    pulled = msgspec.structs.replace(state.numbers, pulled_at=ago(900))
    (found,) = concerns_of_group(state._replace(numbers=pulled), THRESHOLDS, NOW_MS)
    assert found.text == "1 message waits, and nothing was handed out since 2027-01-15 07:45Z."


def test_a_growing_backlog_tells_its_rate_and_the_time_of_its_work() -> None:
    (found,) = concerns(CASES["a backlog that grows"])
    assert (found.rise_per_second, found.pulled_per_second, found.drain_seconds) == (2.0, 5.0, 20.0)
    assert found.text == "100 messages wait, growing by 2/s; pulled at 5/s, 20 s of work."
    (found,) = concerns(CASES["a backlog that grows"]._replace(trend=Trend(2.0, 0.0)))
    assert (found.drain_seconds, found.text) == (None, "100 messages wait, growing by 2/s; nothing is pulled.")


def test_a_shrinking_backlog_tells_when_it_is_done() -> None:
    (found,) = concerns(CASES["a long backlog that shrinks"])
    assert (found.drain_seconds, found.text) == (250.0, "1,000 messages wait, shrinking by 4/s: done in 4 min.")


def test_dead_letters_are_told_exactly_or_as_at_least_so_many() -> None:
    (found,) = concerns(CASES["dead letters"])
    assert (found.text, found.messages, found.since) == ("2,500 dead letters.", 2_500, ago(86_400))
    (found,) = concerns(CASES["dead letters"], inexact=["dead"])
    assert found.text == "2,500 or more dead letters."


def test_a_command_of_a_name_that_begins_with_a_dash_can_be_typed() -> None:
    numbers = GroupOverview(group="-._-", dead=1)
    (found,) = concerns_of_group(WatchedGroup("orders", numbers, None, 0, None), THRESHOLDS, NOW_MS)
    assert found.command == "hourwheel dead reasons -- orders -._-"


@pytest.mark.parametrize(("subject", "group"), [("orders", "billing"), ("-o", "g"), ("orders", "-g"), ("--all", "--")])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_command_of_a_group_is_one_of_the_command_line(case: Case, subject: str, group: str) -> None:
    state = watched(case)
    numbers = msgspec.structs.replace(state.numbers, group=group)
    for found in concerns_of_group(state._replace(subject=subject, numbers=numbers), THRESHOLDS, NOW_MS):
        told = typed(found.command)
        assert told["subject"] == subject
        assert told.get("group", group) == group


def test_the_commands_of_cells_and_wheels_are_those_of_the_command_line() -> None:
    for name in ("fast", "-fast"):
        (found,) = concerns_of_storages([name])
        assert name in typed(found.command).values()
    (found,) = concerns_of_wheels([wheel("overdue", 60)], THRESHOLDS, NOW_MS)
    assert ago(60) in typed(found.command).values()


@pytest.mark.parametrize(
    ("free", "reserve", "level"),
    [(129, 64, None), (128, 64, None), (127, 64, "warning"), (64, 64, "warning"), (63, 64, "alarm"), (0, 0, None)],
)
def test_a_volume_is_named_below_twice_its_reserve(free: int, reserve: int, level: str | None) -> None:
    found = list(concerns_of_volumes([VolumeSpace("home", free * MB, reserve * MB)], THRESHOLDS))
    assert [concern.level for concern in found] == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("state", "seconds", "named"),
    [("overdue", 30, True), ("overdue", 29, False), ("turning", 900, False), ("asleep", 900, False)],
)
def test_a_wheel_is_named_that_has_been_overdue_for_some_time(state: Any, seconds: int, named: bool) -> None:
    found = concerns_of_wheels([wheel(state, seconds)], THRESHOLDS, NOW_MS)
    assert [concern.name for concern in found] == (["b"] if named else [])


def test_each_cell_out_of_reach_is_named() -> None:
    (found,) = concerns_of_storages(["fast"])
    assert (found.kind, found.name, found.command) == ("cell_out", "fast", "hourwheel cell show fast")


def test_the_gravest_concerns_come_first_and_of_one_kind_the_largest() -> None:
    dead = [concerns(Case({"dead": dead}, []))[0] for dead in (3, 7)]
    found = [*dead, *concerns(CASES["a paused group"]), *concerns(CASES["a stopped key"])]
    first = sorted(found, key=Concern.order_key)
    assert [(concern.kind, concern.messages) for concern in first] == [
        ("stopped_keys", 1),
        ("dead", 7),
        ("dead", 3),
        ("paused", 0),
    ]


LIMITS = Thresholds()


def point(seconds: float, waiting: int, settled: int = 0) -> LagPoint:
    return LagPoint(round(seconds * 1_000), waiting, settled)


def test_a_trend_is_the_mean_since_one_or_two_minutes_ago() -> None:
    history = LagHistory.beginning(point(0, 0))
    assert history.trend(point(14, 100), LIMITS) is None
    assert history.trend(point(20, 100, 60), LIMITS) == Trend(5.0, 3.0)
    history = history.with_point(point(59, 0), LIMITS).with_point(point(60, 600), LIMITS)
    assert history.base == point(0, 0)
    history = history.with_point(point(120, 600), LIMITS)
    assert history.trend(point(130, 600), LIMITS) == Trend(0.0, 0.0)


@pytest.mark.parametrize("later", [point(90, 0, 4), LagPoint(90_000, 0, 9, seeks=1)])
def test_no_trend_leads_over_a_seek(later: LagPoint) -> None:
    assert LagHistory(point(0, 0, 5), point(60, 0, 9)).trend(later, LIMITS) is None


def test_a_trend_begins_anew_after_a_seek_forward() -> None:
    later = LagPoint(61_000, 0, 90, seeks=1)
    assert LagHistory(point(0, 9, 0), point(60, 9, 9)).with_point(later, LIMITS) == LagHistory.beginning(later)


@pytest.mark.parametrize("later", [point(59, 0, 9), point(61, 0, 8)])
def test_a_trend_begins_anew_after_a_seek_or_a_clock_that_was_set_back(later: LagPoint) -> None:
    history = LagHistory(point(0, 0), point(60, 0, 9))
    assert history.with_point(later, LIMITS) == LagHistory.beginning(later)
