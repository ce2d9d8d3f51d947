"""Tests applications without a server: a queue in memory, with a clock that the test moves.

``Queue`` is the queue. The fixture ``hourwheel_queue`` of pytest gives each test a new one.

Nothing is imitated: the functions of the server run on the store in memory, with the clock passed in, behind the
client's own code. ``client/in_process.py`` names what differs. It finds the server by its URL, a consumer hands out
messages on the thread of the test, and a producer waits for each message, so that two runs see the same.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hourwheel.apps.testing.queue import Queue
    from hourwheel.apps.testing.sent import Sent

__all__ = ["Queue", "Sent"]


def __getattr__(name: str) -> Any:
    # Imported when they are asked for: pytest loads the plugin of this package in each run.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hourwheel.apps.testing import queue, sent

    return getattr(queue if name == "Queue" else sent, name)
