"""The memory of a process about an ordered group equals the state in the rows, and spares the claims reads."""

from random import Random

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.ordered import key_state_cache, later_messages, parked_messages, snapshots
from hourwheel.ordered.key_states import InFlight, KeyStates
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.ordered_rows import Parked
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position
from tests.support import AT_ONCE, Bench, CallByCall


def pull_log(bench: Bench) -> PullLog:
    deployment = bench.deployment
    subject = deployment.registry.subject("orders", create=False)
    return pull_logs(deployment.context, subject, deployment.registry.group(subject, "billing", create=False))[1]


def told(state: KeyStates) -> object:
    """Returns the contents of a state without its times. Processes pack the messages of a key differently."""
    parked = {digest: [*entries, *_later(state, digest)] for digest, entries in state.parked.items()}
    assert state.total == sum(map(len, parked.values()))
    return (
        (state.row_no, state.position, state.seq, state.total, parked, state.retries, state.busy, state.shared),
        {
            row_no: (flight.row.size, _positions(flight), flight.digests, flight.again_below)
            for row_no, flight in state.open.items()
        },
    )


def _later(state: KeyStates, digest: bytes) -> tuple[Parked, ...]:
    later = state.later.get(digest)
    return later.first(later.total) if later is not None else ()


def _flight(flight: InFlight) -> object:
    return flight.row.size, _positions(flight), flight.digests, flight.again_below


def _positions(flight: InFlight) -> dict[int, tuple[bytes, Position, int]]:
    return {index: (digest, message.position, message.attempt) for index, (digest, message) in flight.messages.items()}


def settled_somehow(pull: Pull, draws: Random) -> Settlement:
    indexes = list(range(len(pull.messages)))
    draws.shuffle(indexes)
    cut, end = sorted(draws.randrange(len(indexes) + 1) for _ in range(2))
    return Settlement(receipt=pull.receipt, ack=indexes[:cut], retry=indexes[cut:end], release=indexes[end:])


@pytest.mark.parametrize("seed", range(20))
def test_a_state_that_a_process_carries_along_equals_one_that_is_read_anew(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = Random(seed)
    if seed >= 10:
        # Blocks and pages that so few messages fill.
        monkeypatch.setattr(parked_messages, "BLOCK", 2)
        monkeypatch.setattr(later_messages, "BLOCK", 2)
        monkeypatch.setattr(snapshots, "PAGE_BYTES", 40)
        monkeypatch.setattr(snapshots, "_PIECE_BLOCKS", 1)
        monkeypatch.setattr(key_state_cache, "_SNAPSHOT_ROWS", 3)
    bench = Bench(CallByCall(MemoryStore()) if seed % 2 else MemoryStore())
    bench.deployment.groups.put("orders", "billing", ordered=True, retry=RetryPolicy(first_seconds=2), max_held=6)
    cells, leased = [bench.deployment, bench.another_process()], list[Pull]()
    for step in range(80):
        deployment = draws.choice(cells)
        kind = draws.choice(("send", "pull", "pull", "settle", "seek" if step % 20 == 19 else "settle", "wait"))
        if kind == "send":
            keys = [draws.choice("abcdefgh") for _ in range(draws.randint(1, 9))]
            deployment.produce("orders", [NewMessage(body=f"{step}", key=key) for key in keys])
        elif kind == "pull":
            limit = draws.choice((1, 3, 100))
            leased += deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=limit)).pulls
        elif kind == "settle" and leased:
            pull = leased.pop(draws.randrange(len(leased)))
            deployment.settle("orders", "billing", [settled_somehow(pull, draws)])
        elif kind == "seek":
            deployment.seeks().seek("orders", "billing", to=draws.choice(("start", "end")))
        else:
            bench.clock.pass_time(draws.choice((1, 3, 31)))
        log = pull_log(bench)
        anew = bench.another_process().key_states.current(log)
        assert [told(deployment.key_states.current(log)) for deployment in cells] == [told(anew)] * 2


def served(messages: int) -> tuple[Bench, CallByCall]:
    """Returns a group with eight open pulls, of which each has ten messages."""
    store = CallByCall(MemoryStore())
    bench = Bench(store)
    bench.deployment.groups.put("orders", "billing", ordered=True, retry=AT_ONCE)
    bench.send(*(str(number) for number in range(messages)))
    return bench, store


def test_a_pull_that_settles_the_one_before_reads_its_pull_log_once() -> None:
    bench, store = served(200)
    (first, *_) = [pull for _ in range(8) for pull in bench.pull(10)]
    store.calls.clear()
    settle = [Settlement(receipt=first.receipt)]
    request = PullRequest(consumer="c1", max_messages=10, settle=settle)
    (pull,) = bench.deployment.pull("orders", "billing", request).pulls
    assert len(pull.messages) == 10
    reads = [call for call in store.calls if call[0] not in store.WRITES and call[1] == "pull"]
    assert reads == [("scan", "pull")]


def test_a_batch_that_several_pulls_share_is_read_once() -> None:
    bench, store = served(200)
    bench.pull(10)
    store.calls.clear()
    for _ in range(5):
        bench.pull(10)
    assert [call for call in store.calls if call[1] == "consume"] == []


def test_an_open_row_far_behind_is_read_by_itself() -> None:
    bench, store = served(200)
    (slow,) = bench.pull(10)
    for _ in range(12):
        for pull in bench.pull(10):
            bench.settle(pull)
    store.calls.clear()
    bench.pull(10)
    assert [verb for verb, table in store.calls if table == "pull"] == ["get many", "scan", "put"]
    assert bench.settle(slow) == "settled"
