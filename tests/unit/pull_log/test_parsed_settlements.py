"""A settlement asks for one outcome of each message of a pull, and is refused if it asks for two."""

from typing import Any

import pytest

from hourwheel.errors import Rejected
from hourwheel.model.fields import DETAILS_BYTES
from hourwheel.model.pulls import Rejection, RetryLater, Settlement
from hourwheel.pull_log.parsed_settlements import ParsedSettlement, parse_settlement


def parse(size: int = 5, **lists: Any) -> ParsedSettlement:
    return parse_settlement(Settlement(receipt="r", **lists), size)


def test_a_settlement_without_lists_acknowledges_all_messages() -> None:
    parsed = parse(3)
    assert (parsed.named, parsed.moves) == (frozenset({0, 1, 2}), False)


def test_messages_that_no_list_names_are_acknowledged() -> None:
    parsed = parse(4, retry=[1], dead=[3])
    assert (parsed.named, parsed.retried, parsed.dead) == (frozenset(range(4)), {1}, {3})
    assert parsed.moves


def test_with_a_list_of_acknowledged_messages_the_others_stay_leased() -> None:
    assert parse(5, ack=[0], release=[4]).named == {0, 4}


def test_an_empty_list_of_acknowledged_messages_acknowledges_none() -> None:
    assert parse(5, ack=[]).named == frozenset()


def test_a_retry_may_have_a_delay_of_its_own() -> None:
    parsed = parse(retry=[0, RetryLater(index=2, delay="10m"), RetryLater(index=3, delay=1.5)])
    assert (parsed.retried, parsed.delays_ms) == ({0, 2, 3}, {2: 600_000, 3: 1_500})


def test_a_rejection_may_say_why() -> None:
    parsed = parse(dead=[0, Rejection(index=1, detail="too late")])
    assert (parsed.dead, parsed.details) == ({0, 1}, {1: "too late"})


def test_details_beyond_the_room_of_a_pull_are_left_out_and_their_messages_are_given_up_all_the_same() -> None:
    long = "ä" * 1_000
    rejections = [Rejection(index=i, detail=long) for i in range(DETAILS_BYTES // 2_000 + 2)]
    parsed = parse(len(rejections), dead=rejections)
    assert len(parsed.dead) == len(rejections)
    assert [*parsed.details] == [*range(DETAILS_BYTES // 2_000)]


def test_an_extension_names_every_message_and_moves_none() -> None:
    parsed = parse(extend_seconds=60)
    assert (parsed.extend_seconds, parsed.moves) == (60, False)


@pytest.mark.parametrize("name", ["ack", "retry", "release", "dead"])
def test_an_extension_excludes_the_lists(name: str) -> None:
    with pytest.raises(Rejected, match="extend_seconds cannot be combined with the lists") as error:
        parse(extend_seconds=60, **{name: []})
    assert error.value.field == name


@pytest.mark.parametrize("name", ["ack", "retry", "release", "dead"])
def test_an_index_beyond_the_pull_is_refused_with_the_list_that_names_it(name: str) -> None:
    with pytest.raises(Rejected, match="index 5 is beyond the pull's 5 messages") as error:
        parse(**{name: [4, 5]})
    assert error.value.field == name


def test_a_message_is_settled_one_way() -> None:
    for lists in (
        {"ack": [1], "dead": [1]},
        {"retry": [2, 2]},
        {"retry": [RetryLater(index=0, delay=1)], "release": [0]},
    ):
        with pytest.raises(Rejected, match="is named twice: settle a message one way"):
            parse(**lists)


def test_a_delay_of_more_than_two_years_is_refused_with_its_place_in_the_list() -> None:
    with pytest.raises(Rejected) as error:
        parse(retry=[0, RetryLater(index=1, delay="733d")])
    assert (error.value.slug, error.value.field) == ("delay-too-long", "retry[1].delay")


def test_a_repeated_settlement_has_the_mark_of_the_first_and_another_one_has_not() -> None:
    others = [
        parse(),
        parse(ack=[0]),
        parse(retry=[0]),
        parse(release=[0]),
        parse(dead=[0]),
        parse(retry=[RetryLater(index=0, delay=1)]),
        parse(dead=[Rejection(index=0, detail="why")]),
    ]
    assert parse(retry=[0]).mark == others[2].mark
    assert len({parsed.mark for parsed in others}) == len(others)
