"""Shows subjects and groups with their numbers side by side, and the state of wheels, archive and lake."""

from datetime import datetime
from typing import Literal

from hourwheel.client.calls.call import Calls, answers, query
from hourwheel.client.due import span_text
from hourwheel.client.records.attention import AttentionPage
from hourwheel.client.records.groups import HistoryPage
from hourwheel.client.records.overview import (
    ArchiveState,
    BucketWheels,
    DueCounts,
    GroupOverviewPage,
    OverviewPage,
)
from hourwheel.client.transport.codec import path


class OverviewCalls(Calls):
    def overview(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        prefix: str | None = None,
        sort: Literal["name", "waiting", "in_flight", "retrying", "dead", "delayed", "oldest"] | None = None,
        order: Literal["asc", "desc"] | None = None,
    ) -> OverviewPage:
        """Shows up to ``limit`` (1 to 100) subjects whose names begin with ``prefix``, with their numbers, from behind
        the cursor ``after``.

        The subjects are sorted by name, or with ``sort`` by a number, the largest first; ``order`` overrides that.
        The numbers of a subject may be some seconds old. A server on AWS sorts by name only.

        Raises:
            BadRequest: an argument is out of its range, or ``sort`` is a number and the server is on AWS.

        Example:
            >>> [(subject.subject, subject.groups) for subject in api.overview(prefix="ord").subjects]
            [('orders', 1)]
        """
        target = path("overview") + query(limit=limit, after=after, prefix=prefix, sort=sort, order=order)
        page: OverviewPage = self._http.call("GET", target, answers(OverviewPage))
        return page

    def attention(self, *, limit: int = 100) -> AttentionPage:
        """Tells what needs an operator, up to ``limit`` (1 to 100) concerns, the gravest first: groups without
        consumers or with a growing backlog, dead letters, stopped keys, pauses, wheels, volumes and cells.

        Raises:
            BadRequest: ``limit`` is out of its range.

        Example:
            >>> api.pause_group("orders", "billing").paused
            True
            >>> [(concern.level, concern.text) for concern in api.attention().concerns]
            [('warning', 'The group is paused: 1 message waits.')]
        """
        page: AttentionPage = self._http.call("GET", path("attention") + query(limit=limit), answers(AttentionPage))
        return page

    def subject_overview(self, subject: str, *, limit: int = 100, after: str | None = None) -> GroupOverviewPage:
        """Shows up to ``limit`` (1 to 100) groups of a subject with their numbers, and its queues.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> page = api.subject_overview("orders")
            >>> page.groups[0].group, page.queues[0].end
            ('billing', 1)
        """
        target = path("subjects", subject, "overview") + query(limit=limit, after=after)
        page: GroupOverviewPage = self._http.call("GET", target, answers(GroupOverviewPage))
        return page

    def history(
        self, subject: str, *, group: str | None = None, limit: int = 100, after: str | None = None
    ) -> HistoryPage:
        """Shows the last hour of one ``group`` of a subject, or of up to ``limit`` (1 to 100) groups. The points are in
        the memory of the server: they begin with it. A server on AWS keeps none.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.history("orders", group="billing").groups  # a point comes with each minute
            []
        """
        target = path("subjects", subject, "history") + query(group=group, limit=limit, after=after)
        page: HistoryPage = self._http.call("GET", target, answers(HistoryPage))
        return page

    def due(
        self,
        subject: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: Literal["hour", "minute"] = "hour",
    ) -> DueCounts:
        """Counts the delayed messages of a subject, or of all subjects, by the hour or minute in which they fall due.

        The span begins at ``since`` (by default the current hour) and ends before ``until`` (by default three days
        later, or with ``step="minute"`` an hour later). It has two years at most, by the minute one hour.

        Raises:
            NotFound: there is no such subject.
            BadRequest: the span is too long.
            ValueError: ``since`` or ``until`` is no datetime with a zone.

        Example:
            >>> result = api.produce("renewals", [Message("remind", delay="400d")])
            >>> now = datetime.now(UTC)
            >>> api.due(subject="renewals", since=now, until=now + timedelta(days=500)).messages
            1
        """
        target = path("scheduled") + query(subject=subject, step=step, **span_text(since, until))
        counts: DueCounts = self._http.call("GET", target, answers(DueCounts))
        return counts

    def wheels(self) -> BucketWheels:
        """Shows the wheels of the first 100 open hour buckets, and how late messages were handed over.

        Raises nothing but the errors of every call.

        Example:
            >>> [wheel.bucket for wheel in api.wheels().wheels if wheel.state == "overdue"]
            []
        """
        wheels: BucketWheels = self._http.call("GET", path("wheels"), answers(BucketWheels))
        return wheels

    def archive(self) -> ArchiveState:
        """Shows up to which time the rows are archived, and what the jobs of the pipeline left at their last runs.

        Raises nothing but the errors of every call.

        Example:
            >>> api.archive().enabled in (True, False)
            True
        """
        state: ArchiveState = self._http.call("GET", path("archive"), answers(ArchiveState))
        return state
