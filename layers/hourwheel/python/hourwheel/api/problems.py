"""Turns errors into RFC 9457 problem documents with stable types."""

import msgspec

from hourwheel.api.events import Response
from hourwheel.errors import (
    CellFull,
    CellUnavailable,
    Conflict,
    Filled,
    HourwheelError,
    MemoryFull,
    MovePending,
    ReceiptsUnavailable,
    Rejected,
    Sealed,
    StorageFull,
    Unavailable,
)

RETRY_AFTER_SECONDS = 1  # the shortest value that the header can have: most outages of the storage are shorter

TITLES = {
    "json-invalid": "The body is not JSON",
    "msgpack-invalid": "The body is not msgpack",
    "field-invalid": "A field is wrong",
    "name-invalid": "A name is wrong",
    "receipt-invalid": "A receipt was not issued to this group",
    "scheduled-id-invalid": "A scheduled id was not issued by this deployment",
    "delay-too-long": "A delay is too long",
    "http-invalid": "The request is not HTTP",
    "token-missing": "A token is needed",
    "token-wrong": "The token is wrong",
    "token-read-only": "The token may only read",
    "grant-missing": "A token of this deployment is needed",
    "grant-invalid": "The token is not from this deployment",
    "grant-expired": "The token has expired",
    "grant-insufficient": "The token does not allow this",
    "grant-foreign": "The token is of another caller",
    "route-unknown": "No such route",
    "subject-unknown": "No such subject",
    "queue-unknown": "No such queue",
    "cell-unknown": "No such cell",
    "group-unknown": "No such group",
    "consumer-unknown": "No such consumer",
    "group-unordered": "The group is not ordered",
    "key-not-stopped": "The key is not stopped",
    "push-unknown": "The group has no target",
    "message-unknown": "No such message",
    "offset-unknown": "No message has this offset yet",
    "dead-letter-unknown": "No such dead letter",
    "scheduled-unknown": "The delayed message is no longer known",
    "report-unknown": "There is no report",
    "origin-forbidden": "Requests of web pages are not answered",
    "subject-deleted": "A subject of the batch was deleted",
    "subject-read-only": "The subject is read-only",
    "method-not-allowed": "The path does not take this method",
    "request-timeout": "The request did not arrive in time",
    "receipt-stale": "Every receipt is stale",
    "receipt-unavailable": "The messages of every receipt are in a cell that is out of reach",
    "idempotency-key-reused": "The idempotency key came with other content",
    "sequence-passed": "A batch with a later sequence number was stored before",
    "sequence-undecided": "Whether the batch was stored is no longer known",
    "setting-fixed": "The setting cannot take this value any more",
    "changed-meanwhile": "The subject or group was changed meanwhile",
    "cell-state": "The cell takes no queues",
    "cell-in-use": "The cell is in use",
    "cell-foreign": "The storage belongs to another deployment",
    "cell-home": "The home cell cannot be drained or removed",
    "move-begun": "The move has begun and cannot be withdrawn",
    "queue-there": "The queue is already in this cell",
    "route-changed": "Somebody else changed the route",
    "route-full": "The queue has too many parts",
    "too-many-subjects": "The number of subjects has reached its limit",
    "too-many-groups": "The number of groups has reached its limit",
    "too-many-consumers": "The number of consumers has reached its limit",
    "too-many-requests": "Too many requests",
    "headers-too-large": "The headers are too large",
    "message-too-large": "A message is too large",
    "batch-too-large": "The batch is too large",
    "request-too-large": "The request is too large",
    "encoding-unknown": "The encoding of the body is unknown",
    "encoding-invalid": "The body cannot be decompressed",
    "internal": "A fault of the server",
    "server-busy": "The server takes no more at the moment",
    "unavailable": "The storage did not answer in time",
    "storage-full": "A volume of the server is full",
    "not-ready": "Nothing can be stored now",
}

_encoder = msgspec.json.Encoder()


class StaleReceipts(Conflict):
    """Says that every settlement of a request is stale. ``results`` holds one answer for each settlement."""

    def __init__(self, results: object) -> None:
        super().__init__(
            "receipt-stale",
            "nothing was changed, because every receipt of the request is stale: its lease had ended, or its messages"
            " were settled in another way, or by a later settlement of the pull. Pull again: the server serves messages"
            " without a settlement once more",
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


def problem_of(error: Exception, instance: str, *, produces: bool = False) -> Response:
    """Returns the problem document of an error. The document of a fault of the server only refers to the server's
    log. ``produces``: the request sends messages, so that it may have an idempotency key."""
    # A slug without a title belongs to an error that a layer below should have handled: a fault of the server.
    if isinstance(error, Rejected) and error.slug in TITLES:
        results = error.results if isinstance(error, StaleReceipts) else None
        return problem(error.status, error.slug, str(error), instance=instance, field=error.field, results=results)
    if isinstance(error, (StorageFull, CellFull)):
        return problem(507, "storage-full", _told_full(error, produces=produces), instance=instance)
    if isinstance(error, Unavailable):
        slug, detail = _told_unavailable(error, produces=produces)
        retry = {"retry-after": str(RETRY_AFTER_SECONDS)}
        return problem(503, slug, detail, instance=instance, headers=retry)
    if isinstance(error, (Sealed, Filled)):
        detail = (
            "a subject or group of the request was deleted or created again meanwhile: look it up, then repeat the"
            " request"
        )
        return problem(409, "changed-meanwhile", detail, instance=instance)
    return problem(
        500,
        "internal",
        "the server failed: its log has the error, under the correlation id that instance names",
        instance=instance,
    )


def _told_unavailable(error: Unavailable, *, produces: bool) -> tuple[str, str]:
    """Returns the slug and the detail of a storage that cannot be reached, or of a server that is busy."""
    if isinstance(error, MemoryFull):
        return "server-busy", str(error)
    repeat = "send the request again" + (", with the same idempotency key if it had one" if produces else "")
    if not isinstance(error, CellUnavailable):
        return "unavailable", repeat
    # A pending move needs no repetition, and a lasting outage would answer it in the same way.
    detail = str(error) if error.is_lasting or isinstance(error, MovePending) else f"{error}; {repeat}"
    logged = ". The log of the server has the reason" if error.is_logged else ""
    slug = "receipt-unavailable" if isinstance(error, ReceiptsUnavailable) else "unavailable"
    return slug, detail + logged


def _told_full(error: StorageFull | CellFull, *, produces: bool) -> str:
    """Returns the detail of a full volume: which one it is, and what was carried out of the request."""
    where = str(error) if isinstance(error, CellFull) else "the server's volume is full"
    advice = "free some space on the volume, then send the request again"
    if not produces:
        return f"{where}: {advice}, as it was not carried out, or not completely"
    if error.stored_part:
        stored = f"{where}, and at most a part of the batch was stored"
        return f"{stored}: {advice}, with the same idempotency key if it had one"
    return f"{where} and nothing was stored: {advice}"


def is_fault(error: Exception) -> bool:
    """Returns whether the error is a fault of the server, which its operator has to see in the log."""
    if isinstance(error, Rejected):
        return error.slug not in TITLES
    return not isinstance(error, HourwheelError) or not isinstance(error, (Unavailable, Sealed, Filled))
