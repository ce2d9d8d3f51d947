"""A group or subject is deleted through one process, while another process still has its record cached."""

from collections.abc import Callable

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import NotFound
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, PullRequest, Settlement
from hourwheel.ports.storage import Key, Table
from hourwheel.pull_log.open_logs import pull_logs
from tests.support import AT_ONCE, Bench, CallByCall

TRUSTED = Settings(retry=AT_ONCE, registry_seconds=60, auto_create=False)
"""The other process trusts its records for longer than a test takes, and creates nothing in the place of what was
deleted."""


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    store = MemoryStore()
    return Bench(CallByCall(store) if request.param == "call by call" else store, settings=TRUSTED)


@pytest.fixture(params=[False, True], ids=["plain", "ordered"])
def elsewhere(bench: Bench, request: pytest.FixtureRequest) -> Deployment:
    """Returns another process that knows the group, all of whose messages are settled."""
    bench.deployment.subjects.put("orders")
    bench.deployment.groups.put("orders", "billing", ordered=request.param)
    other = bench.another_process()
    send(bench, "a1", "b1")
    settle(other, *pulled(other))
    return other


def send(bench: Bench, *bodies: str) -> None:
    bench.deployment.produce("orders", [NewMessage(body=body, key=body[0]) for body in bodies])


def pulled(deployment: Deployment) -> list[Pull]:
    return deployment.pull("orders", "billing", PullRequest(consumer="c", max_messages=9)).pulls


def settle(deployment: Deployment, *pulls: Pull) -> list[str]:
    answers = deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt) for pull in pulls])
    return [answer.status for answer in answers]


def bodies(pulls: list[Pull]) -> list[str | None]:
    return [message.body for pull in pulls for message in pull.messages]


def pull_rows(bench: Bench) -> list[str]:
    """Returns the partitions of the first group that have pull rows."""
    partitions = [f"billing~1@orders~1/{log}" for log in ("0", "retry/billing~1")]
    return [name for name in partitions if bench.store.scan(Table.PULL, name, limit=1)]


DELETIONS: dict[str, Callable[[Deployment], object]] = {
    "the group": lambda deployment: deployment.groups.delete("orders", "billing"),
    "the subject": lambda deployment: deployment.subjects.delete("orders"),
}


@pytest.mark.parametrize("delete", DELETIONS.values(), ids=DELETIONS)
def test_settled_messages_do_not_come_back(
    bench: Bench, elsewhere: Deployment, delete: Callable[[Deployment], object]
) -> None:
    delete(bench.deployment)
    with pytest.raises(NotFound):
        pulled(elsewhere)
    assert pull_rows(bench) == []


def test_a_group_that_is_deleted_between_a_look_and_its_claim_is_not_replayed(
    bench: Bench, elsewhere: Deployment
) -> None:
    """The claim comes after the look at the counters, which shows a group that is there."""
    send(bench, "a2")
    read = elsewhere.group_logs.of

    def late(opener: object, context: object, subject: object, group: object) -> object:
        logs = read(opener, context, subject, group)  # type: ignore[arg-type] - passed on as they come
        totals = bench.store.counters([log.source.name for log in logs])
        bench.deployment.groups.delete("orders", "billing")
        counters = bench.store.counters
        bench.store.counters = lambda names, **how: totals if set(names) == set(totals) else counters(names, **how)  # type: ignore[attr-defined] - a stale answer
        return logs

    elsewhere.group_logs.of = late  # type: ignore[method-assign,assignment] - the group is deleted here
    with pytest.raises(NotFound):
        pulled(elsewhere)


def test_a_group_that_is_created_again_begins_with_its_own_log(bench: Bench, elsewhere: Deployment) -> None:
    bench.deployment.groups.delete("orders", "billing")
    bench.deployment.groups.put("orders", "billing", start="latest")
    send(bench, "c1")
    assert bodies(pulled(elsewhere)) == ["c1"]


def test_a_subject_that_is_created_again_is_pulled_at_once(bench: Bench, elsewhere: Deployment) -> None:
    bench.deployment.subjects.delete("orders")
    bench.deployment.subjects.put("orders")
    bench.deployment.groups.put("orders", "billing")
    send(bench, "c1")
    assert bodies(pulled(elsewhere)) == ["c1"]


def test_retries_of_a_deleted_group_do_not_come_back(bench: Bench, elsewhere: Deployment) -> None:
    send(bench, "a2", "b2")
    (pull,) = pulled(elsewhere)
    elsewhere.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=[0, 1])])
    settle(elsewhere, *pulled(elsewhere))
    bench.deployment.groups.delete("orders", "billing")
    with pytest.raises(NotFound):
        pulled(elsewhere)
    assert pull_rows(bench) == []


def test_what_is_leased_when_its_group_is_deleted_is_stale(bench: Bench, elsewhere: Deployment) -> None:
    send(bench, "a2")
    held = pulled(elsewhere)
    bench.deployment.groups.delete("orders", "billing")
    assert settle(elsewhere, *held) == ["stale"]


def test_dead_letters_of_a_deleted_group_are_neither_redriven_nor_listed(bench: Bench, elsewhere: Deployment) -> None:
    send(bench, "a2")
    (pull,) = pulled(elsewhere)
    elsewhere.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0])])
    bench.deployment.groups.delete("orders", "billing")
    assert elsewhere.dead_letters("orders", "billing").page(after=None, limit=9).messages == []
    assert elsewhere.dead_letters("orders", "billing").redrive(lambda at, _: True) == 0
    assert bench.store.counter("orders~1/retry/billing~1").rows == 0


def test_a_sweep_of_a_deleted_group_leaves_its_log_erased(bench: Bench, elsewhere: Deployment) -> None:
    """A sweeper that has read the groups before the deletion saves its checkpoint after it."""
    subject, group = elsewhere.subjects.get("orders"), elsewhere.groups.get("orders", "billing")
    log = pull_logs(elsewhere.context, subject, group)[1]
    elsewhere.leases.in_flight(log)
    bench.deployment.groups.delete("orders", "billing")
    elsewhere.leases.checkpoint(log)
    with pytest.raises(NotFound):
        log.tail()


def test_a_calm_look_at_ended_leases_passes_over_a_deleted_group(bench: Bench, elsewhere: Deployment) -> None:
    send(bench, "a2")
    pulled(elsewhere)
    bench.deployment.groups.delete("orders", "billing")
    bench.clock.pass_time(31)
    assert elsewhere.sweeper.end_busy_leases() == 0
    assert [name for name, _ in bench.meter.metrics if name == "Faults"] == []


def test_a_delayed_message_goes_to_the_subject_that_was_created_again(bench: Bench) -> None:
    """Not to the one before: it would be an orphan, though its sender was told that it was accepted."""
    bench.deployment.subjects.put("orders")
    other = bench.another_process()
    other.produce("orders", [NewMessage(body="now")])
    bench.deployment.subjects.delete("orders")
    bench.deployment.subjects.put("orders")
    bench.deployment.groups.put("orders", "billing")
    other.produce("orders", [NewMessage(body="later", delay=60)])
    bench.turn(61)
    assert bodies(pulled(bench.deployment)) == ["later"]
    assert bench.store.get(Key(Table.META, "orphans", "orders~1/dead")) is None
