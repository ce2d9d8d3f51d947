"""The function ``wheel`` takes its events, turns for its time, and prints its metrics."""

from itertools import pairwise
from typing import Any

import pytest

from hourwheel.api.background.wheel import turning
from hourwheel.delay.wheel import Pause, WheelEnd
from hourwheel.delay.wheel_steps import RELAY_MS
from tests.support import NOON_MS, Bench

BUCKET = f"{NOON_MS}-60/000"
MINUTES_15 = 900.0


class Invocation:
    """An invocation with this much time left by the clock of its bench."""

    def __init__(self, bench: Bench, seconds: float = MINUTES_15) -> None:
        self._clock = bench.clock
        self._ends_ms = bench.clock.ms + round(seconds * 1_000)

    def get_remaining_time_in_millis(self) -> int:
        return self._ends_ms - self._clock.ms


@pytest.fixture
def bench() -> Bench:
    return Bench()


def turn(bench: Bench, event: Any = None, *, seconds: float = MINUTES_15) -> Any:
    event = {"bucket": BUCKET} if event is None else event
    return turning(lambda: None)(bench.deployment, event, Invocation(bench, seconds))


def test_it_hands_over_what_is_due_and_says_how_it_ended(bench: Bench) -> None:
    bench.send_later("a", delay=30)
    bench.send_later("b", delay="50m")
    assert turn(bench) == {"ended": "asleep"}
    assert bench.bodies() == ["a"]
    assert NOON_MS + 30_000 <= bench.clock.ms < NOON_MS + 31_000


def test_a_bucket_of_which_nothing_is_known_is_closed(bench: Bench) -> None:
    assert turn(bench) == {"ended": "closed"}


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"bucket": None},
        {"bucket": 7},
        {"bucket": ""},
        {"bucket": "noon"},
        {"bucket": f"{BUCKET}0"},
        [],
        "x",
        None,
        7,
        {"bucket": BUCKET.replace("/000", "/..")},
        {"bucket": f"{BUCKET}\n"},
    ],
)
def test_an_event_that_names_no_bucket_fails_the_invocation(bench: Bench, event: Any) -> None:
    with pytest.raises(ValueError, match="bucket"):
        turning(lambda: None)(bench.deployment, event, Invocation(bench))


def test_it_calls_its_successor_and_leaves_before_its_time_is_over(bench: Bench) -> None:
    for minute in range(1, 20):
        bench.send_later(f"{minute}", delay=f"{minute}m")
    bench.timers.ordered.clear()
    assert turn(bench) == {"ended": "left"}
    left_ms = bench.clock.ms
    assert NOON_MS + 879_000 <= left_ms <= NOON_MS + 881_000
    ((called_ms, bucket),) = bench.timers.ordered
    assert bucket == BUCKET
    assert left_ms - RELAY_MS - 1_000 <= called_ms <= left_ms - RELAY_MS + 1_000
    assert len(bench.bodies(lease=3_600)) == 14
    turn(bench)
    assert len(bench.bodies(lease=3_600)) == 5


@pytest.mark.parametrize("seconds", [0.0, 3.0, 60.0, 359.9])
def test_an_invocation_that_is_too_short_fails(bench: Bench, seconds: float) -> None:
    bench.send_later("a", delay=1)
    bench.timers.ordered.clear()
    with pytest.raises(ValueError, match="15 minutes"):
        turn(bench, seconds=seconds)
    assert bench.timers.ordered == [], "it would be called again at once"


def test_a_bucket_takes_fewer_invocations_than_lambda_allows_in_a_row(bench: Bench) -> None:
    for minute in range(1, 60):
        bench.send_later(f"{minute}", delay=f"{minute}m")
    ended = []
    while not ended or ended[-1] == "left":
        ended.append(turn(bench, seconds=360)["ended"])
    assert len(ended) < 16
    assert len(bench.bodies()) == 59


def test_metrics_are_printed_each_minute(bench: Bench) -> None:
    for minute in range(1, 11):
        bench.send_later(f"{minute}", delay=f"{minute}m")
    flushed: list[int] = []
    turning(lambda: flushed.append(bench.clock.ms))(bench.deployment, {"bucket": BUCKET}, Invocation(bench))
    assert len(flushed) == 10
    assert all(60_000 <= later - earlier <= 61_000 for earlier, later in pairwise(flushed))


def test_each_invocation_is_an_owner_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: list[str] = []

    def turn_wheel(cell: object, bucket: str, owner: str, pause: Pause, *, leaves_ms: int) -> WheelEnd:
        owners.append(owner)
        return WheelEnd.CLOSED

    monkeypatch.setattr(type(bench.deployment), "turn_wheel", turn_wheel)
    turn(bench)
    turn(bench)
    assert len(set(owners)) == 2


def test_an_error_fails_the_invocation(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def turn_wheel(*_: Any, **__: Any) -> WheelEnd:
        raise ZeroDivisionError

    monkeypatch.setattr(type(bench.deployment), "turn_wheel", turn_wheel)
    with pytest.raises(ZeroDivisionError):
        turn(bench)


def test_a_start_that_comes_early_is_ordered_again() -> None:
    bench = Bench.precisely()
    assert bench.precise is not None
    event = {"bucket": BUCKET, "wakes_ms": bench.clock.ms + 600_000}
    assert turn(bench, event) == {"ended": "relayed"}
    assert bench.precise.orders == [600]


def test_a_start_that_names_its_time_turns_the_wheel() -> None:
    bench = Bench.precisely()
    bench.send_later("a", delay=3)
    assert turn(bench, {"bucket": BUCKET, "wakes_ms": bench.clock.ms + 1_000}) == {"ended": "asleep"}
    assert bench.bodies() == ["a"]


def queued(*bodies: str) -> dict[str, Any]:
    return {"Records": [{"messageId": f"m{number}", "body": body} for number, body in enumerate(bodies)]}


def test_messages_of_the_timer_queue_start_their_wheels(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench.precisely()
    later = BUCKET.replace("-60/000", "-60/001")
    event = queued(f'{{"bucket": "{BUCKET}", "wakes_ms": {bench.clock.ms}}}', f'{{"bucket": "{later}"}}')
    assert turn(bench, event) == {"batchItemFailures": []}
    assert [name for _, name in bench.timers.ordered] == [BUCKET, later]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        "7",
        '{"bucket": "noon"}',
        f'{{"bucket": "{BUCKET}", "wakes_ms": "soon"}}',
        f'{{"bucket": "{BUCKET}", "wakes_ms": {NOON_MS + 3_600_001}}}',
        f'{{"bucket": "{BUCKET}", "wakes_ms": 1e999}}',
    ],
)
def test_a_forged_message_of_the_timer_queue_is_given_back_and_holds_up_no_other(
    body: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench.precisely()
    event = queued(body, f'{{"bucket": "{BUCKET}"}}')
    assert turn(bench, event) == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert [name for _, name in bench.timers.ordered] == [BUCKET]
    assert "m0" in caplog.text


def test_a_timer_of_a_bucket_that_was_removed_starts_nothing() -> None:
    bench = Bench.precisely()
    assert turn(bench, {"bucket": BUCKET, "wakes_ms": bench.clock.ms}) == {"ended": "closed"}
    assert bench.timers.ordered == []


@pytest.mark.parametrize(("working", "told"), [(0.1, []), (0.4, [44]), (2.0, [80])])
def test_a_wheel_tells_each_minute_how_busy_it_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, working: float, told: list[int]
) -> None:
    def turn_wheel(bucket: str, owner: str, pause: Pause, *, leaves_ms: int) -> WheelEnd:
        for _ in range(round(61 / (working + 0.5))):
            bench.clock.pass_time(working)
            pause(0.5)
        return WheelEnd.ASLEEP

    monkeypatch.setattr(bench.deployment, "turn_wheel", turn_wheel)
    turn(bench)
    found = [round(value) for name, value in bench.meter.metrics if name == "WheelBusyPercent"]
    assert found == told
