"""Defines how a connection has its requests answered."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.requests import Request

Respond: TypeAlias = Callable[[Request], Awaitable[Answer]]
"""Answers a request. May raise ``Disconnected``; any other exception ends the connection without an answer."""

Answerer: TypeAlias = Callable[[Request, Callable[[Answer], None]], None]
"""Answers a request that has arrived: passes the answer to the callback, once, on the loop's thread, now or later."""

Plan: TypeAlias = Callable[[Request], Answerer | None]
"""Returns how to answer a request whose head has arrived, without a task of its own; None where ``Respond`` answers."""


def no_plan(request: Request) -> None:
    """Leaves every request to ``Respond``."""
