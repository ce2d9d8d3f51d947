"""Lets callers that wait at the same time share requests, as the commits of a database share a sync.

A caller that finds room among the requests of its subject sends at once, on its own thread. The callers that come
during a request wait. When the request ends, its caller wakes one of them, the leader, whose thread sends the batches
of all that wait by then. So no batch lingers for others, and no other thread stands between a caller and its request.

A single message of one of 16 threads takes 41 us of the client's CPU, and took 135 with a request for each. A thread
that sends for all would cost a lone caller two changes of threads, and a linger would delay it. Batches keep the
outcome of their own: where a request is refused for one message, the others are sent again without its batch.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence

from hourwheel.client.errors import DeliveryTimeout
from hourwheel.client.producing.outgoing import NOT_ACCEPTED, NOT_SENT, OutgoingRequest, RequestContext
from hourwheel.client.records.messages import Message, SendResult
from hourwheel.locks import gives_back

_MOST_UNDER_WAY = 2  # for each subject: while the server stores one request, the client makes the next
_WORTH_MESSAGES = 100  # a second request under way has at least this many: smaller ones cost less as one

# A leader gathers at most this long: the time in which threads take up their answers and send again. It rarely takes so
# long, because the last caller to come ends it.
_GATHER_SECONDS = 0.0005
_GATHER_SECONDS_EACH = 0.0001
_PAUSES_AFTER_VAIN = 16  # if callers never come back, only one request in 17 waits for them in vain


class CallerBatch:
    """The batch of a caller that waits for its outcome.

    The caller waits at the lock ``turn``. It is released when the caller has to act, because the batch is done or the
    caller becomes the leader of a request.
    """

    __slots__ = (
        "counted",
        "done",
        "error",
        "give_up_at",
        "leads",
        "messages",
        "request",
        "results",
        "shared_by",
        "size_bytes",
        "turn",
    )

    def __init__(self, messages: Sequence[Message], size_bytes: int, give_up_at: float) -> None:
        self.messages = messages
        self.size_bytes = size_bytes
        self.give_up_at = give_up_at
        self.done = False
        self.results: Sequence[SendResult] = ()
        self.error: Exception | None = None
        self.leads = False
        self.counted = False  # among the requests that are under way
        self.request: OutgoingRequest[CallerBatch] | None = None  # the one that a leader goes on with (None: a new one)
        self.turn: threading.Lock | None = None
        self.shared_by = 1  # of a leader: the callers of its request

    def accept(self, results: Sequence[SendResult]) -> None:
        if not self.done:
            self.results = results
            self._finish()

    def fail(self, error: Exception) -> None:
        if not self.done:
            self.error = error
            self._finish()

    def _finish(self) -> None:
        self.done = True
        if not self.leads and self.turn is not None:
            self.turn.release()


class _SubjectCallers:
    """The callers of one subject. ``waiting`` holds the batches that no request has taken.

    A leader *gathers*: callers that just got their answers often send again at once, and would come a moment too late
    for the next request. The leader waits for them for that moment, unless leaders did so in vain lately.
    """

    __slots__ = (
        "arrived",
        "expects",
        "gather_until",
        "gathering_leaders",
        "pauses",
        "under_way",
        "waiting",
        "waiting_messages",
    )

    def __init__(self) -> None:
        self.under_way = 0
        self.waiting: deque[CallerBatch] = deque()
        self.waiting_messages = 0
        self.arrived = 0
        self.expects = 0  # the value of ``arrived`` once the callers that got the last answer are back
        self.gather_until = 0.0
        self.gathering_leaders: list[_CallerWaiter] = []
        self.pauses = 0  # this many of the next leaders do not gather

    def room_for(self, messages: int) -> bool:
        """Returns whether another request may be sent, with this many messages and those that wait."""
        worth_it = self.waiting_messages + messages >= _WORTH_MESSAGES
        return self.under_way < (_MOST_UNDER_WAY if worth_it else 1)

    def arrive(self) -> None:
        self.arrived += 1
        for waiter in self.gathering_leaders:
            if self.arrived == waiter.count:
                waiter.lock.release()

    def wait(self, batch: CallerBatch) -> None:
        self.waiting.append(batch)
        self.waiting_messages += len(batch.messages)

    def leave(self, batch: CallerBatch) -> bool:
        """Removes a batch from those that wait. Returns whether it was there."""
        if batch not in self.waiting:
            return False
        self.waiting.remove(batch)
        self.waiting_messages -= len(batch.messages)
        return True

    def answered(self, callers: int) -> None:
        self.expects = self.arrived + callers
        self.gather_until = time.monotonic() + _GATHER_SECONDS + callers * _GATHER_SECONDS_EACH

    def gathering(self) -> "_CallerWaiter | None":
        """Returns the lock at which a leader waits for callers before it sends; None if it sends at once."""
        if self.arrived >= self.expects or time.monotonic() >= self.gather_until:
            return None
        if self.pauses:
            self.pauses -= 1
            return None
        waiter = _CallerWaiter(self.expects)
        self.gathering_leaders.append(waiter)
        return waiter

    def end_gathering(self, waiter: "_CallerWaiter") -> None:
        self.gathering_leaders.remove(waiter)
        if self.arrived < waiter.count:
            self.pauses = _PAUSES_AFTER_VAIN


class _CallerWaiter:
    """The lock at which a leader waits until ``count`` callers have arrived."""

    __slots__ = ("count", "lock")

    def __init__(self, count: int) -> None:
        self.count = count
        self.lock = threading.Lock()
        self.lock.acquire()

    def wait(self, until: float) -> None:
        self.lock.acquire(timeout=max(0.0, until - time.monotonic()))


class SharedSends:
    """Sends the batches of callers that wait. Thread-safe.

    A request takes up to ``most_messages`` and ``most_bytes`` of several callers. A batch of that size is sent alone,
    and at once.
    """

    def __init__(self, context: RequestContext, *, most_messages: int, most_bytes: int) -> None:
        self._context = context
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._lock = threading.RLock()
        self._subjects: dict[str, _SubjectCallers] = {}

    def send(
        self, subject: str, messages: Sequence[Message], size_bytes: int, timeout_seconds: float
    ) -> list[SendResult]:
        """Returns the results once the batch is durable. Raises ``AnswerError``, ``DeliveryTimeout`` or ``Closed``."""
        batch = CallerBatch(messages, size_bytes, time.monotonic() + timeout_seconds)
        try:
            if self._join(subject, batch) or self._wait(subject, batch):
                self._run(subject, batch)
        finally:
            try:
                self._leave(subject, batch)
            except BaseException:
                self._leave(subject, batch)  # an interrupt cut it off
                raise
        if batch.error is not None:
            raise batch.error
        return list(batch.results)

    @gives_back
    def _join(self, subject: str, batch: CallerBatch) -> bool:
        """Returns True if the caller has to send its batch at once. Otherwise adds the batch to those that wait."""
        with self._lock:
            callers = self._subjects.get(subject)
            if callers is None:
                callers = self._subjects[subject] = _SubjectCallers()
            callers.arrive()
            if self._alone(batch) or callers.room_for(len(batch.messages)):
                callers.under_way += 1
                batch.counted = batch.leads = True
                return True
            batch.turn = threading.Lock()
            batch.turn.acquire()
            callers.wait(batch)
            return False

    def _alone(self, batch: CallerBatch) -> bool:
        """Returns whether the batch is sent alone: no other fits beside it, or it is empty, which the server
        refuses."""
        count = len(batch.messages)
        return not count or count >= self._most_messages or batch.size_bytes >= self._most_bytes

    @gives_back
    def _wait(self, subject: str, batch: CallerBatch) -> bool:
        """Waits until the batch is done, its time is over, or the caller becomes a leader. Returns whether it leads."""
        assert batch.turn is not None
        left_seconds = batch.give_up_at - time.monotonic()
        if not batch.turn.acquire(timeout=max(0.0, min(left_seconds, threading.TIMEOUT_MAX))):
            with self._lock:
                if not batch.leads and not batch.done:
                    batch.error = self._given_up(subject, batch)
        return batch.leads

    def _given_up(self, subject: str, batch: CallerBatch) -> DeliveryTimeout:
        """Removes the batch from those that wait, and returns the error for its caller. A request that has taken the
        batch goes on for the other callers."""
        batch.done = True
        if self._subjects[subject].leave(batch):
            return DeliveryTimeout(NOT_SENT)
        return DeliveryTimeout(NOT_ACCEPTED)

    def _run(self, subject: str, batch: CallerBatch) -> None:
        if batch.request is None:
            batches = [batch]
            batch.request = OutgoingRequest(self._context, subject, batches)
            if not self._alone(batch):
                self._gather(subject, batches)
                batch.shared_by = len(batches)
        batch.request.run(batch)

    @gives_back
    def _gather(self, subject: str, batches: list[CallerBatch]) -> None:
        """Adds to ``batches``, which has that of the leader, the waiting batches that fit into the same request."""
        with self._lock:
            callers = self._subjects[subject]
            waiter = callers.gathering()
        if waiter is not None:
            try:
                waiter.wait(callers.gather_until)
            finally:
                with self._lock:
                    callers.end_gathering(waiter)
        with self._lock:
            self._take(callers, batches)

    def _take(self, callers: _SubjectCallers, batches: list[CallerBatch]) -> None:
        messages, size_bytes = len(batches[0].messages), batches[0].size_bytes
        while callers.waiting:
            following = callers.waiting[0]
            count = len(following.messages)
            messages += count
            size_bytes += following.size_bytes
            if messages > self._most_messages or size_bytes > self._most_bytes:
                break
            # Without a call, behind which an interrupt could come: the batch is in one list, and only in one.
            batches += [following]
            del callers.waiting[0]
            callers.waiting_messages -= count

    @gives_back
    def _leave(self, subject: str, batch: CallerBatch) -> None:
        """Ends the part of a caller, also after an interrupt such as Ctrl-C: hands the request that it leads to another
        caller, or removes its batch from those that wait. If an interrupt cuts it off, a second call does the rest:
        changes that belong together have no call between them, behind which an interrupt could come."""
        if batch.done and not batch.leads:
            return
        with self._lock:
            callers = self._subjects.get(subject)
            if batch.leads and callers is not None:
                batch.done = True  # so that it does not become the leader again
                self._pass_on(subject, callers, batch)
            elif callers is not None:
                callers.leave(batch)
            batch.done = True

    def _pass_on(self, subject: str, callers: _SubjectCallers, leader: CallerBatch) -> None:
        """Makes another caller the leader: one whose batch is in the same request; if none is left, one that waits for
        the next request."""
        request = leader.request
        heir = next(request.unfinished(), None) if request is not None else None
        if heir is not None:
            assert heir.turn is not None
            leader.leads = leader.counted = False
            heir.leads, heir.counted, heir.request = True, True, request
            heir.turn.release()
            return
        callers.answered(leader.shared_by)
        if leader.counted:
            callers.under_way -= 1
            leader.counted = False
        if callers.waiting and callers.room_for(0):
            self._begin_next(callers)
        elif not callers.under_way and leader.shared_by == 1:
            del self._subjects[subject]
        leader.leads = False

    @staticmethod
    def _begin_next(callers: _SubjectCallers) -> None:
        """Makes the caller that has waited longest the leader of a new request."""
        heir = callers.waiting[0]
        count = len(heir.messages)
        assert heir.turn is not None
        del callers.waiting[0]
        callers.waiting_messages -= count
        callers.under_way += 1
        heir.leads = heir.counted = True
        heir.turn.release()
