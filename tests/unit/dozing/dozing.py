"""Provides a cell with wake-up queues, and a consumer, for the tests of groups that doze."""

from dataclasses import dataclass, field

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.pulls import PullRequest, PullResult, Settlement
from tests.support import AT_ONCE, Bench, CallByCall, HandQueues

GROUP = "billing"


@dataclass
class Scene:
    """A cell with wake-up queues, and a consumer of ``billing``."""

    bench: Bench
    queues: HandQueues
    store: CallByCall
    idle_seconds: float = 10.0
    taken: list[str] = field(default_factory=list)

    @property
    def deployment(self) -> Deployment:
        return self.bench.deployment

    def pull(self, group: str = GROUP, deployment: Deployment | None = None, **how: object) -> PullResult:
        asked = {"consumer": "c1", "wakeup": "able", "idle_seconds": self.idle_seconds, **how}
        result = (deployment or self.deployment).pull("orders", group, PullRequest(**asked))
        self.taken += [message.body or "" for pull in result.pulls for message in pull.messages]
        return result

    def doze(self, group: str = GROUP, **how: object) -> PullResult:
        """Pulls as a consumer does until it is told to wait at the queue."""
        for _ in range(20):
            result = self.pull(group, **how)
            assert not result.pulls
            if result.wakeup is not None:
                return result
            assert 0 < result.next_pull_seconds <= 20
            self.bench.clock.pass_time(result.next_pull_seconds)
        raise AssertionError("the group does not doze")

    def settle(self, result: PullResult, **how: object) -> None:
        self.deployment.settle("orders", GROUP, [Settlement(receipt=pull.receipt, **how) for pull in result.pulls])

    def settle_of(self, group: str, result: PullResult) -> None:
        self.deployment.settle("orders", group, [Settlement(receipt=pull.receipt) for pull in result.pulls])

    @classmethod
    def opened(cls, **settings: int) -> "Scene":
        store, queues = CallByCall(MemoryStore()), HandQueues()
        bench = Bench(store, settings=Settings(retry=AT_ONCE, **settings), queues=queues)
        bench.deployment.groups.put("orders", GROUP)
        return cls(bench, queues, store)
