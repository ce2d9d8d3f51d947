"""Defines dead letters and orphans, as the API answers them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hourwheel.client.due import utc_text
from hourwheel.client.records.messages import Kept, Received


class DeadLetter(Received, frozen=True, kw_only=True, gc=False):
    """A message that was given up at ``died_at``. The ``reason`` is ``attempts`` if its last attempt failed, or
    ``rejected`` if a consumer gave it up before. ``detail`` is the text that the consumer gave for the failure or the
    rejection. The server keeps a dead letter for 30 days.

    Example:
        >>> (pull,) = api.pull("orders", "billing", "host-1").pulls
        >>> settled = api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0])])
        >>> api.list_dead("orders", "billing").messages[0].reason
        'rejected'
    """

    dead_id: str
    died_at: datetime
    reason: Literal["attempts", "rejected"]


class Orphan(Kept, frozen=True, kw_only=True, gc=False):
    """A delayed message whose subject was deleted before the message was due. The server keeps it for 30 days from
    ``died_at``.

    Example:
        >>> [orphan.body for orphan in api.list_orphans("orders").messages]
        []
    """

    dead_id: str
    died_at: datetime


class DeadPage(Struct, frozen=True, kw_only=True):
    """A page of dead letters. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_dead("orders", "billing").next is None
        True
    """

    messages: list[DeadLetter]
    next: str | None = None


class OrphanPage(Struct, frozen=True, kw_only=True):
    """A page of orphans. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_orphans("orders").next is None
        True
    """

    messages: list[Orphan]
    next: str | None = None


class DeadSelection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selects the dead letters to redrive or drop. ``everything``, ``named``, ``between`` and ``because`` make
    selections.

    Example:
        >>> api.redrive("orders", "billing", DeadSelection.everything())
        0
    """

    all: bool | UnsetType = UNSET
    ids: list[str] | UnsetType = UNSET
    since: str | UnsetType = msgspec.field(name="from", default=UNSET)
    until: str | UnsetType = msgspec.field(name="to", default=UNSET)
    reason: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET

    @staticmethod
    def everything() -> "DeadSelection":
        """Selects all dead letters of a group.

        Raises nothing.

        Example:
            >>> DeadSelection.everything().all
            True
        """
        return DeadSelection(all=True)

    @staticmethod
    def named(ids: Sequence[str]) -> "DeadSelection":
        """Selects dead letters by their ``dead_id``.

        Raises nothing.

        Example:
            >>> DeadSelection.named(["12-0", "12-1"]).ids
            ['12-0', '12-1']
        """
        return DeadSelection(ids=list(ids))

    @staticmethod
    def between(since: datetime | None, until: datetime | None) -> "DeadSelection":
        """Selects the messages that died at ``since`` or later, and before ``until``. Either of the two may be None,
        but not both: the server refuses that.

        Raises:
            ValueError: ``since`` or ``until`` is no datetime with a zone.

        Example:
            >>> yesterday = datetime.now(UTC) - timedelta(days=1)
            >>> api.drop("orders", "billing", DeadSelection.between(None, yesterday))
            0
        """
        return DeadSelection(
            since=UNSET if since is None else utc_text(since, "since"),
            until=UNSET if until is None else utc_text(until, "until"),
        )

    @staticmethod
    def because(reason: Literal["attempts", "rejected"], detail: str | None = None) -> "DeadSelection":
        """Selects the messages that died for this reason; with ``detail`` only those that have exactly this detail.

        Raises nothing.

        Example:
            >>> api.drop("orders", "billing", DeadSelection.because("rejected", "the order is empty"))
            0
        """
        return DeadSelection(reason=reason, detail=UNSET if detail is None else detail)
