"""Claims of an ordered group that share a transaction: each begins with what the claims and settlements before it have
stored, also when the transaction is rolled back and its pieces of work run one by one."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.context import Context
from hourwheel.embedded.greenlets import GreenletRunner, GreenletStore
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.ordered.claims import claim
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.key_states import KeyStates
from hourwheel.ordered.stopped_keys import KeyDecision
from hourwheel.ports.storage import Store
from hourwheel.pull_log.claiming.claims import ClaimRequest
from hourwheel.pull_log.pull_log import PullLog
from tests.support import Bench
from tests.unit.ordered.test_key_states import pull_log, settled_somehow, told

TURNS, AT_ONCE = 60, 5


class Fails(Exception):
    pass


class Consumers:
    """Consumers of one group, whose pulls settle some of the pulls before them."""

    def __init__(self, bench: Bench, draws: Random) -> None:
        self.bench, self.draws = bench, draws
        self.leased: list[Pull] = []
        self.in_flight: dict[str, str] = {}

    def work(self) -> Callable[[], object]:
        """Draws the acts of one caller of the transaction."""
        kind = self.draws.choice(("send", "pull", "pull", "pull", "pull", "fail"))
        if kind == "send":
            keys = [self.draws.choice("abcdefgh") for _ in range(self.draws.randint(1, 9))]
            return lambda: self.bench.deployment.produce("orders", [NewMessage(body=key, key=key) for key in keys])
        if kind == "fail":
            return self._fail if self.draws.random() < 0.3 else lambda: None
        settle = [self._settlement() for _ in range(self.draws.randint(0, len(self.leased)))]
        limit = self.draws.choice((1, 3, 100))
        return lambda: self._pull(PullRequest(consumer="c", max_messages=limit, settle=settle))

    def _settlement(self) -> Settlement:
        pull = self.leased.pop(self.draws.randrange(len(self.leased)))
        return Settlement(receipt=pull.receipt) if self.draws.random() < 0.5 else settled_somehow(pull, self.draws)

    def _pull(self, request: PullRequest) -> None:
        self.leased += self.bench.deployment.pull("orders", "billing", request).pulls

    def _fail(self) -> None:
        def work(_: Store) -> None:
            raise Fails

        with suppress(Fails):
            self.bench.store.transact(work)  # type: ignore[attr-defined] # a store of greenlets has transactions


@pytest.mark.parametrize("seed", range(12))
def test_claims_of_one_transaction_see_what_was_stored_before_them(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = []
    real = KeyStateCache._of_this_transaction

    def noted(key_states: KeyStateCache, log: PullLog) -> KeyStates | None:
        shared.append(real(key_states, log))
        return shared[-1]

    monkeypatch.setattr(KeyStateCache, "_of_this_transaction", noted)

    async def turns() -> None:
        runner, draws = GreenletRunner(), Random(seed)
        runner.attach(asyncio.get_running_loop())
        bench = Bench(GreenletStore(store, runner))
        await runner.run(
            lambda: bench.deployment.groups.put("orders", "billing", ordered=True, retry=RetryPolicy(first_seconds=2))
        )
        consumers = Consumers(bench, draws)
        for turn in range(TURNS):
            await asyncio.gather(*[runner.run(consumers.work()) for _ in range(AT_ONCE)])
            log = pull_log(bench)
            kept = bench.deployment.key_states.current(log)
            assert told(kept) == told(bench.another_process().key_states.current(log))
            if turn % 7 == 6:
                bench.clock.pass_time(draws.choice((1, 3, 31)))

    store = SqliteStore(tmp_path / "db", synchronous="NORMAL")
    asyncio.run(turns())
    store.close()
    assert any(state is not None for state in shared)


ONE = ClaimRequest("c", max_messages=1, max_bytes=1_000, lease_ms=30_000)


def test_a_decision_about_keys_sees_the_decisions_before_it_in_its_transaction() -> None:
    bench = Bench()
    bench.deployment.groups.put("orders", "billing", ordered=True, when_dead="stop", max_attempts=1)
    bench.deployment.produce("orders", [NewMessage(body=key, key=key) for key in "ab"])
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0, 1])
    bench.deployment.produce("orders", [NewMessage(body="c", key="c")])
    log, key_states = pull_log(bench), bench.deployment.key_states
    subject = bench.deployment.registry.subject("orders")
    decided = []

    def work(context: Context) -> None:
        assert claim(key_states, log.on(context), ONE).claim is not None
        for keys in ("a", "b", "ab"):
            inside = KeyDecision(key_states, log, subject, frozenset(keys), "dead")._on(context)
            decided.append(inside._decide())
            # Compared before the next decision, which would wait for ever for a row that it does not see.
            assert told(key_states.current(log.on(context))) == told(KeyStateCache().current(log.on(context)))

    bench.deployment.context.atomically(work)
    assert decided == [1, 1, 0]
    assert told(key_states.current(log)) == told(bench.another_process().key_states.current(log))


def test_a_claim_that_has_lost_several_races_within_its_transaction_reads_the_rows_again() -> None:
    bench = Bench()
    bench.deployment.groups.put("orders", "billing", ordered=True)
    bench.deployment.produce("orders", [NewMessage(body=key, key=key) for key in "abcdefgh"])
    log, own, other = pull_log(bench), bench.deployment.key_states, KeyStateCache()

    def work(context: Context) -> list[int | None]:
        claims = [claim(key_states, log.on(context), ONE).claim for key_states in (own, *[other] * 5, own)]
        return [None if claimed is None else claimed.row_no for claimed in claims]

    assert bench.deployment.context.atomically(work) == [0, 1, 2, 3, 4, 5, 6]
