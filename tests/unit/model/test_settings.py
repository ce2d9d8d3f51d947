"""A record that declares settings reads what it may not be sent, and a request says which settings it names."""

import msgspec
import pytest

from hourwheel.api.control.bodies import GroupBody, PushBody, RetryBody
from hourwheel.model.group_settings import AllGroupSettings, GroupSettings
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.settings import Setting, declared, described, named_fields, without_links
from hourwheel.model.subject_settings import SubjectSettings


def test_a_record_reads_a_value_beyond_the_bounds_of_requests() -> None:
    stored = b'{"max_attempts": 5000, "a setting of later": 1}'
    assert msgspec.json.decode(stored, type=GroupSettings).max_attempts == 5_000
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"max_attempts": 5000}', type=GroupBody)


def test_a_request_tells_null_from_a_setting_that_it_leaves_out() -> None:
    assert named_fields(msgspec.json.decode(b'{"push": null, "max_held": 7}', type=GroupBody)) == {
        "max_held": 7,
        "push": None,
    }


@pytest.mark.parametrize("record", [AllGroupSettings, SubjectSettings])
def test_each_default_lies_within_its_bounds(record: type[msgspec.Struct]) -> None:
    for field in declared(record):
        least, most = field.setting.least, field.setting.most
        assert least is None or most is None or least <= field.default <= most


def test_a_request_describes_the_fields_that_have_a_title() -> None:
    batch, *_ = described(PushBody)
    assert (batch.name, batch.kind, batch.default) == ("batch", int, 10)
    assert batch.setting == Setting("Batch", "the most messages of a delivery", 1, 1_000)


def test_the_description_of_a_delay_names_the_default_of_the_policy() -> None:
    policy = RetryPolicy()
    for field in described(RetryBody):
        assert f"({getattr(policy, field.name):,.15g} by default)" in field.setting.text


def test_the_links_of_a_text_leave_their_words() -> None:
    assert without_links("how [it waits](pulling.md#leases) (at most), or [ends](a.md)") == (
        "how it waits (at most), or ends"
    )
    assert without_links("no link (at all)") == "no link (at all)"
