"""Function ``push``: starts a pusher for each group with new messages, or is the pusher of one group.

The event decides which:

    {"Records": [{"dynamodb": {"Keys": {"pk": {"S": LOG}, …}}, …}, …]}       from the stream of the consume table
    {"push": {"subject": …, "group": …}}                                     from itself and from the sweeper

The function waits for no target while it reads the stream, so a slow target delays its own group only.
"""

import logging
from collections.abc import Callable
from typing import Any

from hourwheel.api.background.periodic_flush import periodic_flush
from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import NotFound
from hourwheel.model.fields import check_name
from hourwheel.push.decisions import SETTLING_SECONDS, PusherEnd
from hourwheel.push.pusher import Pusher
from hourwheel.push.waking import drop_leftover, wake

_logger = logging.getLogger("hourwheel")


def pushing(flush: Callable[[], None]) -> Function:
    """Returns the function, which calls ``flush`` about once a minute while it pushes.

    The function raises ``ValueError`` for an event of another form or an invocation that is too short, and
    ``Unavailable`` where it could start no pusher: then Lambda sends the records of the stream again.
    """

    def push(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
        if isinstance(event, dict) and isinstance(event.get("Records"), list):
            return _wake(deployment, event["Records"])
        request = event.get("push") if isinstance(event, dict) else None
        if not isinstance(request, dict) or not all(
            isinstance(request.get(name), str) for name in ("subject", "group")
        ):
            form = '{"push": {"subject": NAME, "group": NAME}}'
            raise ValueError(f"an event of the function push must be {form}, or hold the records of a stream")
        subject, group = (check_name(request[name], name) for name in ("subject", "group"))
        ended = _push(deployment, subject, group, context, periodic_flush(deployment.context.clock, flush))
        if ended is PusherEnd.LEFT:
            deployment.context.pushes.start(subject, group)
        elif ended is PusherEnd.NO_TARGET:
            drop_leftover(deployment.context, deployment.registry, subject, group)
        return {"ended": ended.value}

    return push


def _wake(deployment: Deployment, records: list[Any]) -> Response:
    logs = set()
    keyless = 0
    for record in records:
        try:
            logs.add(str(record["dynamodb"]["Keys"]["pk"]["S"]))
        except (KeyError, TypeError):
            keyless += 1  # counted instead of raised: Lambda would send the whole batch again, without end
    if keyless:
        deployment.context.meter.record("Faults", keyless)
        _logger.error("%d records of the stream name no log and were skipped: they start no pusher", keyless)
    return {"started": wake(deployment.context, logs)}


def _push(
    deployment: Deployment, subject: str, group: str, context: Invocation | None, flush: Callable[[], None]
) -> PusherEnd:
    clock = deployment.context.clock
    try:
        target = deployment.groups.get(subject, group).push
    except NotFound:
        return PusherEnd.NO_TARGET
    leaves_ms = 0
    if context is not None and target is not None:
        last_ms = 1_000 * (target.timeout_seconds + SETTLING_SECONDS)
        left_ms = context.get_remaining_time_in_millis()
        if left_ms < 2 * last_ms:
            # A pusher that leaves at once would start its successor, which leaves at once, and so on.
            raise ValueError(
                f"the function push has {left_ms} ms left and needs {2 * last_ms}: give it a longer time-out, or the"
                " target a shorter one"
            )
        leaves_ms = clock.now_ms() + left_ms - last_ms

    def stopping() -> bool:
        flush()
        return False

    owner = deployment.context.ids.unique(clock.now_ms())
    return Pusher(deployment, deployment.targets, subject, group, owner, leaves_ms, stopping=stopping).run()
