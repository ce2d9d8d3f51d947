"""Starts wheels on the deployment: by each function that stores delayed messages, by the minute, and by a successor."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import pytest

from hourwheel.errors import Unavailable

from .ending import cut_off_after
from .job import SHIP, Delivered, bodies, large, leave, path, pull, push, received, send, settle
from .system import HOUR, System
from .template import ACCOUNT, CELL, REGION


def order(system: System) -> None:
    """Checks that a producer of delayed messages orders the wheel if it is not ordered: for this hour at once, for a
    later one by a schedule."""
    system.once(push)
    soon, far = [{"index": 0, "delay": "1s"}, {"index": 1, "delay": "8h"}]
    for group in ("ack", "pull"):
        next_hour(system)
        send(system, f"later-{group}", [{"body": "soon"}, {"body": "far"}])
        (one,) = pull(system, f"later-{group}", group)
        settlement = {"receipt": one["receipt"], "retry": [soon, far]}
        if group == "ack":
            settle(system, "later-ack", group, settlement)
        else:
            pull(system, "later-pull", group, settle=[settlement])
        _soon_and_gone(system, f"later-{group}", group)
    for group, target in (("sweep", None), ("push", {"kind": "lambda", "arn": SHIP})):
        next_hour(system)
        settings = {"retry": {"delays_seconds": [8 * HOUR]}}
        system.ok("PUT", path(f"later-{group}", group), {**settings, "push": target})
        system.clock.pass_time(3)
        send(system, f"later-{group}", [{"body": "fragile"}])
        if target is None:
            leave(system, "later-sweep", group)
        lag = f"{path(f'later-{group}', group)}/lag"
        system.until(lambda lag=lag: system.ok("GET", lag)["backing_off"], "a retry that waits")
        (counted,) = system.ok("GET", f"{path(f'later-{group}', group)}/retries")["attempts"]
        assert system.ok("POST", f"{path(f'later-{group}', group)}/retries", {"key": "of nobody"})["retried"] == 0
        assert (counted["attempt"], counted["backing_off"]) == (2, 1)
        system.ok("DELETE", path(f"later-{group}"))
    next_hour(system)
    accepted = send(system, "later-meta", [{"body": "soon", "delay": "2h"}, {"body": "far", "delay": "2h"}])
    with system.unswept():  # otherwise delayed work may finish a move, and start or order its wheel
        for one, later in zip(accepted, ("1s", "8h"), strict=True):
            system.ok("PATCH", f"/v1/scheduled/{one['scheduled_id']}", {"delay": later})
    _soon_and_gone(system, "later-meta", "meta")
    next_hour(system)
    since = len(system.entries())
    _move_half(system, "later-delayed", "2h", "8h")
    system.until(lambda: _asked(system, since, "delayed", "/schedules/"), "a schedule of delayed")
    system.ok("DELETE", path("later-delayed"))


def _move_half(system: System, subject: str, delay: str, later: str) -> None:
    """Leaves a move of a large delayed message as a process does that stops before it is decided. The function
    ``delayed`` finishes it."""
    (accepted,) = send(system, subject, [{"body": large("moved"), "delay": delay}])
    with pytest.raises(Unavailable):
        cut_off_after(system, puts=2).delayed.reschedule(accepted["scheduled_id"], delay=later)
    system.swept()


def wait_minutes(system: System) -> None:
    """Checks that each function that orders wheels orders one ten minutes ahead from the queue of timers. Each time in
    an hour of its own, whose wheel has no earlier start."""
    system.once(push)
    soon, near = {"body": "soon", "delay": "1s"}, {"body": "near", "delay": "10m"}
    with _times(system, "produce"):
        send(system, "near-produce", [near])
    with _times(system, "wheel"):  # it turns for the first message, and leaves until the second
        send(system, "near-wheel", [soon, near])
    with _times(system, "meta"), system.unswept():  # otherwise delayed work may finish the move, and order its start
        (accepted,) = send(system, "near-meta", [{"body": "near", "delay": "30m"}])
        system.ok("PATCH", f"/v1/scheduled/{accepted['scheduled_id']}", {"delay": "10m"})
    with _times(system, "delayed"):
        _move_half(system, "near-delayed", "30m", "10m")
    for group in ("ack", "pull"):
        with _times(system, group):
            send(system, f"near-{group}", [{"body": "near"}])
            (one,) = pull(system, f"near-{group}", group)
            settlement = {"receipt": one["receipt"], "retry": [{"index": 0, "delay": "10m"}]}
            if group == "ack":
                settle(system, "near-ack", group, settlement)
            else:
                pull(system, "near-pull", group, settle=[settlement])
    for group, target in (("sweep", None), ("push", {"kind": "lambda", "arn": SHIP})):
        with _times(system, group):
            settings = {"retry": {"delays_seconds": [600]}}
            system.ok("PUT", path(f"near-{group}", group), {**settings, "push": target})
            system.clock.pass_time(3)
            send(system, f"near-{group}", [{"body": "fragile"}])
            if target is None:
                leave(system, "near-sweep", group)


@contextmanager
def _times(system: System, function: str) -> Iterator[None]:
    """Waits until the function has sent a message to the queue of timers in the block, and deletes the subject."""
    _next_quiet_hour(system)
    since = len(system.entries())
    yield
    system.until(lambda: _asked(system, since, function, "DelaySeconds"), f"a precise timer of {function}")
    system.ok("DELETE", path(f"near-{function}"))


def _next_quiet_hour(system: System) -> None:
    """Lets time pass to a minute after the start of the next hour in which nothing is due: its wheel has no start."""
    next_hour(system)
    while _wheels_of_this_hour(system):
        next_hour(system)


def _wheels_of_this_hour(system: System) -> list[str]:
    """Returns the buckets of this hour whose wheels have a start, or turn."""
    hour_ms = round(system.clock.now() // HOUR) * HOUR * 1_000
    wheels = system.ok("GET", "/v1/wheels")["wheels"]
    return [wheel["bucket"] for wheel in wheels if wheel["bucket"].startswith(f"{hour_ms}-")]


def next_hour(system: System) -> None:
    """Lets time pass to a minute after the start of the next hour, so that its wheel does not turn yet."""
    system.clock.pass_time(HOUR + 60 - system.clock.now() % HOUR)


def _soon_and_gone(system: System, subject: str, group: str) -> None:
    """Checks that the first message arrives, and deletes the subject with the other one."""
    found: Delivered = []

    def look() -> bool:
        for one in pull(system, subject, group):
            found.extend(one["messages"])
            settle(system, subject, group, {"receipt": one["receipt"]})
        return bool(found)

    system.until(look, f"what is soon for {group}")
    assert bodies(found) == ["soon"]
    system.ok("DELETE", path(subject))


def relay(system: System) -> None:
    """Checks that a wheel calls its successor before its invocation ends."""
    called = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{CELL}-wheel"
    with system.unswept():  # otherwise the sweeper would, for a wheel that slept through its lease
        # No promise to read the queue of timers lasts for an hour: without one the wheel turns until the message.
        system.clock.pass_time(HOUR)
        _next_quiet_hour(system)
        since = len(system.entries())
        send(system, "night", [{"body": "first", "delay": 120}, {"body": "last", "delay": 960}])
        # By name: wheels of other hours hand over and are called meanwhile.
        (bucket,) = _wheels_of_this_hour(system)
        system.until(lambda: _asked(system, since, "wheel", f"{CELL}-dispatch", bucket), "a wheel that has begun")
        system.clock.pass_time(840)  # the time of an invocation less that which a successor has to begin
        system.until(lambda: _asked(system, since, "wheel", called, bucket), "the call of a successor")
        assert bodies(received(system, "night", "watch", 1)) == ["first"]
        system.clock.pass_time(120)
        assert bodies(received(system, "night", "watch", 1)) == ["last"]


def _asked(system: System, since: int, function: str, *parts: str) -> bool:
    """Returns whether the function has made a request that contains all these parts."""
    entries = [entry for entry in system.entries()[since:] if entry.get("function") == f"{CELL}-{function}"]
    texts = (unquote(entry["path"]) + entry["body"] for entry in entries)
    return any(all(part in text for part in parts) for text in texts)
