"""Function ``ack``: settles pulls."""

from collections.abc import Sequence

import msgspec

from hourwheel.api.events import Event, Invocation, Response, ok
from hourwheel.api.problems import StaleReceipts
from hourwheel.api.requests import body_of, path_name
from hourwheel.cell import Cell
from hourwheel.errors import Rejected
from hourwheel.misfits import decode
from hourwheel.model import BATCH_MESSAGES, Settlement, SettleRequest, SettleResult
from hourwheel.queueing.settle import decide

_decoder = msgspec.json.Decoder(SettleRequest)


def ack(cell: Cell, event: Event, context: Invocation | None) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    request = decode(_decoder, body_of(event))
    check_settlements(request.settle)
    results = cell.settle(subject, group, request.settle)
    if all(settled.status == "stale" for settled in results):
        raise StaleReceipts(results)
    return ok(SettleResult(results))


def check_settlements(settlements: Sequence[Settlement]) -> None:
    """Refuses entries that contradict themselves before any of them is carried out."""
    for index, settlement in enumerate(settlements):
        # Nearly all: nothing is named, so nothing can be named twice.
        if settlement.ack is settlement.retry is settlement.release is settlement.dead is None:
            continue
        try:
            decide(settlement, BATCH_MESSAGES)
        except Rejected as error:
            raise Rejected(error.slug, str(error), field=f"settle[{index}].{error.field}") from None
