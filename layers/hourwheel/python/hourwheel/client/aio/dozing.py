"""Waits at wake-up queues in a task; ``client/consuming/dozing.py`` has the decisions, and waits in a thread."""

import asyncio
import logging
from contextlib import suppress

from hourwheel.client.aio.connections import AsyncConnections
from hourwheel.client.consuming.dozing import (
    GIVING_BACK,
    GIVING_BACK_SECONDS,
    TIMEOUT_SECONDS,
    HeldWakeup,
    QueueRequest,
    Waiting,
    check_given_back,
)
from hourwheel.client.errors import AnswerError, Closed
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")


class AsyncQueueListener:
    """Waits at wake-up queues, for one consumer."""

    def __init__(self) -> None:
        self._connections: tuple[str, AsyncConnections] | None = None

    async def wait(self, waiting: Waiting, stop: asyncio.Event) -> None:
        """Waits until a wake-up comes, the wait is over, or ``stop`` is set."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set() and (seconds := waiting.next_seconds()) is not None:
                exchange = asyncio.ensure_future(self._exchange(waiting, seconds))
                try:
                    await asyncio.wait({exchange, stopped}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    exchange.cancel()
                    with suppress(asyncio.CancelledError):
                        await exchange
        finally:
            stopped.cancel()

    async def give_back(self, held: HeldWakeup | None) -> None:
        """Makes a wake-up visible to the next consumer, as ``QueueListener.give_back`` does. Never fails."""
        if held is None:
            return
        data = held.request.giving_back(held.handle)
        connections = AsyncConnections(held.request.endpoint, timeout_seconds=GIVING_BACK_SECONDS)
        try:
            headers = await asyncio.to_thread(held.request.headers, data, GIVING_BACK)
            check_given_back(await connections.exchange("POST", "/", data, headers))
        except AnswerError as error:
            _log.debug("a wake-up was not given back: %s", shown(str(error)))
        finally:
            await connections.close()

    async def close(self) -> None:
        if self._connections is not None:
            await self._connections[1].close()

    async def _exchange(self, waiting: Waiting, seconds: int) -> None:
        data = waiting.request.body(seconds)
        try:
            # In a thread: the source of the credentials may take seconds to answer.
            headers = await asyncio.to_thread(waiting.request.headers, data)
            connections = self._at(waiting.request)
            waiting.answered(await connections.exchange("POST", "/", data, headers, extra_seconds=seconds))
        except Closed:
            raise
        except AnswerError as error:
            waiting.failed(error)

    def _at(self, request: QueueRequest) -> AsyncConnections:
        if self._connections is None or self._connections[0] != request.origin:
            self._connections = (request.origin, AsyncConnections(request.endpoint, timeout_seconds=TIMEOUT_SECONDS))
        return self._connections[1]
