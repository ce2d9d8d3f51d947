"""Claims of an ordered group that share a transaction: each begins with what the claims and settlements before it have
stored, also when the transaction is rolled back and its pieces of work run one by one."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.embedded.greenlets import GreenletRunner, GreenletStore
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.ports import Store
from hourwheel.queueing.key_state_cache import KeyStateCache
from tests.support import Bench
from tests.unit.queueing.test_key_states import pull_log, settled_somehow, told

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
        """Draws what one caller of the transaction does."""
        kind = self.draws.choice(("send", "pull", "pull", "pull", "pull", "fail"))
        if kind == "send":
            keys = [self.draws.choice("abcdefgh") for _ in range(self.draws.randint(1, 9))]
            return lambda: self.bench.cell.produce("orders", [NewMessage(body=key, key=key) for key in keys])
        if kind == "fail":
            return self._fail if self.draws.random() < 0.3 else lambda: None
        settle = [self._settlement() for _ in range(self.draws.randint(0, len(self.leased)))]
        limit = self.draws.choice((1, 3, 100))
        return lambda: self._pull(PullRequest(consumer="c", max_messages=limit, settle=settle))

    def _settlement(self) -> Settlement:
        pull = self.leased.pop(self.draws.randrange(len(self.leased)))
        return Settlement(receipt=pull.receipt) if self.draws.random() < 0.5 else settled_somehow(pull, self.draws)

    def _pull(self, request: PullRequest) -> None:
        self.leased += self.bench.cell.pull("orders", "billing", request).pulls

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
    monkeypatch.setattr(
        KeyStateCache, "_of_this_transaction", lambda self, log: shared.append(state := real(self, log)) or state
    )

    async def turns() -> None:
        runner, draws = GreenletRunner(), Random(seed)
        runner.attach(asyncio.get_running_loop())
        bench = Bench(GreenletStore(store, runner))
        await runner.run(
            lambda: bench.cell.put_group("orders", "billing", ordered=True, retry=RetryPolicy(first_seconds=2))
        )
        consumers = Consumers(bench, draws)
        for turn in range(TURNS):
            await asyncio.gather(*[runner.run(consumers.work()) for _ in range(AT_ONCE)])
            log = pull_log(bench)
            kept = bench.cell.key_states.current(log)
            assert told(kept) == told(bench.another_process().key_states.current(log))
            if turn % 7 == 6:
                bench.clock.pass_time(draws.choice((1, 3, 31)))

    store = SqliteStore(tmp_path / "db", synchronous="NORMAL")
    asyncio.run(turns())
    store.close()
    assert any(state is not None for state in shared)
