"""Messages of ``send`` share requests: the error of one does not affect the others."""

import math
import threading
import time

import pytest

from hourwheel.client import DeliveryTimeout, Message
from hourwheel.client.errors import AnswerError, TooLarge, from_answer, no_answer, problem_of
from hourwheel.client.producing.accumulator import Pending
from hourwheel.client.producing.futures import SendFuture
from hourwheel.client.producing.outgoing import OutgoingRequest, RequestContext
from hourwheel.client.transport.backoff import Outage
from tests.unit.client.ids import StillIds
from tests.unit.client.test_shared_sends import Store


def pending(body: str, *, give_up_at: float = math.inf) -> Pending:
    return Pending(Message(body), len(body), SendFuture(lambda: None), 0.0, give_up_at)


def request(store: Store, *messages: Pending) -> OutgoingRequest[Pending]:
    return OutgoingRequest(
        RequestContext(store, StillIds(), threading.Event().wait, Outage(), create=True), "orders", messages
    )


def test_a_message_whose_time_is_over_fails_alone_and_its_request_stays_as_it_was() -> None:
    store = Store()
    hasty, patient = pending("a", give_up_at=math.inf), pending("b")

    def unavailable(number: int) -> None:
        if number == 1:
            hasty.give_up_at = time.monotonic()
            raise no_answer("away", sent=True)

    store.before = unavailable
    request(store, hasty, patient).run()
    assert isinstance(hasty.future.exception(0), DeliveryTimeout)
    assert patient.future.result(0).offset == 1
    assert store.requests[0] == store.requests[1]


@pytest.mark.parametrize("sent", [True, False])
def test_a_request_says_that_an_earlier_try_may_have_stored_it(sent: bool) -> None:
    store = Store()

    def unavailable(number: int) -> None:
        if number == 1:
            raise no_answer("away", sent=sent)

    store.before = unavailable
    request(store, pending("a")).run()
    request(store, pending("b")).run()
    assert store.repeated == [False, sent, False]


def test_a_request_that_may_be_stored_is_not_sent_in_parts() -> None:
    store = Store()
    messages = pending("a"), pending("b")

    def refuse(number: int) -> None:
        if number == 1:
            raise no_answer("lost", sent=True)
        raise TooLarge(problem_of("request-too-large", "a proxy takes no more"))

    store.before = refuse
    request(store, *messages).run()
    assert len({key for key, _ in store.requests}) == len(store.requests[:1])
    for message in messages:
        error = message.future.exception(0)
        assert isinstance(error, DeliveryTimeout)
        assert "may be stored or not: " in str(error)


@pytest.mark.parametrize("status", [401, 403, 404, 409])
@pytest.mark.parametrize("bodies", ["a", "ab"])
def test_a_refusal_after_a_try_without_an_answer_does_not_say_that_nothing_is_stored(bodies: str, status: int) -> None:
    """The token may have been revoked, or the subject deleted, after the first try stored the messages."""
    store = Store()
    messages = [pending(body) for body in bodies]

    def refuse(number: int) -> None:
        if number == 1:
            raise no_answer("lost", sent=True)
        raise from_answer(status, b'{"detail": "not any more"}', retry_after=None)

    store.before = refuse
    request(store, *messages).run()
    for message in messages:
        error = message.future.exception(0)
        assert isinstance(error, DeliveryTimeout)
        assert str(error) == (
            "the messages may be stored or not: an earlier try got no answer, and the next was refused: not any more"
        )
        assert isinstance(error.__cause__, AnswerError)


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413])
def test_a_refusal_of_the_first_try_or_of_the_content_stands(status: int) -> None:
    store = Store()
    message = pending("a")

    def refuse(number: int) -> None:
        if number == 1:
            raise no_answer("away", sent=status in {400, 413})
        raise from_answer(status, b'{"detail": "no"}', retry_after=None)

    store.before = refuse
    request(store, message).run()
    assert isinstance(message.future.exception(0), AnswerError)


@pytest.mark.parametrize(("sent", "says"), [(False, "none of them is stored: "), (True, "they may be stored or not: ")])
def test_the_error_says_whether_messages_may_be_stored(sent: bool, says: str) -> None:
    store = Store()
    message = pending("a")

    def unavailable(_: int) -> None:
        message.give_up_at = time.monotonic()
        raise no_answer("away", sent=sent)

    store.before = unavailable
    request(store, message).run()
    assert says in str(message.future.exception(0))


def test_a_message_that_was_sent_once_may_be_stored_though_the_next_try_is_refused_a_connection() -> None:
    store = Store()
    message = pending("a")

    def unavailable(number: int) -> None:
        if number == 1:
            raise no_answer("lost", sent=True)
        message.give_up_at = time.monotonic()
        raise no_answer("away", sent=False)

    store.before = unavailable
    request(store, message).run()
    assert "they may be stored or not: " in str(message.future.exception(0))


def test_a_future_that_nobody_waits_for_makes_no_condition() -> None:
    message = pending("a")
    request(Store(), message).run()
    assert "_condition" not in vars(message.future)
    assert message.future.done()


def test_a_future_that_is_done_does_not_run_again() -> None:
    future = SendFuture(lambda: None)
    future.set_exception(DeliveryTimeout("late"))
    assert not future.set_running_or_notify_cancel()
    assert future.done()


def test_a_message_whose_time_was_over_before_is_not_sent() -> None:
    store = Store()
    late, timely = pending("a", give_up_at=0.0), pending("b")
    request(store, late, timely).run()
    assert isinstance(late.future.exception(0), DeliveryTimeout)
    assert store.stored == ["b"]
