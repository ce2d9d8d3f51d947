"""Defines the messages of a queue, as the API answers them to a peek."""

from msgspec import Struct

from hourwheel.client.records.messages import Kept


class QueueMessage(Kept, frozen=True, kw_only=True, gc=False):
    """A message of a queue, which the peek has not leased.

    Example:
        >>> (message,) = api.peek("orders").messages
        >>> message.body, message.queue, message.offset
        ('paid', 0, 0)
    """

    queue: int
    offset: int


class DamagedRow(Struct, frozen=True, kw_only=True):
    """A row of a queue that the server cannot read, for this ``reason``. It holds ``messages`` messages, the first of
    which has ``offset`` (None: unknown).

    Example:
        >>> api.peek("orders").damaged
        []
    """

    offset: int | None = None
    messages: int
    reason: str


class PeekPage(Struct, frozen=True, kw_only=True):
    """A page of a queue. ``next`` is the ``offset`` of the next page; None after the last one. A page may be empty
    though there is a next one. ``end`` is the offset of the next message of the queue (None: the cell that takes
    its messages cannot be reached), and ``damaged`` has the rows that the server cannot read.

    Example:
        >>> page = api.peek("orders", limit=10)
        >>> len(page.messages), page.next, page.end
        (1, None, 1)
    """

    messages: list[QueueMessage]
    damaged: list[DamagedRow] = []
    next: int | None = None
    end: int | None
