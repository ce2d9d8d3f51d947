"""Planted bugs of dozing groups: the real code with one clause of the protocol left out. Each is for runs of one kind
of ``dozing.drawn``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from hourwheel.model.subjects import DozingGroup, Subject
from hourwheel.queueing.dozing import Dozes
from hourwheel.registry import dozing
from hourwheel.registry.dozing import DozingWakeups
from hourwheel.registry.registry import Registry
from tests.simulation.dozing import DozePlan


@dataclass(frozen=True)
class DozeBug:
    name: str
    plant: Callable[[], AbstractContextManager[None]]
    fits: Callable[[DozePlan], bool]


DOZING: list[DozeBug] = []


def planted(fits: Callable[[DozePlan], bool]) -> Callable[[Callable[[], Iterator[None]]], None]:
    def register(bug: Callable[[], Iterator[None]]) -> None:
        DOZING.append(DozeBug(bug.__name__, contextmanager(bug), fits))

    return register


def faultless(doze: DozePlan) -> bool:
    return doze.faultless


def refusing(doze: DozePlan) -> bool:
    return bool(doze.refused)


@planted(faultless)
def a_consumer_waits_while_producers_have_copies_that_say_awake() -> Iterator[None]:
    with patch.object(Dozes, "_settle_ms", 0):
        yield


@planted(refusing)
def a_wakeup_is_noted_before_it_is_sent() -> Iterator[None]:
    def ring(self: DozingWakeups, registry: Registry, subject: Subject, due: list[DozingGroup]) -> None:
        now_ms = self.context.clock.now_ms()
        dozing._change(registry, subject, lambda groups: dozing.after_ring(groups, due, now_ms))
        for each in due:
            self.queues.ring(each.queue)

    with patch.object(DozingWakeups, "_ring", ring):
        yield


@planted(refusing)
def a_wakeup_that_fails_fails_the_sender() -> Iterator[None]:
    def announce(self: DozingWakeups, subject: str, group: str | None = None) -> None:
        self._wake(subject, group)

    with patch.object(DozingWakeups, "announce", announce):
        yield


@planted(faultless)
def a_group_that_was_woken_dozes_again_without_a_new_mark() -> Iterator[None]:
    with patch.object(DozingGroup, "counts", lambda self, after_ms, now_ms: True):
        yield


@planted(faultless)
def only_the_first_group_of_a_subject_is_woken() -> Iterator[None]:
    def due(groups: tuple[DozingGroup, ...], prefix: str, now_ms: int) -> list[DozingGroup]:
        return real(groups[:1], prefix, now_ms)

    real = dozing.due_wakeups
    with patch.object(dozing, "due_wakeups", due):
        yield
