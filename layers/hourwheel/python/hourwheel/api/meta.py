"""Function ``meta``: serves the control plane."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from hourwheel import __version__
from hourwheel.api.control import cells, consumers, dead_letters, messages, overview, scheduled, subjects
from hourwheel.api.events import Event, Invocation, Response, answered, ok
from hourwheel.api.routes import ROUTES
from hourwheel.deployment.deployment import Deployment


def meta(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
    return _CALLS[event["routeKey"]](deployment, event)


def health(deployment: Deployment, event: Event) -> Response:
    """Answers that the function runs, without a read of the storage, for which each probe would pay. Tells the version
    to known callers alone: with it, a stranger could choose a fault to try."""
    version = {} if event.get("unknownCaller") else {"version": __version__}
    return ok({"status": "ok", **version})


def openapi(deployment: Deployment, event: Event) -> Response:
    """Answers the OpenAPI document. ``make openapi`` writes it beforehand, so no function loads the code for that."""
    return answered(_document())


@cache
def _document() -> bytes:
    """Returns the document without the blanks that make its changes readable in the repository."""
    return msgspec.json.format(Path(__file__).with_name("openapi.json").read_bytes(), indent=-1)


_HANDLERS: dict[str, Callable[[Deployment, Event], Response]] = {
    "health": health,
    "openapi": openapi,
    "overview": overview.subjects,
    "attention": overview.attention,
    "list_subjects": subjects.list_subjects,
    "get_subject": subjects.get_subject,
    "put_subject": subjects.put_subject,
    "delete_subject": subjects.delete_subject,
    "pause_subject": subjects.pause_subject,
    "resume_subject": subjects.resume_subject,
    "subject_overview": overview.groups,
    "history": overview.history,
    "list_groups": subjects.list_groups,
    "get_group": subjects.get_group,
    "put_group": subjects.put_group,
    "delete_group": subjects.delete_group,
    "pause_group": subjects.pause_group,
    "resume_group": subjects.resume_group,
    "seek": subjects.seek,
    "lag": subjects.lag,
    "decide_held": subjects.decide_held,
    "push": subjects.get_push,
    "list_consumers": consumers.list_consumers,
    "leave": consumers.leave,
    "list_leases": consumers.list_leases,
    "count_retries": consumers.count_retries,
    "retry_now": consumers.retry_now,
    "list_dead": dead_letters.list_dead,
    "drop": dead_letters.drop,
    "redrive": dead_letters.redrive,
    "dead_reasons": dead_letters.reasons,
    "get_dead": dead_letters.get_dead,
    "peek": messages.peek,
    "trace": messages.trace,
    "add_queues": cells.add_queues,
    "move_queue": cells.move,
    "spread_queues": cells.spread,
    "get_route": cells.get_route,
    "withdraw_route_changes": cells.withdraw,
    "list_cells": cells.list_cells,
    "get_cell": cells.get_cell,
    "put_cell": cells.put_cell,
    "remove_cell": cells.remove,
    "drain_cell": cells.drain,
    "pending": scheduled.pending,
    "list_subject_delayed": scheduled.list_delayed_of,
    "list_orphans": scheduled.list_orphans,
    "due": overview.due,
    "list_delayed": scheduled.list_delayed,
    "wheels": overview.wheels,
    "archive": overview.archive,
    "get_scheduled": scheduled.get_scheduled,
    "reschedule": scheduled.reschedule,
    "cancel": scheduled.cancel,
    "cancel_chosen": scheduled.cancel_chosen,
    "move_chosen": scheduled.move_chosen,
}
"""The functions that serve the calls, by ``HttpRoute.call``."""

_CALLS = {route.key: _HANDLERS[route.call] for route in ROUTES if route.function == "meta"}
