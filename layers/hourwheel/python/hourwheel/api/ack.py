"""Function ``ack``: settles the messages of pulls."""

from collections.abc import Sequence

from hourwheel.api.events import Event, Invocation, Response
from hourwheel.api.problems import StaleReceipts
from hourwheel.api.requests import path_name
from hourwheel.api.wire import RequestReader, answer
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Rejected
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.model.pulls import Settlement, SettleRequest, SettleResult
from hourwheel.pull_log.parsed_settlements import parse_settlement

_decoder = RequestReader(SettleRequest)


def ack(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    request = _decoder.read(event)
    check_settlements(request.settle)
    results = deployment.settle(subject, group, request.settle)
    if all(settled.status == "stale" for settled in results):
        raise StaleReceipts(results)
    return answer(event, SettleResult(results))


def check_settlements(settlements: Sequence[Settlement]) -> None:
    """Raises ``Rejected``, with the path of the entry, for the first settlement that contradicts itself.

    Callers check all settlements before they carry out any.
    """
    for index, settlement in enumerate(settlements):
        # Most settlements name no message, so they cannot name one twice.
        if settlement.ack is settlement.retry is settlement.release is settlement.dead is None:
            continue
        try:
            parse_settlement(settlement, BATCH_MESSAGES)
        except Rejected as error:
            raise Rejected(error.slug, str(error), field=f"settle[{index}].{error.field}") from None
