"""Declares the tables of the app. ``hourwheel.apps.outbox.shards`` draws those of the outbox."""

from django.db import models


class OutboxRow(models.Model):
    """Stores a message of the outbox, which waits, was refused, or was sent and is kept for a while."""

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
    """Stores a shard of the outbox: the lease of a relay, and the ids of the rows that it sends now."""

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
    """Stores that an idempotent consumer has handled the message ``subject/group/id``, until ``expires_ms``."""

    identity = models.CharField(max_length=302, primary_key=True)  # as long as ``IDENTITY_CHARACTERS``
    expires_ms = models.BigIntegerField(db_index=True)

    class Meta:
        db_table = "hourwheel_processed"

    def __str__(self) -> str:
        return str(self.identity)
