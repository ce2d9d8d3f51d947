"""Remembers handled messages by the idempotency layer of Powertools for AWS Lambda: in DynamoDB, or in its caches."""

import math
from datetime import timedelta
from typing import Any

from aws_lambda_powertools.utilities.idempotency import BasePersistenceLayer, IdempotencyConfig
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyItemAlreadyExistsError

from hourwheel.apps.idempotency.retention import KEEP
from hourwheel.client.consuming.idempotence import InProgress
from hourwheel.ports.machine import Clock
from hourwheel.system import SystemClock

_IN_PROGRESS = "INPROGRESS"


class PowertoolsStore:
    """Handles each message once unless a consumer dies, or takes longer than ``lease``, while it handles the message.

    ``layer`` is a persistence layer of Powertools, which this store configures.

    A consumer marks the message, for ``lease``, before it calls the handler. If it dies before it could remember the
    message, another consumer handles the message again once the mark has ended. Messages are remembered for ``keep``.

    Raises:
        ValueError: ``keep`` or ``lease`` is not more than zero.

    Example:
        >>> store = PowertoolsStore(DynamoDBPersistenceLayer(table_name="processed", key_attr="message"))
    """

    def __init__(
        self,
        layer: BasePersistenceLayer,
        *,
        keep: timedelta = KEEP,
        lease: timedelta = timedelta(minutes=1),
        clock: Clock | None = None,
    ) -> None:
        if min(keep, lease) <= timedelta(0):
            raise ValueError("keep and lease must be longer than zero")
        self._layer = layer
        self._lease_ms = round(lease / timedelta(milliseconds=1))
        self._clock = clock or SystemClock()
        layer.configure(
            IdempotencyConfig(expires_after_seconds=math.ceil(keep.total_seconds())), key_prefix="hourwheel"
        )

    def begin(self, identity: str) -> bool:
        """Marks the message for ``lease`` and returns True; returns False for a message that was handled before.

        Raises:
            InProgress: another consumer has marked the message.
            IdempotencyPersistenceLayerError: the layer's database does not answer.

        Example:
            >>> store.begin("orders/billing/order-7")
            True
        """
        try:
            self._layer.save_inprogress(data=_data(identity), remaining_time_in_millis=self._lease_ms)
        except IdempotencyItemAlreadyExistsError as error:
            record = error.old_data_record
            if record is not None and record.status != _IN_PROGRESS:
                return False
            until_ms = (record and record.in_progress_expiry_timestamp) or self._clock.now_ms() + self._lease_ms
            left_seconds = math.ceil((until_ms - self._clock.now_ms()) / 1_000)
            raise InProgress(delay=max(1, left_seconds)) from None
        return True

    def end(self, identity: str, *, done: bool) -> None:
        """Remembers the message for ``keep``; if it is not ``done``, removes the mark instead.

        Raises:
            IdempotencyPersistenceLayerError: the layer's database does not answer.

        Example:
            >>> store.end("orders/billing/order-7", done=True)
        """
        if done:
            self._layer.save_success(data=_data(identity), result={})
        else:
            # Powertools names the error in a line of its log only.
            self._layer.delete_record(data=_data(identity), exception=Exception())


class DynamoDbStore(PowertoolsStore):
    """Handles each message once, as ``PowertoolsStore`` does, by a table of DynamoDB with the string key ``id`` and the
    time to live ``expiration``. Needs ``boto3``.

    Raises:
        ValueError: ``keep`` or ``lease`` is not more than zero.

    Example:
        >>> consumer = Consumer(url, "orders", "billing")
        >>> @consumer.handler(idempotent=DynamoDbStore("processed"))
        ... def bill(order: Order):
        ...     charge(order)
    """

    def __init__(
        self,
        table_name: str,
        *,
        client: Any = None,
        keep: timedelta = KEEP,
        lease: timedelta = timedelta(minutes=1),
        clock: Clock | None = None,
    ) -> None:
        from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer  # imports boto3

        super().__init__(
            DynamoDBPersistenceLayer(table_name=table_name, boto3_client=client), keep=keep, lease=lease, clock=clock
        )


def _data(identity: str) -> dict[str, Any]:
    return {"message": identity}
