"""Sends messages in the transaction of Django's ORM."""

from hourwheel.apps.django.outbox import send

__all__ = ["send"]
