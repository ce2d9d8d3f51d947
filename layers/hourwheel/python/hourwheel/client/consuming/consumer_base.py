"""Holds what ``Consumer`` and ``AsyncConsumer`` have in common: their options, their handler and their only run."""

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from hourwheel.client.consuming.handling import Handling, default_consumer_id
from hourwheel.client.in_process import AsyncMessageSource, InProcessServer, MessageSource, server_at
from hourwheel.client.options import DEFAULT_MAX_MESSAGES, PrefetchOptions, check_options
from hourwheel.client.transport.signing import Sign
from hourwheel.ports.machine import Ids
from hourwheel.system import SystemIds

A = TypeVar("A")
S = TypeVar("S", MessageSource, AsyncMessageSource)


class _OpenLoop(Protocol):
    """A loop over the messages of a consumer."""

    def leave(self, error: BaseException | None) -> None: ...


class ConsumerBase(ABC, Generic[A, S]):
    """Takes the options of a consumer, which ``Consumer`` describes. A subclass says which ``Api`` it connects, where
    its messages come from, and how it calls handlers."""

    _connects: Callable[..., A]

    def __init__(
        self,
        url: str,
        subject: str,
        group: str,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sign: Sign | None = None,
        region: str | None = None,
        consumer_id: str | None = None,
        concurrency: int = 1,
        max_messages: int | None = None,
        wait_seconds: float = 20,
        lease_seconds: int = 30,
        settle_linger_seconds: float = 1.0,
        drain_seconds: float = 5.0,
        error_details: bool = True,
        ids: Ids | None = None,
    ) -> None:
        check_options(
            concurrency=concurrency,
            max_messages=DEFAULT_MAX_MESSAGES if max_messages is None else max_messages,
            wait_seconds=wait_seconds,
            lease_seconds=lease_seconds,
            settle_linger_seconds=settle_linger_seconds,
            drain_seconds=drain_seconds,
        )
        ids = ids or SystemIds()
        self._concurrency = concurrency
        self._handlers = concurrency if max_messages is None else None
        """The number of handlers that the stock of pulled messages follows, if it does."""
        self._takes_lists = False
        self._drain_seconds = drain_seconds
        self._handling = Handling(subject, group, error_details)
        self._work: Callable[[], Any] | None = None
        self._loops: list[_OpenLoop] = []
        self._used = False
        self._entered = False
        server = server_at(url)
        self._inline = server is not None
        """Whether handlers run where ``run`` is called, until no message is left."""
        options = PrefetchOptions[A](
            connect=functools.partial(
                self._connects, url, token=token, ca_file=ca_file, sign=sign, region=region, ids=ids
            ),
            subject=subject,
            group=group,
            consumer_id=consumer_id or default_consumer_id(ids),
            max_messages=max_messages or DEFAULT_MAX_MESSAGES,
            wait_seconds=wait_seconds,
            lease_seconds=lease_seconds,
            settle_linger_seconds=settle_linger_seconds,
            ids=ids,
        )
        self._prefetcher: S = self._source_of(server, options)
        if server is not None:
            server.joined(lambda: self._work)

    @property
    def lost_messages(self) -> int:
        """The number of messages whose lease was lost before they were settled. They are delivered again."""
        return self._prefetcher.lost_messages

    @abstractmethod
    def _source_of(self, server: InProcessServer | None, options: PrefetchOptions[A]) -> S:
        """Returns the source of the messages: the server of a test that has the URL, or else pulls."""

    def _begin(self) -> None:
        if self._used:
            raise RuntimeError("a consumer is good for one run: make another one")
        self._used = True
        self._prefetcher.start(None if self._takes_lists else self._handlers)

    def _leave(self, error: BaseException | None) -> None:
        """Leaves the loops, and stops the pulls: the block of the consumer has ended."""
        for loop in self._loops:
            loop.leave(error)
        self._prefetcher.stop(drain_seconds=0)
