"""``manage.py buy ITEM``: stores an order and its message in one transaction."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction
from shop.models import Order

from hourwheel.django import outbox


class Command(BaseCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("item")
        parser.add_argument("--paid", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            order = Order.objects.create(item=options["item"])
            outbox.send("orders", {"order": order.pk, "item": order.item}, key=f"order-{order.pk}")
            if not options["paid"]:
                raise SystemExit("the card was declined")
