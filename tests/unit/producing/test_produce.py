"""A batch is stored in order, in the right queues and objects, once for each idempotency key."""

import random

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Conflict, NotFound, Unavailable
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import from_record
from hourwheel.model.fields import IDEMPOTENCY_MS
from hourwheel.model.messages import AddressedMessage, NewMessage
from hourwheel.ports.storage import Key, Record, Refused, Table
from hourwheel.producing.idempotency import IdempotencyKey
from tests.support import AT_ONCE, Bench, CallByCall

KEY = IdempotencyKey("once", b"digest")


def test_messages_come_out_in_the_order_in_which_they_went_in(bench: Bench) -> None:
    bench.send("a", "b")
    bench.send("c")
    assert bench.bodies() == ["a", "b", "c"]


def test_offsets_count_messages_and_ids_are_unique_or_the_senders(bench: Bench) -> None:
    accepted = bench.send("a", "b") + bench.send("c")
    assert [one.offset for one in accepted] == [0, 1, 2]
    assert len({one.id for one in accepted}) == 3
    (mine,) = bench.deployment.produce("orders", [NewMessage(body="d", id="order-7")])
    assert mine.id == "order-7"


def test_text_and_bytes_come_back_as_they_were_sent(bench: Bench) -> None:
    bench.deployment.produce("orders", [NewMessage(body="ü€\x00"), NewMessage(body_base64=b"\x00\xff")])
    assert [(one.body, one.body_base64) for one in bench.take()] == [("ü€\x00", None), (None, b"\x00\xff")]


def test_all_of_a_message_comes_back(bench: Bench) -> None:
    bench.deployment.produce("orders", [NewMessage(body="a", key="k", tags=["eu"], headers={"trace": "1"}, id="i")])
    (one,) = bench.take()
    assert (one.id, one.key, one.tags, one.headers, one.queue, one.offset, one.attempt) == (
        "i",
        "k",
        ["eu"],
        {"trace": "1"},
        0,
        0,
        1,
    )
    assert one.produced_at == "2025-11-20T12:00:00.000Z"


def test_messages_of_a_key_share_a_queue_and_keep_their_order(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=8)
    for number in range(20):
        bench.deployment.produce("orders", [NewMessage(body=f"{key}{number}", key=key) for key in "abc"])
    found = bench.take()
    for key in "abc":
        assert [one.body for one in found if one.key == key] == [f"{key}{number}" for number in range(20)]
        assert len({one.queue for one in found if one.key == key}) == 1


def test_a_large_batch_goes_to_one_segment_and_comes_back(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=2)
    noise = random.Random(1)
    bodies = [noise.randbytes(20_000).hex() for _ in range(4)]
    bench.deployment.produce("orders", [NewMessage(body=body, key=str(index)) for index, body in enumerate(bodies)])
    assert len(bench.blobs.list("batches/")) == 1
    assert sorted(body or "" for body in bench.bodies()) == sorted(bodies)


def test_a_batch_across_subjects_answers_in_its_own_order(bench: Bench) -> None:
    batch = [AddressedMessage(body=body, subject=subject) for body, subject in [("1", "a"), ("2", "b"), ("3", "a")]]
    accepted = bench.deployment.produce_many(batch)
    assert [one.offset for one in accepted] == [0, 0, 1]
    assert bench.bodies(subject="a") == ["1", "3"]
    assert bench.bodies(subject="b") == ["2"]


def test_the_same_key_again_gets_the_first_answer_and_stores_nothing(bench: Bench) -> None:
    first = bench.deployment.produce("orders", [NewMessage(body="a"), NewMessage(body="b")], KEY)
    again = bench.another_process().produce("orders", [NewMessage(body="a"), NewMessage(body="b")], KEY)
    bench.send("c")
    assert again == first
    assert bench.bodies() == ["a", "b", "c"]


def test_the_same_key_holds_across_subjects_and_queues(bench: Bench) -> None:
    bench.deployment.subjects.put("a", queues=4)

    def send() -> list[object]:
        batch = [AddressedMessage(body=str(n), subject="ab"[n % 2], key=str(n)) for n in range(10)]
        return list(bench.deployment.produce_many(batch, KEY))

    first = send()
    bench.deployment.subjects.put("a", queues=8)
    assert send() == first
    assert sorted(bench.bodies(subject="a")) == ["0", "2", "4", "6", "8"]


def test_the_same_key_with_other_content_is_refused(bench: Bench) -> None:
    bench.deployment.produce("orders", [NewMessage(body="a")], KEY)
    with pytest.raises(Conflict, match="other content"):
        bench.deployment.produce("orders", [NewMessage(body="b")], IdempotencyKey("once", b"another"))
    assert bench.bodies() == ["a"]


def test_a_key_is_remembered_for_ten_minutes_and_then_free(bench: Bench) -> None:
    bench.deployment.produce("orders", [NewMessage(body="a")], KEY)
    bench.clock.pass_time(IDEMPOTENCY_MS / 1_000 - 1)
    bench.deployment.produce("orders", [NewMessage(body="a")], KEY)
    bench.clock.pass_time(2)
    bench.deployment.produce("orders", [NewMessage(body="b")], IdempotencyKey("once", b"another"))
    assert bench.bodies() == ["a", "b"]


def test_a_key_belongs_to_its_subject(bench: Bench) -> None:
    for subject in ("a", "b"):
        bench.deployment.produce(subject, [NewMessage(body=subject)], KEY)
    assert bench.bodies(subject="b") == ["b"]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_a_repeat_after_its_subject_was_deleted_is_refused_and_makes_none(
    bench: Bench, cached: bool, many: bool
) -> None:
    other = Bench(bench.store, bench.blobs, bench.clock)

    def send(body: str, key: IdempotencyKey) -> object:
        if many:
            return other.deployment.produce_many([AddressedMessage(subject="orders", body=body)], key)
        return other.deployment.produce("orders", [NewMessage(body=body)], key)

    send("a", KEY)
    (bench if cached else other).deployment.subjects.delete("orders")
    with pytest.raises(Conflict, match="deleted since") as refused:
        send("a", KEY)
    assert refused.value.slug == "subject-deleted"
    with pytest.raises(NotFound):
        bench.deployment.subjects.get("orders")
    send("b", IdempotencyKey("another", b"digest"))
    with pytest.raises(Conflict, match="deleted since"):
        send("a", KEY)
    with pytest.raises(Conflict, match="other content"):
        send("c", IdempotencyKey("once", b"another"))
    assert bench.bodies() == ["b"]


def test_a_repeat_leaves_no_hole_that_readers_wait_for(bench: Bench) -> None:
    for _ in range(2):
        bench.deployment.produce("orders", [NewMessage(body="a")], KEY)
    bench.send("b")
    assert bench.bodies() == ["a", "b"]


def test_a_subject_deleted_while_its_settings_are_cached_is_made_again(bench: Bench) -> None:
    stale = Bench(bench.store, bench.blobs, bench.clock)
    stale.send("old")
    bench.deployment.subjects.delete("orders")
    stale.send("new")
    assert bench.bodies() == ["new"]


def test_a_batch_that_is_half_stored_when_a_subject_is_deleted_is_not_begun_anew() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("refunds")

    class Deleted(CallByCall):
        """The subject of the second part is deleted, and a reader fills its row."""

        def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
            if key.partition == "refunds~1/0" and not bench.deployment.context.log(key.partition).totals().sealed:
                bench.deployment.subjects.delete("refunds")
                bench.deployment.context.log(key.partition).abandon(
                    Reservation(key.partition, 0, 0), from_record(record)
                )
            return super().put(key, record, expect=expect)

    other = Bench(Deleted(bench.store), bench.blobs, bench.clock)
    both = [AddressedMessage(subject=subject, body="a") for subject in ("orders", "refunds")]
    with pytest.raises(Unavailable, match="send the batch again"):
        other.deployment.produce_many(both)
    assert bench.bodies() == ["a"]


@pytest.fixture
def cut_off() -> Bench:
    """Returns a keyed batch of a subject with a short retention whose writer got no further than its key."""
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.deployment.groups.put("orders", "billing")
    put = store.put

    def lost(key, record, *, expect):
        if key.table is Table.CONSUME:
            raise Unavailable("cut off")
        return put(key, record, expect=expect)

    store.put = lost
    with pytest.raises(Unavailable):
        bench.deployment.produce("orders", [NewMessage(body="a")], KEY)
    store.put = put
    return bench


def taken(bench: Bench) -> list[str | None]:
    """Pulls and settles the messages, and returns them."""
    pulls = bench.pull()
    for pull in pulls:
        bench.settle(pull)
    return [one.body for pull in pulls for one in pull.messages]


def test_a_batch_that_is_stored_by_a_late_repeat_is_retained_from_then_on(cut_off: Bench) -> None:
    cut_off.clock.pass_time(70)
    first = cut_off.deployment.produce("orders", [NewMessage(body="a")], KEY)
    assert taken(cut_off) == ["a"]
    cut_off.clock.pass_time(70)
    assert cut_off.deployment.produce("orders", [NewMessage(body="a")], KEY) == first
    assert taken(cut_off) == []


def test_a_batch_whose_place_was_filled_and_passed_by_the_sweeper_is_stored_by_its_repeat(cut_off: Bench) -> None:
    cut_off.send("b")
    cut_off.clock.pass_time(2)
    assert taken(cut_off) == ["b"]
    cut_off.clock.pass_time(70)
    cut_off.deployment.sweeper.sweep()
    cut_off.deployment.produce("orders", [NewMessage(body="a")], KEY)
    assert taken(cut_off) == ["a"]


def test_a_batch_that_was_stored_and_has_expired_is_not_stored_again_by_its_repeat(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    first = bench.deployment.produce("orders", [NewMessage(body="a")], KEY)
    assert taken(bench) == ["a"]
    bench.clock.pass_time(70)
    bench.deployment.sweeper.sweep()
    assert bench.deployment.produce("orders", [NewMessage(body="a")], KEY) == first
    bench.deployment.seeks().seek("orders", "billing", to="start")
    assert taken(bench) == []
    assert bench.store.scan(Table.CONSUME, "orders~1/0", limit=9) == []
