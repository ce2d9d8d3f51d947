"""Names the tables of the app, which ``hourwheel.apps.django.models`` declares."""

from hourwheel.apps.django.models import OutboxRow, OutboxShard, ProcessedMessage

__all__ = ["OutboxRow", "OutboxShard", "ProcessedMessage"]
