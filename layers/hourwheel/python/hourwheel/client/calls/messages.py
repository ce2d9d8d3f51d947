"""Looks at messages without being a group."""

from datetime import datetime

from hourwheel.client.calls.call import Calls, answers, query
from hourwheel.client.due import utc_text
from hourwheel.client.http import path
from hourwheel.client.records.peek import PeekPage


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
            ValueError: the time has no zone.

        Example:
            >>> [message.body for message in api.peek("orders", newest=True, limit=1).messages]
            ['paid']
        """
        start = {"offset": offset, "time": None if time is None else utc_text(time)}
        target = path("subjects", subject, "queues", str(queue), "messages")
        target += query(**start, newest="true" if newest else None, limit=limit)
        page: PeekPage = self._http.call("GET", target, answers(PeekPage))
        return page
