"""Starts pushers after rows were stored, and for the sweeper."""

from collections.abc import Iterable

from hourwheel.context import Context
from hourwheel.errors import Corrupt, NotFound, Unavailable
from hourwheel.model.groups import Group
from hourwheel.model.log_names import LogKind, LogName
from hourwheel.push.state import Pushed, listen, pushed_groups, state_record, target_of
from hourwheel.registry.registry import Registry


def wake(context: Context, logs: Iterable[str]) -> int:
    """Starts a pusher for each group that reads one of these logs, in which rows were stored, unless the group has a
    pusher or is paused. Returns how many were started. Costs one read for each subject, and one start for each
    pusher."""
    now_ms = context.clock.now_ms()
    free = {
        (pushed.subject, pushed.group)
        for log in _read_logs(logs)
        for pushed in pushed_groups(context, log)
        if pushed.current.value.free(now_ms)
    }
    for subject, group in sorted(free):
        context.pushes.start(subject, group)
    return len(free)


def start_free(context: Context, group: Group) -> bool:
    """Starts a pusher for a group in which messages wait, unless the group has a pusher or is paused. Returns whether
    one was started."""
    current = state_record(context, group).load()
    if current is not None and not current.value.free(context.clock.now_ms()):
        return False
    return _started(context, group.subject, group.name)


def start_overdue(context: Context, registry: Registry) -> int:
    """Starts a pusher for each group whose pause is over, or whose pusher stopped without leaving. Returns how many
    were started. Switches the stream of stored rows on while any group has a target, and off otherwise."""
    now_ms, hints = context.clock.now_ms(), context.hints
    # A process that has switched the stream off reads at half the price: the change that sets a target switches it on.
    groups = list(pushed_groups(context, consistent=not hints.has_no_targets))
    started = sum(_start(context, registry, pushed) for pushed in groups if pushed.current.value.overdue(now_ms))
    if groups or not hints.has_no_targets:
        hints.has_no_targets = listen(context, bool(groups)) and not groups
    return started


def drop_leftover(context: Context, registry: Registry, subject: str, group: str) -> None:
    """Removes the record of a group that has no target any more, was paused, or was deleted."""
    for pushed in pushed_groups(context):
        if (pushed.subject, pushed.group) == (subject, group):
            _needs_pusher(context, registry, pushed)


def _start(context: Context, registry: Registry, pushed: Pushed) -> bool:
    return _needs_pusher(context, registry, pushed) and _started(context, pushed.subject, pushed.group)


def _started(context: Context, subject: str, group: str) -> bool:
    """Starts a pusher and returns whether that worked. If not, counts the failure: the next sweep tries again."""
    try:
        context.pushes.start(subject, group)
    except Unavailable:
        context.meter.record("WakesMissed", 1)
        return False
    return True


def _needs_pusher(context: Context, registry: Registry, pushed: Pushed) -> bool:
    """Returns whether the group of a record has a target. If not, removes the record: the process that removed the
    target, paused the group or deleted it, stopped before it did."""
    registry.forget(pushed.subject)  # the record may be younger than the cached subject
    try:
        subject, group = registry.subject_and_group(pushed.subject, pushed.group)
    except NotFound:
        group = None
    if group is not None and target_of(subject, group) and state_record(context, group).key == pushed.key:
        return True
    context.store.delete(pushed.key, expect=pushed.current.token)
    return False


def _read_logs(logs: Iterable[str]) -> list[str]:
    """Returns the logs of these names that groups read, in order, with one log for all queues of a subject. Leaves out
    dead logs, which no group reads."""
    named = []
    for log in logs:
        try:
            name = LogName.parse(log)
        except Corrupt:
            continue  # the stream also carries items that no version of this library has written
        if name.kind is LogKind.RETRY:
            named.append(log)
        elif name.kind is LogKind.QUEUE:
            named.append(str(name._replace(queue=0)))
    return list(dict.fromkeys(named))
