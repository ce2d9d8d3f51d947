"""Creates, changes, shows, pauses and deletes subjects."""

from hourwheel.client.calls.call import Calls, answers, query, without_none
from hourwheel.client.calls.deletions import Deletion, cells_out
from hourwheel.client.records.subjects import Subject, SubjectPage
from hourwheel.client.transport.codec import path


class SubjectCalls(Calls):
    def put_subject(
        self,
        subject: str,
        *,
        queues: int | None = None,
        retention_seconds: int | None = None,
        clamp_delays: bool | None = None,
        read_only: bool | None = None,
    ) -> Subject:
        """Creates or changes a subject. An argument of None keeps the value of the subject; a new one gets the default.

        ``queues`` is 1 to 64 and can only grow, ``retention_seconds`` is 60 to 2,592,000 (3 days by default).
        ``clamp_delays`` shortens a delay beyond 732 days to 732 days instead of refusing it. A ``read_only`` subject
        refuses new messages, also delayed ones; its groups still get messages, also those that were delayed before.

        Raises:
            Conflict: the subject has more queues already, or the server has as many subjects as it may.

        Example:
            >>> api.put_subject("orders", queues=4).queues
            4
        """
        body = without_none(
            queues=queues, retention_seconds=retention_seconds, clamp_delays=clamp_delays, read_only=read_only
        )
        made: Subject = self._http.call("PUT", path("subjects", subject), answers(Subject), body=body)
        return made

    def get_subject(self, subject: str) -> Subject:
        """Shows a subject with its first 100 groups.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> api.get_subject("orders").groups
            ['billing']
        """
        answer: Subject = self._http.call("GET", path("subjects", subject), answers(Subject))
        return answer

    def list_subjects(self, *, limit: int = 100, after: str | None = None) -> SubjectPage:
        """Lists up to ``limit`` (1 to 100) subjects by name, from behind the name ``after``.

        Raises:
            BadRequest: ``limit`` is out of its range.

        Example:
            >>> [subject.subject for subject in api.list_subjects().subjects]
            ['orders']
        """
        page: SubjectPage = self._http.call(
            "GET", path("subjects") + query(limit=limit, after=after), answers(SubjectPage)
        )
        return page

    def pause_subject(self, subject: str) -> Subject:
        """Pauses the delivery to all groups of a subject; producers can still send. The groups keep their own pauses.

        Leased messages can be settled. Other servers on the same data follow within two seconds. Pausing a paused
        subject changes nothing.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> api.pause_subject("orders").paused
            True
            >>> api.pull("orders", "billing", "host-1").limited_by
            'subject_paused'
        """
        paused: Subject = self._http.call("POST", path("subjects", subject, "pause"), answers(Subject))
        return paused

    def resume_subject(self, subject: str) -> Subject:
        """Resumes the delivery of a subject to its groups, except those that are paused themselves.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> api.resume_subject("orders").paused
            False
        """
        resumed: Subject = self._http.call("POST", path("subjects", subject, "resume"), answers(Subject))
        return resumed

    def delete_subject(self, subject: str) -> list[str]:
        """Deletes a subject with its messages and groups. Its delayed messages become orphans when they are due, which
        ``list_orphans`` lists. Returns the cells that are out of reach: the subject is deleted, and the sweeper erases
        what they hold of it once they can be reached or were given up.

        Raises:
            NotFound: there is no such subject.
            ServerUnavailable: the subject may be deleted or not; call again.

        Example:
            >>> api.delete_subject("orders")
            []
        """
        left: list[str] = self._http.call(
            "DELETE", path("subjects", subject), answers(Deletion | None), safe=False, then=cells_out
        )
        return left
