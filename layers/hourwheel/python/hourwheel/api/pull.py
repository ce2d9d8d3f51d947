"""Function ``pull``: leases messages to a consumer."""

import logging

import msgspec

from hourwheel.api.ack import check_settlements
from hourwheel.api.events import Event, Invocation, Response, answered
from hourwheel.api.requests import path_name
from hourwheel.api.wire import RequestReader, accepts_msgpack, msgpack_answer
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.fields import check_name
from hourwheel.model.pulls import CompactPullResult, Pull, PullRequest, PullResult, Settlement
from hourwheel.pull_log.message_blocks import messages_in
from hourwheel.wire.answer_size import LAMBDA_BYTES, answerable, nested_bytes

_logger = logging.getLogger("hourwheel")

_decoder = RequestReader(PullRequest)
_packer = msgspec.msgpack.Encoder()
_encoder = msgspec.json.Encoder()

_ANSWER_SECONDS = 1.0
"""A pull stops waiting this long before the invocation ends, to leave time for the last try and the answer."""

_MOST_BYTES = LAMBDA_BYTES - 1_000
"""The limit of the body: the status and headers of an answer take a few hundred bytes."""


def pull(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    request = _decoder.read(event)
    check_name(request.consumer, "consumer")
    check_settlements(request.settle or ())
    request.wait_seconds = min(request.wait_seconds, deployment.context.settings.max_wait_seconds)
    if context is not None:
        left_seconds = context.get_remaining_time_in_millis() / 1_000 - _ANSWER_SECONDS
        request.wait_seconds = max(0.0, min(request.wait_seconds, left_seconds))
    if not accepts_msgpack(event):
        return _answered(deployment, subject, group, deployment.pull(subject, group, request))
    result = deployment.pull_blocks(subject, group, request)
    data = _packer.encode(result)
    # Lambda takes msgpack as base64, four bytes for three. The claim has bounded the size of the answer as JSON.
    if context is not None and 4 * len(data) > 3 * _MOST_BYTES:
        return _answered(deployment, subject, group, as_messages(result))
    return msgpack_answer(data)


def _answered(deployment: Deployment, subject: str, group: str, result: PullResult) -> Response:
    body = _encoder.encode(result)
    # Lambda wraps the body into JSON, where a byte takes at most two: most answers fit without being counted.
    while (
        2 * len(body) > _MOST_BYTES
        and nested_bytes(body) > _MOST_BYTES
        and _give_back(deployment, subject, group, result)
    ):
        body = _encoder.encode(result)
    return answered(body)


def as_messages(result: CompactPullResult) -> PullResult:
    """Returns the answer in the form that JSON has."""
    pulls = [
        Pull(
            pulled.receipt,
            pulled.queue,
            pulled.lease_until,
            [answerable(message) for block in pulled.blocks for message in messages_in(block)],
            pulled.ordered,
            pulled.suspect,
        )
        for pulled in result.pulls
    ]
    return PullResult(pulls, result.settled, result.limited_by, suspects_wait=result.suspects_wait)


def _give_back(deployment: Deployment, subject: str, group: str, result: PullResult) -> bool:
    """Releases the last pull of an answer that is too large, or half of the only pull.

    The released messages are served again and keep their attempt. A claim stops at the size of an answer where rows
    name their sizes, so this happens only for rows without a size. Returns False, and releases nothing, when a single
    message is left.
    """
    last = result.pulls[-1]
    if len(result.pulls) == len(last.messages) == 1:
        return False
    kept = len(last.messages) // 2 if len(result.pulls) == 1 else 0
    released = [*range(kept, len(last.messages))]
    deployment.settle(subject, group, [Settlement(receipt=last.receipt, ack=[], release=released)])
    _logger.error("%d messages of %s/%s were given back: the answer would be too large", len(released), subject, group)
    if kept:
        last.messages = last.messages[:kept]
    else:
        result.pulls.pop()
    return True
