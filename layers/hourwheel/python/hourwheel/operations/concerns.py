"""Decides what needs an operator, from numbers that were read before. Reads nothing itself."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from hourwheel.model.overview import BucketWheel, GroupOverview
from hourwheel.operations.thresholds import Thresholds
from hourwheel.operations.trends import Trend
from hourwheel.ports.storage import VolumeSpace
from hourwheel.times import parse_rfc3339
from hourwheel.wire.words import counted

ConcernLevel: TypeAlias = Literal["alarm", "warning", "notice"]

ConcernKind: TypeAlias = Literal[
    "cell_out",
    "disk",
    "wheel_overdue",
    "stopped_keys",
    "no_consumers",
    "growing",
    "dead",
    "paused",
    "limited",
    "draining",
]

LEVELS: tuple[ConcernLevel, ...] = ("alarm", "warning", "notice")
_MEGABYTE = 1 << 20


class Concern(Struct, kw_only=True, frozen=True):
    """A state that needs an operator: its ``kind``, the ``subject`` and ``group``, or the ``name`` of a cell, a volume
    or a bucket. ``text`` says it in a sentence, and ``command`` is the command that helps. ``since`` is the time of the
    oldest message, of the first dead letter or of the last pull. ``drain_seconds`` is the time that the group needs for
    its backlog at the present rates; None where it would never end."""

    kind: ConcernKind
    level: ConcernLevel
    text: str
    command: str
    subject: str | None = None
    group: str | None = None
    name: str | None = None
    messages: int | None = None
    since: str | None = None
    rise_per_second: float | None = None
    pulled_per_second: float | None = None
    drain_seconds: float | None = None

    def order_key(self) -> tuple[int, str, int, str, str]:
        """Sorts the gravest concerns first, and of one kind those with the most messages."""
        subject = self.subject or self.name or ""
        return LEVELS.index(self.level), self.kind, -(self.messages or 0), subject, self.group or ""


class WatchedGroup(NamedTuple):
    """What is known of a group: its numbers, its trend, and since when a message waits that a pull would hand out.
    This process has seen all pulls since ``watched_ms``; None where others serve them."""

    subject: str
    numbers: GroupOverview
    trend: Trend | None
    watched_ms: int | None
    pullable_since: str | None


def concerns_of_group(state: WatchedGroup, limits: Thresholds, now_ms: int) -> list[Concern]:
    """Returns what needs an operator in a group: at most one concern about its backlog, one about its keys, and one
    about its dead letters."""
    concerns = (_backlog(state, limits, now_ms), _stopped(state), _dead(state))
    return [concern for concern in concerns if concern is not None]


def _backlog(state: WatchedGroup, limits: Thresholds, now_ms: int) -> Concern | None:
    """Returns the concern about messages that wait. A reason for the wait hides its consequences."""
    if state.numbers.limited_by in ("paused", "subject_paused") or state.numbers.paused:
        return _paused(state)
    if not _to_pull(state.numbers):
        return None
    if state.numbers.limited_by is not None:
        return _limited(state)
    if _unpulled(state, limits, now_ms):
        return _no_consumers(state)
    return _lag(state, limits, now_ms)


def _to_pull(numbers: GroupOverview) -> int:
    return numbers.waiting + numbers.retrying


def _paused(state: WatchedGroup) -> Concern:
    numbers, waiting = state.numbers, _to_pull(state.numbers)
    whole = numbers.limited_by == "subject_paused"
    what = "The subject is paused" if whole else "The group is paused"
    return Concern(
        kind="paused",
        level="warning" if waiting else "notice",
        text=f"{what}: {_waits(waiting)}." if waiting else f"{what}.",
        command=_command("subject resume", state.subject) if whole else _group_command("group resume", state),
        subject=state.subject,
        group=numbers.group,
        messages=waiting,
        since=numbers.oldest_at,
    )


def _unpulled(state: WatchedGroup, limits: Thresholds, now_ms: int) -> bool:
    """Returns whether nobody has asked for the messages of a group for long. A process that has just started has seen
    no pulls that find nothing, so it waits first. One that sees no pulls knows those that found messages."""
    numbers = state.numbers
    if numbers.in_flight or numbers.pushed or state.pullable_since is None:
        return False
    pulled_ms = 0 if numbers.pulled_at is None else parse_rfc3339(numbers.pulled_at, "pulled_at")
    asked_ms = max(pulled_ms, state.watched_ms or 0, parse_rfc3339(state.pullable_since, "pullable_since"))
    return now_ms - asked_ms >= limits.unpulled_ms


def _no_consumers(state: WatchedGroup) -> Concern:
    numbers, waiting = state.numbers, _to_pull(state.numbers)
    return Concern(
        kind="no_consumers",
        level="warning" if state.watched_ms is None else "alarm",
        text=f"{_waits(waiting)}, and {_silence(state)}",
        command=_group_command("group consumers", state),
        subject=state.subject,
        group=numbers.group,
        messages=waiting,
        since=numbers.pulled_at,
        rise_per_second=None if state.trend is None else state.trend.rise_per_second,
    )


def _silence(state: WatchedGroup) -> str:
    """Says what is known of pulls. A process that does not see them knows when messages were handed out."""
    pulled_at = state.numbers.pulled_at
    if state.watched_ms is None:
        return (
            f"nothing was handed out {'yet' if pulled_at is None else f'since {pulled_at[:10]} {pulled_at[11:16]}Z'}."
        )
    return f"no consumer pulls.{' No consumer has pulled yet.' if pulled_at is None else ''}"


def _limited(state: WatchedGroup) -> Concern:
    numbers, waiting = state.numbers, _to_pull(state.numbers)
    return Concern(
        kind="limited",
        level="notice",
        text=f"The group is at its limit {numbers.limited_by}: {_waits(waiting)}.",
        command=_group_command("group show", state),
        subject=state.subject,
        group=numbers.group,
        messages=waiting,
        since=numbers.oldest_at,
    )


def _lag(state: WatchedGroup, limits: Thresholds, now_ms: int) -> Concern | None:
    numbers, trend = state.numbers, state.trend
    if trend is None or numbers.oldest_at is None:
        return None
    waited_ms = now_ms - parse_rfc3339(numbers.oldest_at, "oldest_at")
    is_long = numbers.waiting >= limits.rising_messages and waited_ms >= limits.rising_oldest_ms
    if is_long and trend.rise_per_second >= limits.rising_per_second:
        return _rising(state, trend)
    if numbers.waiting >= limits.long_messages and waited_ms >= limits.long_oldest_ms and trend.rise_per_second < 0:
        return _draining(state, trend)
    return None


def _rising(state: WatchedGroup, trend: Trend) -> Concern:
    waiting, pulled = state.numbers.waiting, trend.pulled_per_second
    seconds = round(waiting / pulled, 1) if pulled > 0 else None
    work = "nothing is pulled" if seconds is None else f"pulled at {_rate(pulled)}, {_span(seconds)} of work"
    return Concern(
        kind="growing",
        level="warning",
        text=f"{_waits(waiting)}, growing by {_rate(trend.rise_per_second)}; {work}.",
        command=_group_command("lag --watch", state),
        subject=state.subject,
        group=state.numbers.group,
        messages=waiting,
        since=state.numbers.oldest_at,
        rise_per_second=trend.rise_per_second,
        pulled_per_second=pulled,
        drain_seconds=seconds,
    )


def _draining(state: WatchedGroup, trend: Trend) -> Concern:
    waiting, shrinks = state.numbers.waiting, -trend.rise_per_second
    seconds = round(waiting / shrinks, 1)
    return Concern(
        kind="draining",
        level="notice",
        text=f"{_waits(waiting)}, shrinking by {_rate(shrinks)}: done in {_span(seconds)}.",
        command=_group_command("lag --watch", state),
        subject=state.subject,
        group=state.numbers.group,
        messages=state.numbers.waiting,
        since=state.numbers.oldest_at,
        rise_per_second=trend.rise_per_second,
        pulled_per_second=trend.pulled_per_second,
        drain_seconds=seconds,
    )


def _stopped(state: WatchedGroup) -> Concern | None:
    stopped = state.numbers.stopped
    if not stopped:
        return None
    return Concern(
        kind="stopped_keys",
        level="alarm",
        text="1 key has stopped, and waits for a decision." if stopped == 1 else f"{stopped:,} keys have stopped.",
        command=_group_command("group decide --all", state) + " retry",
        subject=state.subject,
        group=state.numbers.group,
        messages=stopped,
    )


def _dead(state: WatchedGroup) -> Concern | None:
    numbers = state.numbers
    if not numbers.dead:
        return None
    at_least = " or more" if "dead" in numbers.inexact else ""
    letters = "dead letter" if numbers.dead == 1 else "dead letters"
    return Concern(
        kind="dead",
        level="warning",
        text=f"{numbers.dead:,}{at_least} {letters}.",
        command=_group_command("dead reasons", state),
        subject=state.subject,
        group=numbers.group,
        messages=numbers.dead,
        since=numbers.dead_since,
    )


def concerns_of_wheels(wheels: Sequence[BucketWheel], limits: Thresholds, now_ms: int) -> Iterator[Concern]:
    """Yields a concern for each wheel that should turn for some time, and does not."""
    for wheel in wheels:
        starts_ms = parse_rfc3339(wheel.starts_at, "starts_at")
        if wheel.state == "overdue" and now_ms - starts_ms >= limits.overdue_ms:
            messages = counted(wheel.messages, "message")
            yield Concern(
                kind="wheel_overdue",
                level="alarm",
                text=f"The wheel of bucket {wheel.bucket} should turn, and nobody turns it: {messages} may come late.",
                command=f"hourwheel scheduled list --from {wheel.starts_at} --to {wheel.ends_at}",
                name=wheel.bucket,
                messages=wheel.messages,
                since=wheel.starts_at,
            )


def concerns_of_volumes(volumes: Sequence[VolumeSpace], limits: Thresholds) -> Iterator[Concern]:
    """Yields a concern for each volume that is near its reserve, or has reached it."""
    for volume in volumes:
        if volume.reserve and volume.free < limits.low_reserves * volume.reserve:
            refuses = volume.free < volume.reserve
            free, reserve = volume.free // _MEGABYTE, volume.reserve // _MEGABYTE
            what = "new messages are refused" if refuses else f"new messages are refused below {reserve:,} MB"
            yield Concern(
                kind="disk",
                level="alarm" if refuses else "warning",
                text=f"The volume {volume.name} has {free:,} MB left: {what}.",
                command="df -h",
                name=volume.name,
            )


def concerns_of_storages(out_of_reach: Sequence[str]) -> Iterator[Concern]:
    """Yields a concern for each cell of these names."""
    for name in out_of_reach:
        yield Concern(
            kind="cell_out",
            level="alarm",
            text=f"The cell {name} is out of reach: its messages are neither handed out nor counted.",
            command=_command("cell show", name),
            name=name,
        )


def _group_command(words: str, state: WatchedGroup) -> str:
    return _command(words, state.subject, state.numbers.group)


def _command(words: str, *names: str) -> str:
    """Returns a command line. Names hold no character that a shell takes for its own, but may begin with a dash."""
    dashes = ["--"] if any(name.startswith("-") for name in names) else []
    return " ".join(["hourwheel", words, *dashes, *names])


def _waits(waiting: int) -> str:
    return f"{waiting:,} {'message waits' if waiting == 1 else 'messages wait'}"


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.2g}/s"


def _span(seconds: float) -> str:
    """Returns a span of time in its largest unit."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} s"
