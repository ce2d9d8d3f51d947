"""Who begins to push: woken by what is stored, or by the sweeper."""

from collections.abc import Iterable

from hourwheel.context import Context
from hourwheel.errors import Corrupt, NotFound, Unavailable
from hourwheel.lognames import LogKind, LogName
from hourwheel.model import Group
from hourwheel.push.state import Pushed, listen, pushed_groups, state_record
from hourwheel.registry.registry import Registry


def wake(context: Context, logs: Iterable[str]) -> int:
    """Starts pushing for the groups that read the consume and retry logs of these names, in which something was stored;
    for how many. One read for each subject where nobody has to be started."""
    now_ms = context.clock.now_ms()
    free = {
        (pushed.subject, pushed.group)
        for log in _read_logs(logs)
        for pushed in pushed_groups(context, log)
        if pushed.held.value.free(now_ms)
    }
    for subject, group in sorted(free):
        context.pushes.start(subject, group)
    return len(free)


def start_free(context: Context, group: Group) -> bool:
    """Starts pushing for a group in which something waits, unless somebody pushes or it is paused; whether it did."""
    held = state_record(context, group).load()
    if held is not None and not held.value.free(context.clock.now_ms()):
        return False
    return _started(context, group.subject, group.name)


def start_overdue(context: Context, registry: Registry) -> int:
    """Starts pushing where a pause is over, or somebody who pushed went without a word; for how many groups. Has the
    stream of what is stored read while there are groups with a target, and only then."""
    now_ms = context.clock.now_ms()
    groups = list(pushed_groups(context))
    started = sum(_start(context, registry, pushed) for pushed in groups if pushed.held.value.overdue(now_ms))
    listen(context, bool(groups))
    return started


def drop_leftover(context: Context, registry: Registry, subject: str, group: str) -> None:
    """Removes the record of a group that was found to have no target, or to be no more."""
    for pushed in pushed_groups(context):
        if (pushed.subject, pushed.group) == (subject, group):
            _needs_pusher(context, registry, pushed)


def _start(context: Context, registry: Registry, pushed: Pushed) -> bool:
    return _needs_pusher(context, registry, pushed) and _started(context, pushed.subject, pushed.group)


def _started(context: Context, subject: str, group: str) -> bool:
    """Whether somebody was started; who could not be is tried again by the next sweep."""
    try:
        context.pushes.start(subject, group)
    except Unavailable:
        context.meter.record("WakesMissed", 1)
        return False
    return True


def _needs_pusher(context: Context, registry: Registry, pushed: Pushed) -> bool:
    """Whether the group of a record has a target; else whoever took it away, or deleted the group, got no further, and
    the record is removed."""
    registry.forget(pushed.subject)  # the record may be younger than what is cached
    try:
        group = registry.group(registry.subject(pushed.subject), pushed.group)
    except NotFound:
        group = None
    if group is not None and group.push is not None and state_record(context, group).key == pushed.key:
        return True
    context.store.delete(pushed.key, expect=pushed.held.token)
    return False


def _read_logs(logs: Iterable[str]) -> list[str]:
    """Returns one log for all queues of a subject; none for dead logs, which nobody reads. Keeps the order."""
    named = []
    for log in logs:
        try:
            name = LogName.parse(log)
        except Corrupt:
            continue  # the stream tells of items that no version of this library has written
        if name.kind is LogKind.RETRY:
            named.append(log)
        elif name.kind is LogKind.QUEUE:
            named.append(str(name._replace(queue=0)))
    return list(dict.fromkeys(named))
