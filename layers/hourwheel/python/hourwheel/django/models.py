"""Declares the tables of the app. ``hourwheel.outbox.shards`` draws those of the outbox."""

from django.db import models


class OutboxRow(models.Model):
    """A message that waits in the outbox, that was refused, or that was sent and is kept for a while."""

    id = models.BigAutoField(primary_key=True)
    state = models.SmallIntegerField(db_default=0)
    shard = models.SmallIntegerField()
    subject = models.CharField(max_length=100)
    message = models.BinaryField()
    size_bytes = models.IntegerField()
    created_ms = models.BigIntegerField()
    settled_ms = models.BigIntegerField(null=True)
    reason = models.TextField(null=True)

    class Meta:
        db_table = "hourwheel_outbox"
        indexes = (models.Index(fields=["state", "shard", "id"], name="hourwheel_outbox_waiting"),)

    def __str__(self) -> str:
        return f"{self.subject} {self.id}"


class OutboxShard(models.Model):
    """A shard of the outbox: the relay that sends its rows, and which of them are under way."""

    shard = models.SmallIntegerField(primary_key=True)
    sender = models.CharField(max_length=100)
    sequence = models.BigIntegerField(db_default=0)
    batch = models.BinaryField(null=True)
    token = models.CharField(max_length=64, db_default="")
    relay = models.CharField(max_length=200, db_default="")
    lease_until_ms = models.BigIntegerField(db_default=0)

    class Meta:
        db_table = "hourwheel_outbox_shard"

    def __str__(self) -> str:
        return f"shard {self.shard}"


class ProcessedMessage(models.Model):
    """A message that an idempotent consumer has handled: ``subject/group/id``, remembered until ``expires_ms``."""

    identity = models.CharField(max_length=302, primary_key=True)
    expires_ms = models.BigIntegerField(db_index=True)

    class Meta:
        db_table = "hourwheel_processed"

    def __str__(self) -> str:
        return str(self.identity)
