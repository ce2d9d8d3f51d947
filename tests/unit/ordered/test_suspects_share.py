"""Suspects count for the share of the retries: neither they nor new messages keep the others from a group."""

import itertools
from collections.abc import Callable

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, PullResult
from hourwheel.ports.storage import CellStorage
from tests.support import AT_ONCE, Bench, CallByCall

SUSPECTS = 100

_numbers = itertools.count()
_ORDERS = pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])


def crashed_group(bench: Bench, *, ordered: bool, suspects: int = SUSPECTS, **settings: int) -> Bench:
    """Returns the bench with a group whose consumer has crashed with this many messages."""
    bench.deployment.groups.put("orders", "billing", ordered=ordered, max_attempts=1_000, **settings)
    bench.deployment.produce(
        "orders", [NewMessage(body=f"lost {number}", key=str(number)) for number in range(suspects)]
    )
    bench.pull(suspects)
    bench.clock.pass_time(31)
    return bench


def send_new(bench: Bench, number: int) -> None:
    bench.deployment.produce("orders", [NewMessage(body="new", key=f"new {next(_numbers)}") for _ in range(number)])


def pull(bench: Bench, most: int, *, pushing: bool = False, suspects: bool = True) -> PullResult:
    request = PullRequest(consumer="c1", max_messages=most, suspects=suspects)
    return bench.deployment.pull("orders", "billing", request, pushing=pushing)


def served(bench: Bench, *, pulls: int, most: int, pushing: bool = False) -> list[str]:
    """Returns the bodies of the messages of these pulls. Each of them is handled; each suspect comes alone."""
    bodies = []
    for _ in range(pulls):
        result = pull(bench, most, pushing=pushing)
        for each in result.pulls:
            assert not each.suspect or (len(result.pulls), len(each.messages)) == (1, 1)
            bodies += [message.body or "" for message in each.messages]
            bench.settle(each)
    return bodies


@_ORDERS
@pytest.mark.parametrize("most", [1, 20])
@pytest.mark.parametrize("pushing", [False, True], ids=["pulled", "pushed"])
def test_suspects_come_in_their_share_of_the_pulls(bench: Bench, ordered: bool, most: int, pushing: bool) -> None:
    crashed_group(bench, ordered=ordered, retry_percent=25)
    for _ in range(most):
        send_new(bench, 100)
    bodies = served(bench, pulls=100, most=most, pushing=pushing)
    suspects = sum(body.startswith("lost") for body in bodies)
    assert 1 <= suspects <= 60, "chance decides: 25 of 100 pulls, within eight standard deviations"
    assert bodies.count("new") == (100 - suspects) * most


@_ORDERS
def test_a_suspect_comes_while_its_own_share_has_no_whole_message(bench: Bench, ordered: bool) -> None:
    crashed_group(bench, ordered=ordered, suspects=5, retry_percent=20)
    for _ in range(4):
        send_new(bench, 100)
    assert sum(body.startswith("lost") for body in served(bench, pulls=100, most=4)) == 5


@_ORDERS
@pytest.mark.parametrize("most", [1, 20])
def test_suspects_that_wait_alone_come_with_each_pull(bench: Bench, ordered: bool, most: int) -> None:
    crashed_group(bench, ordered=ordered, retry_percent=1)
    assert served(bench, pulls=SUSPECTS, most=most) == [f"lost {number}" for number in range(SUSPECTS)]


@_ORDERS
@pytest.mark.parametrize("most", [1, 20])
def test_with_all_of_the_share_suspects_come_first(bench: Bench, ordered: bool, most: int) -> None:
    crashed_group(bench, ordered=ordered, retry_percent=100)
    send_new(bench, 20)
    assert "new" not in served(bench, pulls=SUSPECTS, most=most)


@_ORDERS
def test_a_suspect_comes_where_the_new_messages_have_gone_meanwhile(bench: Bench, ordered: bool) -> None:
    crashed_group(bench, ordered=ordered, suspects=2, retry_percent=1)
    send_new(bench, 1)
    bodies = served(bench, pulls=3, most=20)
    assert sorted(bodies) == ["lost 0", "lost 1", "new"]


@_ORDERS
@pytest.mark.parametrize("most", [1, 20])
@pytest.mark.parametrize("pushing", [False, True], ids=["pulled", "pushed"])
@pytest.mark.parametrize("suspects", [False, True], ids=["leaves suspects", "takes suspects"])
def test_each_pull_of_new_messages_tells_that_suspects_wait(
    bench: Bench, ordered: bool, most: int, pushing: bool, suspects: bool
) -> None:
    crashed_group(bench, ordered=ordered, suspects=40, retry_percent=1)
    for _ in range(most):
        send_new(bench, 20)
    told = [pull(bench, most, pushing=pushing, suspects=suspects) for _ in range(20)]
    assert all(result.suspects_wait for result in told if not result.pulls[0].suspect)
    assert sum(not result.pulls[0].suspect for result in told) >= 10


def test_a_pull_of_new_messages_tells_of_no_suspect_where_none_waits(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry_percent=1, max_attempts=1_000)
    bench.send("bad")
    bench.settle(bench.pull()[0], retry=[0])
    send_new(bench, 20)
    assert not any(pull(bench, 1).suspects_wait for _ in range(20))


@_ORDERS
@pytest.mark.parametrize("make", [MemoryStore, lambda: CallByCall(MemoryStore())], ids=["at once", "call by call"])
@pytest.mark.parametrize("most", [1, 10])
def test_suspects_share_with_new_messages_in_another_cell(
    make: Callable[[], MemoryStore], ordered: bool, most: int
) -> None:
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = Bench(make(), settings=settings, cells={"two": CellStorage(make(), MemoryBlobs())})
    bench.deployment.cells.add("two")
    crashed_group(bench, ordered=ordered, retry_percent=25)
    bench.deployment.sweeper.sweep()
    bench.deployment.routes.move("orders", 0, "two")
    for _ in range(most):
        send_new(bench, 100)
    bodies = served(bench, pulls=100, most=most)
    suspects = sum(body.startswith("lost") for body in bodies)
    # The messages of an ordered group wait for those in the part of the queue before.
    assert suspects == SUSPECTS if ordered else 1 <= suspects <= 60
    assert bodies.count("new") == (100 - suspects) * most
