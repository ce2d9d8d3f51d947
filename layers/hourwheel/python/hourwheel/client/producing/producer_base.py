"""Holds what ``Producer`` and ``AsyncProducer`` have in common: their options."""

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from hourwheel.client.api import DEFAULT_TIMEOUT_SECONDS, DEFAULT_URL
from hourwheel.client.options import check_options
from hourwheel.client.transport.signing import Sign
from hourwheel.ports.machine import Ids
from hourwheel.system import SystemIds

A = TypeVar("A")


class ProducerBase(ABC, Generic[A]):
    """Takes the options of a producer, which ``Producer`` describes. A subclass says which ``Api`` it connects, and how
    it sends."""

    _connects: Callable[..., A]

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sign: Sign | None = None,
        region: str | None = None,
        subject: str | None = None,
        batch_messages: int = 500,
        batch_bytes: int = 1 << 20,
        delivery_timeout_seconds: float = 120.0,
        close_timeout_seconds: float = 10.0,
        max_pending_messages: int = 5_000,
        max_pending_bytes: int = 64 << 20,
        create: bool = True,
        ids: Ids | None = None,
    ) -> None:
        check_options(
            batch_messages=batch_messages,
            batch_bytes=batch_bytes,
            delivery_timeout_seconds=delivery_timeout_seconds,
            close_timeout_seconds=close_timeout_seconds,
            max_pending_messages=max_pending_messages,
            max_pending_bytes=max_pending_bytes,
        )
        self._url = url
        self._subject = subject
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._timeout_seconds = delivery_timeout_seconds
        self._close_seconds = close_timeout_seconds
        self._max_pending_messages = max_pending_messages
        self._max_pending_bytes = max_pending_bytes
        self._create = create
        self._ids = ids or SystemIds()
        self._connect: Callable[[], A] = functools.partial(
            self._connects,
            url,
            token=token,
            ca_file=ca_file,
            sign=sign,
            region=region,
            timeout_seconds=min(DEFAULT_TIMEOUT_SECONDS, delivery_timeout_seconds),  # no try outlasts its messages
            ids=self._ids,
        )
        self._begin()

    @abstractmethod
    def _begin(self) -> None:
        """Connects, with no message pending."""

    def _subject_of(self, subject: str | None) -> str:
        chosen = subject or self._subject
        if chosen is None:
            raise ValueError("name a subject, here or when the producer is made")
        return chosen
