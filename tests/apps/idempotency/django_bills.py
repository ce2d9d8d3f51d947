"""Runs a Django project of one module in a process of its own: its consumer changes a database step by step.

Writes one line of JSON for each step: the numbers billed, and the messages remembered.
"""

import json
import sys
from datetime import timedelta

import django
from django.conf import settings
from django.core.management import call_command

DATABASE = json.loads(sys.argv[1])
settings.configure(
    DATABASES={"default": DATABASE},
    INSTALLED_APPS=["django.contrib.contenttypes", "hourwheel.django"],
    USE_TZ=True,
)
django.setup()

from django.contrib.contenttypes.models import ContentType  # noqa: E402 - models are there after setup
from django.db import connection  # noqa: E402 - after setup

from hourwheel.client import Delivery  # noqa: E402 - after setup
from hourwheel.django.idempotency import DjangoStore  # noqa: E402 - after setup
from hourwheel.django.models import ProcessedMessage  # noqa: E402 - after setup
from hourwheel.testing import Queue  # noqa: E402 - after setup
from tests.apps.idempotency.conftest import LEASE_SECONDS, killed_before_it_acknowledged, set_handler  # noqa: E402 - after setup


class MovedClock:
    ms = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None: ...


def bill(order: dict[str, int], message: Delivery) -> None:
    ContentType.objects.create(app_label="bills", model=str(order["number"]))
    if message.attempt == 1 and order["number"] == 8:
        raise RuntimeError("not today")


def report(step: str) -> None:
    billed = sorted(int(name) for name in ContentType.objects.filter(app_label="bills").values_list("model", flat=True))
    sys.stdout.write(json.dumps([step, billed, ProcessedMessage.objects.count()]) + "\n")
    connection.close()


def compare_as_mysql() -> None:
    """Makes the table compare texts without the blanks at their ends."""
    table = ProcessedMessage._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {table}")
        cursor.execute(f"CREATE TABLE {table} (identity TEXT COLLATE RTRIM PRIMARY KEY, expires_ms BIGINT NOT NULL)")


def is_new(store: DjangoStore, identity: str) -> bool:
    with store.transaction(identity) as opened:
        return opened is not None


def main() -> None:
    clock = MovedClock()
    store = DjangoStore(keep=timedelta(days=1), clock=clock)
    with Queue() as queue:
        queue.producer("orders").send({"number": 7})
        try:
            killed_before_it_acknowledged(queue, store, bill)
        except LookupError as error:
            sys.stdout.write(json.dumps(["no table", str(error)]) + "\n")
        call_command("migrate", verbosity=0)
        call_command("makemigrations", check=True, verbosity=0)
        queue.advance(seconds=LEASE_SECONDS + 10)
        queue.consumer("orders", "billing")
        killed_before_it_acknowledged(queue, store, bill)
        report("killed")
        set_handler(queue, store, bill)
        assert queue.advance(seconds=LEASE_SECONDS + 20) == 1
        report("delivered again")
        queue.producer("orders").send({"number": 8})
        queue.run()
        report("failed")
        queue.advance(minutes=1)
        report("retried")
        clock.ms += 90_000_000
        assert store.sweep() == 2
        report("expired")
    if connection.vendor == "sqlite":
        compare_as_mysql()
    names = ("order-7", "order-7 ", "order-7  ", "order-7 ")
    new = [is_new(store, f"orders/billing/{name}") for name in names]
    sys.stdout.write(json.dumps(["blanks", new, ProcessedMessage.objects.count()]) + "\n")


main()
