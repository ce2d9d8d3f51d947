"""A read-only subject refuses new messages; everything that was accepted goes on."""

import pytest

from hourwheel.errors import Conflict, NotFound
from hourwheel.model.messages import AddressedMessage, NewMessage
from hourwheel.producing.idempotency import IdempotencyKey
from tests.support import Bench

KEY = IdempotencyKey("once", b"digest")


def test_new_messages_are_refused_with_advice_until_the_subject_is_opened_again(bench: Bench) -> None:
    bench.send("a")
    assert bench.deployment.subjects.put("orders", read_only=True).read_only
    for send in (lambda: bench.send("b"), lambda: bench.send_later("b", delay=5)):
        with pytest.raises(Conflict, match="read_only to false with PUT /v1/subjects/orders") as refused:
            send()
        assert (refused.value.slug, refused.value.field) == ("subject-read-only", "subject")
    bench.deployment.subjects.put("orders", retention_seconds=60)
    with pytest.raises(Conflict):
        bench.send("b")
    bench.deployment.subjects.put("orders", read_only=False)
    bench.send("c")
    assert bench.bodies() == ["a", "c"]


def test_a_batch_over_subjects_is_refused_whole(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", read_only=True)
    batch = [AddressedMessage(subject="refunds", body="a"), AddressedMessage(subject="orders", body="b")]
    with pytest.raises(Conflict, match="'orders' is read-only"):
        bench.deployment.produce_many(batch)
    assert bench.bodies(subject="refunds") == []


def test_groups_go_on_with_retries_and_dead_letters(bench: Bench) -> None:
    bench.send("a", "b")
    bench.deployment.subjects.put("orders", read_only=True)
    (pull,) = bench.pull()
    assert bench.settle(pull, retry=[0], dead=[1]) == "settled"
    assert bench.deployment.dead_letters("orders", "billing").redrive(lambda dead_id, died_ms: True) == 1
    assert sorted(map(str, bench.bodies())) == ["a", "b"]


def test_a_delayed_message_that_was_accepted_is_moved_and_delivered(bench: Bench) -> None:
    _, second = bench.send_later("a", "b", delay=5)
    bench.deployment.subjects.put("orders", read_only=True)
    assert second.scheduled_id is not None
    assert bench.deployment.delayed.reschedule(second.scheduled_id, delay=20).state == "moved"
    bench.turn(30)
    assert bench.bodies() == ["a", "b"]


def test_a_repeated_batch_that_was_accepted_before_gets_its_answer(bench: Bench) -> None:
    accepted = bench.deployment.produce("orders", [NewMessage(body="a")], KEY)
    bench.deployment.subjects.put("orders", read_only=True)
    assert bench.deployment.produce("orders", [NewMessage(body="a")], KEY) == accepted
    with pytest.raises(Conflict, match="read-only"):
        bench.deployment.produce("orders", [NewMessage(body="b")], IdempotencyKey("other", b"digest"))
    assert bench.bodies() == ["a"]


def test_a_subject_that_is_created_again_takes_messages(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", read_only=True)
    bench.deployment.subjects.delete("orders")
    with pytest.raises(NotFound):
        bench.deployment.subjects.get("orders")
    bench.send("a")
    assert bench.bodies() == ["a"]
