"""Calls a handler once for each message, by what a store remembers.

A message is known by ``subject/group/id``. The id is the sender's or the server's; retries, releases, redriven dead
letters and a replay have the id of the message, and so does a message that was sent twice under one id.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, cast

from hourwheel.client.decoding import SESSION, HandlerArguments, arguments_of
from hourwheel.client.errors import Retry
from hourwheel.client.lease_tracker import Delivery

_log = logging.getLogger("hourwheel.consumer")


class InProgress(Retry):
    """Says that another consumer handles the message, or died while it did. The message is retried after ``delay``.

    Raises:
        ValueError: ``delay`` is no valid delay.

    Example:
        >>> raise InProgress(delay=30)
        Traceback (most recent call last):
        hourwheel.client.idempotence.InProgress: another consumer handles the message
    """

    def __init__(self, *, delay: float) -> None:
        super().__init__("another consumer handles the message", delay=delay)


class TransactionStore(Protocol):
    """Remembers messages in the transaction in which their handlers work: effects happen exactly once."""

    def transaction(self, identity: str) -> AbstractContextManager[Any]:
        """Opens a transaction that remembers the message. Enters with the session of the transaction, or with None
        where the message was handled before. Commits at the end of the block, rolls back where it raises."""
        ...


class IdempotencyStore(Protocol):
    """Remembers messages beside the work of their handlers."""

    def begin(self, identity: str) -> bool:
        """Marks a message as being handled, for a limited time, and returns True. Returns False where it was handled
        before. Raises ``InProgress`` where it is marked already."""
        ...

    def end(self, identity: str, *, done: bool) -> None:
        """Remembers that a message was handled, or with ``done=False`` forgets its mark: it is handled again."""
        ...


AnyStore: TypeAlias = IdempotencyStore | TransactionStore


class _GivenBack(Exception):
    """Ends the transaction of a handler that called ``message.retry`` or ``message.dead``, and returned."""


def identity_of(subject: str, group: str, message: Delivery) -> str:
    """Returns the name by which a store knows a message: at most 302 characters."""
    return f"{subject}/{group}/{message.id}"


def idempotent_handler(
    function: Callable[..., object], store: AnyStore, subject: str, group: str
) -> Callable[[Delivery], object]:
    """Returns what calls the handler for messages that it has not handled yet. Raises ``TypeError`` for a store without
    the methods of one, and for a handler that takes a session where the store has none."""
    arguments = arguments_of(function) or HandlerArguments(None, False, False)
    if hasattr(store, "transaction"):
        transactions = cast("TransactionStore", store)
        return _in_transaction(function, arguments, transactions, lambda message: identity_of(subject, group, message))
    if not (hasattr(store, "begin") and hasattr(store, "end")):
        raise TypeError("an idempotency store has the method transaction, or the methods begin and end")
    if arguments.with_session:
        raise TypeError(f"the handler takes a {SESSION}, and {type(store).__name__} has none: only a database does")
    return _beside(function, arguments, store, lambda message: identity_of(subject, group, message))


def _in_transaction(
    function: Callable[..., object],
    arguments: HandlerArguments,
    store: TransactionStore,
    identity: Callable[[Delivery], str],
) -> Callable[[Delivery], object]:
    def handle(message: Delivery) -> None:
        positional = arguments.of(message)  # before the transaction: a body that does not fit costs none
        try:
            with store.transaction(identity(message)) as session:
                if session is None:
                    _log.info("message %s was handled before", message.id)
                    return
                function(*positional, **({SESSION: session} if arguments.with_session else {}))
                if message.given_back:
                    raise _GivenBack
        except _GivenBack:
            pass

    return handle


def _beside(
    function: Callable[..., object],
    arguments: HandlerArguments,
    store: IdempotencyStore,
    identity: Callable[[Delivery], str],
) -> Callable[[Delivery], object]:
    def handle(message: Delivery) -> None:
        positional = arguments.of(message)
        name = identity(message)
        if not store.begin(name):
            _log.info("message %s was handled before", message.id)
            return
        try:
            function(*positional)
        except BaseException:
            _forget(store, name)
            raise
        store.end(name, done=not message.given_back)

    return handle


def _forget(store: IdempotencyStore, name: str) -> None:
    """Removes a mark after a failure, whose error is to be seen and not that of the store: the mark ends by itself."""
    try:
        store.end(name, done=False)
    except Exception:
        _log.exception("the mark of message %s could not be removed: it is retried once the mark has ended", name)
