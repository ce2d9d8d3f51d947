"""A pull that is delivered in parts, or taken in part: each message is settled by its own outcome."""

from collections import Counter

import pytest

from hourwheel.model.targets import DONE, Outcome, PushDelivery
from hourwheel.push.decisions import PusherEnd
from tests.support import Bench
from tests.unit.push.pushing import bench_with, lag, push


def names(delivery: PushDelivery) -> str:
    return "".join(message.body or "" for message in delivery.messages)


def dead(bench: Bench) -> list[str | None]:
    return [
        message.body
        for message in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ]


@pytest.mark.parametrize("part", ["abcd", "efgh"])
def test_a_failure_in_a_part_of_a_split_batch_concerns_that_message_alone(part: str) -> None:
    """Of the part, the second message fails once, the third can never be taken, the fourth was not sent."""
    bench = bench_with()
    bench.send(*"abcdefgh")
    taken: Counter[str] = Counter()
    attempts: dict[str, int] = {}

    def answer(delivery: PushDelivery) -> Outcome:
        if len(delivery.messages) > 4:
            return Outcome(too_large=True, error="too large")
        attempts.update({message.body or "": message.attempt for message in delivery.messages})
        if names(delivery) == part:
            taken[part[0]] += 1
            return Outcome(failed=frozenset({1}), dead=frozenset({2}), untouched=frozenset({3}), error="busy")
        taken.update(names(delivery))
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert taken == Counter("abcdefgh".replace(part[2], ""))
    assert dead(bench) == [part[2]]
    assert {name: attempt for name, attempt in attempts.items() if attempt > 1} == {part[1]: 2}
    assert (lag(bench).waiting, lag(bench).in_flight, lag(bench).retrying) == (0, 0, 0)


def test_messages_that_a_target_leaves_untouched_come_again_in_order_at_the_cost_of_no_attempt() -> None:
    bench = bench_with()
    bench.send(*"abcd")

    def answer(delivery: PushDelivery) -> Outcome:
        if names(delivery) == "abcd":
            return Outcome(failed=frozenset({1}), untouched=frozenset({2, 3}), error="busy")
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    first, *rest = bench.targets.deliveries
    assert names(first) == "abcd"
    came = {message.body: message.attempt for delivery in rest for message in delivery.messages}
    assert came == {"b": 2, "c": 1, "d": 1}
    assert "".join(map(names, rest)).replace("b", "") == "cd"


def test_a_dead_letter_has_the_error_of_its_last_delivery_and_a_delivery_has_none() -> None:
    bench = bench_with(max_attempts=2)
    bench.send(*"abc")
    errors = iter(["status 500", "status 503\nand more"])

    def answer(delivery: PushDelivery) -> Outcome:
        failed = frozenset(i for i, message in enumerate(delivery.messages) if message.body == "b")
        large = frozenset(i for i, message in enumerate(delivery.messages) if message.body == "c")
        return Outcome(failed=failed, dead=large, error=next(errors) if failed else "")

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    letters = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    assert [(each.body, each.reason, each.detail) for each in letters] == [
        ("c", "rejected", "status 500"),
        ("b", "attempts", "status 503 and more"),
    ]
    # With the text, a message that just fits the target would fit no more.
    assert all(message.detail is None for delivery in bench.targets.deliveries for message in delivery.messages)
