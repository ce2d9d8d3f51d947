"""Marks the futures of messages as running before they are sent, and fails them when a producer gives them up."""

from collections.abc import Sequence

import msgspec

from hourwheel.client.producing.accumulator import Pending
from hourwheel.client.records.messages import AddressedMessage


def begin(batch: Sequence[Pending]) -> list[Pending]:
    """Returns the messages to send, without those whose futures were cancelled. The others cannot be cancelled any
    more."""
    return [pending for pending in batch if pending.future.set_running_or_notify_cancel()]


def give_up(waiting: Sequence[Pending], error: Exception) -> None:
    """Fails the futures of messages that are not under way."""
    for pending in begin(waiting):
        pending.fail(error)


def give_up_rest(
    outstanding: Sequence[tuple[str, Pending]], error: Exception
) -> list[tuple[AddressedMessage, BaseException]]:
    """Fails the futures that are not done. Returns all messages that were not accepted, each with its error."""
    unsent: list[tuple[AddressedMessage, BaseException]] = []
    for subject, pending in outstanding:
        if not pending.future.done():
            pending.fail(error)
        if pending.future.cancelled():
            continue
        reason = pending.future.exception(0)
        if reason is not None:
            unsent.append((AddressedMessage(**msgspec.structs.asdict(pending.message), subject=subject), reason))
    return unsent
