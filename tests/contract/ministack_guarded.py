"""Runs ministack until standard input ends: it cannot outlive the tests that started it, however they end."""

import os
import sys
import threading

from ministack.app import main
from ministack.services import dynamodb, scheduler

# Seconds between two searches for due schedules: ministack's own value is ten.
scheduler._SCHEDULE_TICK_INTERVAL = 1

# Each minute it removes the rows that have expired by the clock of the machine: all those of tests, whose clocks are
# behind.
dynamodb._ttl_settings.all_items = list


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


threading.Thread(target=_end_with_parent, daemon=True).start()
main()
