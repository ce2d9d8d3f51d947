"""Checks invariant 13 in the units that DynamoDB bills, on an engine that reports them."""

import socket
from pathlib import Path

import pytest

from bench.cost import cases
from bench.cost.cases import MESSAGES, SUBJECT
from bench.cost.deployment import CountedDeployment
from bench.cost.engine import dynalite
from bench.cost.meter import READS, item_bytes, write_units
from bench.cost.prices import dollars
from bench.measures import bodies
from hourwheel.ports.storage import Key, Record, Table


def written(deployment: CountedDeployment) -> dict[tuple[str, str], float]:
    """Returns the write units by (operation, table) since the last call of this function."""
    units = {key: count for key, count in deployment.meter.units.items() if key[0] not in READS}
    deployment.meter.clear()
    return units


@pytest.mark.parametrize("groups", [1, 70])
@pytest.mark.parametrize("batch", [1, 10, 100])
def test_write_units_of_sending_pulling_and_settling(deployment: CountedDeployment, batch: int, groups: int) -> None:
    names = [f"g{number}" for number in range(groups)]
    for name in names:
        deployment.call("PUT", f"{SUBJECT}/groups/{name}", {})
    # The first pull of a cell draws the secret for its receipts.
    deployment.call("POST", f"{SUBJECT}/groups/g0/pull", {"consumer": "c1"})
    written(deployment)

    deployment.call("POST", MESSAGES, {"messages": [{"body": text} for text in bodies(batch)]})
    (row,) = deployment.items("consume")
    size = write_units(item_bytes(row))
    assert size == {1: 1, 10: 2, 100: 12}[batch]
    assert written(deployment) == {("UpdateItem", "counters"): 1, ("PutItem", "consume"): size}

    receipts = []
    for name in names:
        asked = {"consumer": "c1", "max_messages": batch}
        (pulled,) = deployment.call("POST", f"{SUBJECT}/groups/{name}/pull", asked)["pulls"]
        receipts.append(pulled["receipt"])
        assert written(deployment) == {("PutItem", "pull"): 1}

    for name, receipt in zip(names, receipts, strict=True):
        deployment.call("POST", f"{SUBJECT}/groups/{name}/ack", {"settle": [{"receipt": receipt}]})
        assert written(deployment) == {("PutItem", "pull"): 1}


def test_a_pull_that_settles_the_one_before_writes_two_units(deployment: CountedDeployment) -> None:
    measured = cases.immediate(deployment, 10, 1, rounds=2)
    assert measured.units["PutItem", "pull"] == 2
    assert measured.usage["http-request"] == pytest.approx(2 * 100_000)


@pytest.mark.parametrize("batch", [1, 10])
def test_a_pull_of_a_consumer_that_is_alone_writes_one_unit(deployment: CountedDeployment, batch: int) -> None:
    measured = cases.immediate(deployment, batch, 1, rounds=10)
    assert measured.units["PutItem", "pull"] == (2 + 2 + 8) / 10
    assert measured.requests["Query", "pull"] <= (2 + 1) / 10, "the tail twice, and the leases once a second"


def test_a_pull_that_finds_nothing_writes_nothing(deployment: CountedDeployment) -> None:
    for _ in range(2):  # the first pull of a cell draws the secret of its receipts
        written(deployment)
        assert deployment.call("POST", f"{SUBJECT}/groups/g0/pull", {"consumer": "c1"})["pulls"] == []
    assert written(deployment) == {}


@pytest.mark.parametrize("queues", [1, 64])
def test_a_look_at_idle_queues_is_one_request_of_half_a_unit_for_each_counter(
    deployment: CountedDeployment, queues: int
) -> None:
    measured = cases.idle_poller(deployment, polls=1, queues=queues)
    looks = measured.requests["BatchGetItem", "counters"]
    assert 20 <= looks <= 25, "once a second, oftener at first"
    assert measured.units["BatchGetItem", "counters"] == looks * (queues + 1) / 2
    # The other reads: subject and group, every two seconds, by one query.
    assert set(measured.requests) == {("BatchGetItem", "counters"), ("Query", "meta")}
    assert measured.requests["Query", "meta"] <= 11
    assert measured.units["Query", "meta"] == measured.requests["Query", "meta"]


def test_large_batches_go_to_a_segment_and_write_one_small_row(deployment: CountedDeployment) -> None:
    deployment.call("PUT", SUBJECT, {})
    deployment.meter.clear()
    deployment.call("POST", MESSAGES, {"messages": [{"body": text} for text in bodies(1_000)]})
    assert deployment.meter.usage["s3-put"] == 1
    assert written(deployment) == {("UpdateItem", "counters"): 1, ("PutItem", "consume"): 1}


def test_a_refused_write_is_billed_by_the_larger_item_and_tells_what_stands_there(
    deployment: CountedDeployment,
) -> None:
    key = Key(Table.PULL, "partition", "sort")
    large, small = Record(b"x" * 3_000, b"1" * 16), Record(b"y", b"2" * 16)
    assert deployment.store.put(key, large, expect=None) is None
    written(deployment)
    refused = deployment.store.put(key, small, expect=None)
    assert refused is not None
    assert refused.current == large
    assert written(deployment) == {("PutItem", "pull"): 3}


def test_reading_what_is_not_there_is_billed(deployment: CountedDeployment) -> None:
    deployment.meter.clear()
    deployment.store.scan(Table.PULL, "nothing", limit=1)
    deployment.store.scan(Table.PULL, "nothing", limit=1, consistent=False)
    deployment.store.get(Key(Table.PULL, "nothing", "0"))
    assert deployment.meter.usage["dynamodb-read"] == 1 + 0.5 + 1


def test_a_month_without_a_subject_costs_little(deployment: CountedDeployment) -> None:
    assert 0 < dollars(cases.idle(deployment, 0, 0).usage) <= 0.2


def test_without_node_there_is_a_sentence_that_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="install Node"), dynalite():
        pass


def test_the_engine_ends_with_its_block(engine: str) -> None:
    with dynalite() as url:
        assert url != engine
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
