"""A paused group, or a paused subject, gets no messages; leases and settlements go on, and a resumed one gets all."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import NotFound
from hourwheel.model.pulls import PullRequest, PullResult, Settlement
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.pulling.test_waiting_pulls import Ticks, waiting_bench


@dataclass(frozen=True)
class Kind:
    """A way to pause the group ``billing`` of ``orders``, and what pulls then say."""

    name: str

    def set(self, deployment: Deployment, *, paused: bool) -> None:
        if self.name == "paused":
            deployment.groups.pause("orders", "billing", paused=paused)
        else:
            deployment.subjects.pause("orders", paused=paused)


@pytest.fixture(params=["paused", "subject_paused"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return Kind(request.param)


def pulled(bench: Bench, **how: object) -> PullResult:
    return bench.deployment.pull("orders", "billing", PullRequest(consumer="c1", **how))


def bodies(result: PullResult) -> list[str | None]:
    return [message.body for pull in result.pulls for message in pull.messages]


def test_a_pull_of_a_paused_group_claims_nothing_and_says_why(bench: Bench, kind: Kind) -> None:
    bench.send("a", "b")
    bench.pull(1)
    kind.set(bench.deployment, paused=True)
    assert pulled(bench) == PullResult([], None, kind.name)
    assert bench.deployment.groups.lag("orders", "billing").limited_by == kind.name
    kind.set(bench.deployment, paused=False)
    result = pulled(bench)
    assert (bodies(result), result.limited_by) == (["b"], None)
    assert bench.deployment.groups.lag("orders", "billing").limited_by is None


def test_a_pause_and_a_resume_may_be_repeated(bench: Bench, kind: Kind) -> None:
    bench.send("a")
    bench.deployment.groups.put("orders", "billing")
    for paused in (True, True, False, False):
        kind.set(bench.deployment, paused=paused)
        owner, group = bench.deployment.subjects.get("orders"), bench.deployment.groups.get("orders", "billing")
        assert (owner.paused or group.paused) is paused
    assert bodies(pulled(bench)) == ["a"]


def test_what_does_not_exist_cannot_be_paused_and_is_not_created(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.deployment.subjects.pause("orders", paused=True)
    bench.send("a")
    with pytest.raises(NotFound):
        bench.deployment.groups.pause("orders", "billing", paused=False)
    assert bench.deployment.groups.page("orders") == ([], None)


def test_another_group_of_the_subject_is_served_while_one_is_paused(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.groups.pause("orders", "billing", paused=True)
    assert bench.bodies(group="mail") == ["a"]
    bench.deployment.subjects.pause("orders", paused=True)
    bench.send("b")
    assert bench.bodies(group="mail") == []


def test_a_resumed_subject_leaves_the_pauses_of_its_groups(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.groups.pause("orders", "billing", paused=True)
    bench.deployment.subjects.pause("orders", paused=True)
    bench.deployment.subjects.pause("orders", paused=False)
    assert pulled(bench).limited_by == "paused"


def test_leased_messages_are_settled_during_a_pause_by_a_pull_too(bench: Bench, kind: Kind) -> None:
    bench.send("a", "b", "c")
    first, second = bench.pull(1)[0], bench.pull(1)[0]
    kind.set(bench.deployment, paused=True)
    assert bench.settle(first) == "settled"
    result = pulled(bench, settle=[Settlement(receipt=second.receipt, retry=[0])])
    assert result.settled is not None
    assert (result.settled[0].status, result.pulls) == ("settled", [])
    kind.set(bench.deployment, paused=False)
    assert sorted(map(str, bodies(pulled(bench)))) == ["b", "c"]


def test_a_lease_ends_during_a_pause_and_its_messages_come_after_it(bench: Bench, kind: Kind) -> None:
    bench.send("a")
    (pull,) = bench.pull(lease=5)
    bench.deployment.sweeper.sweep()
    kind.set(bench.deployment, paused=True)
    bench.clock.pass_time(6)
    assert pulled(bench).pulls == []
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.in_flight, lag.retrying) == (0, 1)
    assert bench.settle(pull) == "stale"
    kind.set(bench.deployment, paused=False)
    assert [message.attempt for message in bench.take()] == [1]


def at(tick: int, act: Callable[[], object]) -> Callable[[int], object]:
    return lambda now: act() if now == tick else None


@pytest.fixture(params=["call by call", "transactions"])
def waiting(request: pytest.FixtureRequest) -> Bench:
    store = MemoryStore()
    settings = Settings(retry=AT_ONCE, registry_seconds=2)
    bench = waiting_bench(CallByCall(store) if request.param == "call by call" else store, settings)
    bench.deployment.groups.put("orders", "billing")
    return bench


def wait(bench: Bench, then: Callable[[int], object]) -> tuple[PullResult, int]:
    """Returns the answer to a pull that may wait for 20 seconds, and the seconds that it waited."""
    assert isinstance(bench.wakeups, Ticks)
    bench.wakeups.ticks, bench.wakeups.then, bench.wakeups.pause = 0, then, 60.0
    began_ms = bench.clock.ms
    result = pulled(bench, wait_seconds=20)
    return result, round((bench.clock.ms - began_ms) / 1_000)


def test_a_pull_waits_during_a_pause_and_is_served_once_another_process_resumes(waiting: Bench, kind: Kind) -> None:
    kind.set(waiting.deployment, paused=True)
    waiting.send("a")
    other = waiting.another_process()
    # No announcement reaches this process: it looks again each time it reads the settings.
    result, seconds = wait(waiting, at(2, lambda: kind.set(other, paused=False)))
    assert (bodies(result), result.limited_by, seconds) == (["a"], None, 4)


def test_a_pull_that_waits_in_vain_says_what_kept_messages_back(waiting: Bench, kind: Kind) -> None:
    kind.set(waiting.deployment, paused=True)
    waiting.send("a")
    result, seconds = wait(waiting, lambda tick: None)
    assert (result.pulls, result.limited_by, seconds) == ([], kind.name, 20)


def test_a_pull_that_waits_stops_claiming_once_its_group_is_paused(waiting: Bench, kind: Kind) -> None:
    def pause_and_send() -> None:
        kind.set(waiting.deployment, paused=True)
        waiting.send("a")

    assert isinstance(waiting.wakeups, Ticks)
    result, _ = wait(waiting, at(1, pause_and_send))
    assert result.pulls == []


def test_a_resume_announces_the_messages_that_wait(bench: Bench, kind: Kind) -> None:
    bench.send("a")
    bench.deployment.groups.put("orders", "billing")
    kind.set(bench.deployment, paused=True)
    bench.wakeups.announced.clear()
    kind.set(bench.deployment, paused=True)
    assert bench.wakeups.announced == []
    kind.set(bench.deployment, paused=False)
    assert bench.wakeups.announced == [("orders", "billing" if kind.name == "paused" else None)]


def test_a_look_at_a_paused_group_reads_nothing() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(registry_seconds=60))
    bench.send("a")
    bench.deployment.groups.put("orders", "billing")
    bench.deployment.groups.pause("orders", "billing", paused=True)
    bench.pull()
    store.calls.clear()
    bench.pull()
    assert store.calls == []
