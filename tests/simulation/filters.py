"""Judges the messages that groups with a tag filter get: those that the filter takes, and no others."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from hourwheel.logs.index_sets import indexes_of, unpack
from hourwheel.model.groups import Group, TagFilter
from hourwheel.pull_log.records import Position, PullRow
from tests.simulation.facts import LogName, RowFact, shared_member
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.audit import StoreAudit
    from tests.simulation.pulls import PullHistory

_TAGS = (None, ["a"], ["b"], ["a", "b"], ["a", "b", "c"], ["c"])


def tags_of(body: str) -> list[str] | None:
    """Returns the tags with which producers send the message."""
    return _TAGS[crc32(body.encode()) % len(_TAGS)]


def filters_of(audit: "StoreAudit", source: str, member: str) -> list[TagFilter | None]:
    """Returns the filters that the group has had, the current one last; none for its retries, which are all
    delivered."""
    name = LogName.parse(source)
    if name.kind != "queue":
        return [None]
    return audit.filters.get((name.subject, name.generation, shared_member(member)), [None])


def taken(audit: "StoreAudit", group: Group, body: str) -> bool:
    """Returns whether every filter that the group has had takes the message."""
    return all(
        wanted is None or wanted.takes(tags_of(body))
        for wanted in audit.filters[group.subject, group.subject_generation, shared_member(group.member)]
    )


def covered(value: PullRow) -> list[tuple[int, int]]:
    """Returns the positions in the source of the messages of a claim."""
    positions = []
    for step, count in enumerate(value.counts):
        picked = value.picks[step] if value.picks else None
        skip = value.first.index if step == 0 else 0
        indexes = range(skip, skip + count) if picked is None or not count else indexes_of(unpack(picked))
        positions += [(value.first.row_no + step, index) for index in indexes]
    return positions


def check_filtered(history: "PullHistory", pull: int, value: PullRow, positions: list[tuple[int, int]]) -> None:
    """Checks that a claim took each message that one of the group's filters takes, and no other."""
    problems = [
        _problem(history, value, positions, wanted)
        for wanted in filters_of(history.audit, history.source, history.member)
        if (wanted is None) == (value.picks is None)
    ]
    if all(problems):
        raise Violation("1", f"{history.partition}: pull row {pull} {(problems or ['has another filter'])[-1]}")


def _problem(
    history: "PullHistory", value: PullRow, positions: list[tuple[int, int]], wanted: TagFilter | None
) -> str | None:
    taken = set(positions)
    for number, fact in _passed(history, value):
        if fact is None:
            if number >= history.audit.trim_marks.get(history.source, 0):
                return f"passes row {number}, which is still to come"
            continue
        low = history.end.index if number == history.end.row_no else 0
        high = value.end.index if number == value.end.row_no else fact.row.count
        found = [{(number, index) for index in each if low <= index < high} for each in _choices(fact, wanted)]
        there = {position for position in taken if position[0] == number}
        if there not in found and (there or not history.audit.expired(fact)):
            return f"takes {sorted(there)} of row {number}, its filter takes {sorted(found[0])}"
        taken -= there
    return f"takes {sorted(taken)}, beyond its end" if taken else None


def _passed(history: "PullHistory", value: PullRow) -> Iterator[tuple[int, RowFact | None]]:
    last = value.end.row_no if value.end.index else value.end.row_no - 1
    facts = history.audit.rows(history.source)
    return ((number, facts.get(number)) for number in range(history.end.row_no, last + 1))


def _choices(fact: RowFact, wanted: TagFilter | None) -> list[Sequence[int]]:
    """Returns the messages that the filter takes of a row. A damaged batch has no tags (see ``damage.py``): those of a
    claim that had to read it may differ from those of one that had the summary of its row."""
    matches = _matches(fact, wanted)
    if not fact.damaged or wanted is None:
        return [matches]
    return [matches, range(len(fact.messages)) if wanted.takes(None) else ()]


def _matches(fact: RowFact, wanted: TagFilter | None) -> list[int]:
    return [index for index, one in enumerate(fact.messages) if wanted is None or wanted.takes(one.tags)]


def waits(history: "PullHistory", number: int, fact: RowFact, end: Position) -> bool:
    """Returns whether a row has messages that the group takes, behind the end of its last claim."""
    if number < end.row_no:
        return False
    begin = end.index if number == end.row_no else 0
    wanted = filters_of(history.audit, history.source, history.member)[-1]
    return any(index >= begin for index in _matches(fact, wanted))
