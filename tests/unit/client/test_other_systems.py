"""Clients work where the system does not fork, or ``select`` has no ``poll``: on Windows, and under eventlet."""

import subprocess
import sys

PROGRAM = """
import os, select
del os.fork, os.register_at_fork, select.poll
from hourwheel.client import Api, Consumer, Producer
import hourwheel.apps.celery.transport, hourwheel.apps.celery.producers
from hourwheel.apps.celery.bell import Bell
with Api("http://127.0.0.1:1") as api, Producer("http://127.0.0.1:1", subject="orders") as producer:
    consumer = Consumer("http://127.0.0.1:1", "orders", "billing")
bell = Bell()
bell.ring()
assert bell.wait(1)
"""


def test_a_system_without_fork_and_poll_has_clients() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
