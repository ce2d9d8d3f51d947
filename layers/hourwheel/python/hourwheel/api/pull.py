"""Function ``pull``: leases messages to a consumer."""

import logging

import msgspec

from hourwheel.answer_size import LAMBDA_BYTES, nested_bytes
from hourwheel.api.ack import check_settlements
from hourwheel.api.events import Event, Invocation, Response, answered
from hourwheel.api.requests import body_of, path_name
from hourwheel.cell import Cell
from hourwheel.misfits import decode
from hourwheel.model.fields import check_name
from hourwheel.model.pulls import PullRequest, PullResult, Settlement

_logger = logging.getLogger("hourwheel")

_decoder = msgspec.json.Decoder(PullRequest)
_encoder = msgspec.json.Encoder()

_ANSWER_SECONDS = 1.0
"""A pull stops waiting this long before the invocation ends, to leave time for the last try and the answer."""

_MOST_BYTES = LAMBDA_BYTES - 1_000
"""The limit of the body: the status and headers of an answer take a few hundred bytes."""


def pull(cell: Cell, event: Event, context: Invocation | None) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    request = decode(_decoder, body_of(event))
    check_name(request.consumer, "consumer")
    check_settlements(request.settle or ())
    request.wait_seconds = min(request.wait_seconds, cell.context.settings.max_wait_seconds)
    if context is not None:
        left_seconds = context.get_remaining_time_in_millis() / 1_000 - _ANSWER_SECONDS
        request.wait_seconds = max(0.0, min(request.wait_seconds, left_seconds))
    result = cell.pull(subject, group, request)
    body = _encoder.encode(result)
    # Within JSON a byte of text takes two bytes at worst, so most answers fit without being counted.
    while 2 * len(body) > _MOST_BYTES and nested_bytes(body) > _MOST_BYTES and _give_back(cell, subject, group, result):
        body = _encoder.encode(result)
    return answered(body)


def _give_back(cell: Cell, subject: str, group: str, result: PullResult) -> bool:
    """Releases the last pull of an answer that is too large, or half of the only pull.

    The released messages are served again and keep their attempt. Claims stop at the sizes that rows name, so only
    rows without a size lead here. Returns False, and releases nothing, when a single message is left.
    """
    last = result.pulls[-1]
    if len(result.pulls) == len(last.messages) == 1:
        return False
    kept = len(last.messages) // 2 if len(result.pulls) == 1 else 0
    released = [*range(kept, len(last.messages))]
    cell.settle(subject, group, [Settlement(receipt=last.receipt, ack=[], release=released)])
    _logger.error("%d messages of %s/%s were given back: the answer would be too large", len(released), subject, group)
    if kept:
        last.messages = last.messages[:kept]
    else:
        result.pulls.pop()
    return True
