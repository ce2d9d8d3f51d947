"""Tells the callbacks of a worker of Celery from those of other programs."""

import functools
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

_WORKER = "celery.worker."
_TASKS = "celery.worker.consumer.consumer"


class TaskHandler(NamedTuple):
    """Says what kind of program gets the messages of a ``kombu.Consumer``."""

    in_worker: bool
    """Whether a worker of Celery gets them: tasks, remote control, or events of other workers."""
    takes_tasks: bool
    accept: Collection[str] | None
    """The types of content that the program decodes; None for all that Kombu does not refuse."""

    @classmethod
    def of(cls, callback: Callable[[Any], object]) -> "TaskHandler":
        """Returns the handler behind the callback that Kombu passed to ``basic_consume``: a method of its consumer,
        whose handlers may be set later."""
        consumer = getattr(callback, "__self__", None)
        handlers = [getattr(consumer, "on_message", None) or callback, *(getattr(consumer, "callbacks", None) or ())]
        modules = {_module(handler) for handler in handlers}
        return cls(
            in_worker=any(module.startswith(_WORKER) for module in modules),
            takes_tasks=_TASKS in modules,
            accept=getattr(consumer, "accept", None),
        )


def _module(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__module__", "")
