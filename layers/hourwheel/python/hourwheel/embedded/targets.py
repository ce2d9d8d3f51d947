"""Delivers to the targets of the embedded server: HTTPS, and Python functions in its own process.

The server calls a Python target as Lambda would, with the event of a delivery and without a context, so that one
function can serve both. Its result may name failed messages; an exception fails the batch. The server cannot stop a
target that takes too long.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from hourwheel.adapters.webhooks import Webhooks
from hourwheel.errors import Rejected
from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import Outcome, PushDelivery, answered, failure, unreached

Handler: TypeAlias = Callable[[Any, Any], Any]


class EmbeddedTargets:
    """Implements ``Targets`` for the embedded server. ``handlers`` has the Python targets by name."""

    def __init__(self, webhooks: Webhooks, handlers: Mapping[str, Handler]) -> None:
        self._webhooks = webhooks
        self._handlers = handlers

    def check(self, target: PushTarget, subject: str) -> None:
        if target.kind == "https":
            self._webhooks.check(target)
        elif target.kind != "python":
            detail = f"a target {target.kind!r} needs a deployment on AWS: use https or python"
            raise Rejected("field-invalid", f"push.kind: {detail}", field="push.kind")
        elif target.address not in self._handlers:
            detail = (
                f"the server has no target {target.address!r}: start it with --target {target.address}=MODULE:FUNCTION"
            )
            raise Rejected("field-invalid", f"push.name: {detail}", field="push.name")

    def deliver(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        if target.kind == "https":
            return self._webhooks.deliver(target, delivery)
        handler = self._handlers.get(target.address)
        if target.kind != "python" or handler is None:
            return unreached(f"this server has no target {target.address!r}")
        try:
            answer = handler(msgspec.json.decode(delivery.encoded()), None)
            return answered(delivery, msgspec.json.encode(answer))
        except BaseException as error:  # a target may call sys.exit, which must end the delivery only
            return failure(delivery, f"{type(error).__name__}: {error}")

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        return unreached("this server announces nothing: it needs a deployment on AWS")


def load_handler(path: str) -> Handler:
    """Imports and returns the function at ``package.module:name``. Raises ``ValueError`` with one line if there is no
    such function."""
    module, _, name = path.partition(":")
    if not (module and name):
        raise ValueError(f"{path!r} is no target: give MODULE:FUNCTION")
    try:
        function = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # importing a module may raise anything
        raise ValueError(f"{path!r} is no target: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ValueError(f"{path!r} is no target: it cannot be called, or is async")
    handler: Handler = function
    return handler
