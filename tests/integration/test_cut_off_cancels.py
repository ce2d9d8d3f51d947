"""A process is killed amid a cancel: the server that shares its directory finishes the stored change."""

import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, bodies, pull

CANCEL = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from hourwheel.deployment.deployment import Deployment
from hourwheel.embedded.offline import opened

class Dying:
    def __init__(self, store, writes):
        self._store, self._left = store, writes

    def __getattr__(self, name):
        call = getattr(self._store, name)
        if name not in {"add", "put", "delete", "transact"}:
            return call

        def last(*values, **named):
            result = call(*values, **named)
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return last

data, scheduled_id, writes = sys.argv[1:]
with opened(Path(data)) as context:
    Deployment(replace(context, store=Dying(context.store, int(writes)))).delayed.cancel(scheduled_id)
"""


def send_far_ahead(server: Server, body: str) -> str:
    message = {"body": body, "delay": "30d"}
    (accepted,) = server.ok("POST", "/v1/subjects/orders/messages", {"messages": [message]})["results"]
    return str(accepted["scheduled_id"])


def cut_off_after(writes: int, data: Path, scheduled_id: str) -> bool:
    """Cancels in a process that is killed after this many writes. Returns whether it was killed."""
    command = [sys.executable, "-c", CANCEL, str(data), scheduled_id, str(writes)]
    status = subprocess.run(command, timeout=SECONDS, check=False).returncode
    assert status in (0, -signal.SIGKILL)
    return status != 0


def test_a_cancel_is_finished_from_the_moment_on_at_which_it_was_written_down(tmp_path: Path, start: Start) -> None:
    server = start(tmp_path)
    states: list[str] = []
    for writes in count(1):
        one = send_far_ahead(server, str(writes))
        killed = cut_off_after(writes, tmp_path, one)
        states.append(server.ok("GET", f"/v1/scheduled/{one}")["state"])
        if not killed:
            break
    # The first write announces the change, the second one stores it.
    assert states == ["waiting", *["cancelled"] * (len(states) - 1)]
    assert len(states) > 4
    assert bodies(pull(server)) == []
    assert server.stop() == (0, "")
