"""Callers of ``send_batch`` that wait at one time share requests, and nothing else."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hourwheel.client import BadRequest, DeliveryTimeout, Message, SendResult, ServerFault
from hourwheel.client.errors import no_answer, problem_of
from hourwheel.client.producing.outgoing import RequestContext
from hourwheel.client.producing.shared_sends import CallerBatch, SharedSends
from hourwheel.client.transport.backoff import Outage
from tests.unit.client.ids import StillIds

LONG_SECONDS = 120.0


class Store:
    """Stands for ``Api``: stores messages under their key, once. ``before`` is called with each request."""

    def __init__(self) -> None:
        self.before: Callable[[int], None] = lambda number: None
        self.requests: list[tuple[str, list[str]]] = []
        self.repeated: list[bool] = []
        self.stored: list[str] = []
        self._answers: dict[str, list[SendResult]] = {}

    def produce(
        self, subject: str, messages: Sequence[Message], *, idempotency_key: str, repeated: bool = False, **_: Any
    ) -> list[SendResult]:
        bodies = [str(message.body) for message in messages]
        self.requests.append((idempotency_key, bodies))
        self.repeated.append(repeated)
        self.before(len(self.requests))
        for index, message in enumerate(messages):
            if message.key == "bad":
                raise BadRequest(problem_of("field-invalid", "bad key", status=400)) from None
            if message.key == "named":
                problem = problem_of("field-invalid", "bad key", status=400)
                problem = type(problem)(type=problem.type, status=400, field=f"messages[{index}].key")
                raise BadRequest(problem)
            if message.headers == {"not": "encodable"}:
                raise TypeError("no such type in JSON")
        if idempotency_key not in self._answers:
            start = len(self.stored)
            self.stored += bodies
            self._answers[idempotency_key] = [
                SendResult(f"m-{start + index}", 0, start + index) for index in range(len(messages))
            ]
        return self._answers[idempotency_key]


class Caller:
    """Sends one batch on a thread of its own."""

    def __init__(self, sends: SharedSends, *messages: Message, seconds: float = LONG_SECONDS) -> None:
        self.accepted: list[SendResult] | None = None
        self.error: BaseException | None = None
        self._arguments = (sends, messages, seconds)
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        sends, messages, seconds = self._arguments
        try:
            self.accepted = sends.send("orders", messages, 10 * len(messages), seconds)
        except BaseException as error:
            self.error = error

    def join(self) -> "Caller":
        self._thread.join(LONG_SECONDS)
        assert not self._thread.is_alive()
        return self

    @property
    def offsets(self) -> list[int | None]:
        assert self.accepted is not None
        return [accepted.offset for accepted in self.accepted]


class Held:
    """Holds the first request of a store, until the callers that a test wants have come."""

    def __init__(self, store: Store, sends: SharedSends) -> None:
        self._reached, self._open = threading.Event(), threading.Event()
        self._callers = lambda: sends._subjects["orders"]
        then = store.before

        def before(number: int) -> None:
            if number == 1:
                self._reached.set()
                assert self._open.wait(LONG_SECONDS)
            then(number)

        store.before = before
        self.first = Caller(sends, Message("first"))
        assert self._reached.wait(LONG_SECONDS)

    def wait_for(self, callers: int) -> None:
        while len(self._callers().waiting) < callers:
            pass

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def sends(store: Store) -> SharedSends:
    context = RequestContext(store, StillIds(), threading.Event().wait, Outage(), create=True)
    return SharedSends(context, most_messages=10, most_bytes=1_000)


def test_callers_that_wait_share_the_next_request(store: Store, sends: SharedSends) -> None:
    held = Held(store, sends)
    callers = [Caller(sends, Message(f"{name}1"), Message(f"{name}2")) for name in "abc"]
    held.wait_for(3)
    held.open()
    offsets = [caller.join().offsets for caller in (held.first, *callers)]
    assert len(store.requests) == 2
    assert [[store.stored[offset or 0] for offset in each] for each in offsets] == [
        ["first"],
        ["a1", "a2"],
        ["b1", "b2"],
        ["c1", "c2"],
    ]


def test_a_request_takes_as_many_callers_as_its_bounds_allow(store: Store, sends: SharedSends) -> None:
    held = Held(store, sends)
    callers = [Caller(sends, *[Message(name)] * 4) for name in "abc"]
    held.wait_for(3)
    held.open()
    for caller in (held.first, *callers):
        caller.join()
    assert sorted(len(bodies) for _, bodies in store.requests) == [1, 4, 8]


def test_a_batch_as_large_as_a_request_does_not_wait(store: Store, sends: SharedSends) -> None:
    held = Held(store, sends)
    assert Caller(sends, *[Message("large")] * 10).join().offsets == list(range(10))
    held.open()
    held.first.join()


@pytest.mark.parametrize("key", ["bad", "named"])
def test_a_refused_message_fails_the_batch_of_its_caller_alone_and_whole(
    store: Store, sends: SharedSends, key: str
) -> None:
    held = Held(store, sends)
    before = Caller(sends, Message("a1"), Message("a2"))
    held.wait_for(1)
    culprit = Caller(sends, Message("b1"), Message("b2", key=key))
    held.wait_for(2)
    after = Caller(sends, Message("c1"))
    held.wait_for(3)
    held.open()
    for caller in (held.first, before, culprit, after):
        caller.join()
    assert store.stored == ["first", "a1", "a2", "c1"]
    assert isinstance(culprit.error, BadRequest)
    if key == "named":
        assert culprit.error.problem.field == "messages[1].key"  # counted in the caller's own batch
        assert [len(bodies) for _, bodies in store.requests] == [1, 5, 2, 2, 1]  # nothing is searched for
    keys = [key for key, _ in store.requests]
    assert len(set(keys)) == len(keys)  # another content is another request


def test_a_message_that_cannot_be_encoded_fails_its_caller_alone(store: Store, sends: SharedSends) -> None:
    held = Held(store, sends)
    culprit = Caller(sends, Message("a", headers={"not": "encodable"}))
    held.wait_for(1)
    other = Caller(sends, Message("b"))
    held.wait_for(2)
    held.open()
    assert isinstance(culprit.join().error, TypeError)
    assert other.join().offsets == [1]
    held.first.join()


def test_a_refusal_of_all_is_told_to_all_and_not_repeated(store: Store, sends: SharedSends) -> None:
    def full(number: int) -> None:
        if number > 1:
            raise ServerFault(problem_of("volume-full", "no room is left", status=507))

    store.before = full
    held = Held(store, sends)
    callers = [Caller(sends, Message(name)) for name in "ab"]
    held.wait_for(2)
    held.open()
    held.first.join()
    assert all(isinstance(caller.join().error, ServerFault) for caller in callers)
    assert len(store.requests) == 2


def test_a_caller_that_gives_up_before_its_turn_is_not_sent(store: Store, sends: SharedSends) -> None:
    held = Held(store, sends)
    hasty = Caller(sends, Message("hasty"), seconds=0.01).join()
    patient = Caller(sends, Message("patient"))
    held.wait_for(1)
    held.open()
    assert isinstance(hasty.error, DeliveryTimeout)
    assert patient.join().offsets == [1]
    held.first.join()
    assert store.stored == ["first", "patient"]


def test_a_caller_that_gives_up_while_its_message_is_under_way_leaves_the_others_alone(
    store: Store, sends: SharedSends
) -> None:
    given_up = threading.Event()

    def slow(number: int) -> None:
        if number == 2:
            assert given_up.wait(LONG_SECONDS)

    store.before = slow
    held = Held(store, sends)
    leader = Caller(sends, Message("a"))
    held.wait_for(1)
    hasty = Caller(sends, Message("b"), seconds=0.2)
    patient = Caller(sends, Message("c"))
    held.wait_for(3)
    held.open()
    assert isinstance(hasty.join().error, DeliveryTimeout)
    given_up.set()
    assert (leader.join().offsets, patient.join().offsets) == ([1], [3])
    held.first.join()
    assert [bodies for _, bodies in store.requests] == [["first"], ["a", "b", "c"]]


def lost_answer(store: Store, then: Callable[[], None]) -> Callable[[int], None]:
    """Stores the second request, and loses its answer."""

    def before(number: int) -> None:
        if number == 2:
            key, bodies = store.requests[-1]
            store.before = lambda number: None
            store.produce("orders", [Message(body) for body in bodies], idempotency_key=key)
            then()
            raise no_answer("cut", sent=True)

    return before


def test_a_leader_whose_time_is_over_hands_its_request_on_unchanged(store: Store, sends: SharedSends) -> None:
    """Another key, or another content, would store messages twice."""
    leading: list[CallerBatch] = []
    store.before = lost_answer(store, lambda: setattr(leading[0], "give_up_at", 0.0))
    held = Held(store, sends)
    leader = Caller(sends, Message("a"))
    held.wait_for(1)
    leading.append(sends._subjects["orders"].waiting[0])
    others = [Caller(sends, Message(name)) for name in "bc"]
    held.wait_for(3)
    held.open()
    assert isinstance(leader.join().error, DeliveryTimeout)
    assert sorted(caller.join().offsets for caller in others) == [[2], [3]]
    held.first.join()
    assert sorted(store.stored) == ["a", "b", "c", "first"]
    assert store.requests[1:] == [store.requests[1]] * 3


def test_an_interrupt_of_the_leader_ends_only_its_own_call(store: Store, sends: SharedSends) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    store.before = lost_answer(store, interrupt)
    held = Held(store, sends)
    leader = Caller(sends, Message("a"))
    held.wait_for(1)
    other = Caller(sends, Message("b"))
    held.wait_for(2)
    held.open()
    assert isinstance(leader.join().error, KeyboardInterrupt)
    assert other.join().offsets == [2]
    held.first.join()
    assert store.stored == ["first", "a", "b"]
    assert (store.requests[1], store.repeated[1], store.repeated[-1]) == (store.requests[-1], False, True)
    assert Caller(sends, Message("next")).join().offsets == [3]
    assert not store.repeated[-1]


def test_the_last_caller_that_gives_up_leaves_nothing_behind(store: Store, sends: SharedSends) -> None:
    def unavailable(number: int) -> None:
        raise no_answer("away", sent=False)

    store.before = unavailable
    assert isinstance(Caller(sends, Message("a"), seconds=0.0).join().error, DeliveryTimeout)
    store.before = lambda number: None
    assert Caller(sends, Message("b")).join().offsets == [0]
    assert not sends._subjects


def test_the_messages_of_a_caller_keep_their_order_beside_others(store: Store, sends: SharedSends) -> None:
    def send_all(name: str) -> None:
        for number in range(50):
            sends.send("orders", [Message(f"{name}{number:02}")], 3, LONG_SECONDS)

    threads = [threading.Thread(target=send_all, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_SECONDS)
    assert len(store.stored) == 200
    for name in "abcd":
        own = [body for body in store.stored if body.startswith(name)]
        assert own == sorted(own)


def test_a_caller_that_comes_long_after_the_last_answer_waits_for_nobody(store: Store, sends: SharedSends) -> None:
    held = Held(store, sends)
    others = [Caller(sends, Message(name)) for name in "ab"]
    held.wait_for(2)
    held.open()
    for caller in (held.first, *others):
        caller.join()
    callers = sends._subjects["orders"]
    callers.gather_until, callers.pauses = 0.0, 0
    assert callers.arrived < callers.expects
    assert Caller(sends, Message("late")).join().offsets == [3]
    assert callers.pauses == 0  # later leaders gather as before
