"""Provides the fixture ``hourwheel_queue`` to pytest. Imports the queue only for tests that use it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hourwheel.apps.testing.queue import Queue


@pytest.fixture
def hourwheel_queue() -> "Iterator[Queue]":
    """Yields a queue in memory with a clock that the test moves: see ``hourwheel.testing.Queue``."""
    from hourwheel.apps.testing.queue import Queue

    with Queue() as queue:
        yield queue
