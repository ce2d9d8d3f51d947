"""A message whose lease ended is a suspect: it comes again at once and alone, and only there an ended lease counts."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.pulls import Pull, PullRequest, PullResult, RetryLater, Settlement
from tests.support import AT_ONCE, Bench, CallByCall

LATE = RetryPolicy(first_seconds=60)


@pytest.fixture(params=[False, True], ids=["plain", "ordered"])
def ordered(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def sent(bench: Bench, *bodies: str) -> None:
    for body in bodies:
        bench.send(body, key=body)


def pulled(
    bench: Bench, *, suspects: bool = True, settle: list[Settlement] | None = None, most: int = 100
) -> PullResult:
    request = PullRequest(consumer="c1", suspects=suspects, settle=settle, max_messages=most)
    return bench.deployment.pull("orders", "billing", request)


def bodies(result: PullResult) -> list[list[str | None]]:
    return [[message.body for message in pull.messages] for pull in result.pulls]


def dead(bench: Bench) -> list[tuple[str | None, int, str | None]]:
    page = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=100)
    return [(message.body, message.attempt, message.reason) for message in page.messages]


def crashed(bench: Bench) -> None:
    """Lets the leases of a consumer that crashed end."""
    bench.clock.pass_time(31)
    bench.deployment.sweeper.sweep()


def test_only_the_message_that_ends_its_consumer_dies(bench: Bench, ordered: bool) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered, max_attempts=4, retry=AT_ONCE)
    sent(bench, *map(str, range(60)))
    handled: list[str] = []
    for _ in range(300):
        result = pulled(bench)
        if not result.pulls:
            break
        for pull in result.pulls:
            done = [message.body for message in pull.messages]
            if "10" in done:
                # Ten messages before it in the pull were handled, and nobody acknowledged them.
                crashed(bench)
                break
            handled += map(str, done)
            bench.settle(pull)
    assert dead(bench) == [("10", 4, "attempts")]
    assert sorted(handled) == sorted(str(number) for number in range(60) if number != 10)


def test_the_first_end_of_a_lease_counts_no_attempt_and_brings_the_messages_at_once(
    bench: Bench, ordered: bool
) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered, retry=LATE)
    sent(bench, "a", "b", "c")
    pulled(bench)
    crashed(bench)
    pulls = [pull for _ in range(3) for pull in pulled(bench).pulls]
    assert [[(message.body, message.attempt) for message in pull.messages] for pull in pulls] == [
        [("a", 1)],
        [("b", 1)],
        [("c", 1)],
    ]
    assert all(pull.suspect for pull in pulls)


def test_a_suspect_whose_lease_ends_again_counts_an_attempt_and_waits_by_the_policy(
    bench: Bench, ordered: bool
) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered, retry=LATE)
    sent(bench, "a")
    for _ in range(2):
        assert bodies(pulled(bench)) == [["a"]]
        crashed(bench)
    assert bodies(pulled(bench)) == []
    bench.turn(61)
    (pull,) = pulled(bench).pulls
    assert ([message.attempt for message in pull.messages], pull.suspect) == ([2], True)


def test_a_group_may_let_the_first_end_of_a_lease_wait_too(bench: Bench, ordered: bool) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered, redelivery_delay_seconds=90)
    sent(bench, "a", "b")
    pulled(bench)
    crashed(bench)
    bench.turn(80)
    assert bodies(pulled(bench)) == []
    bench.turn(20)
    assert [bodies(pulled(bench)) for _ in range(3)] == [[["a"]], [["b"]], []]


def test_a_pull_that_takes_no_suspect_gets_the_others_and_learns_that_some_wait(bench: Bench, ordered: bool) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered)
    sent(bench, "a", "b")
    pulled(bench)
    crashed(bench)
    result = pulled(bench, suspects=False)
    assert (bodies(result), result.suspects_wait) == ([], True)
    sent(bench, "c", "d")
    result = pulled(bench, suspects=False)
    assert sorted(str(body) for pull in bodies(result) for body in pull) == ["c", "d"]
    assert [bodies(pulled(bench)) for _ in range(2)] == [[["a"]], [["b"]]]
    assert not pulled(bench, suspects=False).suspects_wait


def test_a_pull_with_messages_of_another_log_takes_no_suspect_beside_them(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", retry_percent=100)
    sent(bench, "a", "b")
    pull = pulled(bench, most=1).pulls[0]
    bench.settle(pull, retry=[RetryLater(index=0, delay=0)])  # a retry before the suspect
    pulled(bench, most=1)
    first = pulled(bench, most=1).pulls[0]
    assert [message.body for message in first.messages] == ["b"]
    crashed(bench)
    sent(bench, "c")
    results = [pulled(bench) for _ in range(3)]
    assert sorted(bodies(result)[0][0] or "" for result in results) == ["a", "b", "c"]
    assert all(len(result.pulls) == 1 for result in results if result.pulls[0].suspect)


def test_a_suspect_that_fails_is_none_any_more(bench: Bench, ordered: bool) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered, retry=AT_ONCE, retry_percent=100)
    sent(bench, "a", "b")
    pulled(bench)
    crashed(bench)
    for _ in range(2):
        (pull,) = pulled(bench).pulls
        bench.settle(pull, retry=[0])
    again = pulled(bench).pulls
    assert [(message.body, message.attempt) for pull in again for message in pull.messages] == [("a", 2), ("b", 2)]
    assert not any(pull.suspect for pull in again)


def test_a_suspect_that_is_released_stays_one(bench: Bench, ordered: bool) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered, retry=AT_ONCE)
    sent(bench, "a")
    pulled(bench)
    crashed(bench)
    for _ in range(2):
        (pull,) = pulled(bench).pulls
        assert (pull.messages[0].attempt, pull.suspect) == (1, True)
        bench.settle(pull, release=[0])


def test_a_redriven_poison_message_begins_again(bench: Bench, ordered: bool) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered, max_attempts=1, retry=AT_ONCE)
    sent(bench, "a")
    for _ in range(2):
        assert bodies(pulled(bench)) == [["a"]]
        crashed(bench)
    assert dead(bench) == [("a", 1, "attempts")]
    bench.deployment.dead_letters("orders", "billing").redrive(lambda position, at_ms: True)
    (pull,) = pulled(bench).pulls
    assert (pull.messages[0].attempt, pull.suspect) == (1, False)


def test_messages_behind_a_suspect_of_their_key_wait_for_it(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=True, retry=AT_ONCE)
    for body in ("a1", "a2", "a3"):
        bench.send(body, key="a")
    assert bodies(pulled(bench, most=2)) == [["a1", "a2"]]
    crashed(bench)
    served: list[Pull] = []
    while pulls := pulled(bench).pulls:
        assert bodies(pulled(bench)) == []
        served += pulls
        bench.settle(pulls[0])
    assert [([message.body for message in pull.messages], pull.suspect) for pull in served] == [
        (["a1"], True),
        (["a2"], True),
        (["a3"], False),
    ]


def test_suspects_of_a_parked_snapshot_stay_suspects(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=True, retry=AT_ONCE)
    sent(bench, "a", "b")
    pulled(bench)
    crashed(bench)
    bench.clock.pass_time(61)
    bench.deployment.sweeper.sweep()
    bench.deployment = bench.another_process()
    assert [bodies(pulled(bench)) for _ in range(2)] == [[["a"]], [["b"]]]


def test_a_pull_in_blocks_tells_of_suspects_as_json_does(bench: Bench, ordered: bool) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=ordered)
    sent(bench, "a")
    pulled(bench)
    crashed(bench)
    left = bench.deployment.pull_blocks("orders", "billing", PullRequest(consumer="c1", suspects=False))
    assert (left.pulls, left.suspects_wait) == ([], True)
    (pull,) = bench.deployment.pull_blocks("orders", "billing", PullRequest(consumer="c1")).pulls
    assert pull.suspect


def test_a_pull_that_takes_no_suspect_does_not_wait_beside_one(bench: Bench) -> None:
    sent(bench, "a")
    pulled(bench)
    crashed(bench)
    before_ms = bench.clock.now_ms()
    request = PullRequest(consumer="c1", suspects=False, wait_seconds=20)
    assert bench.deployment.pull("orders", "billing", request).suspects_wait
    assert bench.clock.now_ms() == before_ms


def test_an_end_of_a_lease_writes_as_much_as_before() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=60))
    sent(bench, "a", "b")
    pulled(bench)
    bench.clock.pass_time(31)
    store.calls.clear()
    (pull,) = pulled(bench).pulls
    # The end of the lease: a reservation, the pull row, the row of the retry log, the pull row; then the claim.
    assert len(store.writes) == 5
    store.calls.clear()
    bench.settle(pull)
    assert len(store.writes) == 1
