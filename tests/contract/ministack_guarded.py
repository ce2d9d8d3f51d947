"""Runs ministack until standard input ends: it cannot outlive the tests that started it, however they end."""

import os
import sys
import threading
from typing import Any

from ministack.app import main
from ministack.core.responses import AccountRegionScopedDict
from ministack.services import dynamodb, scheduler

# Seconds between two searches for due schedules: ministack's own value is ten.
scheduler._SCHEDULE_TICK_INTERVAL = 1


class NothingExpires(AccountRegionScopedDict):
    """Each minute ministack removes the rows that have expired by the clock of the machine: all those of tests, whose
    clocks are behind."""

    def all_items(self) -> list[Any]:
        return []


dynamodb._ttl_settings = NothingExpires()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


threading.Thread(target=_end_with_parent, daemon=True).start()
main()
