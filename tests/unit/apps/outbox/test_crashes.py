"""A relay may be killed at any step: each committed row is sent exactly once, in order for each key."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from hourwheel import outbox
from hourwheel.client import SendResult
from tests.unit.apps.outbox.world import Application, Death, Queue

DAYS = 86_400
Filled: TypeAlias = Callable[[Path], Application]


@pytest.fixture
def filled() -> Iterator[Filled]:
    """Fills outboxes, and closes them at the end of the test."""
    with ExitStack() as opened:
        yield lambda folder: fill(opened.enter_context(closing(Application(folder))))


def fill(application: Application) -> Application:
    """Adds ten rows of two keys and of none, of two subjects, and one that was rolled back."""
    for number in range(4):
        application.send(f"a{number}", key="a")
        application.send(f"b{number}", key="b")
    application.send("x0", "x1", subject="others")
    outbox.send(application.connection, "orders", "never", key="a")
    application.connection.rollback()
    return application


def complete(application: Application) -> None:
    bodies = application.bodies()
    assert [body for body in bodies if body.startswith("a")] == ["a0", "a1", "a2", "a3"]
    assert [body for body in bodies if body.startswith("b")] == ["b0", "b1", "b2", "b3"]
    assert len(bodies) == 8
    assert sorted(application.bodies("others")) == ["x0", "x1"]
    assert [application.rows(state) for state in (0, 1, 2)] == [[], [], []]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("away", [30, 20 * DAYS], ids=["for seconds", "for weeks"])
def test_a_relay_that_is_killed_at_any_step_neither_loses_nor_doubles_a_row(
    tmp_path: Path, filled: Filled, after: bool, away: int
) -> None:
    for deadly in itertools.count(1):
        folder = tmp_path / str(deadly)
        folder.mkdir()
        application = filled(folder)
        for subject in ("orders", "others"):
            application.bench.deployment.subjects.put(subject, retention_seconds=30 * DAYS)
        application.steps.deadly, application.steps.after = deadly, after
        try:
            application.drain(most_rows=2)
        except Death:
            application.clock.pass_time(away)
            application.drain(most_rows=2)
            complete(application)
        else:
            break
    assert deadly > 50


class PausedQueue:
    """Before the first request, the worker is paused, and other things happen."""

    def __init__(self, queue: Queue, meanwhile: Callable[[], None]) -> None:
        self._queue = queue
        self._meanwhile = [meanwhile]

    def produce(self, *args: Any, **how: Any) -> list[SendResult]:
        if self._meanwhile:
            self._meanwhile.pop()()
        return self._queue.produce(*args, **how)


@pytest.mark.parametrize("away", [30, 20 * DAYS], ids=["for seconds", "for weeks"])
def test_a_relay_that_was_overtaken_while_it_paused_changes_nothing(tmp_path: Path, filled: Filled, away: int) -> None:
    """The relay wakes up while the rows of the one that has overtaken it are in any state: that one was killed, too."""
    for deadly in itertools.count(1):
        folder = tmp_path / str(deadly)
        folder.mkdir()
        application = filled(folder)
        for subject in ("orders", "others"):
            application.bench.deployment.subjects.put(subject, retention_seconds=60 * DAYS)
        paused = application.worker(most_rows=2)
        killed = list[bool]()

        def overtaken(
            application: Application = application, deadly: int = deadly, killed: list[bool] = killed
        ) -> None:
            application.clock.pass_time(away)
            application.steps.count, application.steps.deadly, application.steps.after = 0, deadly, True
            try:
                application.drain(most_rows=2)
            except Death:
                killed.append(True)
            application.steps.deadly = -1

        paused.queue = PausedQueue(application.queue, overtaken)
        while paused.turn():
            pass
        application.clock.pass_time(away)
        application.drain()
        complete(application)
        if not killed:
            break
    assert deadly > 40


def test_a_server_whose_answers_are_lost_for_an_hour_stores_each_row_once(tmp_path: Path, filled: Filled) -> None:
    application = filled(tmp_path)
    answers = itertools.count()

    def lost() -> bool:
        application.clock.pass_time(120)
        return next(answers) % 30 != 29

    application.queue.lost = lost
    application.drain(most_rows=3)
    complete(application)
    sent = [request for request, _ in application.queue.repeated]
    assert application.queue.repeated == [(request, request in sent[:index]) for index, request in enumerate(sent)]


def test_a_commit_whose_database_goes_away_in_the_middle_is_repeated(tmp_path: Path, filled: Filled) -> None:
    """The worker reads the batch under way from the shard, whether or not the commit was carried out."""
    for after in (False, True):
        folder = tmp_path / str(after)
        folder.mkdir()
        application = filled(folder)
        worker = application.worker(most_rows=2)
        commits = 0
        for deadly in range(1, 40):
            application.steps.count, application.steps.deadly, application.steps.after = 0, deadly, after
            try:
                while worker.turn():
                    pass
                break
            except Death:
                commits += 1
                worker = application.worker(most_rows=2)
                application.clock.pass_time(16)
        application.steps.deadly = -1
        application.drain()
        complete(application)
        assert commits > 5
