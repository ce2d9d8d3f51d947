"""Remembers handled messages in a table of the project's own database, in the transaction of the handler."""

from hourwheel.apps.django.idempotency import DjangoStore

__all__ = ["DjangoStore"]
