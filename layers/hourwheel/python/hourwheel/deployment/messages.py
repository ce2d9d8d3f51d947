"""Makes the calls that look at messages: peeks into queues, and traces messages."""

from collections.abc import Callable
from dataclasses import dataclass

from hourwheel.buckets.scheduled_ids import SchedulePosition, read_scheduled_id, sign_scheduled_id
from hourwheel.context import Context
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.errors import NotFound, Rejected
from hourwheel.groups.peek import PeekStart, peek
from hourwheel.model.pages import PeekPage
from hourwheel.model.traces import TracePage
from hourwheel.registry.broadcast import consumer_groups
from hourwheel.registry.registry import Registry
from hourwheel.trace.messages import GROUPS, MessagePosition, SearchSpan, Trace


@dataclass(frozen=True)
class MessageService:
    """Shows messages to callers that are no group. ``secret`` returns what signs scheduled ids."""

    registry: Registry
    secret: Callable[[], bytes]

    @property
    def context(self) -> Context:
        return self.registry.context

    def peek(self, subject: str, queue: int, start: PeekStart, limit: int) -> PeekPage:
        """Returns messages of a queue without being a group: see ``groups/peek.py``."""
        return peek(self.context, self.registry.current_subject(subject), queue, start, limit)

    def trace(self, subject: str, message: str, span: SearchSpan, group: str | None = None) -> TracePage:
        """Returns the traces of a message, which is named by ``queue:offset``, by its scheduled id or by its id: in
        ``group``, or without it in the first groups of the subject. Raises ``NotFound`` for an unknown message."""
        owner = self.registry.current_subject(subject)
        if group is None:
            groups, following = self.registry.group_page(owner, "", GROUPS)
        else:
            groups, following = [self.registry.group(owner, group)], None
        members = [
            member
            for record in groups
            for member in (consumer_groups(self.registry, owner, record) if record.broadcast else [record])
        ]
        more = following is not None or len(members) > GROUPS
        trace = Trace(self.context, owner, members[:GROUPS], more, self._scheduled_id)
        target = MessagePosition.parse(message)
        if target is not None:
            return TracePage([trace.by_offset(target)], None)
        try:
            position = read_scheduled_id(self.secret(), message)
        except Rejected:
            return trace.by_id(message, span)  # no scheduled id of this deployment
        scheduled = ScheduledMessages(self.context).look(position)
        if scheduled.subject != subject:
            raise NotFound(
                "message-unknown",
                f"this delayed message is of subject {scheduled.subject!r}: name that subject instead of {subject!r}",
                field="subject",
            )
        return TracePage([trace.by_scheduled(scheduled, message)], None)

    def _scheduled_id(self, position: SchedulePosition) -> str:
        return sign_scheduled_id(self.secret(), position)
