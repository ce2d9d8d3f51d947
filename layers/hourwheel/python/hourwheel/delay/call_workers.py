"""Makes calls for several logs at the same time, and collects what became of each."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Results(Generic[T]):
    """The results of the calls, by their number. Threads fill it."""

    calls: deque[tuple[int, Callable[[], T]]]
    values: dict[int, T] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)

    def work(self) -> None:
        """Makes calls until none is left, or one has raised."""
        while not self.errors:
            try:
                number, call = self.calls.popleft()
            except IndexError:  # another thread took the last one
                return
            self._make(number, call)

    def _make(self, number: int, call: Callable[[], T]) -> None:
        try:
            self.values[number] = call()
        except BaseException as error:
            self.errors.append(error)


def in_parallel(calls: Sequence[Callable[[], T]], most: int) -> list[T]:
    """Makes the calls, ``most`` of them at the same time, and returns their results in order. Raises the first error
    of a call, once no call is under way any more."""
    if min(most, len(calls)) < 2:
        return [call() for call in calls]
    results = _Results(deque(enumerate(calls)))
    others = min(most, len(calls)) - 1
    threads = [threading.Thread(target=partial(results.work), name="call", daemon=True) for _ in range(others)]
    for thread in threads:
        thread.start()
    results.work()
    for thread in threads:
        thread.join()
    if results.errors:
        raise results.errors[0]
    return [results.values[number] for number in range(len(calls))]
