from concurrent.futures import Future

from hourwheel.client.producing.accumulator import Accumulator, InFlightBatch, Pending
from hourwheel.client.records.messages import Message


def accumulator() -> Accumulator:
    return Accumulator(batch_messages=3, batch_bytes=100, linger_seconds=1.0)


def message(body: str, *, at: float = 0.0, size_bytes: int = 10) -> Pending:
    return Pending(Message(body), size_bytes, Future(), at)


def bodies(batch: InFlightBatch | None) -> list[str | bytes]:
    return [] if batch is None else [pending.message.body for pending in batch.batch]


def test_a_message_lingers_for_company() -> None:
    queue = accumulator()
    assert queue.add("s", message("a"))
    assert not queue.add("s", message("b", at=0.9))
    assert queue.take(0.99) is None
    assert queue.next_due() == 1.0
    assert bodies(queue.take(1.0)) == ["a", "b"]


def test_a_full_batch_does_not_linger() -> None:
    queue = accumulator()
    looked = [queue.add("s", message(body)) for body in "abcd"]
    assert looked == [True, False, True, False]
    assert bodies(queue.take(0.0)) == ["a", "b", "c"]


def test_a_batch_is_closed_by_its_bytes() -> None:
    queue = accumulator()
    queue.add("s", message("a", size_bytes=60))
    queue.add("s", message("b", size_bytes=60))
    assert bodies(queue.take(0.0)) == ["a"]


def test_a_message_over_the_batch_size_goes_alone() -> None:
    queue = accumulator()
    queue.add("s", message("a", size_bytes=500))
    assert bodies(queue.take(0.0)) == ["a"]


def test_one_batch_of_a_subject_is_under_way_at_a_time() -> None:
    queue = accumulator()
    for body in "abcdef":
        queue.add("s", message(body))
    first = queue.take(0.0)
    assert first is not None
    assert queue.take(9.0) is None
    queue.completed(first)
    assert bodies(queue.take(0.0)) == ["d", "e", "f"]


def test_subjects_do_not_wait_for_each_other() -> None:
    queue = accumulator()
    queue.add("s", message("a"))
    queue.add("t", message("b", at=0.5))
    assert bodies(queue.take(2.0)) == ["a"]
    assert bodies(queue.take(2.0)) == ["b"]


def test_flush_ends_the_linger_of_pending_messages() -> None:
    queue = accumulator()
    for body in "abc":
        queue.add("s", message(body))
    flight = queue.take(0.0)
    assert flight is not None
    queue.add("s", message("d"))
    counts = queue.flush()
    queue.completed(flight)
    queue.add("s", message("e"))
    last = queue.take(0.0)
    assert bodies(last) == ["d", "e"]
    assert last is not None
    queue.completed(last)
    assert all(buffer.completed >= count for buffer, count in counts.items())
    assert queue.messages == queue.size_bytes == 0
