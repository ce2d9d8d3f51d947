"""Defines the settings of groups, and applies the ones that a request names."""

from enum import Enum
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from hourwheel.errors import Conflict, Rejected
from hourwheel.model.groups import KEEP_VERSION, Group, PushTarget, RetryPolicy, TagFilter, WhenDead
from hourwheel.registry.broadcast import broadcast_settings, check_pulled

T = TypeVar("T")


class Keep(Enum):
    """The type of ``KEEP``, which leaves a setting unchanged where None means something else."""

    KEEP = "keep"


KEEP = Keep.KEEP


class GroupSettings(TypedDict, total=False):
    """The settings of a group that a request names. One that is None or left out stays as it is; ``push`` and
    ``filter`` stay with ``KEEP``, and None removes them."""

    start: Literal["earliest", "latest"] | None
    max_attempts: int | None
    retry: RetryPolicy | None
    push: PushTarget | Keep | None
    filter: TagFilter | Keep | None
    broadcast: bool | None
    consumer_expires_seconds: int | None
    max_in_flight: int | None
    messages_per_second: float | None
    retry_percent: int | None
    ordered: bool | None
    when_dead: WhenDead | None
    max_held: int | None
    redelivery_delay_seconds: float | None


def changed(group: Group, settings: GroupSettings) -> Group:
    """Returns the group with these settings. Raises ``Conflict`` and ``Rejected`` like ``GroupService.put``."""
    start, push, tag_filter = settings.get("start"), settings.get("push", KEEP), settings.get("filter", KEEP)
    if start is not None and group.start != start:
        raise Conflict(
            "setting-fixed", f"group {group.name!r} began at {group.start!r}: use seek to move it", field="start"
        )
    broadcasts = broadcast_settings(group, settings.get("broadcast"), settings.get("consumer_expires_seconds"))
    order = _order_settings(group, settings)
    if group.ordered and (group.broadcast or isinstance(tag_filter, TagFilter)):
        setting = "broadcast" if group.broadcast else "filter"
        raise Rejected("field-invalid", f"an ordered group has no {setting}: leave it out", field=setting)
    target = group.push if isinstance(push, Keep) else _versioned(push, group.push_secret)
    check_pulled(group, target)
    return msgspec.structs.replace(
        group,
        max_attempts=_either(settings.get("max_attempts"), group.max_attempts),
        retry=_either(settings.get("retry"), group.retry),
        redelivery_delay_seconds=_either(settings.get("redelivery_delay_seconds"), group.redelivery_delay_seconds),
        max_in_flight=_either(settings.get("max_in_flight"), group.max_in_flight),
        messages_per_second=_either(settings.get("messages_per_second"), group.messages_per_second),
        retry_percent=_either(settings.get("retry_percent"), group.retry_percent),
        push=target,
        push_secret=group.push_secret if target is None else max(group.push_secret, target.secret_version),
        **_refiltered(group, tag_filter),
        **broadcasts,
        **order,
    )


def _either(requested: T | None, current: T) -> T:
    return current if requested is None else requested


def _order_settings(group: Group, settings: GroupSettings) -> dict[str, Any]:
    """Returns the fields of the group that change. Raises ``Conflict`` if the group would become ordered or unordered,
    ``Rejected`` for settings that an unordered group does not have."""
    ordered = settings.get("ordered")
    if ordered is not None and group.ordered != ordered:
        state = "ordered" if group.ordered else "not ordered"
        raise Conflict(
            "setting-fixed",
            f"group {group.name!r} is {state}, and ordered cannot change after creation: delete the group and create"
            " it again, or create another one",
            field="ordered",
        )
    changes = {"when_dead": settings.get("when_dead"), "max_held": settings.get("max_held")}
    for field_name, value in changes.items():
        if value is not None and not group.ordered:
            raise Rejected(
                "field-invalid",
                f"{field_name} is a setting of ordered groups: leave it out, or create the group with ordered"
                " (--ordered)",
                field=field_name,
            )
    return {name: value for name, value in changes.items() if value is not None}


def _versioned(target: PushTarget | None, latest: int) -> PushTarget | None:
    """Returns the target with a version of its secret; raises ``Rejected`` for a version that was replaced."""
    if target is None:
        return None
    if target.secret_version == KEEP_VERSION:
        return msgspec.structs.replace(target, secret_version=max(latest, 1))
    if target.secret_version < latest:
        detail = f"secret_version {target.secret_version} was replaced by {latest}: give that one, or a higher one"
        raise Rejected("field-invalid", f"push.secret_version: {detail}", field="push.secret_version")
    return target


def _refiltered(group: Group, tag_filter: TagFilter | Keep | None) -> dict[str, Any]:
    """Returns the fields of the group that the filter changes. A change counts as a seek, so that waiting pulls look
    again at the rows that they have seen with the former filter."""
    if isinstance(tag_filter, Keep) or tag_filter == group.filter:
        return {}
    return {"filter": tag_filter, "seeks": group.seeks + 1}
