"""Creates, changes, shows, pauses, moves and deletes groups, and shows their lag, leases and consumers."""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

import msgspec

from hourwheel.client.calls.call import Calls, answers, query, without_none
from hourwheel.client.calls.consumers import ConsumersAnswer, LeaveAnswer, consumer_states, leave_result
from hourwheel.client.calls.deletions import Deletion, cells_out
from hourwheel.client.due import utc_text
from hourwheel.client.records.groups import (
    NO_FILTER,
    NO_PUSH,
    ConsumerStates,
    Group,
    GroupPage,
    Lag,
    LeaveResult,
    NoFilter,
    NoPush,
    PushStatus,
    PushTarget,
    QueueOffset,
    RetryPolicy,
    TagFilter,
)
from hourwheel.client.records.overview import OpenLeases, RetryCounts
from hourwheel.client.transport.codec import path


class _Positions(msgspec.Struct):
    positions: list[QueueOffset]


class _DecidedKeys(msgspec.Struct):
    decided: int


def _seek_body(to: str | datetime | QueueOffset) -> dict[str, Any]:
    """Returns the body of a seek. Raises ``ValueError`` for another type, and for a time without a zone."""
    if isinstance(to, str):
        return {"to": to}
    if isinstance(to, QueueOffset):
        return {"queue": to.queue, "offset": to.offset}
    if isinstance(to, datetime):
        return {"time": utc_text(to, "to")}
    raise ValueError(f'to must be "start", "end", a datetime with a zone or a QueueOffset, got {to!r}')


class GroupCalls(Calls):
    def put_group(
        self,
        subject: str,
        group: str,
        *,
        start: Literal["earliest", "latest"] | None = None,
        max_attempts: int | None = None,
        max_in_flight: int | None = None,
        messages_per_second: float | None = None,
        retry_percent: int | None = None,
        retry: RetryPolicy | None = None,
        push: PushTarget | NoPush | None = None,
        filter: TagFilter | NoFilter | None = None,  # noqa: A002 - the field's name in requests
        broadcast: bool | None = None,
        consumer_expires_seconds: int | None = None,
        ordered: bool | None = None,
        when_dead: Literal["continue", "stop"] | None = None,
        max_held: int | None = None,
        redelivery_delay_seconds: float | None = None,
    ) -> Group:
        """Creates or changes a group. An argument of None keeps the value of the group; a new group gets the default.

        ``start`` says where a new group begins: ``earliest`` by default. A message becomes a dead letter after
        ``max_attempts`` (1 to 1,000; 16 by default). ``retry`` and ``push`` replace the former value as a whole;
        ``NO_PUSH`` removes the target. A message whose lease ended for the first time comes again after
        ``redelivery_delay_seconds`` (0 to 2,592,000; by default at once), and counts no attempt.

        A new group with ``ordered`` serves the messages of each key one after the other. ``when_dead`` says what
        happens when the first message of a key is given up. The group serves the next message of the key (``continue``,
        the default), or the key stops until an operator decides (``stop``). While ``max_held`` keys of a queue (1 to
        100,000; 10,000 by default) are held, the group leases none but parked messages of the queue.

        At most ``max_in_flight`` messages (0 to 1,000,000) are leased at once, and ``messages_per_second`` (0 to
        1,000,000) in the long run, retries included; 0 is no limit. While new messages wait, ``retry_percent`` (1 to
        100; 50 by default) of the messages that pulls lease are retries; with 100 all retries come first.

        With a ``filter`` the group takes only messages with certain tags; it passes over the others. A new filter
        applies from the next pull, also to messages that wait, and ``NO_FILTER`` removes it.

        A new group with ``broadcast`` hands every message to each of its consumers, up to 1,000. It forgets the
        position of a consumer that did not pull for ``consumer_expires_seconds`` (60 to 2,592,000; 3 days by default).

        Raises:
            Conflict: the group has another ``start``, ``ordered`` or ``broadcast``, which cannot change, or the subject
                has as many groups as it may.
            NotFound: the server has no subject of this name, and may not create one.

        Example:
            >>> api.put_group("orders", "billing", max_attempts=5, retry=RetryPolicy(first_seconds=1)).max_attempts
            5
        """
        settings = without_none(
            start=start,
            max_attempts=max_attempts,
            max_in_flight=max_in_flight,
            messages_per_second=messages_per_second,
            retry_percent=retry_percent,
            retry=retry,
            push=push,
            filter=filter,
            broadcast=broadcast,
            consumer_expires_seconds=consumer_expires_seconds,
            ordered=ordered,
            when_dead=when_dead,
            max_held=max_held,
            redelivery_delay_seconds=redelivery_delay_seconds,
        )
        body = {name: None if value in (NO_PUSH, NO_FILTER) else value for name, value in settings.items()}
        made: Group = self._http.call("PUT", path("subjects", subject, "groups", group), answers(Group), body=body)
        return made

    def get_group(self, subject: str, group: str) -> Group:
        """Shows a group with its settings.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.get_group("orders", "billing").max_attempts
            16
        """
        answer: Group = self._http.call("GET", path("subjects", subject, "groups", group), answers(Group))
        return answer

    def decide_held(
        self,
        subject: str,
        group: str,
        then: Literal["retry", "dead"],
        *,
        keys: Sequence[str] | None = None,
    ) -> int:
        """Decides about stopped ``keys`` of an ordered group (1 to 1,000 keys; None: all): the first message of each is
        retried as a first attempt (``retry``), or becomes a dead letter (``dead``). Then the group serves the key
        again. Returns the number of keys that were stopped.

        Raises:
            BadRequest: the group is not ordered.
            Conflict: one of ``keys`` is not stopped, and nothing was decided. So a decision that is repeated is
                refused.
            NotFound: there is no such subject or group.

        Example:
            >>> made = api.put_group("orders", "ledger", ordered=True, when_dead="stop")
            >>> api.decide_held("orders", "ledger", "retry")
            0
        """
        body = {"then": then, **({"all": True} if keys is None else {"keys": list(keys)})}
        target = path("subjects", subject, "groups", group, "held")
        # Not safe: meanwhile a key may have stopped again, at a message about which nobody has decided.
        decided: int = self._http.call(
            "POST", target, answers(_DecidedKeys), body=body, safe=False, then=attrgetter("decided")
        )
        return decided

    def list_groups(self, subject: str, *, limit: int = 100, after: str | None = None) -> GroupPage:
        """Lists up to ``limit`` (1 to 100) groups by name, from behind the name ``after``.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> [group.group for group in api.list_groups("orders").groups]
            ['billing']
        """
        target = path("subjects", subject, "groups") + query(limit=limit, after=after)
        page: GroupPage = self._http.call("GET", target, answers(GroupPage))
        return page

    def pause_group(self, subject: str, group: str) -> Group:
        """Pauses a group: pulls wait and get no messages, as if the queues were empty, and pushes stop.

        Leased messages can be settled, and leases end as before. Other servers on the same data follow within two
        seconds. Pausing a paused group changes nothing.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.pause_group("orders", "billing").paused
            True
            >>> api.pull("orders", "billing", "host-1").limited_by
            'paused'
        """
        target = path("subjects", subject, "groups", group, "pause")
        paused: Group = self._http.call("POST", target, answers(Group))
        return paused

    def resume_group(self, subject: str, group: str) -> Group:
        """Resumes a group: its waiting pulls get messages at once, those at other servers within two seconds.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.resume_group("orders", "billing").paused
            False
        """
        target = path("subjects", subject, "groups", group, "resume")
        resumed: Group = self._http.call("POST", target, answers(Group))
        return resumed

    def delete_group(self, subject: str, group: str) -> list[str]:
        """Deletes a group with its progress, retries and dead letters. The messages of the subject stay. Returns the
        cells that are out of reach: the group is deleted, and the sweeper erases what they hold of it once they can be
        reached or were given up.

        Raises:
            NotFound: there is no such subject or group.
            ServerUnavailable: the group may be deleted or not; call again.

        Example:
            >>> api.delete_group("orders", "billing")
            []
        """
        where = path("subjects", subject, "groups", group)
        left: list[str] = self._http.call("DELETE", where, answers(Deletion | None), safe=False, then=cells_out)
        return left

    def seek(
        self,
        subject: str,
        group: str,
        to: Literal["start", "end"] | datetime | QueueOffset,
        *,
        dry_run: bool = False,
    ) -> list[QueueOffset]:
        """Moves a group to another message, from which on it gets messages. Leases, retries and dead letters of the
        group stay.

        ``"start"`` moves it to the first message that is kept, ``"end"`` behind the last one, a time to the first
        message that was accepted then or later. A ``QueueOffset`` moves the group in one queue only. With ``dry_run``
        nothing is moved, and the answer counts the messages that the seek would serve again or pass over.

        Returns:
            For each queue in which the group was moved, the offset of its next message.

        Raises:
            NotFound: there is no such subject or group.
            BadRequest: the queue of a ``QueueOffset`` does not exist.
            ValueError: ``to`` is none of these, or its time has no zone.

        Example:
            >>> api.seek("orders", "billing", "end")
            [QueueOffset(queue=0, offset=1)]
            >>> api.seek("orders", "billing", datetime(2026, 1, 1, tzinfo=UTC))
            [QueueOffset(queue=0, offset=0)]
            >>> api.seek("orders", "billing", "end", dry_run=True)
            [QueueOffset(queue=0, offset=1, served_again=0, passed_over=1)]
        """
        body = _seek_body(to)
        if dry_run:
            body["dry_run"] = True
        target = path("subjects", subject, "groups", group, "seek")
        moved: list[QueueOffset] = self._http.call(
            "POST", target, answers(_Positions), body=body, then=attrgetter("positions")
        )
        return moved

    def push(self, subject: str, group: str) -> PushStatus:
        """Shows the state of the deliveries to the group's target, and the secret that signs deliveries over HTTPS.

        Raises:
            NotFound: there is no such subject or group, or the group has no target.

        Example:
            >>> target = PushTarget(kind="https", url="https://billing.example.org/orders")
            >>> group = api.put_group("invoices", "mail", push=target)
            >>> api.push("invoices", "mail").state
            'idle'
        """
        target = path("subjects", subject, "groups", group, "push")
        status: PushStatus = self._http.call("GET", target, answers(PushStatus))
        return status

    def list_consumers(self, subject: str, group: str) -> ConsumerStates:
        """Lists the consumers of a group that hold leases or pulled lately, by name. ``cells_out`` of the list names
        the cells that are out of reach, which may have more.

        A consumer without leases, whose pulls found no message, is listed by a server on one machine for ten minutes,
        and on AWS in broadcast groups only.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> pulled = api.pull("orders", "billing", "host-1")
            >>> "host-1" in [each.consumer for each in api.list_consumers("orders", "billing")]
            True
        """
        target = path("subjects", subject, "groups", group, "consumers")
        consumers: ConsumerStates = self._http.call("GET", target, answers(ConsumersAnswer), then=consumer_states)
        return consumers

    def list_leases(self, subject: str, group: str) -> OpenLeases:
        """Lists the leases of a group that end first, up to 100.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> pulled = api.pull("orders", "billing", "host-1")
            >>> [(lease.consumer, lease.queue, lease.offset) for lease in api.list_leases("orders", "billing").leases]
            [('host-1', 0, 0)]
        """
        target = path("subjects", subject, "groups", group, "leases")
        leases: OpenLeases = self._http.call("GET", target, answers(OpenLeases))
        return leases

    def count_retries(self, subject: str, group: str) -> RetryCounts:
        """Counts the retries of a group by attempt, including those whose delay is not over.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.count_retries("orders", "billing").attempts
            []
        """
        target = path("subjects", subject, "groups", group, "retries")
        counts: RetryCounts = self._http.call("GET", target, answers(RetryCounts))
        return counts

    def leave(self, subject: str, group: str, consumer: str, *, forget: bool = False) -> LeaveResult:
        """Ends the leases of a consumer that died: other consumers get its messages at once, with the same attempt.
        Returns the number of these messages. Later settlements of the consumer are stale.

        ``cells_out`` of the number names the cells that are out of reach. The consumer's leases there stay until they
        end, which is logged as a warning; call again once the cells can be reached.

        With ``forget`` a broadcast group forgets the consumer, with its progress and its dead letters. Messages in the
        cells of ``cells_out`` are then only missing in the number.

        Raises:
            NotFound: there is no such subject or group.
            BadRequest: ``forget`` is set, and the group does not broadcast.

        Example:
            >>> pulled = api.pull("orders", "billing", "host-1")
            >>> api.leave("orders", "billing", "host-1")
            1
        """
        target = path("subjects", subject, "groups", group, "consumers", consumer, "leave")
        target += query(forget="true" if forget else None)
        then = leave_result(f"{consumer!r} (group {group} of {subject})", warns=not forget)
        released: LeaveResult = self._http.call("POST", target, answers(LeaveAnswer), then=then)
        return released

    def lag(self, subject: str, group: str) -> Lag:
        """Counts the messages of a group that are not acknowledged, by their state.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.lag("orders", "billing").waiting
            1
        """
        lag: Lag = self._http.call("GET", path("subjects", subject, "groups", group, "lag"), answers(Lag))
        return lag
