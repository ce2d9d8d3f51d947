"""Remembers handled messages in Redis, beside the work of the handler.

key    hourwheel:processed:{subject/group/id}
value  "done", or the token of the consumer that handles the message; each expires
"""

import asyncio
import logging
import math
import threading
from collections.abc import Generator
from datetime import timedelta
from typing import Any

from hourwheel.apps.idempotency.retention import KEEP
from hourwheel.client.consuming.idempotence import InProgress
from hourwheel.ports.machine import Ids
from hourwheel.system import SystemIds
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")

_DONE = "done"
_TRIES = 3  # a mark may end between the two looks at it

# One script, so that no mark of another consumer comes between the GET and the SET. A mark that another consumer has
# set since this consumer's mark ended stays.
_END = """
local mark = redis.call('GET', KEYS[1])
if mark == ARGV[1] or (not mark and ARGV[2] ~= '') then
  if ARGV[2] == '' then redis.call('DEL', KEYS[1])
  else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
  return 1
end
return 0
"""


class _Marks:
    """Chooses the commands that mark a message, and decides by their answers. ``begin`` yields each command, and the
    store sends its answer into it: so it serves clients that block and clients that are awaited."""

    def __init__(self, client: Any, keep: timedelta, lease: timedelta, prefix: str, ids: Ids | None) -> None:
        if min(keep, lease) <= timedelta(0):
            raise ValueError("keep and lease must be longer than zero")
        self._client = client
        self._keep_ms = round(keep / timedelta(milliseconds=1))
        self._lease_ms = round(lease / timedelta(milliseconds=1))
        self._prefix = prefix
        self._ids = ids or SystemIds()
        # Two threads, or tasks, of one store may handle a message, once the mark of the first has ended.
        self._tokens: dict[tuple[str, int], str] = {}

    def begin(self, identity: str) -> Generator[Any, Any, bool]:
        key, token = self._prefix + identity, self._ids.token().hex()
        for _ in range(_TRIES):
            if (yield self._client.set(key, token, nx=True, px=self._lease_ms)):
                self._tokens[identity, _caller()] = token
                return True
            mark = yield self._client.get(key)
            if mark in (token, token.encode()):  # the answer was lost, and the client has sent the command again
                self._tokens[identity, _caller()] = token
                return True
            if mark in (_DONE, _DONE.encode()):
                return False
            left_ms = yield self._client.pttl(key)
            if mark is not None and left_ms > 0:
                raise InProgress(delay=math.ceil(left_ms / 1_000))
        raise InProgress(delay=1)

    def end(self, identity: str, done: bool) -> Any:
        token = self._tokens.pop((identity, _caller()), None) or self._of_another(identity)
        return self._client.eval(_END, 1, self._prefix + identity, token, _DONE if done else "", self._keep_ms)

    def _of_another(self, identity: str) -> str:
        """Removes and returns the only token of a message: another thread or task began to handle it. Returns "" where
        no token is there, or several."""
        keys = [key for key in list(self._tokens) if key[0] == identity]
        return self._tokens.pop(keys[0], "") if len(keys) == 1 else ""


class RedisStore:
    """Handles each message once unless a consumer dies, or takes longer than ``lease``, while it handles the message.

    ``client`` is a ``redis.Redis``.

    A consumer marks the message, for ``lease``, before it calls the handler. If it dies before it could remember the
    message, another consumer handles the message again once the mark has ended. Messages are remembered for ``keep``.

    Raises:
        ValueError: ``keep`` or ``lease`` is not more than zero.
        TypeError: ``client`` is one of ``redis.asyncio``.

    Example:
        >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing")
        >>> @consumer.handler(idempotent=RedisStore(redis.Redis(), lease=timedelta(minutes=5)))
        ... def bill(order: Order):
        ...     charge(order)
    """

    def __init__(
        self,
        client: Any,
        *,
        keep: timedelta = KEEP,
        lease: timedelta = timedelta(minutes=1),
        prefix: str = "hourwheel:processed:",
        ids: Ids | None = None,
    ) -> None:
        if _is_asynchronous(client):
            raise TypeError("this client is asynchronous: use AsyncRedisStore, and an AsyncConsumer")
        self._marks = _Marks(client, keep, lease, prefix, ids)

    def begin(self, identity: str) -> bool:
        """Marks the message for ``lease`` and returns True; returns False for a message that was handled before.

        Raises:
            InProgress: another consumer has marked the message.
            RedisError: Redis does not answer.

        Example:
            >>> store.begin("orders/billing/order-7")
            True
        """
        answer, steps = None, self._marks.begin(identity)
        while True:
            try:
                answer = steps.send(answer)
            except StopIteration as end:
                return bool(end.value)

    def end(self, identity: str, *, done: bool) -> None:
        """Remembers the message for ``keep``; if it is not ``done``, removes the mark instead.

        Raises:
            RedisError: Redis does not answer.

        Example:
            >>> store.end("orders/billing/order-7", done=True)
        """
        if not self._marks.end(identity, done) and done:
            _overtaken(identity)


class AsyncRedisStore:
    """Handles each message of an ``AsyncConsumer`` once, as ``RedisStore`` does. ``client`` is one of
    ``redis.asyncio``.

    Raises:
        ValueError: ``keep`` or ``lease`` is not more than zero.
        TypeError: ``client`` is not asynchronous.

    Example:
        >>> consumer = AsyncConsumer("http://127.0.0.1:7420", "orders", "billing")
        >>> @consumer.handler(idempotent=AsyncRedisStore(redis.asyncio.Redis(), lease=timedelta(minutes=5)))
        ... async def bill(order: Order):
        ...     await charge(order)
    """

    def __init__(
        self,
        client: Any,
        *,
        keep: timedelta = KEEP,
        lease: timedelta = timedelta(minutes=1),
        prefix: str = "hourwheel:processed:",
        ids: Ids | None = None,
    ) -> None:
        if not _is_asynchronous(client):
            raise TypeError("this client is not asynchronous: use RedisStore, or a client of redis.asyncio")
        self._marks = _Marks(client, keep, lease, prefix, ids)

    async def begin(self, identity: str) -> bool:
        """Marks the message for ``lease`` and returns True; returns False for a message that was handled before.

        Raises:
            InProgress: another consumer has marked the message.
            RedisError: Redis does not answer.

        Example:
            >>> asyncio.run(store.begin("orders/billing/order-7"))
            True
        """
        answer, steps = None, self._marks.begin(identity)
        while True:
            try:
                answer = await steps.send(answer)
            except StopIteration as end:
                return bool(end.value)

    async def end(self, identity: str, *, done: bool) -> None:
        """Remembers the message for ``keep``; if it is not ``done``, removes the mark instead.

        Raises:
            RedisError: Redis does not answer.

        Example:
            >>> asyncio.run(store.end("orders/billing/order-7", done=True))
        """
        if not await self._marks.end(identity, done) and done:
            _overtaken(identity)


def _caller() -> int:
    """Returns a number for the task, or the thread, that makes the call."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return threading.get_ident() if task is None else id(task)


def _is_asynchronous(client: Any) -> bool:
    return hasattr(client, "__aenter__")


def _overtaken(identity: str) -> None:
    _log.warning(
        "the handler of %s took longer than its mark, and another consumer handles the message too: make lease longer",
        shown(identity),
    )
