"""Every call of the HTTP API as a typed method.

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
from hourwheel.client.waits import Delay, Moment, due_at
from hourwheel.model import Settled, Settlement, SettleResult
from hourwheel.ports import Clock, Ids

DEFAULT_URL = "http://127.0.0.1:7420"
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
    """Thread-safe; keeps its connections alive. Every method raises an ``AnswerError`` when the server says no.

    Calls that are safe to repeat are tried again for ``retry_seconds`` while the server is unavailable: all but
    ``produce`` without an idempotency key, the deletions, ``redrive`` and ``drop``, whose second answer would be
    another one.

    A server that was started with tokens is given one as ``token``; ``ca_file`` names the certificates, in PEM, that
    are trusted for an ``https`` URL in place of those of the system (and of ``SSL_CERT_FILE``).

    An API on AWS wants signed requests: its own address (``https://….execute-api.REGION.amazonaws.com``) is signed for
    by itself; for another one that leads there give ``sign="aws"``, and the ``region`` where the AWS configuration
    names another. ``pip install 'hourwheel[aws]'``; credentials are found as the AWS tools find them, and renewed.
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
        """Ends calls under way in other threads, with ``Closed``."""
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
        """Where each message was placed, or when it is due, in their order. All are durable, or none is stored."""
        return self._produce(path("subjects", subject, "messages"), messages, idempotency_key, retry_seconds)

    def produce_many(self, messages: Sequence[AddressedMessage], *, idempotency_key: str | None = None) -> list[Placed]:
        """A batch that spans subjects."""
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
        """What became of it so far. ``NotFound`` long after its time."""
        return self._scheduled("GET", scheduled_id)

    def cancel(self, scheduled_id: str) -> ScheduledMessage:
        """Cancels it if it was not sent yet; if it was, its ``state`` says ``dispatched``."""
        return self._scheduled("DELETE", scheduled_id)

    def reschedule(
        self, scheduled_id: str, *, delay: Delay | None = None, deliver_at: Moment | None = None
    ) -> ScheduledMessage:
        """Moves it to another time: ``waiting`` then, with a new ``scheduled_id``. One that was cancelled or dispatched
        stays so. ``delay`` counts from now, by this machine's clock, so that repeating moves it no further."""
        body = {"deliver_at": due_at(delay, deliver_at, self._clock.now_ms())}
        return self._scheduled("PATCH", scheduled_id, body)

    def pending(self, subject: str, *, hours: int = 72) -> Forecast:
        """How many messages fall due within so many hours."""
        target = path("subjects", subject, "scheduled") + _query(hours=hours)
        forecast: Forecast = self._http.call("GET", target, _answers(Forecast))
        return forecast

    def _scheduled(self, method: str, scheduled_id: str, body: Any = None) -> ScheduledMessage:
        """Each of them is answered alike when it is repeated, unless the message's time has come meanwhile."""
        if not scheduled_id:
            raise ValueError("there is no scheduled_id: the message was not delayed, so its time has come already")
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
        """Safe to repeat: what a lost answer had leased is served again when its lease ends."""
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
        """What became of each, in order. ``stale`` ones are told as such, also when all are."""
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
        """Creates or changes it; what is None keeps its value. ``clamp_delays``: a delay that is too long becomes the
        longest there is, instead of being refused."""
        body = _given(queues=queues, retention_seconds=retention_seconds, clamp_delays=clamp_delays)
        made: Subject = self._http.call("PUT", path("subjects", subject), _answers(Subject), body=body)
        return made

    def get_subject(self, subject: str) -> Subject:
        found: Subject = self._http.call("GET", path("subjects", subject), _answers(Subject))
        return found

    def list_subjects(self, *, limit: int = 100, after: str | None = None) -> SubjectPage:
        page: SubjectPage = self._http.call(
            "GET", path("subjects") + _query(limit=limit, after=after), _answers(SubjectPage)
        )
        return page

    def delete_subject(self, subject: str) -> None:
        """Its messages and groups go with it."""
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
        """Creates or changes it; what is None keeps its value. ``start`` can only be given to a new one. ``push`` is
        set as a whole; ``NO_PUSH`` ends it, and the group is pulled from again."""
        body = _given(start=start, max_attempts=max_attempts, retry=retry, push=push)
        if push is NO_PUSH:
            body["push"] = None
        made: Group = self._http.call("PUT", path("subjects", subject, "groups", group), _answers(Group), body=body)
        return made

    def get_group(self, subject: str, group: str) -> Group:
        found: Group = self._http.call("GET", path("subjects", subject, "groups", group), _answers(Group))
        return found

    def list_groups(self, subject: str, *, limit: int = 100, after: str | None = None) -> GroupPage:
        target = path("subjects", subject, "groups") + _query(limit=limit, after=after)
        page: GroupPage = self._http.call("GET", target, _answers(GroupPage))
        return page

    def delete_group(self, subject: str, group: str) -> None:
        self._http.call("DELETE", path("subjects", subject, "groups", group), _answers(None), safe=False)

    def seek(self, subject: str, group: str, to: Literal["start", "end"] | datetime | Position) -> list[Position]:
        """Moves what is pulled next; what is leased, in retry or dead stays as it is."""
        body: Any = {"to": to} if isinstance(to, str) else to
        if isinstance(to, datetime):
            body = {"time": rfc3339(to)}
        target = path("subjects", subject, "groups", group, "seek")
        moved: _Positions = self._http.call("POST", target, _answers(_Positions), body=body)
        return moved.positions

    def push(self, subject: str, group: str) -> PushStatus:
        """How the delivery to the group's target goes, and the secret that signs what goes there over HTTPS."""
        target = path("subjects", subject, "groups", group, "push")
        status: PushStatus = self._http.call("GET", target, _answers(PushStatus))
        return status

    def lag(self, subject: str, group: str) -> Lag:
        lag: Lag = self._http.call("GET", path("subjects", subject, "groups", group, "lag"), _answers(Lag))
        return lag

    # Dead letters

    def list_dead(self, subject: str, group: str, *, limit: int = 100, after: str | None = None) -> DeadPage:
        target = path("subjects", subject, "groups", group, "dead") + _query(limit=limit, after=after)
        page: DeadPage = self._http.call("GET", target, _answers(DeadPage))
        return page

    def get_dead(self, subject: str, group: str, dead_id: str) -> DeadLetter:
        target = path("subjects", subject, "groups", group, "dead", dead_id)
        letter: DeadLetter = self._http.call("GET", target, _answers(DeadLetter))
        return letter

    def redrive(self, subject: str, group: str, which: DeadSelection) -> int:
        """How many were sent again, to this group alone, as first attempts."""
        target = path("subjects", subject, "groups", group, "dead", "redrive")
        answer: _Redriven = self._http.call("POST", target, _answers(_Redriven), body=which, safe=False)
        return answer.redriven

    def drop(self, subject: str, group: str, which: DeadSelection) -> int:
        """How many were deleted, for good."""
        target = path("subjects", subject, "groups", group, "dead")
        answer: _Dropped = self._http.call("DELETE", target, _answers(_Dropped), body=which, safe=False)
        return answer.dropped

    def list_orphans(self, subject: str, *, limit: int = 100, after: str | None = None) -> OrphanPage:
        """Messages that waited for their time when the subject was deleted."""
        target = path("subjects", subject, "dead") + _query(limit=limit, after=after)
        page: OrphanPage = self._http.call("GET", target, _answers(OrphanPage))
        return page

    def health(self) -> Health:
        health: Health = self._http.call("GET", path("health"), _answers(Health))
        return health


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _query(**fields: Any) -> str:
    """A blank as %20: in a signature "+" is another character."""
    return "?" + urlencode(_given(**fields), quote_via=quote)
