"""A decision about a stopped key is seen by every pull that comes after it, in whatever process."""

import pytest

from hourwheel.context import Settings
from hourwheel.errors import Conflict
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import NewMessage
from tests.support import AT_ONCE, Bench


@pytest.fixture
def stopped() -> Bench:
    """Returns a group in which key a has stopped, and of which a pull has found nothing since."""
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=2))
    bench.deployment.groups.put("orders", "billing", ordered=True, when_dead="stop", max_attempts=1)
    bench.deployment.produce("orders", [NewMessage(body=name, key=name[0]) for name in ("a1", "a2")])
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0])
    bench.deployment.sweeper.sweep()
    find_nothing(bench)
    return bench


def find_nothing(bench: Bench) -> None:
    for _ in range(2):
        assert bench.bodies() == []
        bench.clock.pass_time(2)


def test_a_pull_after_a_decision_to_retry_gets_the_message(stopped: Bench) -> None:
    assert stopped.deployment.groups.decide("orders", "billing", None, "retry") == 1
    assert stopped.bodies() == ["a1", "a2"]


def test_a_pull_after_a_decision_to_give_up_gets_the_next_message_of_the_key(stopped: Bench) -> None:
    assert stopped.deployment.groups.decide("orders", "billing", frozenset("a"), "dead") == 1
    assert stopped.bodies() == ["a2"]


@pytest.mark.parametrize(("then", "expected"), [("retry", ["a1", "a2"]), ("dead", ["a2"])])
def test_a_pull_in_another_process_sees_the_decision_once_it_reads_the_group_again(
    stopped: Bench, then: str, expected: list[str]
) -> None:
    deciding = stopped.another_process()
    assert deciding.groups.decide("orders", "billing", None, "dead" if then == "dead" else "retry") == 1
    stopped.clock.pass_time(2)
    assert stopped.bodies() == expected


def test_a_decision_starts_a_pusher_of_a_group_that_is_pushed(stopped: Bench) -> None:
    stopped.deployment.groups.put("orders", "billing", push=PushTarget(kind="python", address="here"))
    stopped.pushes.started.clear()
    with pytest.raises(Conflict):
        stopped.deployment.groups.decide("orders", "billing", frozenset("b"), "retry")
    assert stopped.pushes.started == []
    assert stopped.deployment.groups.decide("orders", "billing", None, "retry") == 1
    assert stopped.pushes.started == [("orders", "billing")]


def test_a_decision_about_a_key_that_is_not_stopped_is_refused_as_a_whole(stopped: Bench) -> None:
    with pytest.raises(Conflict) as refused:
        stopped.deployment.groups.decide("orders", "billing", frozenset(("a", "b", "c")), "dead")
    assert (refused.value.slug, refused.value.field) == ("key-not-stopped", "keys")
    assert str(refused.value) == (
        "keys 'b', 'c' of group 'billing' of subject 'orders' are not stopped (a decision before this one may have let"
        " them go on): nothing was decided; the lag of the group names the stopped keys"
    )
    assert stopped.bodies() == []
    assert stopped.deployment.groups.decide("orders", "billing", frozenset("a"), "dead") == 1
    with pytest.raises(Conflict, match="key 'a' of group 'billing' of subject 'orders' is not stopped"):
        stopped.deployment.groups.decide("orders", "billing", frozenset("a"), "dead")
    assert stopped.deployment.groups.decide("orders", "billing", None, "dead") == 0


def test_a_refused_decision_names_the_first_keys_alone(stopped: Bench) -> None:
    keys = frozenset(f"x{number:02d}{'y' * 250}" for number in range(20))
    with pytest.raises(Conflict, match=r"y', 'x04y+' and 15 others of group 'billing'") as refused:
        stopped.deployment.groups.decide("orders", "billing", keys, "dead")
    assert len(str(refused.value)) < 500


def test_of_two_decisions_at_the_same_time_the_later_one_is_refused(stopped: Bench) -> None:
    deciding = stopped.another_process()

    def overtake() -> None:
        assert deciding.groups.decide("orders", "billing", frozenset("a"), "retry") == 1

    # The other process decides between the check of the keys and the decision.
    begin = stopped.deployment.registry.begin_seek
    stopped.deployment.registry.begin_seek = lambda *args: (overtake(), begin(*args))[1]  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="is not stopped"):
        stopped.deployment.groups.decide("orders", "billing", frozenset("a"), "dead")
    assert stopped.deployment.groups.lag("orders", "billing").dead == 0
