"""Shares one producer among the connections of a process to one server, so that their threads share requests."""

import os
import threading
from typing import Any, NamedTuple

from hourwheel.client.producing.producer import Producer
from hourwheel.client.transport.signing import Sign
from hourwheel.locks import give_back


class ProducerSettings(NamedTuple):
    url: str
    token: str | None
    ca_file: str | None
    sign: Sign | None
    region: str | None
    delivery_timeout_seconds: float


class _Shared:
    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.users = 0


_lock = threading.RLock()
_producers: dict[ProducerSettings, _Shared] = {}


def acquire(settings: ProducerSettings) -> Producer:
    """Returns the producer with these settings. The caller calls ``release`` once for it."""
    try:
        with _lock:
            shared = _producers.get(settings)
            if shared is None:
                shared = _producers[settings] = _Shared(
                    Producer(**settings._asdict(), linger_seconds=0.001, create=False)
                )
            shared.users += 1
            return shared.producer
    except BaseException:
        give_back(_lock)
        raise


def release(settings: ProducerSettings) -> None:
    """Closes the producer once its last user has released it. Raises ``NotSent`` if it could not send the messages that
    it still held."""
    try:
        with _lock:
            shared = _producers.get(settings)
            if shared is None:
                return
            shared.users -= 1
            if shared.users > 0:
                return
            del _producers[settings]
    except BaseException:
        give_back(_lock)
        raise
    shared.producer.close()


def _forget_lock(*_: Any) -> None:
    global _lock
    _lock = threading.RLock()  # a thread of the parent may hold it


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget_lock)
