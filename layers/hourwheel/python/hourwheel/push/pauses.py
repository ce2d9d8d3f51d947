"""Pauses and resumes the delivery of one group, or of all groups of a subject.

The pause is a field of the group's or the subject's record. Pulls read it with the record and claim nothing; leases and
settlements go on. Pushes stop because a group that is paused counts as one without a target (``state.target_of``).
"""

import msgspec

from hourwheel.context import Context
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.push.state import retarget
from hourwheel.push.waking import start_free
from hourwheel.registry.records import unknown_group, unknown_subject
from hourwheel.registry.registry import Registry


def pause_subject(context: Context, registry: Registry, name: str, *, paused: bool) -> Subject:
    """Pauses or resumes the delivery to all groups of a subject, and returns the subject. Idempotent. Raises
    ``NotFound``."""
    owner = registry.current_subject(name)

    def change(current: Subject) -> Subject:
        if current.generation != owner.generation:
            raise unknown_subject(name)
        return msgspec.structs.replace(current, paused=paused)

    subject = registry.change_subject(name, change)
    for group in registry.groups(subject):
        _push(context, subject, group)
    if not paused:
        context.wakeups.announce(name)
    return subject


def pause_group(context: Context, registry: Registry, subject: str, name: str, *, paused: bool) -> Group:
    """Pauses or resumes the delivery to a group, and returns the group. Idempotent. Raises ``NotFound``."""
    owner = registry.current_subject(subject)
    cached = registry.group(owner, name)

    def change(current: Group) -> Group:
        if current.generation != cached.generation:
            raise unknown_group(subject, name)
        return msgspec.structs.replace(current, paused=paused)

    group = registry.change_group(owner, name, change)
    _push(context, owner, group)
    if not paused:
        context.wakeups.announce(subject, name)
    return group


def _push(context: Context, subject: Subject, group: Group) -> None:
    """Lets stored rows start pushers for the group, or stops that for a paused one. After a resume, starts a pusher for
    the messages that wait."""
    if group.push is not None:
        retarget(context, subject, group, changed=False)
        if not (subject.paused or group.paused):
            start_free(context, group)
