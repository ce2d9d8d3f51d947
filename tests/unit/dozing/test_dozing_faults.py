"""A group that dozes while SQS or the store is slow, or does not answer."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from hourwheel.context import Context
from hourwheel.dozing import dozing
from hourwheel.errors import Broken, OutcomeUnknown, Throttled
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.model.messages import NewMessage
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Key, Record, Table
from hourwheel.registry.records import subject_key, subject_record
from tests.unit.dozing.dozing import GROUP, Scene

T = TypeVar("T")


@pytest.fixture
def scene() -> Scene:
    return Scene.opened()


def away(scene: Scene, monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[str]:
    """Makes each call to SQS fail after this time, as a time-out does. Returns the names of the queues called."""
    calls: list[str] = []

    def wake(name: str) -> bool:
        calls.append(name)
        scene.bench.clock.pass_time(seconds)
        raise OutcomeUnknown("SQS")

    monkeypatch.setattr(scene.queues, "wake", wake)
    return calls


def test_a_sender_does_not_wait_for_an_sqs_that_does_not_answer(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.doze()
    for number in range(5):
        scene.doze(f"g{number}")
    calls = away(scene, monkeypatch, 0.8)
    began_ms = scene.bench.clock.ms
    for _ in range(3):
        scene.bench.send("a")
    assert len(calls) == 1
    assert scene.bench.clock.ms - began_ms < 1_500
    monkeypatch.undo()
    scene.bench.clock.pass_time(5)
    scene.bench.send("a")
    assert scene.queues.received() == 6


def test_a_sender_wakes_groups_for_a_second_and_the_next_one_wakes_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [f"g{number}" for number in range(8)]
    for group in groups:
        scene.doze(group)
    wake = scene.queues.wake

    def slow(name: str) -> bool:
        scene.bench.clock.pass_time(0.3)
        return wake(name)

    monkeypatch.setattr(scene.queues, "wake", slow)
    scene.bench.send("a")
    assert scene.queues.received() == 4
    assert ("WakesMissed", 4) in scene.bench.meter.metrics
    scene.bench.send("a")
    assert scene.queues.received() == 4


def test_groups_whose_wakeups_fail_keep_no_other_group_asleep_and_each_is_logged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(6):
        scene.doze(f"g{number}")
    wake, names = scene.queues.wake, [*scene.queues.made]
    errors = {names[0]: Throttled("SQS refuses"), names[2]: Throttled("SQS refuses"), names[5]: Broken("AccessDenied")}

    def failing(name: str) -> bool:
        if name in errors:
            raise errors[name]
        return wake(name)

    monkeypatch.setattr(scene.queues, "wake", failing)
    scene.bench.send("a")
    assert scene.queues.received() == 3
    assert ("WakesMissed", 3) in scene.bench.meter.metrics
    assert [record.getMessage().partition(" that doze were not woken: ") for record in caplog.records] == [
        ("consumers of orders", " that doze were not woken: ", f"SQS refuses ({names[0]}, {names[2]})"),
        ("consumers of orders", " that doze were not woken: ", f"AccessDenied ({names[5]})"),
    ]
    errors.clear()
    scene.bench.send("b")
    assert scene.queues.received() == 3  # those that were missed; the others have their wake-up


def test_groups_that_are_not_woken_after_a_time_out_are_counted_and_not_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(6):
        scene.doze(f"g{number}")
    away(scene, monkeypatch, 0.8)
    scene.bench.send("a")
    assert ("WakesMissed", 6) in scene.bench.meter.metrics
    assert [record.getMessage().partition("woken: ")[2] for record in caplog.records] == [
        f"SQS ({scene.queues.made[0]})",
        "SQS did not answer a few seconds ago (5 queues)",
    ]


def test_a_failed_wakeup_is_logged_also_if_the_list_cannot_be_changed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        scene.doze(f"g{number}")
    gone, failed = scene.queues.made
    put = scene.store.put

    def wake(name: str) -> bool:
        if name == failed:
            raise Broken("AccessDenied")
        return False

    def throttled(key: Key, record: Record, *, expect: bytes | None) -> object:
        if key.table is Table.META:
            raise Throttled("meta")
        return put(key, record, expect=expect)

    monkeypatch.setattr(scene.queues, "wake", wake)
    monkeypatch.setattr(scene.store, "put", throttled)
    scene.bench.send("a")
    assert ("WakesMissed", 2) in scene.bench.meter.metrics
    assert f"AccessDenied ({failed})" in caplog.text
    assert f"meta ({gone})" in caplog.text


def test_the_queues_of_a_deleted_subject_are_removed_side_by_side_and_each_failure_is_logged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(6):
        scene.doze(f"g{number}")
    remove, together = scene.queues.remove, list[int]()
    failing = [scene.queues.made[2], scene.queues.made[5]]

    def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
        together.append(len(calls))
        return [call() for call in calls]

    def refused(name: str) -> None:
        if name in failing:
            raise Throttled("SQS refuses")
        remove(name)

    monkeypatch.setattr(scene.queues, "side_by_side", side_by_side)
    monkeypatch.setattr(scene.queues, "remove", refused)
    scene.deployment.subjects.delete("orders")
    assert sorted(scene.queues.wakeups) == sorted(failing)
    assert max(together) >= 6
    lines = [record.getMessage() for record in caplog.records if "was not removed" in record.getMessage()]
    assert sorted(lines) == [f"the wake-up queue of orders/g{number} was not removed: SQS refuses" for number in (2, 5)]


def test_a_mark_of_a_clock_far_in_the_future_counts_no_longer_than_another(scene: Scene) -> None:
    scene.bench.clock.pass_time(365 * 86_400)
    scene.doze()
    scene.bench.clock.pass_time(-365 * 86_400)  # the clock was wrong, and the consumers of the group are gone
    scene.bench.another_process().produce("orders", [NewMessage(body="a")])
    assert scene.queues.received() == 0
    scene.settle_of("mail", scene.pull("mail"))
    scene.doze("mail")
    assert len(scene.bench.another_process().subjects.get("orders").dozing) == 1


def test_a_mark_of_a_clock_that_is_some_minutes_ahead_counts(scene: Scene) -> None:
    scene.bench.clock.pass_time(600)
    scene.doze()
    scene.bench.clock.pass_time(-600)
    scene.bench.another_process().produce("orders", [NewMessage(body="a")])
    assert scene.queues.received() == 1


@pytest.mark.parametrize("slow_puts", [1, 2, 3])
def test_a_mark_that_lands_late_counts_from_then_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, slow_puts: int
) -> None:
    put, left = scene.store.put, slow_puts

    def late(key: Key, record: Record, *, expect: bytes | None) -> object:
        nonlocal left
        if key == subject_key("orders") and left:
            left -= 1
            scene.bench.clock.pass_time(3)
        return put(key, record, expect=expect)

    monkeypatch.setattr(scene.store, "put", late)
    marked = scene.pull()
    assert left == 0
    dozing = scene.deployment.subjects.get("orders").dozing
    if slow_puts < 3:
        assert marked.next_pull_seconds == 1.0
        assert scene.bench.clock.ms - dozing[0].since_ms <= 200
    else:  # it gives up, and leaves no mark that other consumers would rely on
        assert (marked.next_pull_seconds, dozing) == (2.5, ())


def test_a_store_that_throttles_does_not_keep_a_group_from_being_deleted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.doze()
    put = scene.store.put

    def throttled(key: Key, record: Record, *, expect: bytes | None) -> object:
        if key == subject_key("orders"):
            raise Throttled("meta")
        return put(key, record, expect=expect)

    monkeypatch.setattr(scene.store, "put", throttled)
    scene.deployment.groups.delete("orders", GROUP)
    assert scene.queues.wakeups == {}
    monkeypatch.undo()
    scene.bench.send("a")
    assert scene.deployment.subjects.get("orders").dozing == ()


def test_a_subject_that_gets_queues_while_a_group_begins_to_doze_keeps_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [lambda: scene.bench.another_process().subjects.put("orders", queues=4)]

    class Changed(CasRecord[Subject]):
        def load(self) -> Versioned[Subject] | None:
            found = super().load()
            if left:
                left.pop()()
            return found

    def record(context: Context, name: str) -> CasRecord[Subject]:
        usual = subject_record(context, name)
        return Changed(usual.store, usual.ids, usual.key, usual.kind)

    monkeypatch.setattr(dozing, "subject_record", record)
    scene.doze()
    assert not left
    subject = scene.bench.another_process().registry.subject("orders")
    assert (subject.queues, len(subject.dozing)) == (4, 1)
