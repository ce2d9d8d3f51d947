"""The account of a group in the demo notices each error."""

from pathlib import Path
from zlib import crc32

import pytest

from demo.history import Handled, account, read, write

ACCEPTED = {"a": "body a", "b": "body b"}


def handled(message: str, *, consumer: str = "c1", ok: bool = True, body: str | None = None) -> Handled:
    return Handled(consumer, message, 1, ok, crc32((body or f"body {message}").encode()), 1.0)


def settle(
    *lines: Handled, died: set[str] | None = None, dead: set[str] | None = None, expected: set[str] | None = None
):
    return account(
        "g", ACCEPTED, lines, died=died or set(), dead=dead or set(), killed="victim", expected_dead=expected or set()
    )


def test_each_message_handled_once_is_in_order() -> None:
    found = settle(handled("a"), handled("b"))
    assert (found.accepted, found.delivered, found.redelivered, found.pending, found.wrong) == (2, 2, 0, 0, ())


def test_a_message_that_a_killed_consumer_had_handled_may_come_again() -> None:
    found = settle(handled("a", consumer="victim"), handled("a"), handled("b"))
    assert (found.redelivered, found.wrong) == (1, ())


def test_a_message_that_failed_and_died_is_accounted_for() -> None:
    found = settle(handled("a"), handled("b", ok=False), died={"b"}, dead={"b"}, expected={"b"})
    assert (found.died, found.dead, found.pending, found.wrong) == (1, 1, 0, ())


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([handled("a")], "1 lost or unaccounted for"),
        ([handled("a"), handled("b", ok=False)], "1 lost or unaccounted for"),
        ([handled("a"), handled("b"), handled("c")], "1 delivered that nobody sent"),
        ([handled("a"), handled("b", body="another")], "1 with another body than was sent"),
        ([handled("a"), handled("a", consumer="c2"), handled("b")], "1 handled twice although nobody died"),
    ],
)
def test_what_must_not_be_is_said(lines: list[Handled], sentence: str) -> None:
    assert sentence in settle(*lines).wrong


def test_dead_letters_that_are_missing_or_unexpected_are_said() -> None:
    lines = [handled("a"), handled("b")]
    assert "1 dead letters too many or too few" in settle(*lines, expected={"b"}).wrong
    assert "1 dead letters too many or too few" in settle(*lines, died={"a"}).wrong


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    with (tmp_path / "g-1.jsonl").open("w") as file:
        write(file, handled("a"))
        file.write('["c1", "b", 1, tr')
    assert read(tmp_path, "g", Handled) == [handled("a")]
