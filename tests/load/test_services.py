"""The simulated services refuse, delay and end what those of AWS would."""

from collections import Counter
from functools import partial
from typing import Any

import pytest

from bench.cost.deployment import INIT_SECONDS
from hourwheel.adapters.aws.scheduler import SOON_MS
from hourwheel.errors import Throttled
from tests.load.lambdas import Invocation, Lambdas, TooManyRequests
from tests.load.limits import LIMITS, lines, value
from tests.load.machine import Machine
from tests.load.services import SimulatedScheduler, SimulatedWakeupQueues


@pytest.fixture
def machine() -> Machine:
    return Machine(1)


def lambdas(machine: Machine, concurrency: int = 1_000, warm: int = 0) -> Lambdas:
    return Lambdas(machine, Counter(), concurrency, warm, has_overheads=True)


def test_each_number_has_a_source() -> None:
    assert all(limit.source.title for limit in LIMITS.values())
    assert all(limit.source.url.startswith("https://") for limit in LIMITS.values() if limit.source.url)
    assert len(lines()) == len(LIMITS)
    assert value("cold start") == 1_000 * INIT_SECONDS


def test_a_new_process_starts_cold_and_serves_one_event_at_a_time(machine: Machine) -> None:
    functions, made = lambdas(machine), []
    ended: list[float] = []

    def make() -> Any:
        made.append(True)
        return lambda event, invocation: machine.sleep(1)

    functions.add("pull", make)

    def call() -> None:
        functions.invoke("pull", {})
        ended.append(machine.now)

    began = machine.now
    machine.spawn(call)
    machine.spawn(call, 5_000)
    machine.spawn(call, 5_500)
    machine.run(10)
    first, second, third = (end - began for end in ended)
    assert first == pytest.approx(1_606, abs=10)
    assert second == pytest.approx(6_006, abs=10)
    assert third == pytest.approx(7_106, abs=10)
    assert len(made) == 2


def refusals(machine: Machine, functions: Lambdas, calls: int, seconds: int) -> int:
    """Calls the function pull this many times at once, and returns how many calls were refused in this time."""
    refused = []

    def call() -> None:
        try:
            functions.invoke("pull", {})
        except TooManyRequests:
            refused.append(machine.now)

    for _ in range(calls):
        machine.spawn(call)
    machine.run(seconds)
    return len(refused)


def test_executions_beyond_the_quota_are_refused(machine: Machine) -> None:
    functions = lambdas(machine, concurrency=2)
    functions.add("pull", lambda: lambda event, invocation: machine.sleep(1))
    assert refusals(machine, functions, calls=5, seconds=10) == 3
    assert functions.executions.most_running == 2


def test_new_processes_beyond_the_scaling_rate_are_refused(machine: Machine) -> None:
    functions = lambdas(machine, concurrency=10_000)
    functions.add("pull", lambda: lambda event, invocation: machine.sleep(100))
    assert refusals(machine, functions, calls=1_500, seconds=1) == 500


def test_an_invocation_ends_with_the_time_of_its_function(machine: Machine) -> None:
    functions = lambdas(machine)
    left: list[int] = []

    def handle(event: Any, invocation: Invocation) -> None:
        left.append(invocation.get_remaining_time_in_millis())
        machine.sleep(10_000)

    functions.add("sweep", lambda: handle)
    functions.start("sweep", {})
    machine.run(400)
    assert functions.failed == {("sweep", "time-out"): 1}
    assert left[0] == pytest.approx(300_000, abs=20)
    assert functions.seconds["sweep"] == [pytest.approx(300.6, abs=0.1)]
    assert functions.executions.running == 0


def test_a_schedule_fires_within_the_minute_after_its_second(machine: Machine) -> None:
    functions = lambdas(machine)
    started: list[float] = []
    functions.add("wheel", lambda: lambda event, invocation: started.append(machine.now))
    scheduler = SimulatedScheduler(machine, functions, Counter(), creations=1_000)
    due_ms = machine.now_ms() + 600_000
    for number in range(20):
        scheduler.at(due_ms, f"bucket-{number}")
    scheduler.at(due_ms, "bucket-0")
    machine.run(1_000)
    assert len(started) == 20
    assert due_ms <= min(started)
    assert max(started) <= due_ms + 62_000


def test_a_start_that_is_due_soon_makes_no_schedule(machine: Machine) -> None:
    functions = lambdas(machine)
    started: list[float] = []
    functions.add("wheel", lambda: lambda event, invocation: started.append(machine.now))
    scheduler = SimulatedScheduler(machine, functions, Counter(), creations=1_000)
    machine.spawn(lambda: scheduler.at(machine.now_ms() + SOON_MS, "bucket"))
    began = machine.now
    machine.run(10)
    assert started[0] < began + 1_000
    assert scheduler.creations.used == 0


def test_schedules_beyond_the_quota_are_refused_after_three_tries(machine: Machine) -> None:
    scheduler = SimulatedScheduler(machine, lambdas(machine), Counter(), creations=1)
    refused: list[float] = []

    def order(number: int) -> None:
        try:
            scheduler.at(machine.now_ms() + 600_000, f"bucket-{number}")
        except Throttled:
            refused.append(number)

    for number in range(20):
        machine.spawn(partial(order, number))
    machine.run(30)
    assert 10 <= len(refused) < 20
    assert scheduler.creations.refused >= 3 * len(refused)


def test_one_consumer_that_waits_gets_a_wake_up(machine: Machine) -> None:
    queues = SimulatedWakeupQueues(machine, Counter())
    url = queues.open("group", fresh=False).url
    woken: list[bool] = []
    for _ in range(2):
        machine.spawn(lambda: woken.append(queues.receive(url, 20)))
    machine.run(1)
    assert queues.wake("group")
    assert not queues.wake("another")
    machine.run(1)
    assert woken == [True]
    machine.run(30)
    assert woken == [True, False]
