"""Calls a handler once for each message: a store remembers the messages that were handled. ``aio/idempotence.py`` does
so for handlers and stores that are awaited.

The store knows a message as ``subject/group/id``. The sender gave the id, or the server did. Every delivery of a
message has its id: retries, released messages, redriven dead letters, replays. So has a message that was sent twice
under one id.
"""

import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from hourwheel.client.consuming.decoding import SESSION, HandlerArguments, arguments_of
from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.errors import Retry
from hourwheel.client.transport.steps import Steps, finished
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")


class InProgress(Retry):
    """A store raises this error if another consumer is handling the message, or died while it was. The message is
    retried after ``delay``.

    Raises:
        ValueError: ``delay`` is no valid delay.

    Example:
        >>> raise InProgress(delay=30)
        Traceback (most recent call last):
        hourwheel.client.consuming.idempotence.InProgress: another consumer handles the message
    """

    def __init__(self, *, delay: float) -> None:
        super().__init__("another consumer handles the message", delay=delay)


class TransactionStore(Protocol):
    """Remembers messages in the transaction in which their handlers work: effects happen exactly once.

    Example:
        >>> class Store:
        ...     @contextmanager
        ...     def transaction(self, identity):
        ...         with sessions.begin() as session:
        ...             yield session if remember(session, identity) else None
    """

    def transaction(self, identity: str) -> AbstractContextManager[Any]:
        """Opens a transaction that remembers the message. Enters with the session of the transaction, or with None
        where the message was handled before. Commits at the end of the block, rolls back where it raises.

        Raises:
            Exception: the error of the block, or of the database; the message is retried.

        Example:
            >>> with store.transaction("orders/billing/order-7") as session:
            ...     if session is not None:
            ...         session.add(Bill(order=7))
        """
        ...


class IdempotencyStore(Protocol):
    """Remembers messages beside the work of their handlers.

    Example:
        >>> class Store:
        ...     def begin(self, identity):
        ...         return cache.add(identity, "under way", seconds=60)
        ...     def end(self, identity, *, done):
        ...         cache.set(identity, "done") if done else cache.delete(identity)
    """

    def begin(self, identity: str) -> bool:
        """Marks a message as being handled, for a limited time, and returns True. Returns False where it was handled
        before.

        Raises:
            InProgress: the message is marked already; it is retried when the mark ends.

        Example:
            >>> store.begin("orders/billing/order-7")
            True
        """
        ...

    def end(self, identity: str, *, done: bool) -> None:
        """Remembers that a message was handled, or with ``done=False`` forgets its mark: it is handled again.

        Raises:
            Exception: the store does not answer; the mark ends by itself.

        Example:
            >>> store.end("orders/billing/order-7", done=True)
        """
        ...


AnyStore: TypeAlias = IdempotencyStore | TransactionStore


BATCHES = (
    "a batch handler takes no idempotency store: what it writes for a message that it gives back could not be rolled "
    "back without the rest of the batch; use handler(idempotent=...), which handles one message in each transaction"
)


class GivenBack(Exception):
    """Rolls back the transaction of a handler that has returned after it called ``message.retry`` or
    ``message.dead``."""


class NamedHandler(NamedTuple):
    """A handler with its arguments, and the subject and group that name its messages in a store."""

    function: Callable[..., Any]
    arguments: HandlerArguments
    subject: str
    group: str

    def identity(self, message: Delivery) -> str:
        """Returns the name by which a store knows a message: at most 302 characters."""
        return f"{self.subject}/{self.group}/{message.id}"

    def of(self, session: Any) -> dict[str, Any]:
        """Returns the keyword arguments of the handler: the ``session`` of the transaction, if it takes one."""
        return {SESSION: session} if self.arguments.with_session else {}


def prepared_handler(function: Callable[..., object], store: object, subject: str, group: str) -> NamedHandler:
    """Returns the handler with its arguments. Raises ``TypeError`` for a ``store`` that lacks the methods of a store,
    and for a handler that takes a session if the store has none."""
    arguments = arguments_of(function) or HandlerArguments(None, False, False)
    if not hasattr(store, "transaction"):
        if not (hasattr(store, "begin") and hasattr(store, "end")):
            raise TypeError(
                "an idempotency store has the method transaction, or the methods begin and end:"
                f" {type(store).__name__} has neither"
            )
        if arguments.with_session:
            raise TypeError(f"the handler takes a {SESSION}, and {type(store).__name__} has none: only a database does")
    return NamedHandler(function, arguments, subject, group)


def is_awaited(store: object) -> bool:
    """Returns whether the methods of a store are coroutine functions, or its transaction an asynchronous one."""
    method = getattr(store, "transaction", None) or getattr(store, "begin", None)
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(inspect.unwrap(method or id))


def handled_before(message: Delivery) -> None:
    _log.info("message %s was handled before", shown(message.id))


def mark_stays(name: str) -> None:
    """Logs that the mark of a message could not be removed after its handler failed. The error of the store is not
    raised: it would hide that of the handler, and the mark ends by itself."""
    _log.exception(
        "the mark of message %s could not be removed: the message is retried once the mark has ended", shown(name)
    )


def idempotent_handler(
    function: Callable[..., object], store: AnyStore, subject: str, group: str
) -> Callable[[Delivery], object]:
    """Returns a function that calls the handler unless the store remembers its message. Raises ``TypeError`` as
    ``prepared_handler`` does, and for a store that has to be awaited."""
    handler = prepared_handler(function, store, subject, group)
    if is_awaited(store):
        raise TypeError(f"{type(store).__name__} is to be awaited: give it to an AsyncConsumer")
    if hasattr(store, "transaction"):
        return _in_transaction(handler, cast("TransactionStore", store))
    return lambda message: finished(beside(handler, store, message))


def _in_transaction(handler: NamedHandler, store: TransactionStore) -> Callable[[Delivery], object]:
    def handle(message: Delivery) -> None:
        positional = handler.arguments.of(message)  # a body that does not fit costs no transaction
        try:
            with store.transaction(handler.identity(message)) as session:
                if session is None:
                    handled_before(message)
                    return
                handler.function(*positional, **handler.of(session))
                if message.given_back:
                    raise GivenBack
        except GivenBack:
            pass

    return handle


def beside(handler: NamedHandler, store: Any, message: Delivery) -> Steps[None]:
    """Calls the handler between the marks of an ``IdempotencyStore``, in steps for a thread or a task."""
    positional = handler.arguments.of(message)
    name = handler.identity(message)
    if not (yield store.begin(name)):
        handled_before(message)
        return
    try:
        yield handler.function(*positional)
    except BaseException:
        try:
            yield store.end(name, done=False)
        except Exception:
            mark_stays(name)
        raise
    yield store.end(name, done=not message.given_back)
