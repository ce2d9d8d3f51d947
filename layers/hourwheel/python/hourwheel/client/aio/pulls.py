"""Pulls and settles for a consumer, one try each. Survives receipts that the server does not know."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from hourwheel.client.aio.api import AsyncApi
from hourwheel.client.calls.pull import pull_encoded as _pull_encoded
from hourwheel.client.consuming.dozing import Doze
from hourwheel.client.consuming.settlements import UNKNOWN_RECEIPT, refused
from hourwheel.client.consuming.suspects import SuspectTurn
from hourwheel.client.errors import BadRequest, NotFound, ServerUnavailable
from hourwheel.client.records.compact import CompactPulls
from hourwheel.client.records.messages import Pulled
from hourwheel.model.pulls import Settled, Settlement


async def pull_encoded(
    pulls: AsyncApi,
    settles: AsyncApi,
    subject: str,
    group: str,
    consumer: str,
    *,
    settle: Sequence[Settlement],
    doze: Doze,
    turn: SuspectTurn,
    suspects: Mapping[str, Any],
    **options: Any,
) -> Pulled | CompactPulls:
    """Tries a pull once, and returns its answer, whose messages stay encoded if the answer is msgpack. If the server
    does not know one of the receipts, settles without pulling, and returns an answer without messages."""
    rest = {**doze.fields(), **suspects}
    try:
        answer: Any = _pull_encoded(pulls.calls, subject, group, consumer, settle=settle, rest=rest, **options)
        return cast(Pulled | CompactPulls, await answer)
    except BadRequest as error:
        if rest and (doze.refused(error) or turn.refused(error)):
            options |= {"settle": settle, "doze": doze, "turn": turn, "suspects": turn.fields()}
            return await pull_encoded(pulls, settles, subject, group, consumer, **options)
        if not settle or error.slug != UNKNOWN_RECEIPT:
            raise
        return Pulled(pulls=[], settled=await settle_each(settles, subject, group, settle))


async def settle_each(api: AsyncApi, subject: str, group: str, settlements: Sequence[Settlement]) -> list[Settled]:
    """Sends settlements and returns their results.

    A receipt that the server does not know fails the whole request. In this case each settlement is sent alone, and
    the result of the unknown one is ``stale``.
    """
    try:
        return await api.settle(subject, group, settlements, retry_seconds=0)
    except (NotFound, ServerUnavailable) as error:
        return refused(error, settlements)
    except BadRequest as error:
        if error.slug != UNKNOWN_RECEIPT:
            raise
        if len(settlements) == 1:
            return [Settled("stale")]
    return [(await settle_each(api, subject, group, [settlement]))[0] for settlement in settlements]
