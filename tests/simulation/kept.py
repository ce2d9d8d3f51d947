"""Judges rows of pull logs that keep messages for the next pulls of their consumers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hourwheel.handover.copies import RELEASED
from hourwheel.model.pulls import Settlement
from hourwheel.pull_log.records import OPEN, PullRow
from tests.simulation.facts import LogName
from tests.simulation.world import Verb, Violation

if TYPE_CHECKING:
    from tests.simulation.pulls import PullFact, PullHistory


def check_goes_on(history: "PullHistory", verb: Verb, row: int, fact: "PullFact", value: PullRow) -> None:
    """Checks that a row whose claim the verb acknowledges hands out the first messages that it keeps, and covers what
    it covered."""
    before, where = fact.value, f"{history.partition}: pull row {row}"
    chosen, asked = verb.details.get("chosen"), verb.details.get("row")
    if before.state != OPEN or before.settled:
        raise Violation("5", f"{where} has another claim, after it was settled")
    if asked != (history.partition, row) or chosen is None or not acks_all(chosen, before.size - fact.base):
        raise Violation("5", f"{where} goes on, and its claim was not acknowledged: {chosen} of {asked}")
    if _range_of(before) != _range_of(value):
        raise Violation("3", f"{where} covers something else")
    if value.state != OPEN or value.settled or value.last or value.transfers != before.transfers:
        raise Violation("5", f"{where} goes on, and its new claim is settled")
    if value.base != before.size or not value.base < value.size:
        raise Violation("5", f"{where} goes on from message {value.base} to {value.size}, it had {before.size}")
    history.audit.rules.check_claim(where, verb, value)
    history.audit.rules.check_paused(where, verb, LogName.parse(history.source), history.member)
    fact.outcomes |= dict.fromkeys(range(fact.base, before.size), "ack")
    verb.settled.append((history.partition, row))
    fact.value, fact.base, fact.at = value, before.size, history.audit.world.calls
    history.audit.world.taken_on += 1
    verb.claims.append((history.partition, row))


def check_keeps(history: "PullHistory", verb: Verb, row: int, value: PullRow) -> None:
    """Checks that a new row keeps messages only for a consumer that has no other open row since the one that it
    settles, and that meets others: the messages of a consumer that is alone come in order."""
    if not value.kept:
        return
    partition, settled = verb.details.get("row") or ("", row)
    where = f"{history.partition}: pull row {row}"
    if partition != history.partition:
        raise Violation("3", f"{where} keeps messages, and its pull settles none of this log")
    since = [(number, history.pulls[number].value) for number in range(settled + 1, row) if number in history.pulls]
    opened = ((number, history.pulls[number].value) for number in sorted(history.open))
    own = [number for number, other in opened if other.consumer == value.consumer and other.state == OPEN]
    if own:
        raise Violation("3", f"{where} keeps messages for {value.consumer}, which holds rows {own}")
    if not any(other.consumer not in ("", value.consumer) for _, other in since):
        raise Violation("3", f"{where} keeps messages for {value.consumer}, which is alone")


def check_ahead(where: str, before: PullRow, value: PullRow, kept: frozenset[int]) -> None:
    """Checks that a row which has the claim that it had before keeps no messages but those that it ``kept``."""
    if value.ahead != before.ahead or not value.kept <= kept:
        raise Violation("5", f"{where} keeps {sorted(value.kept)}, it kept {sorted(kept)}")


def renumbered(
    fact: "PullFact", positions: list[tuple[int, int]], was: frozenset[int], kept: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Gives a claim the positions that its messages have left, and returns both sets of indexes by the new numbers."""
    index_of = {position: index for index, position in enumerate(positions)}
    new = {index: index_of[position] for index, position in enumerate(fact.positions) if position in index_of}
    fact.positions = positions
    fact.outcomes = {new[index]: outcome for index, outcome in fact.outcomes.items() if index in new}
    return frozenset(new[index] for index in was if index in new), frozenset(
        new[index] for index in kept if index in new
    )


def check_released(where: str, outcomes: Mapping[int, str], indexes: Iterable[int]) -> None:
    """Checks that these messages, which were kept and are not kept any more, were released."""
    for index in sorted(indexes):
        if outcomes[index] != RELEASED:
            raise Violation("1", f"{where}: message {index} was kept, and is {outcomes[index]} now")


def acks_all(chosen: Settlement, size: int) -> bool:
    """Returns whether a settlement acknowledges every message of a pull of this size."""
    whole = chosen.ack is None or len(chosen.ack) == size
    return whole and chosen.extend_seconds is None and not (chosen.retry or chosen.release or chosen.dead)


def _range_of(row: PullRow) -> tuple[object, ...]:
    return row.first, row.counts, row.end, row.end_seq, row.consumer
