from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome
from hourwheel.client.consuming.lease_tracker import LeaseTracker
from hourwheel.client.records.compact import CompactPull, MessageBlock
from hourwheel.client.records.messages import Pull, Received
from hourwheel.model.fields import Delay
from hourwheel.model.pulls import RetryLater, Settled, Settlement

MOMENT = datetime(2026, 11, 20, 9, tzinfo=UTC)


class Book:
    """A tracker and the messages of one pull, at whatever time the test says."""

    def __init__(self, messages: int = 3) -> None:
        self.now = 0.0
        self.tracker = LeaseTracker(lease_seconds=30, linger_seconds=1.0)
        self.messages = self.open("r-1", messages)

    def open(self, receipt: str, messages: int, *, ordered: bool = False, keys: str = "") -> list[Delivery]:
        """Opens a pull. ``keys`` has a letter for each message with a key."""
        records = [
            Received(
                id=f"m-{index}", queue=0, offset=index, attempt=1, produced_at=MOMENT, key=keys[index:][:1] or None
            )
            for index in range(messages)
        ]
        pull = Pull(receipt=receipt, queue=0, lease_until=MOMENT, messages=records, ordered=ordered)
        return self.tracker.open(pull, self.now, self._decide)

    def _decide(self, delivery: Delivery, outcome: DeliveryOutcome, delay: Delay | None) -> None:
        self.tracker.decide(delivery, outcome, self.now, delay)

    def answer(self, settlements: list[Settlement], *statuses: str) -> None:
        self.tracker.answered(settlements, [Settled(status) for status in statuses], self.now)


def test_a_pull_that_is_through_goes_with_the_next_pull() -> None:
    book = Book()
    book.messages[0].ack()
    book.messages[1].ack()
    assert book.tracker.complete(book.now) == []
    book.messages[2].ack()
    assert book.tracker.complete(book.now) == [Settlement(receipt="r-1")]
    assert book.tracker.complete(book.now) == []  # it is asked, once


def test_failures_are_named_and_the_rest_is_acknowledged() -> None:
    book = Book()
    book.messages[0].dead()
    book.messages[2].retry()
    book.messages[1].ack()
    assert book.tracker.complete(book.now) == [Settlement(receipt="r-1", retry=[2], dead=[0])]


def test_a_retry_may_have_a_delay_of_its_own() -> None:
    book = Book(4)
    book.messages[3].retry(delay=timedelta(minutes=1.5))
    book.messages[0].retry(delay="10m")
    book.messages[2].retry()
    book.messages[1].retry(delay=0)
    own = {0: "10m", 1: 0, 3: 90.0}
    retry = [RetryLater(index=index, delay=own[index]) if index in own else index for index in range(4)]
    assert book.tracker.complete(book.now) == [Settlement(receipt="r-1", retry=retry)]


def test_a_bad_delay_decides_nothing() -> None:
    book = Book(1)
    with pytest.raises(ValueError, match="delay"):
        book.messages[0].retry(delay="soon")
    book.messages[0].ack()
    assert book.tracker.complete(book.now) == [Settlement(receipt="r-1")]


def test_results_that_linger_are_told_before_the_pull_is_through() -> None:
    book = Book()
    book.messages[1].ack()
    assert book.tracker.due(0.9) == []
    assert book.tracker.next_due() == 1.0
    part = book.tracker.due(1.0)
    assert part == [Settlement(receipt="r-1", ack=[1])]
    book.answer(part, "open")
    book.messages[0].retry()
    book.messages[2].retry()
    last = book.tracker.complete(book.now)
    assert last == [Settlement(receipt="r-1", ack=[], retry=[0, 2])]  # the rest is not acknowledged a second time
    book.answer(last, "settled")
    assert book.tracker.unconfirmed == 0


def test_a_full_group_learns_at_once_what_was_handled_as_it_hands_out_further_messages_for_it() -> None:
    book = Book()
    book.tracker.is_group_full = True
    book.messages[1].ack()
    assert book.tracker.next_due() == book.now
    assert book.tracker.due(book.now) == [Settlement(receipt="r-1", ack=[1])]


def test_an_ordered_group_learns_at_once_that_nothing_is_left_to_handle() -> None:
    book = Book(messages=0)
    first, second = book.open("r-2", 2, ordered=True)
    assert book.tracker.decide(first, DeliveryOutcome.ACK, book.now)
    assert book.tracker.due(book.now) == []  # it lingers for the other one
    assert book.tracker.decide(second, DeliveryOutcome.ACK, book.now)
    assert book.tracker.due(book.now) == [Settlement(receipt="r-2")]


def test_an_ordered_group_waits_for_company_while_messages_are_in_hand() -> None:
    book = Book(messages=0)
    (first,) = book.open("r-2", 1, ordered=True)
    (second,) = book.open("r-3", 1, ordered=True)
    book.tracker.decide(first, DeliveryOutcome.ACK, book.now)
    assert book.tracker.due(book.now) == []
    book.tracker.decide(second, DeliveryOutcome.ACK, book.now)
    assert book.tracker.due(book.now) == [Settlement(receipt="r-2"), Settlement(receipt="r-3")]


def test_an_ordered_group_learns_within_milliseconds_what_was_handled_while_a_handler_waits_for_a_message() -> None:
    book = Book()
    (first,) = book.open("r-2", 1, ordered=True, keys="k")
    first.ack()
    book.messages[0].ack()
    assert book.tracker.next_due() == 1.0  # the other handlers have enough to do
    assert book.tracker.idle(1)
    assert book.tracker.next_due() == pytest.approx(0.01)
    assert not book.tracker.idle(2)  # nothing changes
    assert book.tracker.due(0.02) == [Settlement(receipt="r-2")]
    assert book.tracker.next_due() == 1.0  # the messages of the unordered group wait for company
    assert not book.tracker.idle(0)
    assert not book.tracker.idle(1)


def test_an_ordered_group_learns_of_a_key_once_its_last_message_in_hand_was_handled() -> None:
    book = Book(1)
    messages = book.open("r-2", 4, ordered=True, keys="aab")
    assert not book.tracker.idle(1)
    assert book.tracker.decide(messages[0], DeliveryOutcome.ACK, 0.0)
    assert not book.tracker.decide(messages[3], DeliveryOutcome.ACK, 0.25)  # it has no key
    assert book.tracker.next_due() == 1.0  # the next message of the key is in hand
    assert book.tracker.decide(messages[1], DeliveryOutcome.RELEASE, 0.5)
    assert book.tracker.next_due() == pytest.approx(0.51)
    assert not book.tracker.decide(messages[2], DeliveryOutcome.ACK, 0.505)  # it goes with the other key
    (settlement,) = book.tracker.due(0.51)
    assert settlement == Settlement(receipt="r-2", release=[1])
    book.answer([settlement], "settled")
    assert book.tracker.next_due() == 15.0


def test_the_messages_of_a_lost_lease_hold_back_no_key() -> None:
    book = Book(1)
    book.open("r-2", 2, ordered=True, keys="ab")
    book.answer([Settlement(receipt="r-2", extend_seconds=30)], "stale")
    first, _ = book.open("r-3", 2, ordered=True, keys="ab")
    book.tracker.idle(1)
    first.ack()
    assert book.tracker.next_due() == pytest.approx(0.01)


def test_a_retry_does_not_linger_its_delay_begins_when_the_server_hears_of_it() -> None:
    book = Book()
    book.messages[1].ack()
    assert book.tracker.next_due() == 1.0
    book.messages[0].retry()
    due = book.tracker.next_due()
    assert due is not None
    assert due <= 0.1
    assert book.tracker.due(due) == [Settlement(receipt="r-1", ack=[1], retry=[0])]


def test_a_settlement_without_an_answer_is_repeated_as_it_was() -> None:
    book = Book()
    book.messages[1].ack()
    first = book.tracker.due(1.0)
    book.messages[0].ack()
    book.tracker.unanswered(first)
    again = book.tracker.due(1.0)
    assert again == first
    book.answer(again, "open")
    assert book.tracker.due(2.0) == [Settlement(receipt="r-1", ack=[0])]


def test_the_first_decision_holds() -> None:
    book = Book(1)
    book.messages[0].retry()
    book.messages[0].ack()
    assert book.tracker.complete(book.now) == [Settlement(receipt="r-1", retry=[0])]


def test_a_lease_is_extended_at_half_its_time() -> None:
    book = Book()
    assert book.tracker.next_due() == 15.0
    extension = book.tracker.due(15.0)
    assert extension == [Settlement(receipt="r-1", extend_seconds=30)]
    book.now = 15.0
    book.answer(extension, "extended")
    assert book.tracker.next_due() == 30.0


def test_a_pull_that_is_through_is_not_extended() -> None:
    book = Book(1)
    book.messages[0].ack()
    book.tracker.complete(book.now)
    assert book.tracker.due(60.0) == []


def test_a_stale_lease_loses_its_messages() -> None:
    book = Book()
    book.messages[0].ack()
    part = book.tracker.due(1.0)
    book.answer(part, "open")
    book.answer(book.tracker.due(15.0), "stale")
    assert all(message.lost for message in book.messages)
    assert book.tracker.lost_messages == 2  # one was settled before
    book.messages[1].ack()
    assert book.tracker.complete(book.now) == []
    assert book.tracker.next_due() is None


@pytest.mark.parametrize("status", ["extended", "stale"])
def test_a_stale_answer_about_a_released_message_of_an_ordered_pull_keeps_the_others_until_an_extension_tells(
    status: str,
) -> None:
    book = Book(0)
    first, behind, other = book.open("r-2", 3, ordered=True, keys="aab")
    first.retry()
    book.answer(book.tracker.due(1.0), "open")
    behind.ack()
    book.now = 3.0
    book.answer(book.tracker.due(3.0), "stale")
    extension = book.tracker.due(3.0)
    assert extension == [Settlement(receipt="r-2", extend_seconds=30)]
    book.answer(extension, status)
    assert other.lost == (status == "stale")
    assert book.tracker.lost_messages == (1 if status == "stale" else 0)
    other.ack()
    settled = [] if status == "stale" else [Settlement(receipt="r-2", ack=[2])]
    assert book.tracker.complete(book.now) == settled


def test_a_stale_settlement_counts_what_it_named_and_what_it_did_not() -> None:
    book = Book()
    for message in book.messages:
        message.ack()
    book.answer(book.tracker.complete(book.now), "stale")
    assert book.tracker.lost_messages == 3


def test_at_the_end_everything_decided_is_told_at_once() -> None:
    book = Book()
    other = book.open("r-2", 1)
    book.messages[0].ack()
    other[0].dead()
    assert book.tracker.due(0.0, ending=True) == [
        Settlement(receipt="r-1", ack=[0]),
        Settlement(receipt="r-2", dead=[0]),
    ]


@pytest.mark.parametrize("count", [1, 15, 16, 300, 70_000])
def test_messages_that_came_packed_are_decoded_when_somebody_looks(count: int) -> None:
    book = Book(1)
    stored = msgspec.msgpack.encode([{"body": str(index)} for index in range(count)])
    block = MessageBlock(messages=msgspec.Raw(stored), queue=3, offset=7, attempt=1, produced_at=MOMENT, prefix="m")
    pull = CompactPull(receipt="r-2", queue=3, lease_until=MOMENT, blocks=[block, block])
    deliveries = book.tracker.open(pull, book.now, book._decide)
    assert len(deliveries) == 2 * count
    deliveries[0].ack()
    lease = deliveries[0]._lease
    assert lease._encoded is pull
    assert [deliveries[index].body for index in (0, count - 1, count)] == ["0", str(count - 1), "0"]
    assert (deliveries[count - 1].offset, deliveries[count - 1].queue) == (count + 6, 3)
    assert lease._encoded is None


def test_many_acknowledgements_are_recorded_at_once_and_the_first_decision_holds() -> None:
    book = Book(4)
    book.messages[2].dead()
    book.tracker.acknowledged([*book.messages[:3], book.messages[0]], 0.5)
    assert book.tracker.complete(book.now) == []
    book.tracker.acknowledged(book.messages[3:], 0.7)
    assert book.tracker.complete(book.now) == [Settlement(receipt="r-1", dead=[2])]
    book.tracker.acknowledged(book.messages, 0.9)
    assert book.tracker.due(9.0) == []


def test_a_settlement_whose_cell_is_out_of_reach_is_sent_again_unchanged_with_growing_pauses() -> None:
    book = Book(2)
    for message in book.messages:
        message.ack()
    asked = book.tracker.complete(book.now)
    for pause in (0.5, 1, 2, 4, 5, 5):
        book.answer(asked, "unavailable")
        assert not book.tracker.lingering
        assert book.tracker.unconfirmed == 1
        assert book.tracker.next_due() == book.now + pause
        book.now += pause - 0.1
        assert book.tracker.complete(book.now) == book.tracker.due(book.now) == []
        assert book.tracker.due(book.now, ending=True) == []
        book.now += 0.1
        asked = book.tracker.due(book.now)
        assert asked == [Settlement(receipt="r-1")]
    book.answer(asked, "settled")
    assert (book.tracker.unconfirmed, book.tracker.lost_messages) == (0, 0)


def test_a_cell_that_is_out_of_reach_holds_up_the_settlements_of_no_other() -> None:
    book = Book(1)
    (other,) = book.open("r-2", 1)
    book.messages[0].ack()
    book.answer(book.tracker.complete(book.now), "unavailable")
    other.ack()
    assert book.tracker.lingering
    assert book.tracker.complete(book.now) == [Settlement(receipt="r-2")]


def test_an_extension_that_is_unavailable_is_repeated_and_counts_for_nothing() -> None:
    book = Book(2)
    extension = [Settlement(receipt="r-1", extend_seconds=30)]
    assert book.tracker.due(15.0) == extension
    book.now = 15.0
    book.answer(extension, "unavailable")
    assert book.tracker.next_due() == 15.5
    book.messages[0].ack()  # it waits for the cell too
    assert book.tracker.due(15.4) == []
    assert book.tracker.due(17.0) == [Settlement(receipt="r-1", ack=[0])]


def test_settlements_whose_cell_is_out_of_reach_share_requests() -> None:
    book = Book(1)
    others = [book.open(f"r-{number}", 1)[0] for number in range(2, 12)]
    for message in (*book.messages, *others):
        message.ack()
        book.answer(book.tracker.complete(book.now), "unavailable")
        book.now += 0.04
    for _ in range(9):
        due = book.tracker.next_due()
        assert due is not None
        book.now = due
        request = book.tracker.due(book.now)
        assert len(request) == 11
        book.answer(request, *["unavailable"] * 11)


def test_extensions_whose_cell_is_out_of_reach_share_requests() -> None:
    book = Book(1)
    book.now = 0.2
    book.open("r-2", 1)
    extensions = [Settlement(receipt=receipt, extend_seconds=30) for receipt in ("r-1", "r-2")]
    assert book.tracker.due(15.0) == extensions[:1]
    book.now = 15.0
    book.answer(extensions[:1], "unavailable")
    book.now = 15.2
    assert book.tracker.due(15.2) == extensions[1:]
    book.answer(extensions[1:], "unavailable")
    assert book.tracker.due(15.5) == extensions


def test_a_lease_in_a_cell_that_was_given_up_is_lost() -> None:
    book = Book(2)
    for message in book.messages:
        message.ack()
    asked = book.tracker.complete(book.now)
    book.answer(asked, "unavailable")
    book.answer(asked, "stale")
    assert (book.tracker.unconfirmed, book.tracker.next_due(), book.tracker.lost_messages) == (0, None, 2)


def test_an_outage_of_a_cell_is_logged_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    book = Book(1)
    (other,) = book.open("r-2", 1)
    for message in (*book.messages, other):
        message.ack()
    asked = book.tracker.complete(book.now)
    book.answer(asked, "unavailable", "unavailable")
    book.answer(asked, "unavailable", "unavailable")
    book.answer(asked[:1], "settled")
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "messages of a cell that is out of reach cannot be settled"
    ]
    book.answer(asked[1:], "settled")
    assert caplog.records[-1].message == "the settlements of all messages are answered again"
    assert len(caplog.records) == 2
