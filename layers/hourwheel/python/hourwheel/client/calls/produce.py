"""Stores messages."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from hourwheel.client.calls.call import Calls, answers
from hourwheel.client.records.compact import CompactProduceResult
from hourwheel.client.records.messages import AddressedMessage, Message, ProduceBody, SendResult, on_the_wire
from hourwheel.client.transport.codec import MsgpackAnswer, path

_compact_decoder = msgspec.msgpack.Decoder(CompactProduceResult)


class _Produced(msgspec.Struct):
    results: list[SendResult]


class ProduceCalls(Calls):
    def produce(
        self,
        subject: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        sequence: int | None = None,
        create: bool = True,
        repeated: bool = False,
        retry_seconds: float | None = None,
    ) -> list[SendResult]:
        """Stores a batch of up to 1,000 messages and 4 MiB in all, either whole and durably or not at all.

        A batch that the caller repeats with its ``idempotency_key`` within 10 minutes is stored once; the repeated call
        returns the first answer. ``retry_seconds`` overrides that of the ``Api``. ``repeated`` tells the server that an
        earlier call may have stored the batch: then a repeat on AWS skips no offsets. Retries of the ``Api`` say so by
        themselves.

        A caller may number the batches that it sends under one key: each new batch, sent after the answer to the batch
        before, has a higher ``sequence``. Then it may repeat its last batch for 400 days, and the server refuses a
        batch with a lower number.

        A subject that is missing is created with the defaults if the server's settings allow that; not with
        ``create=False``.

        Returns:
            The result of each message, in the order of the messages: its queue and offset, or the time at which it is
            due.

        Raises:
            TooLarge: a message or the batch is over a limit; nothing was stored.
            Conflict: the server has stored another batch under the idempotency key, or one with a later sequence; or
                the subject is read-only, or was deleted since the first call with this key.
            NotFound: the server has no subject of this name, and may not create one; nothing was stored.

        Example:
            >>> results = api.produce("orders", [Message("sent"), Message("remind", delay="90d")])
            >>> results[0].offset, results[1].scheduled > datetime.now(UTC)
            (1, True)
        """
        target = path("subjects", subject, "messages")
        return self._produce(
            target, messages, idempotency_key, sequence, retry_seconds, create=create, repeated=repeated
        )

    def produce_many(
        self,
        messages: Sequence[AddressedMessage],
        *,
        idempotency_key: str | None = None,
        sequence: int | None = None,
        create: bool = True,
        repeated: bool = False,
    ) -> list[SendResult]:
        """Stores a batch whose messages name their subjects; with an idempotency key either whole or not at all.

        Without a key, a failure may leave the messages of some subjects stored and those of others not. ``repeated``
        tells the server that an earlier call may have stored the batch.

        Returns:
            The result of each message, in the order of the messages: its queue and offset, or the time at which it is
            due.

        Raises:
            TooLarge: a message or the batch is over a limit; nothing was stored.
            Conflict: the server has stored another batch under the idempotency key, or one with a later sequence; or
                a subject is read-only, or was deleted since the first call with this key.
            NotFound: the server lacks one of these subjects, and may not create it.

        Example:
            >>> batch = [AddressedMessage("sent", subject="orders"), AddressedMessage("billed", subject="invoices")]
            >>> [result.offset for result in api.produce_many(batch, idempotency_key="order-7")]
            [1, 0]
        """
        return self._produce(
            path("messages"), messages, idempotency_key, sequence, None, create=create, repeated=repeated
        )

    def _produce(
        self,
        target: str,
        messages: Sequence[Message],
        idempotency_key: str | None,
        sequence: int | None,
        retry_seconds: float | None,
        *,
        create: bool,
        repeated: bool,
    ) -> list[SendResult]:
        body = ProduceBody([on_the_wire(message) for message in messages], idempotency_key, sequence, create)
        results: list[SendResult] = self._http.call(
            "POST",
            target,
            answers(_Produced),
            body=body,
            safe=idempotency_key is not None,
            retry_seconds=retry_seconds,
            msgpack=MsgpackAnswer(_compact_decoder, lambda compact: _Produced(compact.send_results(messages))),
            then=attrgetter("results"),
            repeated=repeated,
        )
        return results
