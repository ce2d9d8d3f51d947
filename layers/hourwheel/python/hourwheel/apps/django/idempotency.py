"""Remembers handled messages in a table of the project's own database, in the transaction of the handler."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, IntegrityError, close_old_connections, connections, router, transaction

from hourwheel.apps.idempotency.retention import KEEP, SWEEP_ROWS, Expiry, stored_identity
from hourwheel.ports.machine import Clock
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")


class DjangoStore:
    """Handles each message once, in one transaction with the handler's changes by Django's ORM.

    ``using`` names the database; without it, the router chooses the database of ``ProcessedMessage``. The handler runs
    in ``transaction.atomic``, which is committed when the handler returns, before the message is acknowledged. Messages
    are remembered for ``keep``; every 10 s the store removes up to 500 expired ones.

    Raises:
        ValueError: ``keep`` is not more than zero.

    Example:
        >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing")
        >>> @consumer.handler(idempotent=DjangoStore())
        ... def bill(order: dict):
        ...     Bill.objects.create(order=order["number"])
    """

    def __init__(self, *, using: str | None = None, keep: timedelta = KEEP, clock: Clock | None = None) -> None:
        self._using = using
        self._expiry = Expiry(keep, clock)

    @contextmanager
    def transaction(self, identity: str) -> Iterator[Any]:
        """Opens a transaction that remembers the message, and yields its connection. Yields None for a message that was
        handled before.

        Raises:
            LookupError: the database has no table of the app.

        Example:
            >>> with store.transaction("orders/billing/order-7") as connection:
            ...     connection is None
            False
        """
        close_old_connections()  # Django does so for requests only
        try:
            alias = self._alias()
            with transaction.atomic(using=alias):
                yield connections[alias] if self._remembered(alias, identity) else None
            if self._expiry.sweeps():
                self._sweep()
        finally:
            close_old_connections()

    def sweep(self) -> int:
        """Removes up to 500 expired messages, and returns their number.

        Raises:
            DatabaseError: the database refuses it.

        Example:
            >>> store.sweep()
            0
        """
        rows = _model().objects.using(self._alias())
        expired = rows.filter(expires_ms__lt=self._expiry.now_ms()).values_list("identity", flat=True)
        identities = list(expired[:SWEEP_ROWS])
        if identities:
            rows.filter(identity__in=identities).delete()
        self._expiry.swept(len(identities))
        return len(identities)

    def _alias(self) -> str:
        return self._using or str(router.db_for_write(_model()))

    def _remembered(self, alias: str, identity: str) -> bool:
        """Inserts the row of the message, and returns False if another transaction has inserted it before. Of two that
        do so at once, one waits until the other has ended."""
        model = _model()
        try:
            with transaction.atomic(using=alias):  # a savepoint: PostgreSQL refuses every statement after a failed one
                expires_ms = self._expiry.expires_ms()
                model.objects.using(alias).create(identity=stored_identity(identity), expires_ms=expires_ms)
        except IntegrityError:
            return False
        except DatabaseError as error:
            if model._meta.db_table not in connections[alias].introspection.table_names():
                raise LookupError(
                    f"database {alias} has no table {model._meta.db_table}: run manage.py migrate hourwheel"
                ) from error
            raise
        return True

    def _sweep(self) -> None:
        try:
            self.sweep()
        except DatabaseError as error:  # the message is handled, and a later one sweeps
            _log.warning("expired messages were not removed: %s", shown(str(error)))


def _model() -> Any:
    from hourwheel.apps.django.models import ProcessedMessage  # models are loaded once the settings are

    return ProcessedMessage
