"""Function ``push``: woken by what is stored, it has the groups concerned pushed; called for a group, it pushes.

    {"Records": [{"dynamodb": {"Keys": {"pk": {"S": LOG}, …}}, …}, …]}       from the stream of the consume table
    {"push": {"subject": …, "group": …}}                                     from itself and from the sweeper

Targets are never waited for while the stream is read: a slow one holds up nobody but its own group.
"""

import logging
from collections.abc import Callable
from typing import Any

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.api.periodic_flush import periodic_flush
from hourwheel.cell import Cell
from hourwheel.errors import NotFound
from hourwheel.model import check_name
from hourwheel.push.decisions import SETTLING_SECONDS, Ended
from hourwheel.push.pusher import Pusher
from hourwheel.push.waking import drop_leftover, wake

_logger = logging.getLogger("hourwheel")


def pushing(flush: Callable[[], None]) -> Function:
    """The function. It calls ``flush`` about each minute while it pushes.

    Raises ``ValueError`` for an event that is neither, and ``Unavailable`` when nobody could be woken: the stream comes
    again."""

    def push(cell: Cell, event: Event, context: Invocation | None) -> Response:
        if isinstance(event, dict) and isinstance(event.get("Records"), list):
            return _wake(cell, event["Records"])
        wanted = event.get("push") if isinstance(event, dict) else None
        if not isinstance(wanted, dict) or not all(isinstance(wanted.get(name), str) for name in ("subject", "group")):
            form = '{"push": {"subject": NAME, "group": NAME}}, or of a stream'
            raise ValueError(f"an event of the function push is {form}")
        subject, group = (check_name(wanted[name], name) for name in ("subject", "group"))
        ended = _push(cell, subject, group, context, periodic_flush(cell.context.clock, flush))
        if ended is Ended.LEFT:
            cell.context.pushes.start(subject, group)
        elif ended is Ended.NO_TARGET:
            drop_leftover(cell.context, cell.registry, subject, group)
        return {"ended": ended.value}

    return push


def _wake(cell: Cell, records: list[Any]) -> Response:
    logs = set()
    strange = 0
    for record in records:
        try:
            logs.add(str(record["dynamodb"]["Keys"]["pk"]["S"]))
        except (KeyError, TypeError):
            strange += 1  # it will not look better the next time
    if strange:
        cell.context.meter.record("Faults", strange)
        _logger.error("%d records of the stream have no key and were left out", strange)
    return {"started": wake(cell.context, logs)}


def _push(cell: Cell, subject: str, group: str, context: Invocation | None, tell: Callable[[], None]) -> Ended:
    clock = cell.context.clock
    try:
        target = cell.group(subject, group).push
    except NotFound:
        return Ended.NO_TARGET
    leaves_ms = 0
    if context is not None and target is not None:
        last_ms = 1_000 * (target.timeout_seconds + SETTLING_SECONDS)
        left_ms = context.get_remaining_time_in_millis()
        if left_ms < 2 * last_ms:
            # It would hand over to itself again and again.
            raise ValueError(f"the function has {left_ms} ms left and needs {2 * last_ms}: give it a longer time-out")
        leaves_ms = clock.now_ms() + left_ms - last_ms

    def stopping() -> bool:
        tell()
        return False

    owner = cell.context.ids.unique(clock.now_ms())
    return Pusher(cell, cell.targets, subject, group, owner, leaves_ms, stopping=stopping).run()
