"""Plants bugs of groups with a tag filter, and of consumers that leave: see ``bugs.py``."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from hourwheel.groups import consumers, group_progress
from hourwheel.logs import tags
from hourwheel.logs.index_sets import every
from hourwheel.logs.tags import TagSummary
from hourwheel.model.groups import TagFilter
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.claiming.selection import RowSelection
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position, PullRow
from hourwheel.reach.outages import Outages
from hourwheel.settling.leases import Leases
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import filtered, left
from tests.simulation.plan import Plan

FILTERED: list[Bug] = []
planted = registrar(FILTERED)


def _filters(plan: Plan) -> Plan:
    return filtered(plan, Random(plan.seed))


def _no_room(plan: Plan) -> Plan:
    return replace(_filters(plan), tag_room=20)


@planted(sharpen=_filters)
def a_matching_message_is_passed_over() -> Iterator[None]:
    def matching(self: TagSummary, wanted: TagFilter, count: int) -> int | None:
        found = real(self, wanted, count)
        return found & (found - 1) if found is not None and found.bit_count() > 1 else found

    real = TagSummary.matching
    with patch.object(TagSummary, "matching", matching):
        yield


@planted(sharpen=_filters)
def messages_are_read_by_their_indexes_in_the_answer() -> Iterator[None]:
    def indexes(self: PullRow, step: int) -> Sequence[int]:
        skip = self.first.index if step == 0 else 0
        return range(skip, skip + self.counts[step])

    with patch.object(PullRow, "indexes", indexes):
        yield


@planted(sharpen=_filters)
def retries_are_copied_by_their_indexes_in_the_answer() -> Iterator[None]:
    def positions(self: PullRow) -> list[Position]:
        return [
            Position(self.first.row_no + step, (self.first.index if step == 0 else 0) + index)
            for step, count in enumerate(self.counts)
            for index in range(count)
        ]

    with patch.object(PullRow, "positions", positions):
        yield


@planted(sharpen=_filters)
def a_claim_ends_behind_as_many_messages_as_it_took() -> Iterator[None]:
    with patch.object(RowSelection, "end", lambda self, skip, count: skip + count):
        yield


@planted(sharpen=_filters)
def retries_are_filtered_again() -> Iterator[None]:
    with patch.object(PullLog, "filtered", property(lambda self: self.group.filter is not None)):
        yield


@planted(sharpen=lambda plan: replace(_filters(plan), tag_room=0))
def tags_that_have_no_room_are_taken_for_none() -> Iterator[None]:
    def encode_summary(*args: Any) -> bytes:
        data = real(*args)
        return b"" if tags.decode_summary(data).tags is None else data

    real = tags.encode_summary
    with patch.object(tags, "encode_summary", encode_summary):
        yield


@planted(sharpen=_no_room)
def a_batch_is_taken_whole_for_the_tags_that_it_has() -> Iterator[None]:
    def matching(self: TagSummary, wanted: TagFilter, count: int) -> int | None:
        found = real(self, wanted, count)
        return every(count) if found is None and self.tags is not None else found

    real = TagSummary.matching
    with patch.object(TagSummary, "matching", matching):
        yield


@planted(sharpen=left)
def a_leave_ends_the_leases_of_all_consumers() -> Iterator[None]:
    def end_leases(subject: Subject, logs: Iterable[PullLog], leases: Leases, consumer: str, outages: Outages) -> int:
        pulls = list(logs)
        names = {row.consumer for log in pulls for _, row in leases.open_rows(log)}
        return sum(real(subject, pulls, leases, name, outages) for name in sorted(names))

    real = consumers.end_leases
    with patch.object(group_progress, "end_leases", end_leases):
        yield


@planted(sharpen=left)
def a_leave_acknowledges_what_it_gives_back() -> Iterator[None]:
    def parsed(**fields: Any) -> ParsedSettlement:
        return ParsedSettlement(**{**fields, "released": frozenset()})

    with patch.object(consumers, "ParsedSettlement", parsed):
        yield
