"""Defines what starts the pushers of groups."""

from typing import Protocol


class Pushes(Protocol):
    """Starts pushing for groups that have a target."""

    def start(self, subject: str, group: str) -> None:
        """Orders a pusher for the group within a second or two, at least once; does not wait for it. May raise
        ``Unavailable``."""
        ...


class NoPushes:
    """Implements ``Pushes`` where nothing is pushed, or where another process starts the pushers."""

    def start(self, subject: str, group: str) -> None:
        pass


class StoredStream(Protocol):
    """Switches the stream of stored rows, which wakes pushers. Each batch of rows in it costs an invocation, so the
    stream is read only while some group has a target."""

    def listen(self, on: bool) -> None:
        """Starts (or with False ends) the reading of the stream, within a minute or two. Idempotent. Another change
        that is under way may win: a caller that depends on the result repeats the call. May raise ``Unavailable``."""
        ...


class NoStream:
    """Implements ``StoredStream`` where there is no stream, or where another process switches it."""

    def listen(self, on: bool) -> None:
        pass
