"""Decides what becomes of messages whose handler failed. Both kinds of consumers use this module."""

import logging
import os
import re
import socket
from collections.abc import Sequence
from typing import NamedTuple

from hourwheel.client.consuming.decoding import Misfit
from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.errors import Reject, Retry
from hourwheel.client.records.compact import UNDECODABLE
from hourwheel.ports.machine import Ids
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")


class Handling(NamedTuple):
    """The subject and the group whose messages a consumer handles, and whether it sends the texts of errors."""

    subject: str
    group: str
    error_details: bool

    def detail(self, error: BaseException) -> str | None:
        """Returns the text that the server gets as the ``detail`` of an error: the text of ``Reject`` and ``Retry``, of
        any other error its type and the first line of its text. Returns None if details stay here."""
        if not self.error_details:
            return None
        return str(error) if isinstance(error, Reject | Retry) else error_text(error)


def error_text(error: BaseException) -> str:
    """Returns the type of an error and the first line of its text."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # ``__str__`` of the application's error may fail, and the message must be settled nevertheless
        lines = []
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def decide_failed(messages: Sequence[Delivery], error: BaseException, handling: Handling) -> bool:
    """Retries messages whose handler raised an error, or with ``Reject`` makes them dead letters. Messages about which
    the handler decided before keep that decision. Returns whether the error, such as ``SystemExit``, ends the
    consumer."""
    named = _named(messages, handling)
    if isinstance(error, Reject):
        _log_rejected(named, error)
        for message in messages:
            message.dead(detail=handling.detail(error))
        return False
    delay = None
    if isinstance(error, Retry):
        delay = error.delay
        _log.info("%s will be retried after %s: %s", named, error.delay, shown(str(error)))
    elif isinstance(error, Exception):
        _log.exception(
            "handler failed on %s: given back, to be retried unless this was the last attempt", named, exc_info=error
        )
    # Also if the error ends the consumer: other consumers get the messages before their lease ends.
    for message in messages:
        message.retry(delay=delay, detail=handling.detail(error))
    return not isinstance(error, Exception)


def give_up(message: Delivery, error: Reject, *, handling: Handling) -> None:
    """Makes a message a dead letter."""
    _log_rejected(_named([message], handling), error)
    message.dead(detail=handling.detail(error))


def _log_rejected(named: str, error: Reject) -> None:
    # No handler saw a body that does not fit: a program without a logging set-up shows warnings alone.
    level = logging.WARNING if isinstance(error, Misfit) else logging.INFO
    _log.log(level, "%s rejected: %s", named, shown(str(error)))


def _named(messages: Sequence[Delivery], handling: Handling) -> str:
    """Returns the name of messages for a line of the log, with their attempts. Never fails: a message that cannot be
    decoded is named without its id."""
    where = f"of subject {handling.subject}, group {handling.group}"
    try:
        attempts = [message.attempt for message in messages]
        if len(messages) == 1:
            return f"message {shown(messages[0].id)} {where}, attempt {attempts[0]}"
    except UNDECODABLE:
        if len(messages) == 1:
            return f"a message {where}, which this client cannot decode"
        return f"{len(messages)} messages {where}"
    first, last = min(attempts), max(attempts)
    span = f"attempt {first}" if first == last else f"attempts {first} to {last}"
    return f"{len(messages)} messages {where}, {span}"


def default_consumer_id(ids: Ids) -> str:
    """Returns a name that no other consumer has: the host, the process and a random part."""
    # Names have other characters than hosts, and 100 of them at most.
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:60]
    return f"{host}-{os.getpid()}-{ids.token().hex()[:8]}"
