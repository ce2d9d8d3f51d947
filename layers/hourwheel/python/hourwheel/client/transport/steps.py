"""Runs what is written once for threads and for tasks.

Steps are a generator that yields what each of its calls returned: in a thread the result, in a task an awaitable. The
generator gets the result back, or the error of the awaitable.
"""

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar, cast

T = TypeVar("T")

Steps: TypeAlias = Generator[Any, Any, T]


def finished(steps: Steps[T]) -> T:
    """Runs steps whose calls block, and returns their result. Raises what the steps raise."""
    try:
        result = next(steps)
        while True:
            result = steps.send(result)
    except StopIteration as end:
        return cast(T, end.value)


async def awaited(steps: Steps[T]) -> T:
    """Runs steps whose calls return awaitables, and returns their result. Raises what the steps raise."""
    try:
        pending = next(steps)
        while True:
            try:
                result = await pending
            except BaseException as error:
                pending = steps.throw(error)
            else:
                pending = steps.send(result)
    except StopIteration as end:
        return cast(T, end.value)
