"""Ids of delayed messages name a position, and only the cell that signed them takes them."""

import pytest

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition, read_scheduled_id, sign_scheduled_id
from hourwheel.errors import Rejected
from tests.support import NOON_MS

SECRET = b"s" * 32
POSITION = SchedulePosition(Bucket(NOON_MS, 60, 7), 12, 3)
ID = sign_scheduled_id(SECRET, POSITION)


def test_an_id_names_the_position_of_its_message() -> None:
    assert read_scheduled_id(SECRET, ID) == POSITION


@pytest.mark.parametrize(
    "changed",
    [ID.replace("-12-", "-13-"), ID[:-1], ID + "0", ID.upper(), "", "-", ID.replace("-60-", "-6 0-"), "é" + ID],
)
def test_an_id_that_was_changed_is_refused(changed: str) -> None:
    with pytest.raises(Rejected, match="not the id of a delayed message of this deployment"):
        read_scheduled_id(SECRET, changed)


def test_an_id_of_another_cell_is_refused() -> None:
    with pytest.raises(Rejected, match="not the id of a delayed message of this deployment"):
        read_scheduled_id(b"t" * 32, ID)
