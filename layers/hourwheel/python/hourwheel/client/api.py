"""Offers every call of the HTTP API as a typed method.

with Api("http://127.0.0.1:7420") as api:
    api.put_subject("orders", queues=4)
    api.produce("orders", [Message("paid", key="customer-42")], idempotency_key="order-7-paid")
"""

import functools
import os
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode

import msgspec

from hourwheel.adapters.system import SystemClock, SystemIds
from hourwheel.client.due import Delay, Moment, due_at
from hourwheel.client.errors import Conflict
from hourwheel.client.http import Http, path
from hourwheel.client.records import (
    NO_PUSH,
    AddressedMessage,
    DeadLetter,
    DeadPage,
    DeadSelection,
    Forecast,
    Group,
    GroupPage,
    Health,
    Lag,
    Message,
    NoPush,
    OrphanPage,
    Placed,
    Position,
    ProduceBody,
    Pulled,
    PushStatus,
    PushTarget,
    RetryPolicy,
    ScheduledMessage,
    Subject,
    SubjectPage,
    on_the_wire,
    rfc3339,
)
from hourwheel.client.signing import Sign
from hourwheel.model import Settled, Settlement, SettleResult
from hourwheel.ports import Clock, Ids

DEFAULT_URL = "http://127.0.0.1:7420"
"""The URL of a server that ``hourwheel serve`` started on this machine."""

DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_RETRY_SECONDS = 30.0


@functools.cache
def _answers(kind: Any) -> Any:
    return msgspec.json.Decoder(kind)


class _Produced(msgspec.Struct):
    results: list[Placed]


class _Positions(msgspec.Struct):
    positions: list[Position]


class _Redriven(msgspec.Struct):
    redriven: int


class _Dropped(msgspec.Struct):
    dropped: int


class Api:
    """Makes every call of the HTTP API, one method each. Thread-safe; keeps its connections alive.

    Repeats a call for ``retry_seconds`` while the server is unavailable, where repeating is safe. It is safe for every
    call but the deletions, ``redrive``, ``drop``, and ``produce`` without an idempotency key. Waits ``timeout_seconds``
    for one answer, in addition to the time that a pull waits for messages.

    Sends ``token`` to a server that was started with tokens. For an ``https`` URL, trusts the certificates of
    ``ca_file`` (PEM) in place of the certificates of the system and of ``SSL_CERT_FILE``.

    Signs requests to an API on AWS (``https://….execute-api.REGION.amazonaws.com``), and to any other URL with
    ``sign="aws"``; ``region`` overrides the region of the AWS configuration. Signing needs
    ``pip install 'hourwheel[aws]'`` and takes the credentials from the configuration of the AWS tools.

    Raises:
        ValueError: the URL is no HTTP URL, or ``token``, ``sign`` and ``region`` contradict each other.
        ClientError: requests are to be signed, and botocore is not installed.
        AnswerError: each method raises a subclass where the server refuses the call: ``BadRequest`` for a wrong
            argument, ``Unauthorized`` for a wrong token or signature, ``ServerUnavailable`` where no server answers in
            time. Each method names its other errors.
        Closed: each method, after ``close``.

    Example:
        >>> with Api("http://127.0.0.1:7420") as api:
        ...     api.health().status
        'ok'
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sign: Sign | None = None,
        region: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        retry_seconds: float = DEFAULT_RETRY_SECONDS,
        ids: Ids | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._http = Http(
            url,
            token=token,
            ca_file=ca_file,
            sign=sign,
            region=region,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
            ids=ids or SystemIds(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. A call under way in another thread raises ``Closed``.

        Raises nothing.

        Example:
            >>> Api().close()
        """
        self._http.close()

    # Produce

    def produce(
        self,
        subject: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        retry_seconds: float | None = None,
    ) -> list[Placed]:
        """Stores a batch of up to 1,000 messages and 4 MiB in all, either whole and durably or not at all.

        A batch that the caller repeats with its ``idempotency_key`` within 10 minutes is stored once, and gets the
        first answer again. ``retry_seconds`` overrides the value of the ``Api``.

        Returns:
            The place of each message, or the time at which it is due, in the order of the messages.

        Raises:
            TooLarge: a message or the batch is over a limit; nothing was stored.
            Conflict: the idempotency key came with another batch, or the subject was deleted since.
            NotFound: the server has no subject of this name, and may not create one.

        Example:
            >>> placed = api.produce("orders", [Message("sent"), Message("remind", delay="90d")])
            >>> placed[0].offset, placed[1].scheduled > datetime.now(UTC)
            (1, True)
        """
        return self._produce(path("subjects", subject, "messages"), messages, idempotency_key, retry_seconds)

    def produce_many(self, messages: Sequence[AddressedMessage], *, idempotency_key: str | None = None) -> list[Placed]:
        """Stores a batch whose messages name their subjects; with an idempotency key either whole or not at all.

        Without a key a failure half-way may leave the messages of some subjects stored.

        Returns:
            The place of each message, or the time at which it is due, in the order of the messages.

        Raises:
            TooLarge: a message or the batch is over a limit; nothing was stored.
            Conflict: the idempotency key came with another batch, or a subject was deleted since.
            NotFound: the server lacks one of these subjects, and may not create it.

        Example:
            >>> batch = [AddressedMessage("sent", subject="orders"), AddressedMessage("billed", subject="invoices")]
            >>> [placed.offset for placed in api.produce_many(batch, idempotency_key="order-7")]
            [1, 0]
        """
        return self._produce(path("messages"), messages, idempotency_key, None)

    def _produce(
        self, target: str, messages: Sequence[Message], idempotency_key: str | None, retry_seconds: float | None
    ) -> list[Placed]:
        body = ProduceBody([on_the_wire(message) for message in messages], idempotency_key)
        result: _Produced = self._http.call(
            "POST",
            target,
            _answers(_Produced),
            body=body,
            safe=idempotency_key is not None,
            retry_seconds=retry_seconds,
        )
        return result.results

    # Delayed messages

    def get_scheduled(self, scheduled_id: str) -> ScheduledMessage:
        """Looks up a delayed message.

        Raises:
            NotFound: the message is unknown; the server forgets it about a day after its time.
            ValueError: ``scheduled_id`` is empty.

        Example:
            >>> placed = api.produce("orders", [Message("remind", delay="90d")])[0]
            >>> api.get_scheduled(placed.scheduled_id).state
            'waiting'
        """
        return self._scheduled("GET", scheduled_id)

    def cancel(self, scheduled_id: str) -> ScheduledMessage:
        """Cancels a delayed message. The ``state`` of the answer is final: ``cancelled``, or ``dispatched`` where the
        message had gone to its queue already. Close to the message's time the answer may take up to 10 s.

        Raises:
            NotFound: the message is unknown; the server forgets it about a day after its time.
            ValueError: ``scheduled_id`` is empty.

        Example:
            >>> placed = api.produce("orders", [Message("remind", delay="90d")])[0]
            >>> api.cancel(placed.scheduled_id).state
            'cancelled'
        """
        return self._scheduled("DELETE", scheduled_id)

    def reschedule(
        self, scheduled_id: str, *, delay: Delay | None = None, deliver_at: Moment | None = None
    ) -> ScheduledMessage:
        """Moves a delayed message to another time: ``deliver_at``, or ``delay`` from now by this machine's clock.

        The answer has the state ``moved`` and a new ``scheduled_id``; the old id finds the message as well. A message
        that was cancelled or dispatched stays so, and the state of the answer says which.

        Raises:
            NotFound: the message is unknown; the server forgets it about a day after its time.
            ValueError: both or none of ``delay`` and ``deliver_at`` are given, the given one is no valid time, or
                ``scheduled_id`` is empty.

        Example:
            >>> placed = api.produce("orders", [Message("remind", delay="90d")])[0]
            >>> api.reschedule(placed.scheduled_id, delay="30d").state
            'moved'
        """
        body = {"deliver_at": due_at(delay, deliver_at, self._clock.now_ms())}
        return self._scheduled("PATCH", scheduled_id, body)

    def pending(self, subject: str, *, hours: int = 72) -> Forecast:
        """Counts the delayed messages of a subject that fall due within this many hours (1 to 744), hour by hour.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> placed = api.produce("orders", [Message("remind", delay="2h")])
            >>> api.pending("orders", hours=24).messages
            1
        """
        target = path("subjects", subject, "scheduled") + _query(hours=hours)
        forecast: Forecast = self._http.call("GET", target, _answers(Forecast))
        return forecast

    def _scheduled(self, method: str, scheduled_id: str, body: Any = None) -> ScheduledMessage:
        """Makes a call for one delayed message. A repeated call gets an equal answer until the message is due."""
        if not scheduled_id:
            raise ValueError("there is no scheduled_id: the message was not delayed, so it went to its queue at once")
        target = path("scheduled", scheduled_id)
        found: ScheduledMessage = self._http.call(method, target, _answers(ScheduledMessage), body=body)
        return found

    # Pull and settle

    def pull(
        self,
        subject: str,
        group: str,
        consumer: str,
        *,
        max_messages: int = 100,
        wait_seconds: float = 0,
        lease_seconds: int = 30,
        settle: Sequence[Settlement] = (),
        retry_seconds: float | None = None,
    ) -> Pulled:
        """Leases up to ``max_messages`` (1 to 1,000) messages to a consumer, for ``lease_seconds`` (1 to 43,200).

        Carries out the settlements ``settle`` first. Then waits up to ``wait_seconds`` (0 to 20) for the first message.
        Creates the subject and the group where the server allows that. A pull whose answer was lost is repeated; the
        group gets the messages of the lost answer again when their lease ends.

        Returns:
            The pulls with the messages (none, one or several pulls), and the answers to the settlements.

        Raises:
            NotFound: the server lacks the subject or the group, and may not create it.
            BadRequest: also for a receipt that belongs to another group; nothing was settled or leased.

        Example:
            >>> pulled = api.pull("orders", "billing", "host-1", wait_seconds=5)
            >>> [message.body for pull in pulled.pulls for message in pull.messages]
            ['paid']
        """
        body: dict[str, Any] = {
            "consumer": consumer,
            "max_messages": max_messages,
            "wait_seconds": wait_seconds,
            "lease_seconds": lease_seconds,
        }
        if settle:
            body["settle"] = settle
        target = path("subjects", subject, "groups", group, "pull")
        pulled: Pulled = self._http.call(
            "POST", target, _answers(Pulled), body=body, wait_seconds=wait_seconds, retry_seconds=retry_seconds
        )
        return pulled

    def settle(
        self, subject: str, group: str, settlements: Sequence[Settlement], *, retry_seconds: float | None = None
    ) -> list[Settled]:
        """Acknowledges, retries, releases or rejects the messages of pulls, or extends their leases.

        Returns:
            The result of each settlement, in order; ``stale`` where the lease had ended and nothing was changed.

        Raises:
            NotFound: there is no such subject or group.
            BadRequest: also for a receipt that belongs to another group; nothing was settled.

        Example:
            >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
            >>> api.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=[0])])
            [Settled(status='settled', lease_until=None)]
        """
        target = path("subjects", subject, "groups", group, "ack")
        try:
            result: SettleResult = self._http.call(
                "POST", target, _answers(SettleResult), body={"settle": settlements}, retry_seconds=retry_seconds
            )
        except Conflict as error:
            if error.slug != "receipt-stale":
                raise
            return [Settled("stale") for _ in settlements]
        return result.results

    # Subjects and groups

    def put_subject(
        self,
        subject: str,
        *,
        queues: int | None = None,
        retention_seconds: int | None = None,
        clamp_delays: bool | None = None,
    ) -> Subject:
        """Creates or changes a subject. An argument of None keeps the value, or takes the default for a new subject.

        ``queues`` is 1 to 64 and can only grow, ``retention_seconds`` is 60 to 2,592,000 (3 days by default).
        ``clamp_delays`` shortens a delay beyond 732 days to 732 days instead of refusing it.

        Raises:
            Conflict: the subject has more queues already, or the server has as many subjects as it may.

        Example:
            >>> api.put_subject("orders", queues=4).queues
            4
        """
        body = _without_none(queues=queues, retention_seconds=retention_seconds, clamp_delays=clamp_delays)
        made: Subject = self._http.call("PUT", path("subjects", subject), _answers(Subject), body=body)
        return made

    def get_subject(self, subject: str) -> Subject:
        """Shows a subject with its first 100 groups.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> api.get_subject("orders").groups
            ['billing']
        """
        found: Subject = self._http.call("GET", path("subjects", subject), _answers(Subject))
        return found

    def list_subjects(self, *, limit: int = 100, after: str | None = None) -> SubjectPage:
        """Lists up to ``limit`` (1 to 100) subjects by name, from behind the name ``after``.

        Raises:
            BadRequest: ``limit`` is out of its range.

        Example:
            >>> [subject.subject for subject in api.list_subjects().subjects]
            ['orders']
        """
        page: SubjectPage = self._http.call(
            "GET", path("subjects") + _query(limit=limit, after=after), _answers(SubjectPage)
        )
        return page

    def delete_subject(self, subject: str) -> None:
        """Deletes a subject with its messages and groups. Delayed messages go to ``list_orphans`` at their time.

        Raises:
            NotFound: there is no such subject.
            ServerUnavailable: the subject may be deleted or not; call again.

        Example:
            >>> api.delete_subject("orders")
        """
        self._http.call("DELETE", path("subjects", subject), _answers(None), safe=False)

    def put_group(
        self,
        subject: str,
        group: str,
        *,
        start: Literal["earliest", "latest"] | None = None,
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        push: PushTarget | NoPush | None = None,
    ) -> Group:
        """Creates or changes a group. An argument of None keeps the value, or takes the default for a new group.

        ``start`` says where a new group begins: ``earliest`` by default. A message becomes a dead letter after
        ``max_attempts`` (1 to 1,000; 16 by default). ``retry`` and ``push`` replace the former value as a whole;
        ``NO_PUSH`` removes the target.

        Raises:
            Conflict: the group began elsewhere, or the subject has as many groups as it may.
            NotFound: the server has no subject of this name, and may not create one.

        Example:
            >>> api.put_group("orders", "billing", max_attempts=5, retry=RetryPolicy(first_seconds=1)).max_attempts
            5
        """
        body = _without_none(start=start, max_attempts=max_attempts, retry=retry, push=push)
        if push is NO_PUSH:
            body["push"] = None
        made: Group = self._http.call("PUT", path("subjects", subject, "groups", group), _answers(Group), body=body)
        return made

    def get_group(self, subject: str, group: str) -> Group:
        """Shows a group with the retry policy in force.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.get_group("orders", "billing").max_attempts
            16
        """
        found: Group = self._http.call("GET", path("subjects", subject, "groups", group), _answers(Group))
        return found

    def list_groups(self, subject: str, *, limit: int = 100, after: str | None = None) -> GroupPage:
        """Lists up to ``limit`` (1 to 100) groups by name, from behind the name ``after``.

        Raises:
            NotFound: there is no such subject.

        Example:
            >>> [group.group for group in api.list_groups("orders").groups]
            ['billing']
        """
        target = path("subjects", subject, "groups") + _query(limit=limit, after=after)
        page: GroupPage = self._http.call("GET", target, _answers(GroupPage))
        return page

    def delete_group(self, subject: str, group: str) -> None:
        """Deletes a group with its progress, retries and dead letters. The messages of the subject stay.

        Raises:
            NotFound: there is no such subject or group.
            ServerUnavailable: the group may be deleted or not; call again.

        Example:
            >>> api.delete_group("orders", "billing")
        """
        self._http.call("DELETE", path("subjects", subject, "groups", group), _answers(None), safe=False)

    def seek(self, subject: str, group: str, to: Literal["start", "end"] | datetime | Position) -> list[Position]:
        """Moves a group to another message. Messages that are leased, in retry or dead stay so.

        ``"start"`` is the first message that is kept, ``"end"`` is behind the last one. A time is the first message
        that was accepted then or later. A ``Position`` moves the group in one queue only.

        Returns:
            The offset of the next message in each queue that was moved.

        Raises:
            NotFound: there is no such subject or group.
            BadRequest: also for a queue that the subject does not have.
            ValueError: the time has no zone.

        Example:
            >>> api.seek("orders", "billing", "end")
            [Position(queue=0, offset=1)]
            >>> api.seek("orders", "billing", datetime(2026, 1, 1, tzinfo=UTC))
            [Position(queue=0, offset=0)]
        """
        body: Any = {"to": to} if isinstance(to, str) else to
        if isinstance(to, datetime):
            body = {"time": rfc3339(to)}
        target = path("subjects", subject, "groups", group, "seek")
        moved: _Positions = self._http.call("POST", target, _answers(_Positions), body=body)
        return moved.positions

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
        status: PushStatus = self._http.call("GET", target, _answers(PushStatus))
        return status

    def lag(self, subject: str, group: str) -> Lag:
        """Counts the messages of a group that are not done, by their state.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> api.lag("orders", "billing").waiting
            1
        """
        lag: Lag = self._http.call("GET", path("subjects", subject, "groups", group, "lag"), _answers(Lag))
        return lag

    # Dead letters

    def list_dead(self, subject: str, group: str, *, limit: int = 100, after: str | None = None) -> DeadPage:
        """Lists up to ``limit`` (1 to 100) dead letters, the oldest first, from behind the cursor ``after``.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
            >>> settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0])])
            >>> [(letter.dead_id, letter.reason) for letter in api.list_dead("orders", "billing").messages]
            [('0-0', 'rejected')]
        """
        target = path("subjects", subject, "groups", group, "dead") + _query(limit=limit, after=after)
        page: DeadPage = self._http.call("GET", target, _answers(DeadPage))
        return page

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
        letter: DeadLetter = self._http.call("GET", target, _answers(DeadLetter))
        return letter

    def redrive(self, subject: str, group: str, which: DeadSelection) -> int:
        """Sends dead letters again, to this group alone, as first attempts. Returns how many.

        Raises:
            NotFound: there is no such subject or group.
            ServerUnavailable: some of the dead letters may be sent. Call again: none of them is sent twice.

        Example:
            >>> api.redrive("orders", "billing", DeadSelection.everything())
            0
        """
        target = path("subjects", subject, "groups", group, "dead", "redrive")
        answer: _Redriven = self._http.call("POST", target, _answers(_Redriven), body=which, safe=False)
        return answer.redriven

    def drop(self, subject: str, group: str, which: DeadSelection) -> int:
        """Deletes dead letters for good. Returns how many.

        Raises:
            NotFound: there is no such subject or group.
            ServerUnavailable: some of the dead letters may be deleted; call again.

        Example:
            >>> api.drop("orders", "billing", DeadSelection.named(["12-0"]))
            0
        """
        target = path("subjects", subject, "groups", group, "dead")
        answer: _Dropped = self._http.call("DELETE", target, _answers(_Dropped), body=which, safe=False)
        return answer.dropped

    def list_orphans(self, subject: str, *, limit: int = 100, after: str | None = None) -> OrphanPage:
        """Lists up to ``limit`` (1 to 100) delayed messages whose subject was deleted before their time came, from
        behind the cursor ``after``. The server keeps them for 30 days.

        Raises:
            BadRequest: ``limit`` is out of its range.

        Example:
            >>> api.list_orphans("orders").messages
            []
        """
        target = path("subjects", subject, "dead") + _query(limit=limit, after=after)
        page: OrphanPage = self._http.call("GET", target, _answers(OrphanPage))
        return page

    def health(self) -> Health:
        """Checks that the server answers, and returns its version. Needs no token.

        Raises:
            ServerUnavailable: no server answers.

        Example:
            >>> api.health().status
            'ok'
        """
        health: Health = self._http.call("GET", path("health"), _answers(Health))
        return health


def _without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _query(**fields: Any) -> str:
    """Returns the query string, with a blank as %20: signatures would take a "+" for itself."""
    return "?" + urlencode(_without_none(**fields), quote_via=quote)
