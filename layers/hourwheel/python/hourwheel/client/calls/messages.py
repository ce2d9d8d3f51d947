"""Shows the messages of a queue without a group, and traces messages."""

from datetime import datetime

from hourwheel.client.calls.call import Calls, answers, query
from hourwheel.client.due import span_text, utc_text
from hourwheel.client.records.peek import PeekPage
from hourwheel.client.records.trace import TracePage
from hourwheel.client.transport.codec import path


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
        """Shows up to ``limit`` (1 to 100) messages of a queue. Needs no group, and changes nothing.

        Starts at the first message that is kept, at ``offset``, or at the first message accepted at ``time`` or later.
        With ``newest`` goes backwards: from the last message, from ``offset``, or from the last message before
        ``time``.

        Raises:
            NotFound: there is no such subject or queue.
            BadRequest: both ``offset`` and ``time`` are given, or the offset is beyond the end of the queue.
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
        """Shows where a message is and what each group did with it, for as long as the server keeps the logs.

        ``message`` is ``"queue:offset"``, a scheduled id, or the id of the message. For an id that the sender gave, the
        server searches the messages that were accepted from ``since`` on and before ``until``; ``after`` continues a
        search that an earlier answer did not finish. Shows the first 20 groups, or ``group`` alone.

        Raises:
            NotFound: there is no such subject, group or message, or the message has expired.
            BadRequest: ``message`` is an id that the sender gave, and ``since`` is missing.
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
