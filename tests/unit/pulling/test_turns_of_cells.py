"""Pulls of groups whose queues are in several cells: none is always last, and each log is claimed from once."""

from collections.abc import Callable

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.ports.storage import CellStorage, Store
from tests.support import AT_ONCE, Bench, CallByCall

PULLS = 60  # chance leaves a cell out of so many pulls once in 10**18 runs

Opened = Callable[[], Store]


@pytest.fixture(params=[MemoryStore, lambda: CallByCall(MemoryStore())], ids=["transactions", "call by call"])
def bench(request: pytest.FixtureRequest) -> Bench:
    opened: Opened = request.param
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = Bench(opened(), settings=settings, cells={"two": CellStorage(opened(), MemoryBlobs())})
    bench.deployment.cells.add("two")
    return bench


def test_a_log_that_a_settlement_names_is_claimed_from_once(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=99)
    bench.deployment.routes.move("orders", 0, "two")
    bench.send(*"abcdef")
    for pull in [bench.pull(1)[0] for _ in range(6)]:
        bench.settle(pull, retry=[0])
    (retried,) = bench.pull(1)
    bench.send("new 1", "new 2", "new 3")
    request = PullRequest(consumer="c", max_messages=2, settle=[Settlement(receipt=retried.receipt)])
    result = bench.deployment.pull("orders", "billing", request)
    assert sum(len(pull.messages) for pull in result.pulls) == 2
    assert bench.deployment.groups.lag("orders", "billing").in_flight == 2


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
@pytest.mark.parametrize("failing", [0, 20])
def test_a_busy_queue_keeps_no_message_of_another_cell_from_the_group(
    bench: Bench, failing: int, *, ordered: bool
) -> None:
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.groups.put("orders", "billing", ordered=ordered, max_attempts=1_000)
    bench.deployment.routes.move("orders", 1, "two")
    for number in range(failing):
        bench.deployment.produce("orders", [NewMessage(body="bad", queue=0, key=f"z{number}")])
    for pull in bench.pull():
        bench.settle(pull, retry=list(range(len(pull.messages))))
    bench.deployment.produce("orders", [NewMessage(body="far", queue=1, key="far")])
    for _ in range(PULLS):
        bench.deployment.produce("orders", [NewMessage(body="near", queue=0, key="near") for _ in range(30)])
        pulls = bench.pull(10)
        if any(message.body == "far" for pull in pulls for message in pull.messages):
            return
        for pull in pulls:
            bench.settle(pull, retry=[at for at, message in enumerate(pull.messages) if message.body == "bad"])
    pytest.fail(f"the message did not come in {PULLS} pulls")


def test_a_suspect_in_another_cell_comes_before_the_messages_of_a_busy_queue(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.groups.put("orders", "billing", ordered=True)
    bench.deployment.routes.move("orders", 1, "two")
    bench.deployment.produce("orders", [NewMessage(body="suspect", queue=1)])
    bench.pull()
    bench.clock.pass_time(31)
    bodies = []
    for number in range(PULLS):
        bench.deployment.produce("orders", [NewMessage(body=str(number), queue=0)])
        (pull, *_) = bench.pull(100)
        bodies += [message.body for message in pull.messages]
        bench.settle(pull)
        if pull.suspect:
            break
    assert bodies[-1] == "suspect"
