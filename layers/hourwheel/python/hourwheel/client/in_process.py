"""Finds the servers of tests by their URL. ``hourwheel.testing`` registers them; they run within this process.

With such a server, the classes of the client do all that they do with any other server, except that they use no sockets
and no threads.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.transport.endpoint import Reply

if TYPE_CHECKING:
    from hourwheel.client.aio.api import AsyncApi
    from hourwheel.client.api import Api
    from hourwheel.client.options import PrefetchOptions

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None] | None]
"""Handles the messages of a consumer until none is left. If it returns a coroutine, the caller has to await it."""


class Exchange(Protocol):
    """Exchanges requests and answers with one server."""

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, extra_seconds: float = 0.0
    ) -> Reply: ...

    def close(self) -> None: ...


class AwaitedExchange:
    """Makes an ``Exchange`` awaitable. An exchange within the process ends at once: there is no socket to wait for."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, extra_seconds: float = 0.0
    ) -> Reply:
        return self._exchange.exchange(method, target, body, headers, extra_seconds=extra_seconds)

    async def close(self) -> None:
        self._exchange.close()


class MessageSource(Protocol):
    """Pulls messages for one run of a consumer, and settles them."""

    failure: BaseException | None

    @property
    def lost_messages(self) -> int: ...
    def start(self, handlers: int | None = None) -> None: ...
    def next(self) -> Delivery | None: ...
    def next_batch(self) -> list[Delivery]: ...
    def acknowledge(self, deliveries: list[Delivery]) -> None: ...
    def stop(self, *, drain_seconds: float) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def finish(self) -> None: ...


class AsyncMessageSource(Protocol):
    """Pulls messages for one run of an ``AsyncConsumer``, and settles them."""

    @property
    def failure(self) -> BaseException | None: ...
    @property
    def lost_messages(self) -> int: ...
    def start(self, handlers: int | None = None) -> None: ...
    async def next(self) -> Delivery | None: ...
    async def next_batch(self) -> list[Delivery]: ...
    def acknowledge(self, deliveries: Sequence[Delivery]) -> None: ...
    def release(self, deliveries: Sequence[Delivery]) -> None: ...
    def stop(self, *, drain_seconds: float) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    async def finish(self) -> None: ...


class InProcessServer(Protocol):
    def connect(self) -> Exchange: ...

    def source(self, options: "PrefetchOptions[Api]") -> MessageSource:
        """Returns a source for a consumer, whose ``next`` returns None once no message is left."""
        ...

    def async_source(self, options: "PrefetchOptions[AsyncApi]") -> AsyncMessageSource:
        """Returns a source for an ``AsyncConsumer``, whose ``next`` returns None once no message is left."""
        ...

    def joined(self, work: Callable[[], Work | None]) -> None:
        """Records that a consumer was made. ``work`` returns the function that handles its messages; None if it has no
        handler yet."""
        ...


_SERVERS: dict[str, InProcessServer] = {}


def server_at(url: str) -> InProcessServer | None:
    return _SERVERS.get(url.rstrip("/")) if _SERVERS else None


def register(url: str, server: InProcessServer) -> None:
    """Registers a server under its URL, so that clients find it. Raises ``ValueError`` if another one has the URL."""
    if _SERVERS.setdefault(url.rstrip("/"), server) is not server:
        raise ValueError(f"another queue in memory has the URL {url}: close it first")


def unregister(url: str) -> None:
    _SERVERS.pop(url.rstrip("/"), None)
