"""No call is larger than a service accepts. No request leaves the process."""

import json

import pytest

from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE
from tests.contract.push_targets import Wire, batch, sizes, to_bus, to_queue


@pytest.mark.parametrize("target", [to_queue("q"), to_queue("q.fifo"), to_bus("b")])
@pytest.mark.parametrize(("messages", "calls"), [(1, [1]), (10, [10]), (11, [10, 1]), (25, [10, 10, 5])])
def test_ten_entries_go_in_a_call(on_wire: Wire, target: PushTarget, messages: int, calls: list[int]) -> None:
    assert on_wire.deliver(target, batch(*["x"] * messages)) == DONE
    assert sizes(on_wire.calls) == calls


@pytest.mark.parametrize("character", ["x", "é", "€", "\U0001f600", "\x00", '"', "\uffff"])
@pytest.mark.parametrize(("target", "limit"), [(to_queue("q"), 1 << 20), (to_bus("b"), 256 << 10)])
def test_no_call_is_larger_than_the_service_takes(
    on_wire: Wire, character: str, target: PushTarget, limit: int
) -> None:
    width = len(json.dumps(character, ensure_ascii=character in '\x00"\uffff').encode()) - 2
    bodies = [character * (limit // 5 // width) for _ in range(20)]
    assert on_wire.deliver(target, batch(*bodies)) == DONE
    assert sum(sizes(on_wire.calls)) == 20
    assert set(sizes(on_wire.calls)) == {4}
    for call in on_wire.calls:
        texts = [entry.get("MessageBody") or entry["Detail"] for entry in call["Entries"]]
        assert sum(len(text.encode()) + 500 for text in texts) <= limit


@pytest.mark.parametrize(("target", "limit"), [(to_queue("q"), 1 << 20), (to_bus("b"), 256 << 10)])
def test_a_message_that_no_call_can_take_is_dead_and_the_others_are_not(
    on_wire: Wire, target: PushTarget, limit: int
) -> None:
    outcome = on_wire.deliver(target, batch("a", "é" * (limit // 2), "c"))
    assert (outcome.dead, outcome.failed, outcome.unreached) == ({1}, frozenset(), False)
    assert "too large" in outcome.error
    assert sizes(on_wire.calls) == [2]
    alone = on_wire.deliver(target, batch("x" * limit))
    assert (alone.dead, alone.failed) == ({0}, frozenset())
    assert sizes(on_wire.calls) == [2], "there is nothing to send"


def test_no_character_goes_out_that_a_queue_refuses(on_wire: Wire) -> None:
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10100), 0x1FFFE, 0x1FFFF, 0x10FFFE, 0x10FFFF]))
    for target in (to_queue("q"), to_bus("b")):
        bodies = [every[start : start + 8_000] for start in range(0, len(every), 8_000)]
        assert on_wire.deliver(target, batch(*bodies, keys=("\x01\ufffe",) * len(bodies))) == DONE
    for call in on_wire.calls:
        for entry in call["Entries"]:
            text = entry.get("MessageBody") or entry["Detail"]
            assert all(c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" for c in text)
            assert json.loads(text)["body"] in every
            assert json.loads(text)["key"] == "\x01\ufffe"
