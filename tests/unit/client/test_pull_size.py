"""A consumer pulls more at a time while its handlers are faster than its pulls."""

import pytest

from hourwheel.client.consuming.pull_size import PullSize
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import Running, consumer, fill, group, settled


def sizes(size: PullSize, *looks: tuple[int, float]) -> list[int]:
    return [size.next(taken, now) for taken, now in looks]


def test_the_first_pull_takes_what_the_consumer_was_told() -> None:
    assert sizes(PullSize(100), (0, 5.0)) == [100]


def test_fast_handlers_get_the_messages_of_fifty_milliseconds() -> None:
    assert sizes(PullSize(100), (0, 0.0), (500, 0.1), (1_000, 0.2)) == [100, 250, 250]


@pytest.mark.parametrize(("max_messages", "largest"), [(1, 8), (100, 800), (500, 1_000), (1_000, 1_000)])
def test_a_pull_is_at_most_eight_times_as_large_and_within_the_limit(max_messages: int, largest: int) -> None:
    assert sizes(PullSize(max_messages), (0, 0.0), (1_000_000, 1.0))[-1] == largest


def test_slow_handlers_lease_no_more_than_they_were_told() -> None:
    assert sizes(PullSize(100), (0, 0.0), (100, 10.0)) == [100, 100]


def test_a_handler_that_becomes_slow_gets_small_pulls_again() -> None:
    assert sizes(PullSize(100), (0, 0.0), (1_000, 0.1), (1_001, 3.0)) == [100, 500, 100]


def test_a_clock_that_stands_still_tells_nothing() -> None:
    assert sizes(PullSize(100), (0, 1.0), (500, 1.0)) == [100, 100]


def test_a_consumer_asks_for_more_as_its_handler_is_fast(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    lease = server.broker._lease

    def recorded(subject: str, at: object, request: dict[str, int]) -> object:
        asked.append(request["max_messages"])
        return lease(subject, at, request)

    monkeypatch.setattr(server.broker, "_lease", recorded)
    monkeypatch.setattr("hourwheel.client.consuming.pull_size._WORK_SECONDS", 60.0)  # any handler is fast
    fill(server, *map(str, range(40)))
    seen: list[object] = []
    with Running(consumer(server, max_messages=2), lambda message: seen.append(message.body)):
        server.wait_until(lambda broker: settled(broker, 40))
    assert seen == [str(number) for number in range(40)]
    assert asked[0] == 2
    assert max(asked) == 16
    assert not group(server).retries
