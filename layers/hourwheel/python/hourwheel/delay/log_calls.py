"""Makes the calls of a step on its target logs, those of different logs at the same time."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias, TypeVar

from hourwheel.context import Context
from hourwheel.delay.call_workers import in_parallel
from hourwheel.delay.outgoing_batches import OutgoingBatch
from hourwheel.errors import Filled, Sealed, Unavailable
from hourwheel.handover.handover import Transfer
from hourwheel.logs.log import Reservation

T = TypeVar("T")

Expected: TypeAlias = Sealed | Filled | Unavailable
"""The errors of a call on one log after which the work on the others goes on."""


def for_each_log(context: Context, logs: Sequence[str], call: Callable[[int], T]) -> list[T | Expected]:
    """Makes a call for each of the logs by its number: those of one log one after the other, until one of them did not
    succeed. Returns the results and the expected errors. Inside of a transaction all are made in turn."""
    numbers: dict[str, list[int]] = {}
    for number, log in enumerate(logs):
        numbers.setdefault(log, []).append(number)
    calls = [partial(_outcomes, call, some) for some in numbers.values()]
    outcomes = in_parallel(calls, 1 if context.later is not None else context.threads)
    by_number = dict(chain.from_iterable(outcomes))
    return [by_number[number] for number in range(len(logs))]


def reserved(context: Context, batch: OutgoingBatch) -> Reservation:
    """Reserves a row in the target log of the batch. Raises ``Sealed`` and ``Unavailable``."""
    log = batch.target.log
    return context.brief_log(log).reserve(len(batch.picks)) if log else Reservation("", 0, 0)


def transfer_of(context: Context, batch: OutgoingBatch, at_ms: int, reservation: Reservation) -> Transfer:
    """Returns the transfer that a dispatch row names for the batch."""
    return Transfer(
        kind=batch.target.kind,
        log=batch.target.log,
        row_no=reservation.row_no,
        first_seq=reservation.first_seq,
        token=context.ids.token(),
        at_ms=at_ms,
        expires_ms=batch.expires_ms(at_ms),
        picks=tuple(batch.picks),
    )


def _outcomes(call: Callable[[int], T], numbers: Iterable[int]) -> list[tuple[int, T | Expected]]:
    outcomes: list[tuple[int, T | Expected]] = []
    refused: Unavailable | None = None
    for number in numbers:
        try:
            # Behind a call that was refused the next one to its log would only take as long again.
            outcomes.append((number, refused or call(number)))
        except (Sealed, Filled) as error:
            outcomes.append((number, error))
        except Unavailable as error:
            refused = error
            outcomes.append((number, error))
    return outcomes
