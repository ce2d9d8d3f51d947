"""Turns errors into RFC 9457 problem documents with stable types."""

import msgspec

from hourwheel.api.events import Response
from hourwheel.errors import (
    CellUnavailable,
    Conflict,
    Filled,
    HourwheelError,
    Rejected,
    Sealed,
    StorageFull,
    Unavailable,
)

RETRY_AFTER_SECONDS = 1  # header values are whole seconds, and most outages of the storage are shorter

TITLES = {
    "json-invalid": "The body is not JSON",
    "msgpack-invalid": "The body is not msgpack",
    "field-invalid": "A field is wrong",
    "name-invalid": "A name is wrong",
    "receipt-invalid": "A receipt is not ours",
    "scheduled-id-invalid": "The id of a delayed message is not ours",
    "delay-too-long": "A delay is too long",
    "http-invalid": "The request is not HTTP",
    "token-missing": "A token is needed",
    "token-wrong": "The token is wrong",
    "token-read-only": "The token may only read",
    "route-unknown": "No such route",
    "subject-unknown": "No such subject",
    "queue-unknown": "No such queue",
    "cell-unknown": "No such cell",
    "group-unknown": "No such group",
    "group-unordered": "The group is not ordered",
    "push-unknown": "The group has no target",
    "message-unknown": "No such message",
    "dead-letter-unknown": "No such dead letter",
    "scheduled-unknown": "Nothing is known of this delayed message any more",
    "origin-forbidden": "Requests of web pages are not answered",
    "subject-deleted": "A subject of the batch was deleted",
    "subject-read-only": "The subject is read-only",
    "method-not-allowed": "The route has other methods",
    "request-timeout": "The request did not arrive in time",
    "receipt-stale": "Every receipt is stale",
    "idempotency-key-reused": "The idempotency key came with other content",
    "sequence-passed": "A batch with a later sequence came before",
    "sequence-undecided": "Whether the batch was stored is no longer known",
    "setting-fixed": "The setting cannot be changed so",
    "changed-meanwhile": "It was changed meanwhile",
    "cell-state": "The cell takes no queues",
    "cell-in-use": "The cell is in use",
    "cell-foreign": "The storage belongs to another deployment",
    "cell-home": "The home cell stays as it is",
    "queue-there": "The queue is there already",
    "route-changed": "Somebody else changed the route",
    "route-full": "The queue has as many parts as it may",
    "too-many-subjects": "There are as many subjects as may be",
    "too-many-groups": "The subject has as many groups as it may",
    "too-many-consumers": "The group has as many consumers as it may",
    "too-many-requests": "Too many requests",
    "headers-too-large": "The headers are too large",
    "message-too-large": "A message is too large",
    "batch-too-large": "The batch is too large",
    "request-too-large": "The request is too large",
    "encoding-unknown": "The encoding of the body is unknown",
    "encoding-invalid": "The body is not what its encoding makes",
    "internal": "A fault of ours",
    "server-busy": "The server has as many connections as it may",
    "unavailable": "The storage did not answer in time",
    "storage-full": "No room is left",
    "not-ready": "Nothing can be stored now",
}

_encoder = msgspec.json.Encoder()


class StaleReceipts(Conflict):
    """Says that every settlement of a request is stale. ``results`` holds one answer for each."""

    def __init__(self, results: object) -> None:
        super().__init__(
            "receipt-stale",
            "no receipt is the current one: the leases ended, or the pulls were settled otherwise; nothing was changed",
        )
        self.results = results


def problem(
    status: int,
    slug: str,
    detail: str,
    *,
    instance: str,
    field: str | None = None,
    results: object = None,
    headers: dict[str, str] | None = None,
) -> Response:
    document: dict[str, object] = {
        "type": f"urn:hourwheel:{slug}",
        "title": TITLES[slug],
        "status": status,
        "detail": detail,
        "instance": instance,
    }
    if field is not None:
        document["field"] = field
    if results is not None:
        document["results"] = results
    return {
        "statusCode": status,
        "headers": {"content-type": "application/problem+json", **(headers or {})},
        "body": _encoder.encode(document).decode(),
    }


def problem_of(error: Exception, instance: str) -> Response:
    """Returns the problem document of an error. For a fault of the server the document names nothing but the log."""
    # A slug without a title is an internal error that a layer below should have handled.
    if isinstance(error, Rejected) and error.slug in TITLES:
        results = error.results if isinstance(error, StaleReceipts) else None
        return problem(error.status, error.slug, str(error), instance=instance, field=error.field, results=results)
    if isinstance(error, Unavailable):
        retry = {"retry-after": str(RETRY_AFTER_SECONDS)}
        detail = "send the request again, with the same idempotency key if it had one"
        if isinstance(error, CellUnavailable):
            detail = f"{error}; {detail}"
        return problem(503, "unavailable", detail, instance=instance, headers=retry)
    if isinstance(error, (Sealed, Filled)):
        detail = "what the request names was deleted or made anew meanwhile: look again, then send it again"
        return problem(409, "changed-meanwhile", detail, instance=instance)
    if isinstance(error, StorageFull):
        detail = "no room is left on the server's volume, nothing was stored: make room, then send the request again"
        return problem(507, "storage-full", detail, instance=instance)
    return problem(500, "internal", "a fault of ours: the server's log has the correlation id", instance=instance)


def is_fault(error: Exception) -> bool:
    """Returns whether the operator of the server should learn of the error, which then goes to the log."""
    if isinstance(error, Rejected):
        return error.slug not in TITLES
    return not isinstance(error, HourwheelError) or not isinstance(error, (Unavailable, Sealed, Filled))
