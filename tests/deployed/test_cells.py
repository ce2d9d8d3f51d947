"""A deployment with other cells: queues move between tables and buckets, and the roles allow what that takes."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from . import cells
from .conftest import TARGETS, assert_built
from .job import large
from .policies import Call, grants
from .recorded import calls_of
from .system import ARCHIVE_MINUTES, System, deployed
from .template import CELL, ROOT, synthesised


@pytest.fixture(scope="module")
def celled(tmp_path_factory: pytest.TempPathFactory, no_account: None) -> Iterator[System]:
    assert_built(ROOT / "build/layers/hourwheel", ROOT / "layers/hourwheel")
    settings = {
        "cells": json.dumps(cells.CELLS),
        "push_targets": ",".join(TARGETS),
        "pipeline": "true",
        "archive_minutes": str(ARCHIVE_MINUTES),
    }
    template = synthesised(tmp_path_factory.mktemp("synthesised"), settings)
    with deployed(template, tmp_path_factory.mktemp("deployed")) as found:
        yield found


def test_cells_are_added_with_the_kinds_of_the_setting(celled: System) -> None:
    home, fast, old = celled.once(cells.add)
    assert home["cell"] == "home"
    assert (fast["cell"], fast["kinds"], fast["reachable"]) == ("fast", ["real-time", "delay"], True)
    assert (old["cell"], old["kinds"]) == ("old", ["real-time"])
    assert fast["location"].startswith(f"dynamodb:{CELL}.fast, s3://")


def test_a_queue_in_another_cell_is_used_as_one_in_the_home_cell(celled: System) -> None:
    celled.once(cells.carry)


def test_a_wheel_hands_over_to_another_cell(celled: System) -> None:
    celled.once(cells.delay)


def test_an_ordered_group_is_served_in_another_cell(celled: System) -> None:
    celled.once(cells.order)


def test_the_stream_of_another_cell_wakes_push(celled: System) -> None:
    wanted = [text for number in "01" for text in (number, large(number))]
    assert sorted(json.loads(text)["body"] for text in celled.once(cells.push)) == sorted(wanted)


def test_rows_of_all_cells_are_archived(celled: System) -> None:
    report = celled.once(cells.archive)
    assert (report["complete"], report["unreadable_rows"], report["cells_out"]) == (True, 0, [])


def test_a_cell_is_drained_and_removed_and_can_be_added_again(celled: System) -> None:
    assert celled.once(cells.leave) == ["draining", "normal"]


def test_a_cell_without_tables_holds_up_no_other_cell_and_is_named(celled: System) -> None:
    found = celled.once(cells.lose)
    assert found["lag"]["cells_out"] == ["old"]
    assert (found["archived"]["complete"], found["archived"]["cells_out"]) == (False, ["old"])
    assert found["cell"]["reachable"] is False
    assert "cell old does not answer: ResourceNotFoundException" in found["log"]


def test_a_cell_without_tables_is_given_up(celled: System) -> None:
    lost = celled.once(cells.give_up)
    assert ("tower", 0, None) in [(part["subject"], part["queue"], part["end"]) for part in lost]
    assert {part["next_cell"] for part in lost if part["end"] is None} <= {"home", "fast"}


def test_each_call_is_allowed(celled: System) -> None:
    for function, calls in made(celled).items():
        allowed = grants(celled.template, celled.roles[function])
        refused = [call for call in calls if not any(grant.allows(call) for grant in allowed)]
        assert refused == [], function


RARE = {
    "a move that is found half-done": {
        *(("produce", "GetItem", "counters"), ("wheel", "GetItem", "counters")),
        *((function, verb, "counters") for function in ("pull", "push", "sweep") for verb in ("GetItem", "UpdateItem")),
    },
    "a hole, which a reader fills": {
        (function, "PutItem", "consume") for function in ("pull", "push", "meta", "sweep", "archive")
    },
    "a batch that was cut off: its repeat, or the next owner of a bucket, looks whether its row was trimmed": {
        *(("produce", "GetItem", "consume"), ("wheel", "GetItem", "consume")),
    },
    "a message that is settled by the next pull, by push, by the sweeper, or traced by its delay": {
        *((function, "GetItem", "consume") for function in ("pull", "push", "sweep", "meta")),
        *(("pull", "GetItem", "pull"), ("push", "GetItem", "pull")),
    },
    "an ordered group, or one with a limit, where no process remembers it: see tests/infra/test_called.py": {
        *((function, "BatchGetItem", "consume") for function in ("pull", "push")),
        *((function, "BatchGetItem", "pull") for function in ("meta", "pull", "push")),
        ("push", "PutItem", "meta"),
    },
    "a state of many held keys, which is stored in pages: see tests/infra/test_called.py": {
        *((function, verb, "meta") for function in ("pull", "push") for verb in ("DeleteItem", "Query")),
        ("sweep", "Query", "meta"),
    },
}
"""The calls that no step makes in another cell, or not in each run, by function, action and table, under the reason."""

OF_LOST_OBJECTS = {"s3:ListBucket", "s3:GetObject"}
"""Without the first S3 would answer 403 for a missing object; the second is made for large batches only."""


def test_what_is_allowed_in_a_cell_is_used(celled: System) -> None:
    unused = set()
    for function, calls in made(celled).items():
        used = {(call.action, where(call.resource)) for call in calls if in_a_cell(call.resource)}
        for grant in grants(celled.template, celled.roles[function]):
            if in_a_cell(grant.resource) and (grant.action, where(grant.resource)) not in used:
                unused.add((function, grant.action, where(grant.resource)))
    by_lambda = {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"}
    rare = {(function, f"dynamodb:{verb}", table) for calls in RARE.values() for function, verb, table in calls}
    assert {each for each in unused if each[1] not in by_lambda | OF_LOST_OBJECTS} <= rare


def in_a_cell(resource: str) -> bool:
    return f"table/{CELL}." in resource or resource.startswith(f"arn:aws:s3:::{CELL}-cells")


def where(resource: str) -> str:
    """Returns the table, or the folder, whatever the cell."""
    if ":dynamodb:" in resource:
        return resource.partition("table/")[2].partition("-")[2]
    return resource.partition("/")[2].partition("/")[0]


def made(celled: System) -> dict[str, Counter[Call]]:
    """Returns the calls of each function in the whole job."""
    for step in cells.STEPS:
        celled.once(step)
    found: dict[str, Counter[Call]] = {function: Counter() for function in celled.roles}
    for entry in celled.entries():
        if "function" in entry:
            for call in calls_of(entry):
                found[call.function][call] += 1
    return found
