"""A pull shares between retries and new messages, so that neither keeps the other from the group."""

from collections.abc import Callable

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, PullResult, Settlement
from hourwheel.ports.storage import CellStorage
from hourwheel.pull_log.message_blocks import messages_in
from tests.support import AT_ONCE, Bench, CallByCall

FAILING = 400
NEW = 150

_ORDERS = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


def failing_group(bench: Bench, *, ordered: bool = False, **settings: int) -> Bench:
    """Returns the bench with a group of which 400 messages have failed, and can be pulled again."""
    bench.deployment.groups.put("orders", "billing", ordered=ordered, max_attempts=1_000, **settings)
    bench.deployment.produce("orders", [NewMessage(body=f"bad {number}", key=str(number)) for number in range(FAILING)])
    while pulls := bench.deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=FAILING)).pulls:
        for pull in pulls:
            bench.settle(pull, retry=list(range(len(pull.messages))))
        if {message.attempt for pull in pulls for message in pull.messages} != {1}:
            break
    return bench


def send_new(deployment: Deployment, number: int = NEW) -> None:
    for index in range(number):
        deployment.produce("orders", [NewMessage(body=f"new {index}", key=f"new {index}")])


def handled(deployment: Deployment, result: PullResult) -> list[str]:
    """Handles the messages of a pull: those that are bad fail again. Returns the bodies of all."""
    bodies = []
    for pull in result.pulls:
        texts = [message.body or "" for message in pull.messages]
        failed = [index for index, body in enumerate(texts) if body.startswith("bad")]
        deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=failed or None)])
        bodies += texts
    return bodies


def let_through(deployment: Deployment, *, pulls: int, most: int) -> tuple[int, int]:
    """Returns the number of new messages, and of retries, that this many pulls have handed out."""
    bodies: list[str] = []
    for _ in range(pulls):
        bodies += handled(
            deployment, deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=most))
        )
    new = sum(body.startswith("new") for body in bodies)
    return new, len(bodies) - new


@_ORDERS
@pytest.mark.parametrize("most", [1, 3, 10])
def test_new_messages_get_half_of_what_a_group_hands_out_beside_failing_ones(
    bench: Bench, most: int, ordered: bool
) -> None:
    failing_group(bench, ordered=ordered)
    send_new(bench.deployment)
    new, retries = let_through(bench.deployment, pulls=200 // most, most=most)
    assert new + retries == 200 // most * most
    assert 55 <= new <= 145, "chance decides within seven standard deviations"


@_ORDERS
@pytest.mark.parametrize("most", [1, 10])
def test_a_group_sets_the_share_of_retries(bench: Bench, most: int, ordered: bool) -> None:
    failing_group(bench, ordered=ordered, retry_percent=90)
    send_new(bench.deployment)
    new, _ = let_through(bench.deployment, pulls=200 // most, most=most)
    assert 2 <= new <= 50
    bench.deployment.groups.put("orders", "billing", retry_percent=100)
    assert let_through(bench.deployment, pulls=100 // most, most=most) == (0, 100)


@_ORDERS
def test_each_pull_of_several_messages_has_both(bench: Bench, ordered: bool) -> None:
    failing_group(bench, ordered=ordered)
    send_new(bench.deployment)
    for _ in range(10):
        assert let_through(bench.deployment, pulls=1, most=10) == (5, 5)
        assert let_through(bench.deployment, pulls=1, most=5) in ((2, 3), (3, 2))


@_ORDERS
@pytest.mark.parametrize("most", [1, 10])
def test_what_waits_alone_gets_whole_pulls(bench: Bench, most: int, ordered: bool) -> None:
    failing_group(bench, ordered=ordered)
    assert let_through(bench.deployment, pulls=20, most=most) == (0, 20 * most)
    send_new(bench.deployment, 3)
    new, retries = let_through(bench.deployment, pulls=40, most=most)
    assert (new, retries) == (3, 40 * most - 3)


def test_few_retries_come_with_the_next_pull(bench: Bench) -> None:
    bench.send("bad 0")
    (pull,) = bench.pull()
    send_new(bench.deployment)
    bench.settle(pull, retry=[0])
    assert let_through(bench.deployment, pulls=1, most=10) == (9, 1)
    assert let_through(bench.deployment, pulls=1, most=10) == (9, 1)


def test_a_key_that_is_tried_again_stays_before_its_new_messages(bench: Bench) -> None:
    failing_group(bench, ordered=True)
    bench.deployment.produce(
        "orders", [NewMessage(body=f"later {number}", key=str(number)) for number in range(FAILING)]
    )
    send_new(bench.deployment, 20)
    seen: list[str] = []
    for _ in range(80):
        seen += handled(
            bench.deployment, bench.deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=10))
        )
    assert [body for body in seen if body.startswith("later")] == []
    assert sum(body.startswith("new") for body in seen) == 20
    assert sum(body.startswith("bad") for body in seen) > 400


def test_pulls_of_blocks_share_as_well(bench: Bench) -> None:
    failing_group(bench)
    send_new(bench.deployment)
    result = bench.deployment.pull_blocks("orders", "billing", PullRequest(consumer="c1", max_messages=10))
    bodies = [message.body or "" for pull in result.pulls for block in pull.blocks for message in messages_in(block)]
    assert sum(body.startswith("new") for body in bodies) == 5


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
@pytest.mark.parametrize("make", [MemoryStore, lambda: CallByCall(MemoryStore())], ids=["at once", "call by call"])
@pytest.mark.parametrize("most", [1, 10])
def test_new_messages_in_another_cell_have_their_share(
    make: Callable[[], MemoryStore], most: int, ordered: bool
) -> None:
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = Bench(make(), settings=settings, cells={"two": CellStorage(make(), MemoryBlobs())})
    bench.deployment.cells.add("two")
    if not ordered:
        failing_group(bench)
        bench.deployment.routes.move("orders", 0, "two")
    else:
        bench.deployment.subjects.put("orders")
        bench.deployment.routes.move("orders", 0, "two")
        failing_group(bench, ordered=True)
    send_new(bench.deployment)
    new, retries = let_through(bench.deployment, pulls=200 // most, most=most)
    assert new + retries == 200
    assert 55 <= new <= 145


@_ORDERS
@pytest.mark.parametrize("most", [1, 10])
def test_limits_leave_both_their_share(bench: Bench, most: int, ordered: bool) -> None:
    failing_group(bench, ordered=ordered)
    bench.deployment.groups.put("orders", "billing", max_in_flight=most)
    send_new(bench.deployment)
    new, retries = let_through(bench.deployment, pulls=200 // most, most=100)
    assert new + retries == 200
    assert 55 <= new <= 145


def test_retries_that_fill_an_answer_leave_turns_to_new_messages_as_large(bench: Bench) -> None:
    large = "x" * 3_000_000
    bench.deployment.groups.put("orders", "billing", max_attempts=1_000)
    for index in range(4):
        bench.send(f"bad {index}" + large)
    for _ in range(4):
        handled(
            bench.deployment, bench.deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=1))
        )
    for index in range(10):
        bench.send(f"new {index}" + large)
    new, _ = let_through(bench.deployment, pulls=60, most=10)
    assert new == 10


@_ORDERS
@pytest.mark.parametrize("most", [1, 10])
def test_deliveries_to_a_target_take_turns(bench: Bench, most: int, ordered: bool) -> None:
    failing_group(bench, ordered=ordered)
    send_new(bench.deployment, 40)
    bodies: list[str] = []
    for _ in range(100):
        request = PullRequest(consumer="p1", max_messages=most)
        bodies += handled(bench.deployment, bench.deployment.pull("orders", "billing", request, pushing=True))
    assert sum(body.startswith("new") for body in bodies) >= 20
    assert sum(body.startswith("bad") for body in bodies) >= 20 * most


def test_retries_fill_up_a_pull_that_took_new_messages_of_their_row(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=True, retry_percent=1, max_attempts=1_000)
    for _ in range(20):
        bench.deployment.produce("orders", [NewMessage(body=key, key=key) for key in "abcd"])
        (pull,) = bench.pull(2)
        bench.settle(pull, retry=[0, 1])
        (pull,) = bench.pull(10)
        assert sorted(message.body or "" for message in pull.messages) == ["a", "b", "c", "d"]
        bench.settle(pull)
