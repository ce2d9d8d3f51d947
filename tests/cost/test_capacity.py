"""The batches a second follow from the counted units."""

from pathlib import Path

import pytest

from bench import capacity
from bench.cost.cases import MESSAGES, SUBJECT
from bench.cost.deployment import CountedDeployment
from bench.cost.meter import item_bytes
from bench.measures import bodies

ROOT = Path(__file__).parents[2]


def test_the_docs_have_the_table_that_is_computed() -> None:
    assert "\n".join(capacity.lines()) in (ROOT / "docs/costs.md").read_text()


def test_rows_are_bound_by_their_size_and_many_groups_by_what_they_read() -> None:
    assert capacity.batches(3_600, 1) == 250
    assert capacity.batches(12_000, 1) == 83
    assert capacity.batches(3_600, 70) == 85
    assert capacity.read(3_600, 70) < capacity.written(3_600)


@pytest.mark.parametrize("batch", [10, 100, 250])
def test_a_row_takes_the_write_units_and_a_group_the_read_units_of_the_table(
    deployment: CountedDeployment, batch: int
) -> None:
    for name in ("g0", "g1"):
        deployment.call("PUT", f"{SUBJECT}/groups/{name}", {})
        deployment.call("POST", f"{SUBJECT}/groups/{name}/pull", {"consumer": "c1"})
    deployment.call("POST", MESSAGES, {"messages": [{"body": text} for text in bodies(batch)]})
    (row,) = deployment.items("consume")
    size = item_bytes(row)
    assert deployment.meter.units["PutItem", "consume"] == capacity.WRITE_UNITS // capacity.written(size)
    for name in ("g0", "g1"):
        deployment.meter.clear()
        deployment.call("POST", f"{SUBJECT}/groups/{name}/pull", {"consumer": "c1", "max_messages": batch})
        assert deployment.meter.units["Query", "consume"] >= capacity.READ_UNITS / capacity.read(size, 1) - 0.01
