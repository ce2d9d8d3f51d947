"""Lists every route of the HTTP API with the function that serves it."""

from typing import NamedTuple


class Route(NamedTuple):
    method: str
    template: str
    function: str

    @property
    def key(self) -> str:
        """The name that API Gateway gives the route, and puts into events as ``routeKey``."""
        return f"{self.method} {self.template}"


_SUBJECT = "/v1/subjects/{subject}"
_GROUP = f"{_SUBJECT}/groups/{{group}}"
_QUEUE = f"{_SUBJECT}/queues/{{queue}}"
_SCHEDULED = "/v1/scheduled/{id}"
_CELL = "/v1/cells/{cell}"

ROUTES = (
    Route("POST", "/v1/messages", "produce"),
    Route("POST", f"{_SUBJECT}/messages", "produce"),
    Route("POST", f"{_GROUP}/pull", "pull"),
    Route("POST", f"{_GROUP}/ack", "ack"),
    Route("GET", "/v1/health", "meta"),
    Route("GET", "/v1/subjects", "meta"),
    Route("GET", _SUBJECT, "meta"),
    Route("PUT", _SUBJECT, "meta"),
    Route("DELETE", _SUBJECT, "meta"),
    Route("POST", f"{_SUBJECT}/pause", "meta"),
    Route("POST", f"{_SUBJECT}/resume", "meta"),
    Route("GET", f"{_SUBJECT}/groups", "meta"),
    Route("GET", _GROUP, "meta"),
    Route("PUT", _GROUP, "meta"),
    Route("DELETE", _GROUP, "meta"),
    Route("POST", f"{_GROUP}/pause", "meta"),
    Route("POST", f"{_GROUP}/resume", "meta"),
    Route("POST", f"{_GROUP}/seek", "meta"),
    Route("GET", f"{_GROUP}/lag", "meta"),
    Route("GET", f"{_GROUP}/push", "meta"),
    Route("GET", f"{_GROUP}/dead", "meta"),
    Route("DELETE", f"{_GROUP}/dead", "meta"),
    Route("POST", f"{_GROUP}/dead/redrive", "meta"),
    Route("GET", f"{_GROUP}/dead/{{dead_id}}", "meta"),
    Route("GET", f"{_QUEUE}/messages", "meta"),
    Route("GET", f"{_SUBJECT}/messages/{{id}}", "meta"),
    Route("POST", f"{_SUBJECT}/queues", "meta"),
    Route("POST", f"{_QUEUE}/move", "meta"),
    Route("POST", f"{_SUBJECT}/spread", "meta"),
    Route("GET", "/v1/routes/{subject}", "meta"),
    Route("GET", "/v1/cells", "meta"),
    Route("GET", _CELL, "meta"),
    Route("PUT", _CELL, "meta"),
    Route("DELETE", _CELL, "meta"),
    Route("POST", f"{_CELL}/drain", "meta"),
    Route("GET", f"{_SUBJECT}/scheduled", "meta"),
    Route("GET", f"{_SUBJECT}/dead", "meta"),
    Route("GET", _SCHEDULED, "meta"),
    Route("PATCH", _SCHEDULED, "meta"),
    Route("DELETE", _SCHEDULED, "meta"),
)
