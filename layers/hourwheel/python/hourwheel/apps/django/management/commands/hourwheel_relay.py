"""Runs a relay of the outbox: ``manage.py hourwheel_relay``."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections

from hourwheel.apps.django.settings import relay_settings
from hourwheel.apps.outbox.errors import OutboxError
from hourwheel.apps.outbox.relay import Relay
from hourwheel.client import DEFAULT_URL


class Command(BaseCommand):
    help = "Send the rows of the outbox to Hourwheel until the command is stopped. Any number of relays may run."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default=DEFAULT_DB_ALIAS, help="The alias of the outbox's database.")
        parser.add_argument(
            "--url", default=None, help=f"The URL of the server. Without it HOURWHEEL['URL'], else {DEFAULT_URL}."
        )
        parser.add_argument("--workers", type=int, default=2, help="The number of threads, each with one connection.")
        parser.add_argument(
            "--keep-days", type=float, default=0.0, help="Days for which rows are kept after they were sent."
        )
        parser.add_argument("--once", action="store_true", help="Send the rows that wait, and end.")

    def handle(self, *args: Any, **options: Any) -> None:
        settings = relay_settings() | ({"url": options["url"]} if options["url"] else {})
        try:
            relay = Relay(
                connections[options["database"]], workers=options["workers"], keep_days=options["keep_days"], **settings
            )
            if options["once"]:
                self._send_once(relay)
            else:
                relay.run()
        except (OutboxError, ValueError, TypeError) as error:
            raise CommandError(str(error)) from error

    def _send_once(self, relay: Relay) -> None:
        try:
            self.stdout.write(f"sent {relay.run_once()}")
        finally:
            relay.stop()
