"""Cancels or moves the delayed messages that a filter chooses, page by page.

Each message is changed as one that a caller names by its scheduled id: a change that is cut off is finished by the
sweeper, and a repeated call finds the message changed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hourwheel.buckets.scheduled_ids import read_scheduled_id
from hourwheel.context import Context
from hourwheel.delay.changes import Scheduled, ScheduledMessages
from hourwheel.delay.lists.delayed_list import DelayedList
from hourwheel.delay.lists.delayed_request import DelayedRequest
from hourwheel.errors import NotFound
from hourwheel.model.messages import ScheduledMessage
from hourwheel.model.pages import ChosenPage, DelayedMessage
from hourwheel.model.subjects import Subject
from hourwheel.times import parse_rfc3339

_CHANGED = 25  # messages of a call: each takes about six writes, and one that is due waits for its wheel
_PATIENCE_MS = 500  # a call of Lambda has 30 s, and each of the messages may wait this long


@dataclass(frozen=True)
class ChosenMessages:
    """The messages of a subject that wait and that ``request`` chooses. ``described`` makes the answer for one."""

    context: Context
    secret: bytes
    subject: Subject
    request: DelayedRequest
    described: Callable[[Scheduled], ScheduledMessage]

    def look(self, asked_ms: int | None) -> ChosenPage:
        """Returns a page of up to ``limit`` messages that ``change`` would change. Changes nothing."""
        page = DelayedList(self.context, self.secret, self.subject, self.request).page()
        chosen = [
            ScheduledMessage(message.scheduled_id, "waiting", message.id or "", message.subject, message.deliver_at)
            for message in self._open(page.messages, asked_ms)
        ]
        return ChosenPage(chosen, page.next)

    def change(self, asked_ms: int | None) -> ChosenPage:
        """Cancels up to 25 messages (None), or moves them to the time ``asked_ms``, and returns their states. One that
        its wheel was faster to send is ``dispatched``.

        Raises what ``ScheduledMessages.cancel`` raises. The changes before the error stand: a repeated call finds only
        the messages that are left.
        """
        request = self.request._replace(limit=min(self.request.limit, _CHANGED))
        page = DelayedList(self.context, self.secret, self.subject, request).page()
        changes = ScheduledMessages(self.context, _PATIENCE_MS)
        changed = []
        for message in self._open(page.messages, asked_ms):
            position = read_scheduled_id(self.secret, message.scheduled_id)
            try:
                answer = changes.cancel(position) if asked_ms is None else changes.reschedule(position, asked_ms)
            except NotFound:
                continue  # it was sent, and its bucket was removed
            changed.append(self.described(answer))
        return ChosenPage(changed, page.next)

    def _open(self, messages: list[DelayedMessage], asked_ms: int | None) -> Iterator[DelayedMessage]:
        """Yields the messages that may still be changed. A message that is due at the time ``asked_ms``, or that is due
        while all are moved to the present, has been moved already: the list shows it again at its new time."""
        now_ms = self.context.clock.now_ms()
        for message in messages:
            if message.state not in (None, "waiting"):
                continue
            due_ms = parse_rfc3339(message.deliver_at, "deliver_at")
            if asked_ms is None or not (due_ms == asked_ms or due_ms <= now_ms):
                yield message
