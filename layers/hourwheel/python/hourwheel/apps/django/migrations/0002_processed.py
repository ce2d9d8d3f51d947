"""Makes the table of the messages that idempotent consumers have handled."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("hourwheel", "0001_outbox")]

    operations = [
        migrations.CreateModel(
            name="ProcessedMessage",
            fields=[
                ("identity", models.CharField(max_length=302, primary_key=True, serialize=False)),
                ("expires_ms", models.BigIntegerField(db_index=True)),
            ],
            options={
                "db_table": "hourwheel_processed",
            },
        ),
    ]
