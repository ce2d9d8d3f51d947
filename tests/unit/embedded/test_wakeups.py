"""Who is woken, and who is not."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from hourwheel.embedded.wakeups import Caller, EmbeddedWakeups

LONG = 120.0


class Waiters:
    """Threads that wait, one after the other."""

    def __init__(self, arrivals: EmbeddedWakeups) -> None:
        self.arrivals = arrivals
        self._pool = ThreadPoolExecutor(16)

    def start(self, group: str, *, caller: Caller | None = None, seconds: float = LONG) -> Future[bool]:
        before = self.arrivals.waiting
        mark = self.arrivals.mark("orders")

        def wait() -> bool:
            with self.arrivals.serving(caller or Caller()):
                return self.arrivals.wait("orders", group, mark=mark, tries=0, seconds=seconds)

        answer = self._pool.submit(wait)
        while self.arrivals.waiting == before and not answer.done():
            threading.Event().wait(0.001)
        return answer

    @property
    def asleep(self) -> list[str]:
        """The groups of those that nobody has woken. Whoever announces has woken all that it will when it returns."""
        with self.arrivals._lock:
            groups = self.arrivals._waiting.get("orders", {})
            return [group for group, queue in groups.items() for waiter in queue if waiter.signal.locked()]

    def close(self) -> None:
        self.arrivals.close()
        self._pool.shutdown()


@pytest.fixture
def waiters() -> Iterator[Waiters]:
    opened = Waiters(EmbeddedWakeups(max_waiting=4))
    yield opened
    opened.close()


def test_an_announcement_wakes_one_waiter_of_each_group_the_first_first(waiters: Waiters) -> None:
    first, second, other = waiters.start("a"), waiters.start("a"), waiters.start("b")
    waiters.arrivals.announce("orders")
    assert waiters.asleep == ["a"]
    assert first.result(LONG)
    assert other.result(LONG)
    waiters.arrivals.announce("orders")
    assert second.result(LONG)


def test_an_announcement_for_a_group_leaves_the_others_asleep(waiters: Waiters) -> None:
    one = waiters.start("a")
    waiters.start("b")
    waiters.arrivals.announce("orders", "a")
    assert waiters.asleep == ["b"]
    assert one.result(LONG)


def test_another_subject_wakes_nobody(waiters: Waiters) -> None:
    waiters.start("a")
    waiters.arrivals.announce("refunds")
    assert waiters.asleep == ["a"]


def test_what_was_announced_since_the_mark_is_not_waited_for() -> None:
    arrivals = EmbeddedWakeups(max_waiting=1)
    mark = arrivals.mark("orders")
    arrivals.announce("orders")
    assert arrivals.wait("orders", "a", mark=mark, tries=0, seconds=LONG)


def test_any_number_of_subjects_takes_the_same_room() -> None:
    arrivals = EmbeddedWakeups(max_waiting=1)
    room = len(arrivals._marks)
    for number in range(10_000):
        mark = arrivals.mark(f"s{number}")
        arrivals.announce(f"s{number}")
        assert arrivals.mark(f"s{number}") != mark
    assert len(arrivals._marks) == room


def test_a_wait_ends_with_its_time(waiters: Waiters) -> None:
    assert waiters.start("a", seconds=0.01).result(LONG)
    assert waiters.arrivals.waiting == 0


def test_only_so_many_wait(waiters: Waiters) -> None:
    for _ in range(4):
        waiters.start("a")
    assert not waiters.start("a").result(LONG)


def test_close_ends_every_wait_and_lets_nobody_wait_again(waiters: Waiters) -> None:
    answers = [waiters.start("a"), waiters.start("a"), waiters.start("b")]
    waiters.arrivals.close()
    assert [answer.result(LONG) for answer in answers] == [False, False, False]
    assert not waiters.start("a").result(LONG)


def test_a_caller_that_leaves_ends_its_wait_alone(waiters: Waiters) -> None:
    caller = Caller()
    one, other = waiters.start("a", caller=caller), waiters.start("a")
    waiters.arrivals.leave(caller)
    assert waiters.asleep == ["a"]
    assert not one.result(LONG)
    waiters.arrivals.announce("orders")
    assert other.result(LONG)


def test_a_caller_that_left_before_does_not_wait(waiters: Waiters) -> None:
    caller = Caller()
    waiters.arrivals.leave(caller)
    assert not waiters.start("a", caller=caller).result(LONG)


def test_an_announcement_is_passed_on_by_a_caller_that_left_meanwhile() -> None:
    """Woken by the announcement, but gone before it could look."""
    arrivals = EmbeddedWakeups(max_waiting=4)
    waiters = Waiters(arrivals)
    for _ in range(200):
        caller = Caller()
        one, other = waiters.start("a", caller=caller), waiters.start("a")
        together = threading.Barrier(2)

        def leave(caller: Caller = caller, together: threading.Barrier = together) -> None:
            together.wait()
            arrivals.leave(caller)

        leaver = threading.Thread(target=leave)
        leaver.start()
        together.wait()
        arrivals.announce("orders")
        leaver.join()
        if not one.result(LONG):
            assert waiters.asleep == []
            assert other.result(LONG)
        else:
            arrivals.announce("orders")
            assert other.result(LONG)
    waiters.close()


def test_all_may_be_woken_at_once(waiters: Waiters) -> None:
    one, other = waiters.start("a"), waiters.start("b")
    waiters.arrivals.announce_all()
    assert one.result(LONG)
    assert other.result(LONG)
