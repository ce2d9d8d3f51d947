"""Makes the calls on delayed messages: shows, cancels and reschedules them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hourwheel.buckets.scheduled_ids import SchedulePosition, read_scheduled_id, sign_scheduled_id
from hourwheel.context import Context
from hourwheel.delay.changes import Scheduled, ScheduledMessages
from hourwheel.delay.lists.delayed_list import DelayedList
from hourwheel.delay.lists.delayed_request import DelayedRequest
from hourwheel.delay.lists.pending_counts import PendingCounts
from hourwheel.delay.orphans import orphans
from hourwheel.model.due import check_limit, limited_delay_ms
from hourwheel.model.fields import Delay
from hourwheel.model.messages import ScheduledMessage
from hourwheel.model.pages import ChosenPage, DeadPage, DelayedPage
from hourwheel.registry.registry import Registry
from hourwheel.times import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from hourwheel.delay.chosen_messages import ChosenMessages


@dataclass(frozen=True)
class DelayedService:
    """Shows and changes delayed messages, which scheduled ids name. ``secret`` returns what signs these."""

    registry: Registry
    pending_counts: PendingCounts
    secret: Callable[[], bytes]

    @property
    def context(self) -> Context:
        return self.registry.context

    def get(self, scheduled_id: str) -> ScheduledMessage:
        """Returns the state of a delayed message. Raises ``NotFound`` long after its time."""
        return self._scheduled(ScheduledMessages(self.context).look(self._position(scheduled_id)))

    def cancel(self, scheduled_id: str) -> ScheduledMessage:
        """Cancels a delayed message if it was not sent yet, and returns its state, which is final."""
        return self._scheduled(ScheduledMessages(self.context).cancel(self._position(scheduled_id)))

    def reschedule(
        self, scheduled_id: str, *, deliver_at: str | None = None, delay: Delay | None = None
    ) -> ScheduledMessage:
        """Moves a delayed message to another time if it was neither sent nor cancelled, and returns its state:
        ``moved`` if the move succeeded."""
        position = self._position(scheduled_id)
        now_ms = self.context.clock.now_ms()
        if deliver_at is not None:
            due_ms = check_limit(parse_rfc3339(deliver_at, "deliver_at"), now_ms, "deliver_at")
        else:
            assert delay is not None
            due_ms = now_ms + limited_delay_ms(delay, "delay")
        return self._scheduled(ScheduledMessages(self.context).reschedule(position, due_ms))

    def look(self, subject: str, request: DelayedRequest, deliver_at: str | None) -> ChosenPage:
        """Returns a page of the messages that ``change`` would change: see ``ChosenMessages.look``."""
        return self._chosen(subject, request).look(self._asked_ms(deliver_at))

    def change(self, subject: str, request: DelayedRequest, deliver_at: str | None) -> ChosenPage:
        """Cancels the messages of a subject that the request chooses, or moves them to ``deliver_at``, page by page:
        see ``ChosenMessages.change``."""
        return self._chosen(subject, request).change(self._asked_ms(deliver_at))

    def _chosen(self, subject: str, request: DelayedRequest) -> "ChosenMessages":
        from hourwheel.delay.chosen_messages import ChosenMessages  # for operators alone

        owner = self.registry.current_subject(subject)
        return ChosenMessages(self.context, self.secret(), owner, request, self._scheduled)

    def _asked_ms(self, deliver_at: str | None) -> int | None:
        if deliver_at is None:
            return None
        return check_limit(parse_rfc3339(deliver_at, "deliver_at"), self.context.clock.now_ms(), "deliver_at")

    def page(self, subject: str | None, request: DelayedRequest) -> DelayedPage:
        """Returns a page of the delayed messages of a subject (None: of all): see ``DelayedList.page``."""
        owner = None if subject is None else self.registry.current_subject(subject)
        return DelayedList(self.context, self.secret(), owner, request).page()

    def orphans(self, subject: str, *, after: str | None, limit: int) -> DeadPage:
        """Returns messages that waited for their time when the subject was deleted."""
        return orphans(self.context, subject, after=after, limit=limit)

    def pending(self, subject: str, *, hours: int) -> list[tuple[int, int]]:
        """Returns the number of delayed messages of the subject for each of the next ``hours`` hours, as pairs of the
        hour's start in Unix milliseconds and the number."""
        owner = self.registry.subject(subject)
        return self.pending_counts.hours(self.context, owner.name, owner.generation, hours=hours)

    def _position(self, scheduled_id: str) -> SchedulePosition:
        return read_scheduled_id(self.secret(), scheduled_id)

    def _scheduled(self, scheduled: Scheduled) -> ScheduledMessage:
        return ScheduledMessage(
            scheduled_id=sign_scheduled_id(self.secret(), scheduled.position),
            state=scheduled.state,
            id=scheduled.message_id,
            subject=scheduled.subject,
            deliver_at=rfc3339(scheduled.due_ms),
            dispatched_at=None if scheduled.dispatched_ms is None else rfc3339(scheduled.dispatched_ms),
            queue=scheduled.queue,
            offset=scheduled.offset,
        )
