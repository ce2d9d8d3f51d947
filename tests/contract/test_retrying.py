"""RetryingStore retries, pauses and gives up at the right times."""

from collections.abc import Callable
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.errors import Broken, Corrupt, Filled, OutcomeUnknown, Sealed, StorageFull, Throttled
from hourwheel.ports.storage import Counter, Key, Refused, Table

from .records import record, stored
from .simulated import InstantClock, SteadyIds

KEY = Key(Table.CONSUME, "subject", "1")


class Unreliable(MemoryStore):
    """Raises the next of ``before`` instead of the effect, or without one the next of ``after`` after the effect."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.calls = 0

    def transact(self, work: Callable[[Any], Any]) -> Any:
        self.calls += 1
        if self.before:
            raise self.before.pop(0)
        answer = super().transact(work)
        if self.after:
            raise self.after.pop(0)
        return answer


@pytest.fixture
def unreliable() -> Unreliable:
    return Unreliable()


@pytest.fixture
def clock() -> InstantClock:
    return InstantClock()


def test_an_answer_at_once_costs_no_pause(unreliable: Unreliable, clock: InstantClock) -> None:
    assert RetryingStore(unreliable, clock, SteadyIds()).add("log", rows=1, numbers=1) == Counter(1, 1)
    assert clock.pauses == []


def test_pauses_double_up_to_half_a_second(unreliable: Unreliable, clock: InstantClock) -> None:
    unreliable.before = [Throttled("slow down") for _ in range(7)]
    RetryingStore(unreliable, clock, SteadyIds(jitter=0.0)).counter("log")
    assert clock.pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5])


def test_pauses_are_spread_over_the_whole_range(unreliable: Unreliable, clock: InstantClock) -> None:
    unreliable.before = [Throttled("slow down") for _ in range(3)]
    RetryingStore(unreliable, clock, SteadyIds(jitter=0.75)).counter("log")
    assert clock.pauses == pytest.approx([0.005, 0.01, 0.02])


@pytest.mark.parametrize("error", [Throttled("slow down"), OutcomeUnknown("no answer")])
@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_the_last_error_is_raised_when_the_budget_is_spent(
    unreliable: Unreliable, clock: InstantClock, error: Exception, jitter: float
) -> None:
    unreliable.before = [error] * 100_000
    began = clock.now_ms()
    with pytest.raises(type(error)) as raised:
        RetryingStore(unreliable, clock, SteadyIds(jitter), budget_seconds=3.0).get(KEY)
    assert raised.value is error
    assert unreliable.calls == len(clock.pauses) + 1
    assert 2_500 <= clock.now_ms() - began <= 3_000


def test_without_a_budget_it_tries_once(unreliable: Unreliable, clock: InstantClock) -> None:
    unreliable.before = [Throttled("slow down")]
    with pytest.raises(Throttled):
        RetryingStore(unreliable, clock, SteadyIds(), budget_seconds=0).get(KEY)
    assert unreliable.calls == 1


@pytest.mark.parametrize(
    "error", [Sealed("log"), Filled(), StorageFull(), Corrupt(), Broken("AccessDenied"), ValueError("too large")]
)
def test_an_error_that_a_retry_cannot_change_passes_at_once(
    unreliable: Unreliable, clock: InstantClock, error: Exception
) -> None:
    unreliable.before = [error]
    with pytest.raises(type(error)):
        RetryingStore(unreliable, clock, SteadyIds()).get(KEY)
    assert (unreliable.calls, clock.pauses) == (1, [])


def test_a_refusal_passes_at_once(unreliable: Unreliable, clock: InstantClock) -> None:
    holder = stored(unreliable, KEY)
    assert RetryingStore(unreliable, clock, SteadyIds()).put(KEY, record(), expect=None) == Refused(holder)
    assert clock.pauses == []


def test_a_put_without_an_answer_comes_back_refused_by_itself(unreliable: Unreliable, clock: InstantClock) -> None:
    unreliable.after = [OutcomeUnknown("no answer")]
    mine = record()
    assert RetryingStore(unreliable, clock, SteadyIds()).put(KEY, mine, expect=None) == Refused(mine)


def test_an_add_without_an_answer_burns_its_numbers(unreliable: Unreliable, clock: InstantClock) -> None:
    unreliable.after = [OutcomeUnknown("no answer")]
    assert RetryingStore(unreliable, clock, SteadyIds()).add("log", rows=1, numbers=10) == Counter(2, 20)


def test_every_call_is_retried(unreliable: Unreliable, clock: InstantClock) -> None:
    again = RetryingStore(unreliable, clock, SteadyIds())
    mine = record()
    calls: list[Callable[[], Any]] = [
        lambda: again.add("log", rows=1, numbers=1),
        lambda: again.seal("log"),
        lambda: again.counter("log"),
        lambda: again.get(KEY),
        lambda: again.put(KEY, mine, expect=None),
        lambda: again.scan(Table.CONSUME, "subject", limit=1),
        lambda: again.delete(KEY, expect=mine.token),
        lambda: again.trim(Table.CONSUME, "subject", below="2"),
        lambda: again.collect(Table.CONSUME, clock.now_ms()),
    ]
    for call in calls:
        unreliable.before = [Throttled("slow down"), OutcomeUnknown("no answer")]
        call()
        assert unreliable.before == []
    assert len(clock.pauses) == 2 * len(calls)
