"""A consumer says why it rejects a message, and the dead letter keeps the text."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import Rejected
from hourwheel.model.fields import DETAILS_BYTES
from hourwheel.model.messages import Message
from hourwheel.model.pulls import Rejection, Settlement
from hourwheel.pull_log.parsed_settlements import parse_settlement
from tests.support import Bench, CallByCall


def dead_letters(bench: Bench) -> list[Message]:
    return bench.deployment.dead_letters("orders", "billing").page(after=None, limit=100).messages


def why(*details: str | None) -> list[int | Rejection]:
    return [index if text is None else Rejection(index=index, detail=text) for index, text in enumerate(details)]


@pytest.mark.parametrize("store", [MemoryStore(), CallByCall(MemoryStore())], ids=["transactions", "call by call"])
def test_each_dead_letter_has_its_own_detail(store: MemoryStore) -> None:
    bench = Bench(store=store)
    bench.send("a", "b", "c", "d")
    (pull,) = bench.pull()
    assert bench.settle(pull, ack=[], dead=[Rejection(index=2, detail="too late"), 0]) == "open"
    assert bench.settle(pull, retry=[3], dead=[Rejection(index=1, detail="too dear")]) == "settled"
    found = [(each.body, each.reason, each.detail) for each in dead_letters(bench)]
    assert found == [("a", "rejected", None), ("c", "rejected", "too late"), ("b", "rejected", "too dear")]
    assert bench.bodies() == ["d"]


def test_an_ordered_group_keeps_details_too() -> None:
    bench = Bench()
    bench.deployment.groups.put("orders", "billing", ordered=True)
    bench.send("a1", "a2", key="a")
    (pull,) = bench.pull()
    assert bench.settle(pull, dead=why("too late", "too dear")) == "settled"
    assert [(each.body, each.detail) for each in dead_letters(bench)] == [("a1", "too late"), ("a2", "too dear")]


def test_a_redriven_message_forgets_why_it_was_rejected() -> None:
    bench = Bench()
    bench.send("a")
    bench.settle(bench.pull()[0], dead=why("too late"))
    bench.deployment.dead_letters("orders", "billing").redrive(lambda position, died_ms: True)
    (pull,) = bench.pull()
    assert (pull.messages[0].body, pull.messages[0].detail) == ("a", None)
    bench.settle(pull, dead=[0])
    assert [each.detail for each in dead_letters(bench)] == [None]


def test_details_beyond_what_a_record_takes_are_left_out_and_the_messages_are_rejected() -> None:
    bench = Bench()
    bench.send(*map(str, range(100)))
    long = "é" * 1_000
    assert bench.settle(bench.pull()[0], dead=why(*[long] * 100)) == "settled"
    details = [each.detail for each in dead_letters(bench)]
    assert len(details) == 100
    assert details.count(long) == DETAILS_BYTES // 2_000
    assert details.count(None) == 100 - DETAILS_BYTES // 2_000


def test_a_repeated_settlement_with_details_is_answered_as_the_first_one_was() -> None:
    bench = Bench()
    bench.send("a", "b")
    (pull,) = bench.pull()
    for _ in range(2):
        assert bench.settle(pull, dead=why("too late", None)) == "settled"
    assert bench.settle(pull, dead=why("another reason", None)) == "stale"
    assert [each.detail for each in dead_letters(bench)] == ["too late", None]


def test_a_message_is_rejected_once_with_or_without_a_detail() -> None:
    twice = Settlement(receipt="r", dead=[0, Rejection(index=0, detail="too late")])
    with pytest.raises(Rejected, match="index 0 is named twice"):
        parse_settlement(twice, 1)
    with pytest.raises(Rejected, match="index 1 is beyond"):
        parse_settlement(Settlement(receipt="r", dead=[Rejection(index=1, detail="too late")]), 1)
