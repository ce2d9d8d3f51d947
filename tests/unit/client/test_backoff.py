"""A consumer pauses for the right time between two pulls."""

import pytest

from hourwheel.client.errors import AnswerError, from_answer
from hourwheel.client.transport.backoff import THROTTLED_SECONDS, Outage, PullBackoff, pause_seconds
from tests.unit.client.ids import StillIds


class WidestIds(StillIds):
    """Jitter is always at its bound."""

    def jitter(self) -> float:
        return 1.0


@pytest.fixture
def backoff() -> PullBackoff:
    return PullBackoff(WidestIds())


def refused(status: int, body: bytes = b'{"message":"refused"}', retry_after: str | None = None) -> AnswerError:
    return from_answer(status, body, retry_after=retry_after)


def after_failures(backoff: PullBackoff, error: AnswerError, times: int = 12) -> list[float]:
    pauses = []
    for _ in range(times):
        backoff.failed(error)
        pauses.append(backoff.seconds())
    return pauses


def test_a_line_of_an_outage_counts_the_failures_since_it_began() -> None:
    outage = Outage()
    assert [outage.failed(refused(503), now) for now in (0.0, 1.0, 29.0, 30.0)] == [True, False, False, True]
    assert outage.repeated == " 4 times"
    assert outage.ended(31.0) == 31.0
    assert outage.failed(refused(503), 40.0)
    assert outage.repeated == ""


def test_nothing_pauses_while_messages_come_or_the_server_waits(backoff: PullBackoff) -> None:
    backoff.answered(["a pull"], asked_seconds=20, took_seconds=0.01)
    assert backoff.seconds() == 0
    backoff.answered([], asked_seconds=20, took_seconds=19.8)
    assert backoff.seconds() == 0


@pytest.mark.parametrize("status", [429, 503])
def test_pulls_that_the_gateway_throttles_come_back_less_and_less_often(backoff: PullBackoff, status: int) -> None:
    pauses = after_failures(backoff, refused(status))
    assert pauses == sorted(pauses)
    assert pauses[-1] == THROTTLED_SECONDS == 20


def test_a_server_that_was_away_is_asked_sooner(backoff: PullBackoff) -> None:
    own = b'{"type":"urn:hourwheel:unavailable","status":503,"detail":"the tables do not answer"}'
    assert after_failures(backoff, refused(503, own))[-1] == 5


def test_a_pull_waits_at_least_as_long_as_the_server_asks(backoff: PullBackoff) -> None:
    assert after_failures(backoff, refused(429, retry_after="7"), times=1)[0] >= 7
    assert after_failures(backoff, refused(429, retry_after="3600"), times=1)[0] < 21


def test_empty_answers_before_their_time_are_paused_after_for_the_time_that_is_left(backoff: PullBackoff) -> None:
    for _ in range(12):
        backoff.answered([], asked_seconds=3.0, took_seconds=0.5)
    assert backoff.seconds() == 2.5
    for _ in range(12):
        backoff.answered([], asked_seconds=20, took_seconds=0.01)
    assert backoff.seconds() == 5


def test_a_consumer_that_asks_for_no_wait_pauses_briefly(backoff: PullBackoff) -> None:
    for _ in range(12):
        backoff.answered([], asked_seconds=0, took_seconds=0.01)
    assert backoff.seconds() == pytest.approx(0.4)


def test_the_first_message_ends_the_pauses(backoff: PullBackoff) -> None:
    after_failures(backoff, refused(429))
    backoff.answered(["a pull"], asked_seconds=20, took_seconds=0.01)
    assert backoff.seconds() == 0


def test_other_calls_are_tried_again_within_five_seconds() -> None:
    assert pause_seconds(100, WidestIds()) == 5


def test_an_outage_is_logged_at_its_first_failure_and_every_half_minute_and_at_its_end() -> None:
    outage = Outage()
    assert outage.ended(0.0) is None
    assert [now for now in range(5, 80) if outage.failed(refused(503), now)] == [5, 35, 65]
    assert outage.ended(80.0) == 75
    assert outage.ended(81.0) is None
    assert outage.failed(refused(503), 82.0)
