"""Looks up, cancels, moves, lists and counts delayed messages."""

from datetime import datetime
from typing import Any

import msgspec

from hourwheel.client.calls.call import Calls, answers, query
from hourwheel.client.due import Delay, Moment, due_at, span_text
from hourwheel.client.records.scheduled import (
    ChosenPage,
    DelayedPage,
    DelayedSelection,
    PendingCounts,
    ScheduledMessage,
)
from hourwheel.client.transport.codec import path


class ScheduledCalls(Calls):
    def get_scheduled(self, scheduled_id: str) -> ScheduledMessage:
        """Looks up a delayed message.

        Raises:
            NotFound: the message is unknown; the server forgets it about a day after its time.
            ValueError: ``scheduled_id`` is empty.

        Example:
            >>> result = api.produce("orders", [Message("remind", delay="90d")])[0]
            >>> api.get_scheduled(result.scheduled_id).state
            'waiting'
        """
        return self._scheduled("GET", scheduled_id)

    def cancel(self, scheduled_id: str) -> ScheduledMessage:
        """Cancels a delayed message. The ``state`` of the answer is final: ``cancelled``, or ``dispatched`` if the
        message was already handed over to its queue. If the message is nearly due, the answer may take up to 10 s.

        Raises:
            NotFound: the message is unknown; the server forgets it about a day after its time.
            ValueError: ``scheduled_id`` is empty.

        Example:
            >>> result = api.produce("orders", [Message("remind", delay="90d")])[0]
            >>> api.cancel(result.scheduled_id).state
            'cancelled'
        """
        return self._scheduled("DELETE", scheduled_id)

    def reschedule(
        self, scheduled_id: str, *, delay: Delay | None = None, deliver_at: Moment | None = None
    ) -> ScheduledMessage:
        """Moves a delayed message to another time: ``deliver_at``, or ``delay`` from now by this machine's clock.

        The answer has the state ``moved`` and a new ``scheduled_id``; the old id finds the message too. A message that
        was cancelled or dispatched before is not moved: the state of the answer says which it is.

        Raises:
            NotFound: the message is unknown; the server forgets it about a day after its time.
            ValueError: both or none of ``delay`` and ``deliver_at`` are given, the given one is no valid time, or
                ``scheduled_id`` is empty.

        Example:
            >>> result = api.produce("orders", [Message("remind", delay="90d")])[0]
            >>> api.reschedule(result.scheduled_id, delay="30d").state
            'moved'
        """
        body = {"deliver_at": due_at(delay, deliver_at, self._clock.now_ms())}
        return self._scheduled("PATCH", scheduled_id, body)

    def list_delayed(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after: str | None = None,
        bodies: bool = False,
        key: str | None = None,
        tag: str | None = None,
        message_id: str | None = None,
    ) -> DelayedPage:
        """Lists up to ``limit`` (1 to 100) delayed messages of all subjects, from behind the cursor ``after``.

        Lists the messages that are due from ``since`` on (by default the current hour) and before ``until`` (by default
        without an end), hour by hour. Within an hour they are sorted by their time; an hour with more than 1,000
        messages is sorted in stretches of 1,000. With ``bodies`` each message has the beginning of its body. A page may
        have few messages though there is a next page; it has none at the end of the list, or where the server has
        searched for 5 s. ``key``, ``tag`` and ``message_id``, the id that the sender gave, choose messages: the server
        then reads all that are due in the span.

        Raises:
            BadRequest: the span is empty, or ``after`` is the cursor of another list.
            ValueError: ``since`` or ``until`` is no datetime with a zone.

        Example:
            >>> result = api.produce("orders", [Message("remind", delay="90d")])
            >>> result[0].scheduled_id in {message.scheduled_id for message in api.list_delayed().messages}
            True
        """
        return self._delayed(
            path("delayed"), since, until, limit=limit, after=after, bodies=bodies, key=key, tag=tag, id=message_id
        )

    def list_subject_delayed(
        self,
        subject: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after: str | None = None,
        bodies: bool = False,
        key: str | None = None,
        tag: str | None = None,
        message_id: str | None = None,
    ) -> DelayedPage:
        """Lists the delayed messages of one subject. The arguments are those of ``list_delayed``.

        Raises:
            NotFound: there is no such subject.
            BadRequest: the span is empty, or ``after`` is the cursor of another list.
            ValueError: ``since`` or ``until`` is no datetime with a zone.

        Example:
            >>> (result,) = api.produce("orders", [Message("remind", delay="90d")])
            >>> (message,) = api.list_subject_delayed("orders").messages
            >>> message.scheduled_id == result.scheduled_id
            True
        """
        target = path("subjects", subject, "delayed")
        return self._delayed(
            target, since, until, limit=limit, after=after, bodies=bodies, key=key, tag=tag, id=message_id
        )

    def _delayed(self, target: str, since: datetime | None, until: datetime | None, **how: Any) -> DelayedPage:
        target += query(**span_text(since, until), **{**how, "bodies": "true" if how["bodies"] else None})
        page: DelayedPage = self._http.call("GET", target, answers(DelayedPage))
        return page

    def cancel_chosen(
        self, subject: str, which: DelayedSelection, *, after: str | None = None, dry_run: bool = False
    ) -> ChosenPage:
        """Cancels the delayed messages of a subject that the selection takes. One call cancels up to 25 and searches
        for up to 5 s. Another one goes on at ``after``, the ``next`` of its answer. With ``dry_run`` it answers with up
        to 100 messages that it would cancel.

        Raises:
            NotFound: there is no such subject.
            BadRequest: the selection is empty.
            ServerUnavailable: the wheel of a message did not answer. The messages before it are cancelled.

        Example:
            >>> result = api.produce("orders", [Message("remind", id="order-7", delay="90d")])
            >>> page = api.cancel_chosen("orders", DelayedSelection.where(message_id="order-7"))
            >>> [message.state for message in page.messages]
            ['cancelled']
        """
        return self._chosen(subject, "cancel", which, after=after, dry_run=dry_run)

    def move_chosen(
        self,
        subject: str,
        which: DelayedSelection,
        *,
        delay: Delay | None = None,
        deliver_at: Moment | None = None,
        after: str | None = None,
        dry_run: bool = False,
    ) -> ChosenPage:
        """Moves the delayed messages that ``cancel_chosen`` would cancel to another time: ``deliver_at``, or ``delay``
        from now by this machine's clock. Give all calls of one move the same ``deliver_at``: they find a message no
        second time that was moved there.

        Raises:
            NotFound: there is no such subject.
            BadRequest: the selection is empty.
            ServerUnavailable: the wheel of a message did not answer. The messages before it are moved.
            ValueError: both or none of ``delay`` and ``deliver_at`` are given, or the given one is no valid time.

        Example:
            >>> result = api.produce("orders", [Message("remind", key="customer-42", delay="90d")])
            >>> page = api.move_chosen("orders", DelayedSelection.where(key="customer-42"), delay="30d")
            >>> [message.state for message in page.messages]
            ['moved']
        """
        at = due_at(delay, deliver_at, self._clock.now_ms())
        return self._chosen(subject, "move", which, after=after, dry_run=dry_run, deliver_at=at)

    def _chosen(self, subject: str, act: str, which: DelayedSelection, **how: Any) -> ChosenPage:
        target = path("subjects", subject, "delayed", act)
        body = {**msgspec.to_builtins(which), **how}
        page: ChosenPage = self._http.call("POST", target, answers(ChosenPage), body=body)
        return page

    def pending(self, subject: str, *, hours: int | None = None) -> PendingCounts:
        """Counts the delayed messages of a subject that fall due within this many hours (1 to 744), hour by hour.
        Without ``hours`` counts three days, and tells the total of all times and the next due time.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> result = api.produce("orders", [Message("remind", delay="2h")])
            >>> api.pending("orders", hours=24).messages
            1
        """
        target = path("subjects", subject, "scheduled") + query(hours=hours)
        counts: PendingCounts = self._http.call("GET", target, answers(PendingCounts))
        return counts

    def _scheduled(self, method: str, scheduled_id: str, body: Any = None) -> ScheduledMessage:
        """Makes a call for one delayed message. May repeat the call: the first change decides, and later calls answer
        with its result."""
        if not scheduled_id:
            raise ValueError(
                "there is no scheduled_id: only the result of a delayed message has one, any other message went to its"
                " queue at once"
            )
        target = path("scheduled", scheduled_id)
        answer: ScheduledMessage = self._http.call(method, target, answers(ScheduledMessage), body=body)
        return answer
