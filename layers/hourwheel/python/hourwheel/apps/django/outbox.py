"""Sends messages in the transaction of Django's ORM."""

from typing import Any

from django.db import connections, router

from hourwheel.apps.outbox import sending


def send(subject: str, body: str | bytes | Any, *, using: str | None = None, **fields: Any) -> None:
    """Sends a message when the current transaction is committed, and never if it is rolled back. ``using`` names the
    database; without it, the router chooses the database of ``OutboxRow``. The other arguments and the errors are those
    of ``hourwheel.outbox.send``.

    Example:
        >>> with transaction.atomic():
        ...     order = Order.objects.create(item="book")
        ...     outbox.send("orders", {"order": order.pk}, key=f"order-{order.pk}")
    """
    if using is None:
        from hourwheel.apps.django.models import OutboxRow

        using = router.db_for_write(OutboxRow)
    sending.send(connections[using], subject, body, **fields)
