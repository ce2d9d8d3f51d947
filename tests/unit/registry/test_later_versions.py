"""A roll-back: a later version has written records with fields that this one does not know."""

import base64
from typing import Any, cast

import msgspec
import pytest

from hourwheel.model.groups import Group, TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Key, Record, Table, items_of
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.receipts import Receipt, deployment_secret, sign_receipt
from hourwheel.pull_log.records import PullRow
from tests.support import AT_ONCE, Bench
from tests.unit.conftest import bench
from tests.unit.logs.stored_types import with_more

__all__ = ["bench"]

RECORDS = "subject/orders"


def rewrite(bench: Bench, table: Table, partition: str, kind_of: Any) -> int:
    """Rewrites the records of a partition as a later version does. Returns their number."""
    count = 0
    for sort, record in list(items_of(bench.store, table, partition)):
        value = with_more(kind_of(sort), msgspec.msgpack.decode(record.value))
        later = Record(msgspec.msgpack.encode(value), bytes([count + 1]) * 16, record.expires_ms)
        assert bench.store.put(Key(table, partition, sort), later, expect=record.token) is None
        count += 1
    return count


def roll_back(bench: Bench, *, ordered: bool = False) -> None:
    """Rewrites what is stored of the subject, its group and the pull log, and starts this version anew."""
    assert rewrite(bench, Table.META, RECORDS, lambda sort: Subject if sort == "!" else Group) == 2
    rewrite(bench, Table.PULL, "billing~1@orders~1/0", lambda _: OrderedRow if ordered else PullRow)
    bench.deployment = bench.another_process()


def group_record(bench: Bench) -> Any:
    record = bench.store.get(Key(Table.META, RECORDS, "billing"))
    assert record is not None
    return msgspec.msgpack.decode(record.value)


def pull_rows(bench: Bench) -> list[Any]:
    items = items_of(bench.store, Table.PULL, "billing~1@orders~1/0")
    return [msgspec.msgpack.decode(record.value) for _, record in items]


def send(bench: Bench, *bodies: str) -> None:
    bench.deployment.produce("orders", [NewMessage(body=body, key="k", tags=("eu",)) for body in bodies])


def with_group(bench: Bench, **settings: Any) -> None:
    bench.deployment.subjects.put("orders")
    bench.deployment.groups.put("orders", "billing", retry=AT_ONCE, **settings)


@pytest.mark.parametrize("settings", [{"filter": TagFilter(tags_any=("eu",))}, {"ordered": True}, {}], ids=str)
def test_every_pull_goes_on_and_the_fields_stay(bench: Bench, settings: dict[str, Any]) -> None:
    with_group(bench, **settings)
    send(bench, "a", "b", "c")
    (before,) = bench.pull(1)
    roll_back(bench, ordered="ordered" in settings)
    assert bench.settle(before) == "settled"
    for _ in range(2):
        (pull,) = bench.pull(1)
        assert len(pull.messages) == 1
        bench.settle(pull, retry=[0])
    bench.deployment.groups.put("orders", "billing", max_attempts=9)
    bench.deployment.groups.pause("orders", "billing", paused=True)
    assert bench.bodies() == []
    stored = group_record(bench)
    assert (stored["later"], stored["retry"]["later"]) == ({"new": [1]}, {"new": [1]})
    assert (stored["max_attempts"], stored["paused"]) == (9, True)
    if "filter" in settings:
        assert stored["filter"]["later"] == {"new": [1]}
    # The row of the first pull was settled by this version.
    assert pull_rows(bench)[0][-1] == ["new", 1]


def test_a_deleted_group_hands_nothing_on_to_a_new_one(bench: Bench) -> None:
    with_group(bench)
    roll_back(bench)
    bench.deployment.groups.delete("orders", "billing")
    assert group_record(bench)["later"] == {"new": [1]}
    bench.deployment.groups.put("orders", "billing")
    assert "later" not in group_record(bench)


def test_a_receipt_of_a_later_version_settles_its_row(bench: Bench) -> None:
    with_group(bench)
    send(bench, "a", "b")
    (pull,) = bench.pull(2)
    roll_back(bench)
    secret = deployment_secret(bench.deployment.context)
    text = pull.receipt
    receipt = msgspec.msgpack.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[16:])
    fields = [field.name for field in msgspec.structs.fields(Receipt)]
    receipt[fields.index("value")].append("later")
    receipt[fields.index("token")] = b"\x01" * 16
    later = msgspec.structs.replace(pull, receipt=sign_receipt(secret, cast("Receipt", receipt)))
    assert bench.settle(later, ack=[0]) == "open"
    assert pull_rows(bench)[0][-1] == ["new", 1]
    assert bench.settle(later, ack=[1]) == "settled"
    assert pull_rows(bench)[0][-1] == ["new", 1]
    assert bench.bodies() == []
