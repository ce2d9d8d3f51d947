"""Lets tasks that send at the same time share requests.

The messages of one subject are sent in their order: one request of them is under way at a time. Each request takes the
batches that came while the request before was under way, so no batch lingers for others.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence

from hourwheel.client.errors import AnswerError, DeliveryTimeout, ServerFault
from hourwheel.client.producing.outgoing import NOT_ACCEPTED, NOT_SENT, OutgoingRequest, RequestContext
from hourwheel.client.records.messages import Message, SendResult
from hourwheel.client.transport.steps import awaited
from hourwheel.wire.words import counted, shown

_log = logging.getLogger("hourwheel.client")

_LONGEST_TIMER_SECONDS = 86_400.0  # event loops refuse an infinite time; the timer is set anew when it ends


class AwaitedBatch:
    """The batch of a task that awaits its outcome."""

    __slots__ = ("future", "give_up_at", "messages", "size_bytes", "subject", "taken")

    def __init__(self, subject: str, messages: Sequence[Message], size_bytes: int, give_up_at: float) -> None:
        self.subject = subject
        self.messages = messages
        self.size_bytes = size_bytes
        self.give_up_at = give_up_at
        self.taken = False
        """Whether a request has taken the batch, so that it may be stored."""
        self.future: asyncio.Future[Sequence[SendResult]] = asyncio.get_running_loop().create_future()

    @property
    def done(self) -> bool:
        return self.future.done()

    def accept(self, results: Sequence[SendResult]) -> None:
        if not self.future.done():
            self.future.set_result(results)
        elif self.future.cancelled():
            _log.info(
                "%s of a cancelled send stored in %s: the first has the id %s",
                counted(len(results), "message"),
                self.subject,
                shown(results[0].id),
            )

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def cancelled_note(self) -> str:
        """Returns the note for the ``CancelledError`` of a task: whether its messages are stored, or may be."""
        if not self.future.cancelled():
            error = self.future.exception()
            if error is None:
                return "the messages are stored"
            # A refusal stores nothing; a ``ServerFault`` is an answer whose meaning is not known.
            if isinstance(error, AnswerError) and not isinstance(error, ServerFault):
                return "the messages were not stored"
        return "the messages may be stored or not" if self.taken else "the messages were not sent"


class _Subject:
    """Holds the batches of one subject, and the task that sends them."""

    __slots__ = ("deadline", "task", "under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[AwaitedBatch] = deque()
        self.under_way: list[AwaitedBatch] = []
        self.task: asyncio.Task[None] | None = None
        self.deadline: asyncio.TimerHandle | None = None

    def batches(self) -> Iterator[AwaitedBatch]:
        yield from self.under_way
        yield from self.waiting


class AsyncSharedSends:
    """Sends the batches of tasks. A request takes up to ``most_messages`` and ``most_bytes`` of several tasks."""

    def __init__(self, context: RequestContext, *, most_messages: int, most_bytes: int) -> None:
        self._context = context
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._subjects: dict[str, _Subject] = {}

    async def send(self, batch: AwaitedBatch) -> Sequence[SendResult]:
        """Returns the results once the batch is durable. Raises ``AnswerError``, ``DeliveryTimeout`` or ``Closed``.

        A cancelled task takes its batch back if no request has it yet. Otherwise the request goes on: a note of the
        ``CancelledError`` says that the messages may be stored, and a line of the log says so once they are.
        """
        subject = self._subjects.get(batch.subject)
        if subject is None:
            subject = self._subjects[batch.subject] = _Subject()
        subject.waiting.append(batch)
        if subject.task is None:
            subject.task = asyncio.get_running_loop().create_task(self._run(batch.subject, subject))
        try:
            return await batch.future
        except asyncio.CancelledError as error:
            if not batch.taken and batch in subject.waiting:
                subject.waiting.remove(batch)
            error.add_note(batch.cancelled_note())
            raise

    def outstanding(self) -> list[AwaitedBatch]:
        """Returns the batches that are not done, those of each subject in order."""
        return [batch for subject in self._subjects.values() for batch in subject.batches() if not batch.done]

    async def abandon(self) -> None:
        """Cuts the requests under way, and waits until their tasks have ended."""
        tasks = [subject.task for subject in self._subjects.values() if subject.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str, subject: _Subject) -> None:
        try:
            while subject.waiting:
                subject.under_way = self._cut(subject.waiting)
                self._watch(subject)
                await awaited(OutgoingRequest(self._context, name, subject.under_way).sending())
                subject.under_way = []
                await asyncio.sleep(0)  # tasks with a new answer often send again at once: they join the next request
        finally:
            subject.task = None
            if subject.deadline is not None:
                subject.deadline.cancel()
            if self._subjects.get(name) is subject:
                del self._subjects[name]

    def _cut(self, waiting: deque[AwaitedBatch]) -> list[AwaitedBatch]:
        batches: list[AwaitedBatch] = []
        messages = size_bytes = 0
        while waiting:
            messages += len(waiting[0].messages)
            size_bytes += waiting[0].size_bytes
            # The server refuses an empty batch. Sent alone, it does not fail the batches of others.
            alone = not messages or not waiting[0].messages
            if batches and (alone or messages > self._most_messages or size_bytes > self._most_bytes):
                break
            waiting[0].taken = True
            batches.append(waiting.popleft())
            if alone:
                break
        return batches

    def _watch(self, subject: _Subject) -> None:
        """Sets the timer for the batch whose time is over first, unless a timer is set."""
        if subject.deadline is None:
            first = min((batch.give_up_at for batch in subject.batches() if not batch.done), default=None)
            if first is not None:
                loop = asyncio.get_running_loop()
                delay = min(max(0.0, first - time.monotonic()), _LONGEST_TIMER_SECONDS)
                subject.deadline = loop.call_later(delay, self._expire, subject)

    def _expire(self, subject: _Subject) -> None:
        """Fails the batches whose time is over. A request that holds such a batch goes on for the other ones."""
        subject.deadline = None
        now = time.monotonic()
        for batch in subject.batches():
            if now >= batch.give_up_at:
                batch.fail(DeliveryTimeout(NOT_ACCEPTED if batch.taken else NOT_SENT))
        self._watch(subject)
