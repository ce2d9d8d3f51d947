"""Makes the tables of the outbox."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: list[tuple[str, str]] = []

    operations = [
        migrations.CreateModel(
            name="OutboxShard",
            fields=[
                ("shard", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("sender", models.CharField(max_length=100)),
                ("sequence", models.BigIntegerField(db_default=0)),
                ("batch", models.BinaryField(null=True)),
                ("token", models.CharField(db_default="", max_length=64)),
                ("relay", models.CharField(db_default="", max_length=200)),
                ("lease_until_ms", models.BigIntegerField(db_default=0)),
            ],
            options={
                "db_table": "hourwheel_outbox_shard",
            },
        ),
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("state", models.SmallIntegerField(db_default=0)),
                ("shard", models.SmallIntegerField()),
                ("subject", models.CharField(max_length=100)),
                ("message", models.BinaryField()),
                ("size_bytes", models.IntegerField()),
                ("created_ms", models.BigIntegerField()),
                ("settled_ms", models.BigIntegerField(null=True)),
                ("reason", models.TextField(null=True)),
            ],
            options={
                "db_table": "hourwheel_outbox",
                "indexes": [models.Index(fields=["state", "shard", "id"], name="hourwheel_outbox_waiting")],
            },
        ),
    ]
