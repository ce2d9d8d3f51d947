"""A queue in memory serves the client's own producers and consumers, with a clock that the test moves, and asserts
about them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from hourwheel.client import Api, BadRequest, Consumer, Delivery, Message, Producer, Reject, Retry, RetryPolicy
from hourwheel.testing import Queue

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue(now=NOON) as queue:
        yield queue


class Order(msgspec.Struct):
    number: int


def test_code_that_makes_its_own_clients_works_on_the_queue_by_its_url(queue: Queue) -> None:
    with Producer(queue.url, subject="orders") as producer:
        producer.send("one")
        producer.send_batch([Message("two", key="k")])
    with Api(queue.url) as api:
        api.put_group("orders", "billing")
        assert api.lag("orders", "billing").waiting == 2
    seen: list[str | bytes] = []
    consumer = Consumer(queue.url, "orders", "billing", concurrency=8)
    consumer.handler(lambda message: seen.append(message.body))
    consumer.run()  # ends when nothing is left
    assert seen == ["one", "two"]


def test_a_url_of_the_settings_may_name_the_queue() -> None:
    with Queue(url="http://127.0.0.1:7420"):
        assert Producer(subject="orders").send("paid").result().offset == 0
        with pytest.raises(ValueError, match="another queue in memory has the URL"):
            Queue(url="http://127.0.0.1:7420/")
    with Queue(url="http://127.0.0.1:7420") as another:
        another.assert_nothing_sent("orders")


def test_a_loop_ends_when_nothing_is_left_and_settles_what_it_handed_out(queue: Queue) -> None:
    queue.producer("orders").send_batch(["one", "two"])
    with queue.consumer("orders", "billing") as messages:
        assert [message.body for message in messages] == ["one", "two"]
    with queue.consumer("orders", "billing") as messages:
        assert list(messages) == []
    assert queue.api.lag("orders", "billing").in_flight == 0


def test_a_delayed_message_comes_at_its_time_and_not_before(queue: Queue) -> None:
    seen: list[datetime] = []
    queue.consumer("trials", "mails").handler(lambda message: seen.append(queue.now))
    queue.producer("trials").send("your trial ends", delay="90d")
    assert queue.advance(days=90, seconds=-0.001) == 0
    assert [message.due_at for message in queue.scheduled("trials")] == [NOON + timedelta(days=90)]
    assert queue.advance(timedelta(milliseconds=1)) == 1
    assert seen == [NOON + timedelta(days=90)]
    assert queue.scheduled("trials") == []


def test_what_handlers_send_on_the_way_falls_due_on_the_way(queue: Queue) -> None:
    producer, days = queue.producer("chain"), list[float]()

    @queue.consumer("chain", "steps").handler
    def step(message: Delivery) -> None:
        days.append((queue.now - NOON) / timedelta(days=1))
        if len(days) < 4:
            producer.send("next", delay="30d")

    producer.send("first")
    assert queue.run() == 1
    assert queue.advance(days=365) == 3
    assert days == [0, 30, 60, 90]
    assert queue.now == NOON + timedelta(days=365)


@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
def test_a_handler_that_keeps_sending_does_not_keep_out_what_failed(queue: Queue, ordered: bool) -> None:
    producer, seen = queue.producer("chain"), list[str]()
    queue.api.put_group("chain", "steps", ordered=ordered, max_attempts=100)
    consumer = queue.consumer("chain", "steps", max_messages=1)

    @consumer.handler
    def step(message: Delivery) -> None:
        seen.append(str(message.body))
        if message.body == "bad" and message.attempt <= 20:
            raise Retry(delay=0)
        if message.body != "bad" and len(seen) < 100:
            producer.send(f"new {len(seen)}", key=f"k{len(seen)}")

    producer.send_batch([Message("bad", key="bad"), Message("new 0", key="k")])
    queue.run()
    assert seen[:42].count("bad") in range(19, 22), "every second message is a retry while both wait"
    assert seen[-1].startswith("new")


def test_messages_of_one_batch_that_are_due_at_different_times_come_in_their_order(queue: Queue) -> None:
    seen: list[tuple[str | bytes, timedelta]] = []
    queue.consumer("orders", "billing").handler(lambda message: seen.append((message.body, queue.now - NOON)))
    queue.producer("orders").send_batch([Message(str(minutes), delay=60 * minutes) for minutes in (50, 5, 20, 700, 0)])
    queue.advance(days=1)
    assert seen == [(str(minutes), timedelta(minutes=minutes)) for minutes in (0, 5, 20, 50, 700)]


def test_a_failing_message_is_retried_at_its_time_and_given_up_after_its_last_attempt(queue: Queue) -> None:
    attempts: list[tuple[int, float]] = []
    queue.api.put_group("orders", "billing", max_attempts=3, retry=RetryPolicy(delays_seconds=(10, 60)))

    @queue.consumer("orders", "billing").handler
    def fail(message: Delivery) -> None:
        attempts.append((message.attempt, (queue.now - NOON).total_seconds()))
        raise RuntimeError("not today")

    queue.producer("orders").send("paid")
    queue.advance(minutes=5)
    assert attempts == [(1, 0), (2, 10), (3, 70)]
    assert [(letter.body, letter.reason) for letter in queue.dead("orders", "billing")] == [("paid", "attempts")]
    assert [str(error) for error in queue.errors] == ["not today"] * 3


def test_the_error_of_an_attempt_is_shown_to_the_next_one_and_by_the_dead_letter(queue: Queue) -> None:
    seen: list[str | None] = []
    queue.api.put_group("orders", "billing", max_attempts=3, retry=RetryPolicy(delays_seconds=(0, 60)))

    @queue.consumer("orders", "billing").handler
    def fail(message: Delivery) -> None:
        seen.append(message.detail)
        raise RuntimeError(f"attempt {message.attempt}\nfailed")

    queue.producer("orders").send("paid")
    queue.advance(minutes=5)
    assert seen == [None, "RuntimeError: attempt 1", "RuntimeError: attempt 2"]
    (letter,) = queue.dead("orders", "billing")
    assert (letter.reason, letter.detail) == ("attempts", "RuntimeError: attempt 3")
    (group,) = queue.api.trace("orders", "0:0").messages[0].groups
    assert [event.detail for event in group.events if event.event == "retried"] == seen[1:]


def test_retry_and_reject_decide_as_they_do_on_a_server(queue: Queue) -> None:
    @queue.consumer("orders", "billing").handler
    def bill(order: Order, message: Delivery) -> None:
        if order.number == 1:
            raise Reject("the order is empty")
        if message.attempt == 1:
            raise Retry("the bank is closed", delay="1h")

    queue.producer("orders").send_batch([Order(1), Order(2), "paid"])
    assert queue.run() == 3
    assert queue.advance(minutes=59) == 0
    assert queue.advance(minutes=1) == 1
    misfit = "the body does not fit Order: the body is not JSON in UTF-8 (byte 0)"
    assert [letter.detail for letter in queue.dead("orders", "billing")] == ["the order is empty", misfit]
    assert queue.errors == []


def test_a_batch_handler_gets_what_is_there(queue: Queue) -> None:
    lists: list[list[Order]] = []
    consumer = queue.consumer("orders", "billing", max_messages=2)

    @consumer.batch_handler
    def bill(orders: list[Order]) -> None:
        lists.append(orders)

    queue.producer("orders").send_batch([Order(1), Order(2), Order(3)])
    queue.run()
    assert lists == [[Order(1), Order(2)], [Order(3)]]


def test_an_ordered_group_serves_a_failed_message_before_those_behind_it(queue: Queue) -> None:
    seen: list[str | bytes] = []
    queue.api.put_group("orders", "ledger", ordered=True)

    @queue.consumer("orders", "ledger").handler
    def book(message: Delivery) -> None:
        seen.append(message.body)
        if message.body == "a1" and message.attempt == 1:
            raise Retry("later", delay=10)

    queue.producer("orders").send_batch([Message(body, key=body[0]) for body in ("a1", "a2", "b1")])
    queue.run()
    assert seen == ["a1", "b1"]
    queue.advance(seconds=10)
    assert seen == ["a1", "b1", "a1", "a2"]


def test_an_assertion_that_fails_in_a_handler_fails_the_test(queue: Queue) -> None:
    @queue.consumer("orders", "billing").handler
    def bill(message: Delivery) -> None:
        assert message.body == "unpaid"

    queue.producer("orders").send("paid")
    with pytest.raises(AssertionError):
        queue.run()


def test_a_handler_that_exits_ends_the_run(queue: Queue) -> None:
    @queue.consumer("orders", "billing").handler
    def bill(message: Delivery) -> None:
        raise SystemExit(3)

    queue.producer("orders").send("paid")
    with pytest.raises(SystemExit):
        queue.run()


def test_handlers_that_never_come_to_an_end_are_stopped(queue: Queue) -> None:
    producer = queue.producer("orders")
    queue.consumer("orders", "billing").handler(lambda message: producer.send("again"))
    producer.send("first")
    with pytest.raises(RuntimeError, match="does one send to its own subject without a delay"):
        queue.run(at_most=20)


def test_what_was_sent_is_asserted_by_body_and_fields(queue: Queue) -> None:
    queue.producer("orders").send(Order(7), key="customer-42", tags=["eu"], delay="1h")
    found = queue.assert_sent("orders", {"number": 7}, key="customer-42", due_at=NOON + timedelta(hours=1))
    assert (found.json(), found.tags, found.sent_at) == ({"number": 7}, ["eu"], NOON)
    assert queue.assert_sent("orders", Order(7)) == queue.assert_sent("orders") == queue.sent("orders")[0]
    with pytest.raises(AssertionError, match=r"no message body='paid' was sent to orders, but:\n  Sent\(body="):
        queue.assert_sent("orders", "paid")
    with pytest.raises(AssertionError, match="no message key='k' was sent to bills, but: nothing"):
        queue.assert_sent("bills", key="k")
    with pytest.raises(AssertionError, match="sent to orders:"):
        queue.assert_nothing_sent("orders")


def test_a_cancelled_or_moved_message_is_scheduled_no_more_or_at_its_new_time(queue: Queue) -> None:
    first, second = queue.producer("orders").send_batch([Message("a", delay="10m"), Message("b", delay="10m")])
    assert queue.api.cancel(first.scheduled_id or "").state == "cancelled"
    assert queue.api.reschedule(second.scheduled_id or "", delay="2h").state == "moved"
    assert [(message.body, message.due_at) for message in queue.scheduled("orders")] == [
        ("b", queue.now + timedelta(hours=2))
    ]


def test_a_lease_that_ends_while_time_passes_is_lost(queue: Queue) -> None:
    queue.producer("orders").send("paid")
    attempts = list[int]()
    with queue.consumer("orders", "billing", lease_seconds=30) as messages:
        for message in messages:
            attempts.append(message.attempt)
            if message.attempt == 2:
                break
            queue.advance(minutes=1)
        assert messages.lost_messages == 2
    assert attempts == [1, 1, 2]  # the first end of a lease counts no attempt


def test_what_a_consumer_that_died_has_leased_comes_again_when_the_lease_ends(queue: Queue) -> None:
    seen: list[tuple[int, timedelta]] = []
    queue.producer("orders").send("paid")
    queue.api.pull("orders", "billing", "killed", lease_seconds=30)
    queue.consumer("orders", "billing").handler(lambda message: seen.append((message.attempt, queue.now - NOON)))
    queue.advance(minutes=5)
    assert seen == [(1, timedelta(seconds=30))]  # at once, and the first end of a lease counts no attempt


def test_a_message_whose_second_lease_ended_comes_again_after_a_pause(queue: Queue) -> None:
    seen: list[tuple[int, timedelta]] = []
    queue.producer("orders").send("paid")
    for _ in range(2):
        queue.api.pull("orders", "billing", "killed", lease_seconds=30)
        queue.advance(seconds=30)
    queue.consumer("orders", "billing").handler(lambda message: seen.append((message.attempt, queue.now - NOON)))
    queue.advance(minutes=5)
    assert seen == [(2, timedelta(seconds=65))]  # after the first pause of the retry policy


def test_messages_of_a_consumer_that_died_come_one_by_one(queue: Queue) -> None:
    queue.producer("orders").send_batch(["one", "two", "three"])
    queue.api.pull("orders", "billing", "killed", max_messages=2, lease_seconds=30)
    queue.advance(seconds=30)
    batches = list[list[str | bytes]]()
    queue.consumer("orders", "billing", max_messages=10).batch_handler(
        lambda messages: batches.append([message.body for message in messages])
    )
    queue.run()
    assert sorted(batches) == [["one"], ["three"], ["two"]]


def test_a_refusal_is_that_of_the_server(queue: Queue) -> None:
    with pytest.raises(BadRequest, match="max_attempts must be at least 1"):
        queue.api.put_group("orders", "billing", max_attempts=0)


def test_the_clock_goes_forward_only_and_begins_with_a_zone(queue: Queue) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        queue.advance(seconds=-1)
    with pytest.raises(ValueError, match="needs a time zone"):
        Queue(now=datetime(2026, 11, 22))  # noqa: DTZ001 - the missing zone is what is tested


def test_two_runs_of_a_test_see_the_same() -> None:
    def story() -> list[object]:
        seen: list[object] = []
        with Queue(now=NOON) as queue:
            for group in ("billing", "mails"):
                queue.consumer("orders", group).handler(lambda message: seen.append((message.id, queue.now)))
            for number in range(20):
                queue.producer("orders").send(str(number), delay=number * 700)
            queue.advance(days=1)
            return [*seen, *queue.sent("orders")]

    assert story() == story()


def test_the_queue_writes_nothing_to_the_output_of_a_test(queue: Queue, capfd: pytest.CaptureFixture[str]) -> None:
    @queue.consumer("orders", "billing").handler
    def fail(message: Delivery) -> None:
        raise RuntimeError("not today")

    queue.producer("orders").send("paid")
    queue.run()
    assert capfd.readouterr().out == ""


def test_a_repeated_batch_counts_as_sent_once(queue: Queue) -> None:
    for _ in range(2):
        queue.api.produce("orders", [Message("paid"), Message("later", delay="1h")], idempotency_key="order-7")
    assert [message.body for message in queue.sent("orders")] == ["paid", "later"]


def test_messages_that_were_handed_over_long_ago_are_not_scheduled(queue: Queue) -> None:
    queue.producer("orders").send("sent", delay="1h")
    queue.producer("orders").send("waits", delay="30d")
    queue.advance(days=5)
    assert [message.body for message in queue.scheduled("orders")] == ["waits"]


def test_a_consumer_goes_on_after_its_group_was_deleted(queue: Queue) -> None:
    seen: list[str | bytes] = []
    takes = Consumer(queue.url, "orders", "billing", max_messages=1)

    @takes.handler
    def handle(message: Delivery) -> None:
        if not seen:
            with Api(queue.url) as api:
                api.delete_group("orders", "billing")
        seen.append(message.body)

    with Producer(queue.url, subject="orders") as producer:
        producer.send_batch(["paid"])
    takes.run()
    assert seen == ["paid", "paid"]
    assert takes.lost_messages == 1
