"""Sentences with counts have the right number and noun."""

from pathlib import Path

from hourwheel.adapters.sqlite.synced_mark import Synced
from hourwheel.embedded.directories.loss import _description
from hourwheel.wire.words import counted


def test_a_count_agrees_with_its_noun() -> None:
    assert [counted(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


def test_a_loss_of_one_transaction_is_told_of_one() -> None:
    database = Path("hourwheel.db")
    assert _description(database, Synced(5, 1_000), Synced(4, 900)).startswith(
        "1 transaction is missing from hourwheel.db"
    )
    assert _description(database, Synced(5, 1_000), Synced(3, 900)).startswith(
        "2 transactions are missing from hourwheel.db"
    )
