"""Who begins to push: woken by what is stored, or by the sweeper."""

from collections.abc import Iterable

from hourwheel.context import Context
from hourwheel.errors import NotFound
from hourwheel.meta.directory import Directory
from hourwheel.model import Group
from hourwheel.push.state import Pushed, pushed_groups, state_slot


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
    held = state_slot(context, group).load()
    if held is not None and not held.value.free(context.clock.now_ms()):
        return False
    context.pushes.start(group.subject, group.name)
    return True


def start_overdue(context: Context, directory: Directory) -> int:
    """Starts pushing where a pause is over, or somebody who pushed went without a word; for how many groups."""
    now_ms = context.clock.now_ms()
    overdue = [pushed for pushed in pushed_groups(context) if pushed.held.value.overdue(now_ms)]
    return sum(_start(context, directory, pushed) for pushed in overdue)


def _start(context: Context, directory: Directory, pushed: Pushed) -> bool:
    directory.forget(pushed.subject)  # the record may be younger than what is cached
    try:
        group = directory.group(directory.subject(pushed.subject), pushed.group)
    except NotFound:
        group = None
    if group is None or group.push is None or state_slot(context, group).key != pushed.key:
        # Whoever took the target away, or deleted the group, got no further.
        context.store.delete(pushed.key, expect=pushed.held.token)
        return False
    context.pushes.start(pushed.subject, pushed.group)
    return True


def _read_logs(logs: Iterable[str]) -> set[str]:
    """One log for all queues of a subject; none for dead logs, which nobody reads."""
    named = set()
    for log in logs:
        subject, _, rest = log.partition("/")
        if rest.startswith("retry/"):
            named.add(log)
        elif not rest.startswith("dead/"):
            named.add(f"{subject}/0")
    return named
