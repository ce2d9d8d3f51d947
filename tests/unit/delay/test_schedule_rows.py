"""Rows of the schedule log whose messages fall due in many steps: each is decoded a few times, in bounded memory, and
every message comes once."""

from random import Random
from typing import Any

import pytest

from hourwheel.context import Settings
from hourwheel.delay import outgoing_batches, schedule_rows
from hourwheel.delay.schedule_rows import ScheduleRowCache
from hourwheel.delay.wheel_steps import PREPARE_MS
from hourwheel.logs.large_batches import raw_messages_of
from hourwheel.logs.rows import Row
from hourwheel.model.messages import NewMessage
from tests.support import AT_ONCE, NOON_MS, Bench
from tests.unit.delay.test_wheel import bucket_of, turned, wheel_of

ROWS, MESSAGES, STEPS = 12, 50, 50
BEGIN_MS = NOON_MS // 3_600_000 * 3_600_000 + 600_000


class Watched:
    """Counts how often each row is decoded, and the most bytes that the cache takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache_bytes: int) -> None:
        self.decoded: dict[int, int] = {}
        self.most_bytes = 0
        rows = ScheduleRowCache.rows

        def counted(row: Row, blobs: Any) -> Any:
            self.decoded[row.first_seq] = self.decoded.get(row.first_seq, 0) + 1
            return raw_messages_of(row, blobs)

        def measured(cache: ScheduleRowCache, numbers: Any) -> Any:
            for row_no, row in rows(cache, numbers):
                self.most_bytes = max(self.most_bytes, cache._size)
                yield row_no, row

        monkeypatch.setattr(schedule_rows, "_CACHE_BYTES", cache_bytes)
        monkeypatch.setattr(schedule_rows, "raw_messages_of", counted)
        monkeypatch.setattr(ScheduleRowCache, "rows", measured)


def waiting(*, size: int = 200) -> tuple[Bench, list[str]]:
    """Returns a cell in which the messages of each row wait for random times, and their bodies as they fall due."""
    bench, chance = Bench(settings=Settings(retry=AT_ONCE, tick_ms=500)), Random(5)
    bench.clock.ms = BEGIN_MS
    bench.deployment.groups.put("orders", "billing")
    dues: list[tuple[float, str]] = []
    for row in range(ROWS):
        delays = [round(20 + chance.random() * STEPS / 2, 3) for _ in range(MESSAGES)]
        bodies = [f"{row}-{index}".ljust(size, ".") for index in range(MESSAGES)]
        bench.deployment.produce(
            "orders", [NewMessage(body=body, delay=delay) for body, delay in zip(bodies, delays, strict=True)]
        )
        dues += zip(delays, bodies, strict=True)
    return bench, [body for _, body in sorted(dues)]


def handed_over(bench: Bench) -> list[str]:
    wheel = wheel_of(bench, bucket_of(bench))
    turned(wheel, 19.9, *[0.5] * (STEPS + 2), bench=bench)
    assert wheel.waiting == 0
    received = []
    while pulls := bench.pull(1_000):
        received += [message.body or "" for pull in pulls for message in pull.messages]
    return received


@pytest.mark.parametrize(("share", "most"), [(1, 1), (4, 10), (1_000_000, STEPS)])
def test_rows_with_messages_at_many_times_are_decoded_as_seldom_as_memory_allows(
    share: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, sent = waiting()
    all_bytes = ROWS * (MESSAGES * 500 + 1_000) * 2
    watched = Watched(monkeypatch, all_bytes // share)
    received = handed_over(bench)
    assert sorted(received) == sorted(sent)
    assert max(watched.decoded.values()) <= most
    assert len(watched.decoded) == ROWS


def test_the_messages_that_are_kept_stay_within_the_memory_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, sent = waiting(size=2_000)
    watched = Watched(monkeypatch, 300_000)
    assert sorted(handed_over(bench)) == sorted(sent)
    assert 100_000 < watched.most_bytes <= 300_000


def test_a_row_that_is_handed_over_leaves_the_cache_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, _ = waiting()
    caches: list[ScheduleRowCache] = []
    init = ScheduleRowCache.__init__

    def noted(cache: ScheduleRowCache, *ports: Any) -> None:
        init(cache, *ports)
        caches.append(cache)

    monkeypatch.setattr(ScheduleRowCache, "__init__", noted)
    handed_over(bench)
    assert (caches[-1]._size, caches[-1]._rows) == (0, {})


def test_messages_come_in_the_order_of_their_due_times_though_their_rows_are_decoded_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, sent = waiting()
    Watched(monkeypatch, 50_000)
    places = {body: place for place, body in enumerate(sent)}
    received = [places[body] for body in handed_over(bench)]
    # Within a tick messages come in the order in which they were sent.
    assert max(abs(place - index) for index, place in enumerate(received)) < 4 * ROWS * MESSAGES // STEPS


def prepared_rows(monkeypatch: pytest.MonkeyPatch, tick_ms: int) -> list[tuple[int, int]]:
    """Returns when each row was decoded, in milliseconds before its messages were due, and how many it has."""
    bench = Bench(settings=Settings(retry=AT_ONCE, tick_ms=tick_ms))
    bench.clock.ms = BEGIN_MS
    bench.deployment.groups.put("orders", "billing")
    for _ in range(3):
        bench.deployment.produce("orders", [NewMessage(body="b", delay=20)] * 2)
    decoded: list[tuple[int, int]] = []

    def noted(row: Row, blobs: Any) -> Any:
        decoded.append((BEGIN_MS + 20_000 - bench.clock.ms, row.count))
        return raw_messages_of(row, blobs)

    monkeypatch.setattr(schedule_rows, "raw_messages_of", noted)

    def pause(seconds: float) -> bool:
        bench.clock.pass_time(seconds)
        return bench.clock.ms < BEGIN_MS + 21_000

    wheel_of(bench, bucket_of(bench)).run(pause)
    assert sum(len(pull.messages) for pull in bench.pull(10)) == 6
    return decoded


def test_a_wheel_that_rests_has_read_the_messages_that_are_due_next(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = prepared_rows(monkeypatch, tick_ms=0)
    assert [count for _, count in decoded] == [2, 2, 2]
    assert min(ahead_ms for ahead_ms, _ in decoded) >= PREPARE_MS


def test_a_wheel_that_rests_reads_no_more_messages_than_a_step_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_batches, "_STEP_BYTES", 1)
    decoded = prepared_rows(monkeypatch, tick_ms=0)
    assert [ahead_ms >= PREPARE_MS for ahead_ms, _ in decoded] == [True, False, False]


def test_a_wheel_with_ticks_reads_no_row_before_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    assert max(ahead_ms for ahead_ms, _ in prepared_rows(monkeypatch, tick_ms=500)) <= 0
