"""Tells systemd that the server listens, lives and stops (``Type=notify`` and ``WatchdogSec=`` of a unit).

The protocol is that of sd_notify(3): datagrams to the socket that ``NOTIFY_SOCKET`` names. Without the variable nothing
is sent, so other supervisors and a terminal need no option.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Systemd:
    """``environment`` is that of the process. Raises ``ValueError`` if ``WATCHDOG_USEC`` is no number."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.alive_seconds = _alive_seconds(environment) if self._address else 0.0
        """The time between two signs of life; 0: nobody waits for them."""

    def notify(self, state: str) -> None:
        """Sends a state, such as ``READY=1``. A supervisor that is gone or busy is no reason to stop serving, so errors
        of the socket are passed over."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), address)

    async def show_life(self) -> None:
        """Sends signs of life until the task is cancelled. The event loop sends them: a supervisor thus restarts a
        server whose loop hangs, and none that merely cannot write, which a restart would not help."""
        while self.alive_seconds:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.alive_seconds)


def _alive_seconds(environment: Mapping[str, str]) -> float:
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0  # the watchdog waits for another process of the unit
    patience = environment.get("WATCHDOG_USEC", "0")
    if not patience.isdecimal():
        raise ValueError(f"WATCHDOG_USEC must be a number of microseconds, not {patience!r}")
    return int(patience) / 2 / 1_000_000
