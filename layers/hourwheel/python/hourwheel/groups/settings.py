"""Applies the settings of a group that a request names."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hourwheel.errors import Conflict, Rejected
from hourwheel.model.groups import KEEP_VERSION, Group, PushTarget
from hourwheel.model.settings import declared
from hourwheel.registry.broadcast import check_pulled

_DECLARED = declared(Group)

_OTHERWISE = {"start": "use seek to move the group"}
"""What an operator does instead of changing a setting that cannot change after creation."""

_CREATE_AGAIN = "delete the group and create it again, or create another one"


def changed(group: Group, settings: Mapping[str, Any]) -> Group:
    """Returns the group with these settings. None keeps the value of a setting, except that it removes ``push`` and
    ``filter``. Raises ``Conflict`` and ``Rejected`` like ``GroupService.put``."""
    named = {name: value for name, value in settings.items() if value is not None}
    _check_kind(group, named)
    target = _versioned(settings["push"], group.push_secret) if "push" in settings else group.push
    check_pulled(group, target)
    return msgspec.structs.replace(
        group,
        **{name: value for name, value in named.items() if name not in ("push", "filter")},
        push=target,
        push_secret=group.push_secret if target is None else max(group.push_secret, target.secret_version),
        **_refiltered(group, settings),
    )


def _check_kind(group: Group, named: Mapping[str, Any]) -> None:
    """Raises ``Conflict`` or ``Rejected`` for the first setting that this group cannot have."""
    for field in _DECLARED:
        if field.name in named and field.setting.fixed:
            _check_fixed(group, field.name, named[field.name])
        elif field.name in named and field.setting.needs:
            _check_needed(group, field.name, field.setting.needs)
    if group.ordered and (group.broadcast or "filter" in named):
        setting = "broadcast" if group.broadcast else "filter"
        raise Rejected("field-invalid", f"an ordered group has no {setting}: leave it out", field=setting)


def _check_fixed(group: Group, name: str, value: object) -> None:
    """Raises ``Conflict`` if the group was created with another value."""
    current = getattr(group, name)
    if value != current:
        was = f"group {group.name!r} was created with {name} {str(current).lower()}, which cannot change"
        raise Conflict("setting-fixed", f"{was}: {_OTHERWISE.get(name, _CREATE_AGAIN)}", field=name)


def _check_needed(group: Group, name: str, needed: str) -> None:
    """Raises ``Rejected`` for a setting of another kind of group."""
    if not getattr(group, needed):
        detail = f"{name} is a setting of {needed} groups: leave it out, or create the group with {needed} (--{needed})"
        raise Rejected("field-invalid", detail, field=name)


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


def _refiltered(group: Group, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of the group that the filter changes. A change counts as a seek, so that waiting pulls look
    again at the rows that they have seen with the former filter."""
    if "filter" not in settings or settings["filter"] == group.filter:
        return {}
    return {"filter": settings["filter"], "seeks": group.seeks + 1}
