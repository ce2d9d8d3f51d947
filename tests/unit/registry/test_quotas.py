"""Limits on subjects and groups, and cells that create none by themselves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Conflict, NotFound
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from tests.support import AT_ONCE, Bench, CallByCall

MESSAGE = [NewMessage(body="a")]


@pytest.fixture(params=["call by call", "transactions"])
def limited(request: pytest.FixtureRequest) -> Bench:
    """Returns a bench that allows two subjects with two groups each."""
    store = MemoryStore()
    settings = Settings(retry=AT_ONCE, registry_seconds=0, max_subjects=2, max_groups=2)
    return Bench(CallByCall(store) if request.param == "call by call" else store, settings=settings)


def pull(bench: Bench, subject: str, group: str) -> Any:
    return bench.deployment.pull(subject, group, PullRequest(consumer="c1"))


def test_no_more_subjects_are_made_than_may_be(limited: Bench) -> None:
    limited.deployment.produce("a", MESSAGE)
    limited.deployment.subjects.put("b")
    attempts: list[Callable[[], object]] = [
        lambda: limited.deployment.produce("c", MESSAGE),
        lambda: limited.deployment.subjects.put("c"),
        lambda: pull(limited, "c", "g"),
        lambda: limited.deployment.groups.put("c", "g"),
    ]
    for attempt in attempts:
        with pytest.raises(Conflict, match="2 subjects"):
            attempt()
    assert [subject.name for subject in limited.deployment.subjects.page("", 9)[0]] == ["a", "b"]


def test_what_is_there_is_used_and_changed_as_before(limited: Bench) -> None:
    for subject in ("a", "b"):
        for group in ("g", "h"):
            pull(limited, subject, group)
    limited.deployment.produce("a", MESSAGE)
    assert limited.deployment.subjects.put("a", queues=2).queues == 2
    assert limited.deployment.groups.put("a", "g", max_attempts=2).max_attempts == 2
    assert limited.bodies(subject="a", group="h") == ["a"]


def test_a_deletion_makes_room(limited: Bench) -> None:
    for subject in ("a", "b"):
        limited.deployment.groups.put(subject, "g")
        limited.deployment.groups.put(subject, "h")
    limited.deployment.groups.delete("a", "g")
    limited.deployment.groups.put("a", "i")
    limited.deployment.subjects.delete("b")
    limited.deployment.subjects.put("b")
    limited.deployment.groups.put("b", "g")
    with pytest.raises(Conflict, match="2 groups"):
        limited.deployment.groups.put("a", "g")


def test_a_subject_gets_no_more_groups_than_it_may_have(limited: Bench) -> None:
    limited.deployment.groups.put("a", "g")
    pull(limited, "a", "h")
    for attempt in (lambda: limited.deployment.groups.put("a", "i"), lambda: pull(limited, "a", "i")):
        with pytest.raises(Conflict, match="subject 'a' has 2 groups"):
            attempt()
    limited.deployment.groups.put("b", "i")


@dataclass
class Raced(MemoryStore):
    """A store where a rival is faster, once, between a look at all subjects or groups and the next step."""

    rival: list[Callable[[], object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def scan(self, *where: Any, **how: Any) -> Any:
        found = super().scan(*where, **how)
        if self.rival:
            self.rival.pop()()
        return found


def test_two_that_make_one_at_the_same_moment_do_not_both_find_room() -> None:
    settings = Settings(retry=AT_ONCE, registry_seconds=0, max_subjects=1, max_groups=1)
    bench = Bench(Raced(), settings=settings)
    assert isinstance(bench.store, Raced)
    other = bench.another_process()
    bench.store.rival = [lambda: other.subjects.put("rival")]
    with pytest.raises(Conflict, match="1 subjects"):
        bench.deployment.subjects.put("mine")
    bench.store.rival = [lambda: other.groups.put("rival", "theirs")]
    with pytest.raises(Conflict, match="1 groups"):
        bench.deployment.groups.put("rival", "mine")


def test_a_cell_that_makes_none_by_itself_says_how_to_make_them() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0, auto_create=False))
    unknown: list[Callable[[], object]] = [
        lambda: bench.deployment.produce("orders", MESSAGE),
        lambda: pull(bench, "orders", "billing"),
        lambda: bench.deployment.groups.put("orders", "billing"),
    ]
    for attempt in unknown:
        with pytest.raises(NotFound, match=r"PUT /v1/subjects/orders$"):
            attempt()
    bench.deployment.subjects.put("orders")
    bench.deployment.produce("orders", MESSAGE)
    with pytest.raises(NotFound, match=r"PUT /v1/subjects/orders/groups/billing$"):
        pull(bench, "orders", "billing")
    bench.deployment.groups.put("orders", "billing")
    assert bench.bodies(group="billing") == ["a"]


def test_groups_are_listed_page_by_page_by_name(bench: Bench) -> None:
    for name in ("c", "a", "d", "b"):
        bench.deployment.groups.put("orders", name)
    bench.deployment.groups.delete("orders", "b")
    page, following = bench.deployment.groups.page("orders", "", 2)
    assert ([group.name for group in page], following) == (["a", "c"], "c")
    page, following = bench.deployment.groups.page("orders", "c", 2)
    assert ([group.name for group in page], following) == (["d"], None)
