"""An announcement wakes the pulls that it concerns, and no others."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from hourwheel.embedded.wakeups import Caller, EmbeddedWakeups

LONG = 120.0


class Waiters:
    """Threads that wait, one after the other."""

    def __init__(self, wakeups: EmbeddedWakeups) -> None:
        self.wakeups = wakeups
        self._pool = ThreadPoolExecutor(16)

    def start(self, group: str, *, caller: Caller | None = None, seconds: float = LONG) -> Future[bool]:
        before = self.wakeups.waiting
        since = self.wakeups.announcements("orders")

        def wait() -> bool:
            with self.wakeups.serving(caller or Caller()):
                return self.wakeups.wait("orders", group, since=since, tries=0, seconds=seconds)

        answer = self._pool.submit(wait)
        while self.wakeups.waiting == before and not answer.done():
            threading.Event().wait(0.001)
        return answer

    @property
    def asleep(self) -> list[str]:
        """Returns the groups of the pulls that still wait. An announcement wakes all its pulls before it returns."""
        with self.wakeups._lock:
            groups = self.wakeups._waiting.get("orders", {})
            return [group for group, queue in groups.items() for waiter in queue if waiter.signal.locked()]

    def close(self) -> None:
        self.wakeups.close()
        self._pool.shutdown()


@pytest.fixture
def waiters() -> Iterator[Waiters]:
    opened = Waiters(EmbeddedWakeups(max_waiting=4))
    yield opened
    opened.close()


def test_an_announcement_wakes_one_waiter_of_each_group_the_first_first(waiters: Waiters) -> None:
    first, second, other = waiters.start("a"), waiters.start("a"), waiters.start("b")
    waiters.wakeups.announce("orders")
    assert waiters.asleep == ["a"]
    assert first.result(LONG)
    assert other.result(LONG)
    waiters.wakeups.announce("orders")
    assert second.result(LONG)


def test_an_announcement_for_a_group_leaves_the_others_asleep(waiters: Waiters) -> None:
    one = waiters.start("a")
    waiters.start("b")
    waiters.wakeups.announce("orders", "a")
    assert waiters.asleep == ["b"]
    assert one.result(LONG)


def test_an_announcement_for_a_consumer_wakes_its_own_pull_and_one_for_its_group_one_of_each(waiters: Waiters) -> None:
    for group in ("a+1+hall", "a+1+hall", "a+1+desk", "b"):
        waiters.start(group)
    waiters.wakeups.announce("orders", "a+1+hall")
    assert waiters.asleep == ["a+1+hall", "a+1+desk", "b"]
    waiters.wakeups.announce("orders", "a")
    assert waiters.asleep == ["b"]


def test_another_subject_wakes_nobody(waiters: Waiters) -> None:
    waiters.start("a")
    waiters.wakeups.announce("refunds")
    assert waiters.asleep == ["a"]


def test_what_was_announced_since_the_mark_is_not_waited_for() -> None:
    wakeups = EmbeddedWakeups(max_waiting=1)
    since = wakeups.announcements("orders")
    wakeups.announce("orders")
    assert wakeups.wait("orders", "a", since=since, tries=0, seconds=LONG)


def test_an_announcement_for_all_between_a_look_and_its_wait_is_not_waited_for() -> None:
    """Another server has stored a message behind the look of this pull, before the pull waits."""
    wakeups = EmbeddedWakeups(max_waiting=1)
    since = wakeups.announcements("orders")
    wakeups.announce_all()
    answer = ThreadPoolExecutor(1).submit(wakeups.wait, "orders", "a", since=since, tries=0, seconds=LONG)
    while not (answer.done() or wakeups.waiting):
        threading.Event().wait(0.001)
    slept = wakeups.waiting == 1
    wakeups.close()
    assert answer.result(LONG) is not slept
    assert not slept


def test_an_announcement_for_all_before_the_look_lets_the_pull_wait(waiters: Waiters) -> None:
    waiters.wakeups.announce_all()
    waiters.start("a")
    assert waiters.asleep == ["a"]


def test_any_number_of_subjects_takes_the_same_room() -> None:
    wakeups = EmbeddedWakeups(max_waiting=1)
    room = len(wakeups._counts)
    for number in range(10_000):
        since = wakeups.announcements(f"s{number}")
        wakeups.announce(f"s{number}")
        assert wakeups.announcements(f"s{number}") != since
    assert len(wakeups._counts) == room


def test_a_wait_ends_with_its_time(waiters: Waiters) -> None:
    assert waiters.start("a", seconds=0.01).result(LONG)
    assert waiters.wakeups.waiting == 0


def test_only_so_many_wait(waiters: Waiters) -> None:
    for _ in range(4):
        waiters.start("a")
    assert not waiters.start("a").result(LONG)


def test_close_ends_every_wait_and_lets_nobody_wait_again(waiters: Waiters) -> None:
    answers = [waiters.start("a"), waiters.start("a"), waiters.start("b")]
    waiters.wakeups.close()
    assert [answer.result(LONG) for answer in answers] == [False, False, False]
    assert not waiters.start("a").result(LONG)


def test_a_caller_that_leaves_ends_its_wait_alone(waiters: Waiters) -> None:
    caller = Caller()
    one, other = waiters.start("a", caller=caller), waiters.start("a")
    waiters.wakeups.leave(caller)
    assert waiters.asleep == ["a"]
    assert not one.result(LONG)
    waiters.wakeups.announce("orders")
    assert other.result(LONG)


def test_a_caller_that_left_before_does_not_wait(waiters: Waiters) -> None:
    caller = Caller()
    waiters.wakeups.leave(caller)
    assert not waiters.start("a", caller=caller).result(LONG)


def test_an_announcement_is_passed_on_by_a_caller_that_left_meanwhile() -> None:
    """Woken by the announcement, but gone before it could look."""
    wakeups = EmbeddedWakeups(max_waiting=4)
    waiters = Waiters(wakeups)
    for _ in range(200):
        caller = Caller()
        one, other = waiters.start("a", caller=caller), waiters.start("a")
        together = threading.Barrier(2)

        def leave(caller: Caller = caller, together: threading.Barrier = together) -> None:
            together.wait()
            wakeups.leave(caller)

        leaver = threading.Thread(target=leave)
        leaver.start()
        together.wait()
        wakeups.announce("orders")
        leaver.join()
        if not one.result(LONG):
            assert waiters.asleep == []
            assert other.result(LONG)
        else:
            wakeups.announce("orders")
            assert other.result(LONG)
    waiters.close()


def test_all_may_be_woken_at_once(waiters: Waiters) -> None:
    one, other = waiters.start("a"), waiters.start("b")
    waiters.wakeups.announce_all()
    assert one.result(LONG)
    assert other.result(LONG)
