"""Function ``meta``: serves the control plane."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from hourwheel import __version__
from hourwheel.api.control import cells, consumers, dead_letters, messages, overview, scheduled, subjects
from hourwheel.api.events import Event, Invocation, Response, answered, ok
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


_SUBJECT = "/v1/subjects/{subject}"
_GROUP = f"{_SUBJECT}/groups/{{group}}"
_QUEUE = f"{_SUBJECT}/queues/{{queue}}"
_SCHEDULED = "/v1/scheduled/{id}"
_CELL = "/v1/cells/{cell}"

_CALLS: dict[str, Callable[[Deployment, Event], Response]] = {
    "GET /v1/health": health,
    "GET /v1/openapi.json": openapi,
    "GET /v1/overview": overview.subjects,
    "GET /v1/subjects": subjects.list_subjects,
    f"GET {_SUBJECT}": subjects.get_subject,
    f"PUT {_SUBJECT}": subjects.put_subject,
    f"DELETE {_SUBJECT}": subjects.delete_subject,
    f"POST {_SUBJECT}/pause": subjects.pause_subject,
    f"POST {_SUBJECT}/resume": subjects.resume_subject,
    f"GET {_SUBJECT}/overview": overview.groups,
    f"GET {_SUBJECT}/groups": subjects.list_groups,
    f"GET {_GROUP}": subjects.get_group,
    f"PUT {_GROUP}": subjects.put_group,
    f"DELETE {_GROUP}": subjects.delete_group,
    f"POST {_GROUP}/pause": subjects.pause_group,
    f"POST {_GROUP}/held": subjects.decide_held,
    f"POST {_GROUP}/resume": subjects.resume_group,
    f"POST {_GROUP}/seek": subjects.seek,
    f"GET {_GROUP}/lag": subjects.lag,
    f"GET {_GROUP}/push": subjects.get_push,
    f"GET {_GROUP}/consumers": consumers.list_consumers,
    f"POST {_GROUP}/consumers/{{consumer}}/leave": consumers.leave,
    f"GET {_GROUP}/leases": consumers.list_leases,
    f"GET {_GROUP}/retries": consumers.count_retries,
    f"GET {_GROUP}/dead": dead_letters.list_dead,
    f"DELETE {_GROUP}/dead": dead_letters.drop,
    f"POST {_GROUP}/dead/redrive": dead_letters.redrive,
    f"GET {_GROUP}/dead/reasons": dead_letters.reasons,
    f"GET {_GROUP}/dead/{{dead_id}}": dead_letters.get_dead,
    f"GET {_QUEUE}/messages": messages.peek,
    f"GET {_SUBJECT}/messages/{{id}}": messages.trace,
    f"POST {_SUBJECT}/queues": cells.add_queues,
    f"POST {_QUEUE}/move": cells.move,
    f"POST {_SUBJECT}/spread": cells.spread,
    "GET /v1/routes/{subject}": cells.get_route,
    "DELETE /v1/routes/{subject}/pending": cells.withdraw,
    "GET /v1/cells": cells.list_cells,
    f"GET {_CELL}": cells.get_cell,
    f"PUT {_CELL}": cells.put_cell,
    f"DELETE {_CELL}": cells.remove,
    f"POST {_CELL}/drain": cells.drain,
    f"GET {_SUBJECT}/scheduled": scheduled.pending,
    f"GET {_SUBJECT}/delayed": scheduled.list_delayed_of,
    f"GET {_SUBJECT}/dead": scheduled.list_orphans,
    "GET /v1/scheduled": overview.due,
    "GET /v1/delayed": scheduled.list_delayed,
    "GET /v1/wheels": overview.wheels,
    "GET /v1/archive": overview.archive,
    f"GET {_SCHEDULED}": scheduled.get_scheduled,
    f"PATCH {_SCHEDULED}": scheduled.reschedule,
    f"DELETE {_SCHEDULED}": scheduled.cancel,
}
