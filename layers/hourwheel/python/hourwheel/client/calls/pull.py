"""Pulls messages and settles them."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from hourwheel.client.calls.call import Calls, answers
from hourwheel.client.errors import AnswerError, Conflict
from hourwheel.client.records.compact import CompactPulls
from hourwheel.client.records.messages import Pulled
from hourwheel.client.transport.codec import MsgpackAnswer, path
from hourwheel.model.fields import DEFAULT_LEASE_SECONDS
from hourwheel.model.pulls import Settled, Settlement, SettleResult

_PULLED = MsgpackAnswer(msgspec.msgpack.Decoder(CompactPulls), CompactPulls.pulled)
_ENCODED = MsgpackAnswer[CompactPulls](msgspec.msgpack.Decoder(CompactPulls), lambda pulled: pulled)
_SETTLED = MsgpackAnswer[SettleResult](msgspec.msgpack.Decoder(SettleResult), lambda result: result)


class PullCalls(Calls):
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
        suspects: bool = True,
        create: bool = True,
        retry_seconds: float | None = None,
    ) -> Pulled:
        """Leases up to ``max_messages`` (1 to 1,000) messages to a consumer, for ``lease_seconds`` (1 to 43,200).

        The server carries out the settlements ``settle`` first. Then it waits up to ``wait_seconds`` (0 to 20) for the
        first message. It creates the subject and the group if its settings allow that, but not with ``create=False``,
        which raises ``NotFound`` instead. A pull whose answer was lost is
        repeated; the group gets the messages of the lost answer again when their lease ends.

        A message whose lease ended comes alone, in a pull with ``suspect``. A consumer that holds messages pulls with
        ``suspects=False``: the answer says with ``suspects_wait`` that such a message waits.

        Returns:
            The pulls with the messages (none, one or several pulls), and the answers to the settlements.

        Raises:
            NotFound: the server has no such subject or group, and may not create it.
            BadRequest: a receipt belongs to another group, or another argument is wrong; nothing was settled or leased.

        Example:
            >>> pulled = api.pull("orders", "billing", "host-1", wait_seconds=5)
            >>> [message.body for pull in pulled.pulls for message in pull.messages]
            ['paid']
        """
        options = _options(max_messages, wait_seconds, lease_seconds, settle)
        if not suspects:
            options["suspects"] = False
        if not create:
            options["create"] = False
        pulled: Pulled = self._pull(subject, group, {"consumer": consumer, **options}, _PULLED, retry_seconds)
        return pulled

    def _pull(
        self, subject: str, group: str, body: dict[str, Any], msgpack: MsgpackAnswer[Any], retry_seconds: float | None
    ) -> Any:
        target = path("subjects", subject, "groups", group, "pull")
        return self._http.call(
            "POST",
            target,
            answers(Pulled),
            body=body,
            wait_seconds=body["wait_seconds"],
            retry_seconds=retry_seconds,
            msgpack=msgpack,
        )

    def settle(
        self, subject: str, group: str, settlements: Sequence[Settlement], *, retry_seconds: float | None = None
    ) -> list[Settled]:
        """Acknowledges, retries, releases or rejects the messages of pulls, or extends their leases.

        Returns:
            The result of each settlement, in order. A ``stale`` one changed nothing: the lease had ended and the
            messages were taken over, or they were settled in another way. An ``unavailable`` one belongs to messages in
            a cell that is out of reach: send it again, unchanged, after a pause.

        Raises:
            NotFound: there is no such subject or group.
            ServerUnavailable: the messages of every settlement are in cells that are out of reach.
            BadRequest: a receipt belongs to another group, or a settlement contradicts itself; nothing was settled.

        Example:
            >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
            >>> api.settle("orders", "billing", [Settlement(receipt=pull.receipt, retry=[0])])
            [Settled(status='settled', lease_until=None)]
        """
        target = path("subjects", subject, "groups", group, "ack")

        def stale(error: AnswerError) -> list[Settled]:
            # The server answers 409 if every settlement is stale; the caller gets a result for each, as usual.
            if not isinstance(error, Conflict) or error.slug != "receipt-stale":
                raise error
            return [Settled("stale") for _ in settlements]

        settled: list[Settled] = self._http.call(
            "POST",
            target,
            answers(SettleResult),
            body={"settle": settlements},
            retry_seconds=retry_seconds,
            msgpack=_SETTLED,
            then=attrgetter("results"),
            refused=stale,
        )
        return settled


def pull_encoded(
    calls: PullCalls,
    subject: str,
    group: str,
    consumer: str,
    *,
    max_messages: int,
    wait_seconds: float,
    lease_seconds: int,
    settle: Sequence[Settlement],
    rest: Mapping[str, Any] | None = None,
) -> Pulled | CompactPulls:
    """Tries a pull once, for a ``Consumer``. The messages of a msgpack answer stay encoded. ``rest`` holds the fields
    that ``Doze.fields`` and ``SuspectTurn.fields`` return."""
    options = _options(max_messages, wait_seconds, lease_seconds, settle)
    body = {"consumer": consumer, **options, **(rest or {})}
    encoded: Pulled | CompactPulls = calls._pull(subject, group, body, _ENCODED, 0)
    return encoded


def pull_resting(
    calls: PullCalls,
    subject: str,
    group: str,
    consumer: str,
    *,
    max_messages: int,
    wait_seconds: float,
    settle: Sequence[Settlement],
    rest: Mapping[str, Any],
) -> Pulled:
    """Pulls as ``PullCalls.pull`` does, and sends the fields ``rest``, which ``Doze.fields`` returns, in addition."""
    options = _options(max_messages, wait_seconds, DEFAULT_LEASE_SECONDS, settle)
    pulled: Pulled = calls._pull(subject, group, {"consumer": consumer, **options, **rest}, _PULLED, None)
    return pulled


def _options(
    max_messages: int, wait_seconds: float, lease_seconds: int, settle: Sequence[Settlement]
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_messages": max_messages,
        "wait_seconds": wait_seconds,
        "lease_seconds": lease_seconds,
    }
    return {**options, "settle": settle} if settle else options
