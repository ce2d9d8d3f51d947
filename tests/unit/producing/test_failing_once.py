"""Each call of the store fails once, before or after it was carried out, while every other call takes time. The caller
repeats its request, as the API says, and the effect is that of one request."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Unavailable
from hourwheel.groups.seeks import offsets
from hourwheel.model.messages import NewMessage, SendResult
from hourwheel.model.pulls import Pull, PullRequest, RetryLater, Settlement
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.times import parse_rfc3339, rfc3339
from tests.support import AT_ONCE, Bench, CallByCall

SETTINGS = Settings(retry=AT_ONCE, registry_seconds=0)
CALL_MS = 40


class Failing(CallByCall):
    """A store whose calls take ``CALL_MS`` each, and of which one fails: ``fails_at`` counts down to it."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.fails_at = 0
        self.after = False
        self.failed = False
        self.pass_time: Callable[[float], None] = lambda seconds: None


def _failing(verb: str) -> Callable[..., Any]:
    real = getattr(CallByCall, verb)

    def call(self: Failing, *arguments: Any, **how: Any) -> Any:
        self.pass_time(CALL_MS / 1_000)
        self.fails_at -= 1
        fails = self.fails_at == 0
        self.failed = self.failed or fails
        if fails and not self.after:
            raise Unavailable("the store failed before the call")
        result = real(self, *arguments, **how)
        if fails:
            raise Unavailable("the store failed after the call")
        return result

    return call


for _verb in ("add", "put", "delete", "counter", "counters", "get", "get_many", "get_keys", "scan", "trim"):
    setattr(Failing, _verb, _failing(_verb))


def _scene() -> tuple[Bench, Failing]:
    store = Failing()
    bench = Bench(store, settings=SETTINGS)
    store.pass_time = bench.clock.pass_time
    bench.deployment.groups.put("orders", "billing", max_attempts=9)
    return bench, store


def _again(act: Callable[[], Any]) -> Any:
    """Makes the request, and repeats it once if the store failed."""
    try:
        return act()
    except Unavailable:
        return act()


class Flow(NamedTuple):
    """A request, what is there before it, and its effects as ``_effects`` tells them. ``prepare`` returns the pulls, or
    the answers to the delayed messages, with which the request is made."""

    name: str
    prepare: Callable[[Bench], Sequence[Any]]
    request: Callable[[Bench, Any], object]
    effects: list[str]


def _leased(*bodies: str, most: int = 100, lease: int = 10_000) -> Callable[[Bench], list[Pull]]:
    def prepare(bench: Bench) -> list[Pull]:
        bench.send(*bodies)
        return bench.pull(most, lease=lease)

    return prepare


def _settled(**how: Any) -> Callable[[Bench], list[Pull]]:
    def prepare(bench: Bench) -> list[Pull]:
        pulls = _leased("a", "b", "c")(bench)
        assert [bench.settle(pull, **how) for pull in pulls] == ["settled"]
        return pulls

    return prepare


def _lease_over(bench: Bench) -> list[Pull]:
    pulls = _leased("a", "b", lease=1)(bench)
    bench.clock.pass_time(2)
    return pulls


def _lease_over_again(bench: Bench) -> list[Pull]:
    """Ends the lease of both messages, and then the lease of one that was pulled alone."""
    _lease_over(bench)
    bench.deployment.sweeper.sweep()
    pulls = bench.pull(lease=1)
    assert [message.body for pull in pulls for message in pull.messages] == ["a"]
    bench.clock.pass_time(2)
    return pulls


def _produce(bench: Bench, _: list[Pull]) -> None:
    bench.deployment.produce("orders", [NewMessage(body=body) for body in "abc"], IdempotencyKey("k", b"digest"))


def _settle(bench: Bench, pulls: list[Pull]) -> None:
    wanted = Settlement(receipt=pulls[0].receipt, ack=[0], retry=[1], dead=[2], release=[3])
    (answer,) = bench.deployment.settle("orders", "billing", [wanted])
    assert answer.status == "settled"


def _settle_by_pull(bench: Bench, pulls: list[Pull]) -> None:
    wanted = [Settlement(receipt=pulls[0].receipt, retry=[0])]
    request = PullRequest(consumer="c1", max_messages=1, lease_seconds=30, settle=wanted)
    settled = bench.deployment.pull("orders", "billing", request).settled
    assert settled is not None
    assert [answer.status for answer in settled] == ["settled"]


def _delayed(bench: Bench) -> list[SendResult]:
    return bench.send_later("a", "b", delay="10m")


def _delayed_and_begun(bench: Bench) -> list[SendResult]:
    """Sends messages that are due soon, so that a wheel turns for them."""
    sent = bench.send_later("a", "b", delay="40s")
    bench.turn(5)
    return sent


def _produce_delayed(bench: Bench, _: list[Pull]) -> None:
    messages = [NewMessage(body=body, delay="10m") for body in "ab"]
    bench.deployment.produce("orders", messages, IdempotencyKey("k", b"digest"))


def _cancel(bench: Bench, sent: list[SendResult]) -> None:
    assert bench.deployment.delayed.cancel(sent[0].scheduled_id or "").state == "cancelled"


def _move(bench: Bench, sent: list[SendResult]) -> None:
    assert sent[0].scheduled is not None
    later = rfc3339(parse_rfc3339(sent[0].scheduled, "scheduled") + 300_000)
    assert bench.deployment.delayed.reschedule(sent[0].scheduled_id or "", deliver_at=later).state == "moved"


def _retry_later(bench: Bench, pulls: list[Pull]) -> None:
    wanted = Settlement(receipt=pulls[0].receipt, ack=[1], retry=[RetryLater(index=0, delay="10m")])
    assert bench.deployment.settle("orders", "billing", [wanted])[0].status == "settled"


FLOWS = [
    Flow("produce", lambda bench: [], _produce, ["a 1", "b 1", "c 1"]),
    Flow("settle", _leased("a", "b", "c", "d"), _settle, ["b 2", "d 1", "dead c"]),
    # What the pull leases, or leases twice as its answer was lost, comes again with its next attempt.
    Flow("settle by pull", _leased("a", most=1), _settle_by_pull, ["a"]),
    Flow("end leases", _lease_over, lambda bench, _: bench.deployment.sweeper.sweep(), ["a 1", "b 1"]),
    Flow(
        "end the lease of a suspect",
        _lease_over_again,
        lambda bench, _: bench.deployment.sweeper.sweep(),
        ["a 2", "b 1"],
    ),
    Flow(
        "redrive",
        _settled(dead=[0, 1], ack=[2]),
        lambda bench, _: bench.deployment.dead_letters("orders", "billing").redrive(lambda at, died_ms: at.index == 0),
        ["a 1", "dead b"],
    ),
    Flow(
        "drop dead letters",
        _settled(dead=[0, 1], ack=[2]),
        lambda bench, _: bench.deployment.dead_letters("orders", "billing").drop(lambda at, died_ms: at.index == 0),
        ["dead b"],
    ),
    Flow("produce delayed", lambda bench: [], _produce_delayed, ["a 1", "b 1"]),
    Flow("cancel", _delayed, _cancel, ["b 1"]),
    Flow("move a delayed message", _delayed, _move, ["a 1", "b 1"]),
    Flow("hand over", _delayed_and_begun, lambda bench, _: bench.turn(60), ["a 1", "b 1"]),
    Flow("retry later", _leased("a", "b"), _retry_later, ["a 2"]),
    Flow(
        "seek",
        _settled(),
        lambda bench, _: offsets(bench.deployment.seeks().seek("orders", "billing", to="start")),
        ["a 1", "b 1", "c 1"],
    ),
]


def _effects(bench: Bench) -> list[str]:
    """Returns what the group gets from now on, with attempts, and its dead letters. Settles everything."""
    bench.clock.pass_time(61)
    other = bench.another_process()
    other.sweeper.sweep()
    bench.deployment = other
    bench.turn(1_000)
    other.sweeper.sweep()
    bench.turn(1_000)
    found: list[str] = []
    while pulls := other.pull("orders", "billing", PullRequest(consumer="c2")).pulls:
        found += [f"{message.body} {message.attempt}" for pull in pulls for message in pull.messages]
        answers = other.settle("orders", "billing", [Settlement(receipt=pull.receipt) for pull in pulls])
        assert {answer.status for answer in answers} == {"settled"}
    lag = other.groups.lag("orders", "billing")
    assert (lag.waiting, lag.in_flight, lag.retrying) == (0, 0, 0)
    dead = other.dead_letters("orders", "billing").page(after=None, limit=10).messages
    assert lag.dead == len(dead)
    return sorted([*found, *(f"dead {message.body}" for message in dead)])


def _points(flow: Flow, *, after: bool) -> Iterator[tuple[int, list[str]]]:
    """Yields each number of a call in which the store failed, and the effects of the request and its repeat."""
    for at in range(1, 200):
        bench, store = _scene()
        pulls = flow.prepare(bench)
        store.fails_at, store.after, store.failed = at, after, False
        _again(lambda: flow.request(bench, pulls))  # noqa: B023 -- called at once
        if not store.failed:
            return
        yield at, _effects(bench)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_a_request_that_is_repeated_takes_effect_once(flow: Flow, *, after: bool) -> None:
    points = 0
    for at, effects in _points(flow, after=after):
        points += 1
        if flow.name == "settle by pull":
            effects = [effect.split()[0] for effect in effects]
        assert effects == flow.effects, f"the store failed at call {at}"
    assert points >= 4
