"""Decides what becomes of messages whose handler failed. Knows no thread."""

import logging
import os
import re
import socket
from collections.abc import Sequence
from typing import NamedTuple

from hourwheel.client.errors import Reject, Retry
from hourwheel.client.lease_tracker import Delivery
from hourwheel.client.records.compact import UNDECODABLE
from hourwheel.ports import Ids

_log = logging.getLogger("hourwheel.consumer")


class Handling(NamedTuple):
    """The subject and the group whose messages a consumer handles, and whether it sends the texts of errors."""

    subject: str
    group: str
    error_details: bool

    def detail(self, error: BaseException) -> str | None:
        """Returns what the server is told of an error: the text of ``Reject`` and ``Retry``, of any other error its
        type and the first line of its text."""
        if not self.error_details:
            return None
        return str(error) if isinstance(error, Reject | Retry) else error_text(error)


def error_text(error: BaseException) -> str:
    """Returns the type of an error and the first line of its text."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # the class of the error is the application's, and its message must be given back nevertheless
        lines = []
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def decide_failed(messages: Sequence[Delivery], error: BaseException, handling: Handling) -> bool:
    """Decides about messages whose handler raised an error. What the handler decided before stays. Returns whether the
    error ends the consumer, such as ``SystemExit``."""
    named = _named(messages, handling)
    if isinstance(error, Reject):
        _log.info("%s rejected: %s", named, error)
        for message in messages:
            message.dead(detail=handling.detail(error))
        return False
    delay = None
    if isinstance(error, Retry):
        delay = error.delay
        _log.info("%s will be retried after %s: %s", named, error.delay, error)
    elif isinstance(error, Exception):
        _log.exception(
            "handler failed on %s: given back, to be retried unless this was the last attempt", named, exc_info=error
        )
    # Also where the error ends the consumer, such as SystemExit: others get the messages before their lease ends.
    for message in messages:
        message.retry(delay=delay, detail=handling.detail(error))
    return not isinstance(error, Exception)


def give_up(message: Delivery, error: Reject, *, handling: Handling) -> None:
    _log.info("%s rejected: %s", _named([message], handling), error)
    message.dead(detail=handling.detail(error))


def _named(messages: Sequence[Delivery], handling: Handling) -> str:
    """Names the messages in a line of the log, with their attempts, also those that cannot be decoded."""
    where = f"of subject {handling.subject}, group {handling.group}"
    try:
        attempts = [message.attempt for message in messages]
        if len(messages) == 1:
            return f"message {messages[0].id} {where}, attempt {attempts[0]}"
    except UNDECODABLE:
        if len(messages) == 1:
            return f"a message {where}, which this client cannot decode"
        return f"{len(messages)} messages {where}"
    first, last = min(attempts), max(attempts)
    span = f"attempt {first}" if first == last else f"attempts {first} to {last}"
    return f"{len(messages)} messages {where}, {span}"


def default_consumer_id(ids: Ids) -> str:
    """Returns ``host-process-random``, cut to the alphabet and length of names."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:60]
    return f"{host}-{os.getpid()}-{ids.token().hex()[:8]}"
