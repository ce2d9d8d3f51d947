"""Remembers handled messages in Redis, beside the work of the handler.

key    hourwheel:processed:{subject/group/id}
value  "done", or the token of the consumer that handles the message; each expires
"""

import logging
import math
from datetime import timedelta
from typing import Any

from hourwheel.client.idempotence import InProgress
from hourwheel.idempotency.retention import KEEP
from hourwheel.ports import Ids
from hourwheel.system import SystemIds

_log = logging.getLogger("hourwheel.consumer")

_DONE = "done"
_TRIES = 3  # a mark may end between the two looks at it

# In one step: another consumer's mark, after this one's has ended, stays.
_END = """
local mark = redis.call('GET', KEYS[1])
if mark == ARGV[1] or (not mark and ARGV[2] ~= '') then
  if ARGV[2] == '' then redis.call('DEL', KEYS[1])
  else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
  return 1
end
return 0
"""


class RedisStore:
    """Handles each message once unless a consumer dies, or takes longer than ``lease``, while it handles the message.

    ``client`` is a ``redis.Redis``.

    A consumer marks the message, for ``lease``, before it calls the handler. If it dies before it could remember the
    message, another consumer handles the message again once the mark has ended. Messages are remembered for ``keep``.

    Raises:
        ValueError: ``keep`` or ``lease`` is not more than zero.

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
        if min(keep, lease) <= timedelta(0):
            raise ValueError("keep and lease must be more than no time")
        self._client = client
        self._keep_ms = round(keep / timedelta(milliseconds=1))
        self._lease_ms = round(lease / timedelta(milliseconds=1))
        self._prefix = prefix
        self._ids = ids or SystemIds()
        self._tokens: dict[str, str] = {}

    def begin(self, identity: str) -> bool:
        """Marks the message for ``lease``; returns False where it was handled before.

        Raises:
            InProgress: another consumer has marked the message.
            RedisError: Redis does not answer.

        Example:
            >>> store.begin("orders/billing/order-7")
            True
        """
        key, token = self._prefix + identity, self._ids.token().hex()
        for _ in range(_TRIES):
            if self._client.set(key, token, nx=True, px=self._lease_ms):
                self._tokens[identity] = token
                return True
            mark = self._client.get(key)
            if mark in (_DONE, _DONE.encode()):
                return False
            left_ms = self._client.pttl(key)
            if mark is not None and left_ms > 0:
                raise InProgress(delay=math.ceil(left_ms / 1_000))
        raise InProgress(delay=1)

    def end(self, identity: str, *, done: bool) -> None:
        """Remembers the message for ``keep``, or removes the mark.

        Raises:
            RedisError: Redis does not answer.

        Example:
            >>> store.end("orders/billing/order-7", done=True)
        """
        token = self._tokens.pop(identity, "")
        ended = self._client.eval(_END, 1, self._prefix + identity, token, _DONE if done else "", self._keep_ms)
        if done and not ended:
            _log.warning("%s took longer than its mark, and another consumer handles it too: raise lease", identity)
