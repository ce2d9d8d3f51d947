"""Messages leave the local queue also while others take them."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.consuming.local_queue import LocalQueue


class Busy(deque[Any]):
    """Loses a message right after each look at its length: somebody else takes it."""

    def __len__(self) -> int:
        length = super().__len__()
        if length:
            self.popleft()
        return length


def local(queue: deque[Any]) -> LocalQueue:
    made = LocalQueue()
    made.deliveries = cast(deque[Delivery], queue)
    return made


def test_the_last_messages_are_removed_first() -> None:
    queue = deque("abc")
    assert cast(list[str], local(queue).pop(2)) == ["c", "b"]
    assert list(queue) == ["a"]
    assert local(queue).pop(-1) == []


def test_messages_that_others_take_meanwhile_are_not_missed() -> None:
    busy = Busy("abc")
    assert cast(list[str], local(busy).pop(len(busy))) == ["c", "b"]
