"""Looks at messages without being a group, and traces them."""

from datetime import datetime

from hourwheel.client.calls.call import Calls, answers, query
from hourwheel.client.codec import path
from hourwheel.client.due import span_text, utc_text
from hourwheel.client.records.peek import PeekPage
from hourwheel.client.records.trace import TracePage


class MessageCalls(Calls):
    def peek(
        self,
        subject: str,
        queue: int = 0,
        *,
        offset: int | None = None,
        time: datetime | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> PeekPage:
        """Shows up to ``limit`` (1 to 100) messages of a queue, for which no group has to exist.

        Starts at the first message that is kept, at ``offset``, or at the first message accepted at ``time`` or later.
        With ``newest`` goes backwards: from the last message, from ``offset``, or from the last message before
        ``time``.

        Raises:
            NotFound: there is no such subject or queue.
            BadRequest: also for ``offset`` with ``time``, and for an offset beyond the end of the queue.
            ValueError: ``time`` is no datetime with a zone.

        Example:
            >>> [message.body for message in api.peek("orders", newest=True, limit=1).messages]
            ['paid']
        """
        start = {"offset": offset, "time": None if time is None else utc_text(time, "time")}
        target = path("subjects", subject, "queues", str(queue), "messages")
        target += query(**start, newest="true" if newest else None, limit=limit)
        page: PeekPage = self._http.call("GET", target, answers(PeekPage))
        return page

    def trace(
        self,
        subject: str,
        message: str,
        *,
        group: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
    ) -> TracePage:
        """Tells where a message is and what each group did with it, as long as the server retains the logs.

        ``message`` is ``"queue:offset"``, a scheduled id, or the id of the message. An id that the sender gave is
        searched from ``since`` on, before ``until``; ``after`` goes on with a search that was not over. Tells of the
        first 20 groups, or of ``group``.

        Raises:
            NotFound: there is no such subject, group or message, or the message has expired.
            BadRequest: also for the id of a sender without ``since``.
            ValueError: ``since`` or ``until`` is no datetime with a zone.

        Example:
            >>> result = api.produce("orders", [Message("sent")])[0]
            >>> (trace,) = api.trace("orders", result.id).messages
            >>> trace.offset, trace.groups[0].state
            (1, 'waiting')
        """
        target = path("subjects", subject, "messages", message) + query(
            **span_text(since, until), group=group, after=after
        )
        page: TracePage = self._http.call("GET", target, answers(TracePage))
        return page
