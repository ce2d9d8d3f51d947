"""A selection that is empty by mistake, such as an id that is None, changes nothing: all has to be said."""

from collections.abc import Callable, Iterator

import pytest

from hourwheel.client import Api, BadRequest, DelayedSelection, Message
from hourwheel.testing import Queue


@pytest.fixture
def api() -> Iterator[Api]:
    with Queue() as queue:
        queue.api.produce("orders", [Message("remind", id="order-7", delay="90d")])
        queue.api.put_group("orders", "billing")
        yield queue.api


def states(api: Api) -> list[str]:
    return [message.state for message in api.list_subject_delayed("orders").messages]


@pytest.mark.parametrize(
    "call",
    [
        lambda api: api.cancel_chosen("orders", DelayedSelection.where(message_id=None)),
        lambda api: api.move_chosen("orders", DelayedSelection.where(key=None, tag=None), delay="1s"),
        lambda api: api.retry_now("orders", "billing", key=None),
    ],
)
def test_an_empty_selection_is_refused(api: Api, call: Callable[[Api], object]) -> None:
    with pytest.raises(BadRequest, match="send"):
        call(api)
    assert states(api) == ["waiting"]


def test_everything_is_changed_where_it_is_said(api: Api) -> None:
    page = api.cancel_chosen("orders", DelayedSelection.everything(), dry_run=True)
    assert [message.id for message in page.messages] == ["order-7"]
    assert states(api) == ["waiting"]
    assert [message.state for message in api.cancel_chosen("orders", DelayedSelection.everything()).messages] == [
        "cancelled"
    ]
    assert states(api) == ["cancelled"]
    assert api.retry_now("orders", "billing", everything=True).retried == 0
