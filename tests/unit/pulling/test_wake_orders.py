"""A pull that waits misses nothing, whichever call of it or of another request comes between the other's two: messages
are stored before they are announced, and a pull counts announcements before it looks."""

from collections.abc import Callable
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.embedded.wakeups import EmbeddedWakeups
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from tests.support import AT_ONCE, Bench, CallByCall

Act = Callable[[Deployment], object]


class Held(CallByCall):
    """A store that runs ``meanwhile`` once, after call number ``at`` of a request."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.at = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def hold(self) -> None:
        self.at -= 1
        if self.at == 0:
            self.meanwhile()


def _held(verb: str) -> Callable[..., Any]:
    real = getattr(CallByCall, verb)

    def call(self: Held, *arguments: Any, **how: Any) -> Any:
        result = real(self, *arguments, **how)
        self.hold()
        return result

    return call


for _verb in ("add", "put", "delete", "counter", "counters", "get", "get_many", "get_keys", "scan"):
    setattr(Held, _verb, _held(_verb))


class Sleepless(EmbeddedWakeups):
    """Wake-ups whose waits end at once. ``slept`` has the counts of announcements with which pulls would sleep."""

    def __init__(self) -> None:
        super().__init__(max_waiting=9)
        self.slept: list[int] = []

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        if self.announcements(subject) != since:
            return True
        self.slept.append(since)
        return False


class CountedLate(Sleepless):
    """A planted bug: a wait knows only of the announcements after its beginning."""

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        return super().wait(subject, group, since=self.announcements(subject), tries=tries, seconds=seconds)


def _scene(wakeups: EmbeddedWakeups) -> tuple[Bench, Held]:
    """Prepares a group with a leased message and a dead letter, of which nothing waits."""
    store = Held()
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.groups.put("orders", "billing", max_attempts=9)
    bench.send("dead")
    (pull,) = bench.pull()
    bench.settle(pull, dead=[0])
    bench.send("leased")
    bench.wakeups = wakeups  # type: ignore[assignment]  # real ones, not those of the bench
    bench.deployment = bench.another_process()
    return bench, store


def _release(bench: Bench) -> Act:
    (pull,) = bench.pull()
    return lambda deployment: deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, release=[0])])


def _retry(bench: Bench) -> Act:
    (pull,) = bench.pull()
    return lambda deployment: deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=[0])])


def _send(bench: Bench) -> Act:
    bench.pull()
    return lambda deployment: deployment.produce("orders", [NewMessage(body="new")])


def _redrive(bench: Bench) -> Act:
    bench.pull()
    return lambda deployment: deployment.dead_letters("orders", "billing").redrive(lambda at, letter: True)


ACTS = [_send, _release, _retry, _redrive]
WAITING = PullRequest(consumer="c2", wait_seconds=20)


def _missed_by_a_pull(prepare: Callable[[Bench], Act], kind: type[Sleepless]) -> list[int]:
    """Runs the act after each call of a pull that waits. Returns the calls for which the pull would have slept beside
    the message."""
    missed = []
    for at in range(1, 100):
        wakeups = kind()
        bench, store = _scene(wakeups)
        act, other, puller = prepare(bench), bench.another_process(), bench.another_process()
        store.at, store.meanwhile = at, lambda act=act, other=other: act(other)  # type: ignore[misc]  # mypy infers no defaults
        pulls = puller.pull("orders", "billing", WAITING).pulls
        if store.at > 0:
            assert at > 5, "a pull makes some calls"
            return missed
        missed += [at] * (not pulls)
    raise AssertionError("a pull does not make so many calls")


def _missed_by_an_act(prepare: Callable[[Bench], Act], *, announced_first: bool) -> list[int]:
    """Runs a pull that waits after each call of the act. Returns the calls for which a pull that found nothing would
    have slept after the act had ended."""
    missed = []
    for at in range(1, 100):
        wakeups = Sleepless()
        bench, store = _scene(wakeups)
        act, other, puller = prepare(bench), bench.another_process(), bench.another_process()
        found: list[bool] = []
        store.meanwhile = lambda puller=puller, found=found: found.append(  # type: ignore[misc]  # as above
            bool(puller.pull("orders", "billing", WAITING).pulls)
        )
        if announced_first:
            wakeups.announce("orders", "billing")
            wakeups.announce = lambda *_: None  # type: ignore[assignment, misc]
        store.at = at
        act(other)
        if store.at > 0:
            assert at > 3, "the request makes some calls"
            return missed
        sleeps = [since for since in wakeups.slept if since == wakeups.announcements("orders")]
        missed += [at] * (bool(sleeps) and not found[0])
    raise AssertionError("the request does not make so many calls")


@pytest.mark.parametrize("prepare", ACTS, ids=lambda act: act.__name__.strip("_"))
def test_a_pull_between_its_look_and_its_wait_misses_nothing(prepare: Callable[[Bench], Act]) -> None:
    assert _missed_by_a_pull(prepare, Sleepless) == []


@pytest.mark.parametrize("prepare", ACTS, ids=lambda act: act.__name__.strip("_"))
def test_messages_are_stored_before_they_are_announced(prepare: Callable[[Bench], Act]) -> None:
    assert _missed_by_an_act(prepare, announced_first=False) == []


def test_a_wait_that_knows_only_of_later_announcements_is_found() -> None:
    assert _missed_by_a_pull(_send, CountedLate) != []


def test_an_announcement_before_its_messages_is_found() -> None:
    assert _missed_by_an_act(_send, announced_first=True) != []
