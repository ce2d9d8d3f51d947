"""Lists, shows, counts, redrives and drops dead letters, and lists orphans."""

from operator import attrgetter
from typing import Literal

import msgspec

from hourwheel.client.calls.call import Calls, answers, query
from hourwheel.client.records.dead import DeadLetter, DeadPage, DeadSelection, OrphanPage
from hourwheel.client.records.overview import DeadReasons, EarlyRetries
from hourwheel.client.transport.codec import path


class _Redriven(msgspec.Struct):
    redriven: int


class _Dropped(msgspec.Struct):
    dropped: int


class DeadLetterCalls(Calls):
    def retry_now(
        self,
        subject: str,
        group: str,
        *,
        everything: bool = False,
        key: str | None = None,
        detail: str | None = None,
        after: str | None = None,
    ) -> EarlyRetries:
        """Retries the messages of a group that wait for their delay at once: everything, or those with a ``key``,
        or those of whose failure the consumer said ``detail``. One call retries up to 1,000; another one goes on at
        ``after``, the ``next`` of its answer.

        Raises:
            NotFound: there is no such subject or group.
            BadRequest: none of the three is given, or the group is ordered, and retries each key in its order.

        Example:
            >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
            >>> later = Settlement(receipt=pull.receipt, retry=[RetryLater(index=0, delay="1h")])
            >>> settled = api.settle("orders", "billing", [later])
            >>> api.retry_now("orders", "billing", everything=True).retried
            1
        """
        body = {"all": everything or None, "key": key, "detail": detail, "after": after}
        target = path("subjects", subject, "groups", group, "retries")
        answer: EarlyRetries = self._http.call("POST", target, answers(EarlyRetries), body=body)
        return answer

    def list_dead(
        self,
        subject: str,
        group: str,
        *,
        limit: int = 100,
        after: str | None = None,
        reason: Literal["attempts", "rejected"] | None = None,
        detail: str | None = None,
        newest: bool = False,
    ) -> DeadPage:
        """Lists up to ``limit`` (1 to 100) dead letters, the oldest first, from behind the cursor ``after``.

        With ``newest`` the newest come first; a broadcast group lists the dead letters of one consumer after the other,
        by the names of the consumers. With ``reason``, and perhaps ``detail``, the page has only dead letters with that
        reason: it may have few of them, or none, though there is a next page.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
            >>> settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0])])
            >>> [(letter.dead_id, letter.reason) for letter in api.list_dead("orders", "billing").messages]
            [('0-0', 'rejected')]
        """
        order = {"newest": "true"} if newest else {}
        parameters = query(limit=limit, after=after, reason=reason, detail=detail, **order)
        target = path("subjects", subject, "groups", group, "dead") + parameters
        page: DeadPage = self._http.call("GET", target, answers(DeadPage))
        return page

    def dead_reasons(self, subject: str, group: str) -> DeadReasons:
        """Counts the dead letters of a group by reason and detail, the most frequent first.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.dead_reasons("orders", "billing").complete
            True
        """
        target = path("subjects", subject, "groups", group, "dead", "reasons")
        reasons: DeadReasons = self._http.call("GET", target, answers(DeadReasons))
        return reasons

    def get_dead(self, subject: str, group: str, dead_id: str) -> DeadLetter:
        """Shows a dead letter.

        Raises:
            NotFound: there is no such subject, group or dead letter.

        Example:
            >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
            >>> settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0])])
            >>> api.get_dead("orders", "billing", "0-0").body
            'paid'
        """
        target = path("subjects", subject, "groups", group, "dead", dead_id)
        letter: DeadLetter = self._http.call("GET", target, answers(DeadLetter))
        return letter

    def redrive(self, subject: str, group: str, which: DeadSelection) -> int:
        """Moves dead letters back to the retries of the group, which gets them again as first attempts. Returns their
        number.

        Raises:
            NotFound: there is no such subject or group.
            ServerUnavailable: some of the dead letters may be moved. Call again: none of them is moved twice.

        Example:
            >>> api.redrive("orders", "billing", DeadSelection.everything())
            0
        """
        target = path("subjects", subject, "groups", group, "dead", "redrive")
        redriven: int = self._http.call(
            "POST", target, answers(_Redriven), body=which, safe=False, then=attrgetter("redriven")
        )
        return redriven

    def drop(self, subject: str, group: str, which: DeadSelection) -> int:
        """Deletes dead letters for good. Returns their number.

        Raises:
            NotFound: there is no such subject or group.
            ServerUnavailable: some of the dead letters may be deleted; call again.

        Example:
            >>> api.drop("orders", "billing", DeadSelection.named(["12-0"]))
            0
        """
        target = path("subjects", subject, "groups", group, "dead")
        dropped: int = self._http.call(
            "DELETE", target, answers(_Dropped), body=which, safe=False, then=attrgetter("dropped")
        )
        return dropped

    def list_orphans(self, subject: str, *, limit: int = 100, after: str | None = None) -> OrphanPage:
        """Lists up to ``limit`` (1 to 100) delayed messages whose subject was deleted before they were due, from behind
        the cursor ``after``. The server keeps them for 30 days.

        Raises:
            BadRequest: ``limit`` is out of its range.

        Example:
            >>> api.list_orphans("orders").messages
            []
        """
        target = path("subjects", subject, "dead") + query(limit=limit, after=after)
        page: OrphanPage = self._http.call("GET", target, answers(OrphanPage))
        return page
