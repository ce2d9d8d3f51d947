"""Other cells: their storage, the rights of the functions there, and nothing of it without the setting."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hourwheel.aws.services import Environment
from infra.permissions import CELL_OBJECT_ACTIONS, CELL_TABLE_ACTIONS, HOME_ACTIONS_WITH_CELLS, TABLE_ACTIONS, lists
from infra.settings import PREFIX, Settings, Wrong
from infra.tables import OF_OTHER_CELLS
from tests.infra.synthesis import ACCOUNT, REGION, Synthesis, listed, synthesised

CELLS = {"fast": {}, "old": {"kinds": ["real-time"]}}
MOST_POLICY_CHARACTERS = 10_240
"""IAM's limit of the inline policies of a role, without white space."""
MOST_VARIABLES_BYTES = 4_096


@pytest.fixture(scope="module")
def celled(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    return synthesised({"cells": json.dumps(CELLS)}, tmp_path_factory.mktemp("celled"))


@pytest.fixture(scope="module")
def fullest(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Synthesises as many cells as there may be, with the longest names and all else that makes policies long."""
    names = [f"cell-{number}-of-a-very-long-na".ljust(30, "x") for number in range(3)]
    targets = [f"arn:aws:sqs:{REGION}:{ACCOUNT}:{'q' * 76}-{number:02}" for number in range(17)]
    settings = {
        "cell": "a-deployment-with-a-long-name1",
        "cells": json.dumps({name: {} for name in names}),
        "customer_key": "true",
        "pipeline": "true",
        "push_targets": ",".join(targets),
    }
    return synthesised(settings, tmp_path_factory.mktemp("fullest"))


def of_cells(synthesis: Synthesis) -> set[str]:
    """Returns the logical ids of the resources of other cells."""
    return {key for key in synthesis.template["Resources"] if re.match(r"Cells|Push(fast|old)|.*-(fast|old)-", key)}


def test_without_the_setting_the_template_does_not_change_by_a_byte(defaults: Synthesis, tmp_path: Path) -> None:
    assert synthesised({"cells": "{}"}, tmp_path).text == defaults.text
    assert not re.search(r"HOURWHEEL_CELLS|\"Cells", defaults.text)


def test_other_cells_change_nothing_of_the_home_cell_but_the_functions_rights_and_variables(
    defaults: Synthesis, celled: Synthesis
) -> None:
    before, after = defaults.template["Resources"], celled.template["Resources"]
    changed = {key: before[key]["Type"] for key in before if before[key] != after.get(key)}
    kinds = {"AWS::Lambda::Function", "AWS::IAM::Policy", "AWS::CloudWatch::Dashboard"}
    assert set(changed.values()) == kinds
    added = {after[key]["Type"] for key in after.keys() - before.keys()}
    assert added == {
        *("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::S3::BucketPolicy"),
        *("AWS::Lambda::EventSourceMapping", "AWS::CloudWatch::Alarm"),
    }


def tables(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    return {table["TableName"]: table for table in synthesis.properties("DynamoDB::Table")}


def test_each_cell_has_tables_with_the_settings_of_the_home_cell(celled: Synthesis) -> None:
    found = tables(celled)
    for cell in CELLS:
        for table in OF_OTHER_CELLS:
            other, home = dict(found[f"hourwheel.{cell}-{table}"]), dict(found[f"hourwheel-{table}"])
            assert other.pop("TableName") != home.pop("TableName")
            assert other == home
    of_others = {name for name in found if "." in name}
    assert of_others == {f"hourwheel.{cell}-{table}" for cell in CELLS for table in OF_OTHER_CELLS}


def test_each_cell_has_a_bucket_with_the_settings_of_the_home_cell(celled: Synthesis) -> None:
    buckets = {
        key: {**found, "Properties": celled.resolved(found["Properties"])}
        for key, found in celled.resources("S3::Bucket").items()
    }
    (home,) = (bucket for key, bucket in buckets.items() if key.startswith("Storage"))
    for cell in CELLS:
        (other,) = (bucket for key, bucket in buckets.items() if key.startswith(f"Cells{cell}Storage"))
        assert {**other, "Metadata": None} == {**home, "Metadata": None}
    outputs = {key for key in celled.template["Outputs"] if key.startswith("Cells")}
    assert len(outputs) == len(CELLS)


def test_the_functions_read_where_the_cells_are(celled: Synthesis, defaults: Synthesis) -> None:
    for name, function in celled.functions().items():
        variables = function["Environment"]["Variables"]
        places = Environment.read(variables).parse_cells()
        assert {cell: place.prefix for cell, place in places.items()} == {
            "fast": "hourwheel.fast",
            "old": "hourwheel.old",
        }, name
        assert places["old"].kinds == ("real-time",)
        for cell, place in places.items():
            assert place.bucket.startswith(f"Cells{cell}Storage")
        assert "HOURWHEEL_CELLS" not in defaults.functions()[name]["Environment"]["Variables"]


def allowed(synthesis: Synthesis, function: str) -> set[tuple[str, str]]:
    statements = synthesis.statements(synthesis.functions()[function]["Role"])
    return {(action, resource) for found in statements for action in found["Action"] for resource in found["Resource"]}


def test_each_function_may_do_in_a_cell_what_the_tables_say_and_nothing_else(
    celled: Synthesis, defaults: Synthesis
) -> None:
    buckets = {cell: key for key in celled.resources("S3::Bucket") for cell in CELLS if f"Cells{cell}" in key}
    table = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/hourwheel"
    mappings = {
        f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{key}"
        for key in celled.resources("Lambda::EventSourceMapping").keys()
        - defaults.resources("Lambda::EventSourceMapping").keys()
    }
    assert len(mappings) == len(CELLS)
    for function in celled.functions():
        wanted = {
            (f"dynamodb:{verb}", f"{table}-{name}")
            for name, verbs in HOME_ACTIONS_WITH_CELLS.get(function, {}).items()
            for verb in verbs
        }
        for cell, bucket in buckets.items():
            wanted |= {
                (f"dynamodb:{verb}", f"{table}.{cell}-{name}")
                for name, verbs in CELL_TABLE_ACTIONS[function].items()
                for verb in verbs
            }
            folders = CELL_OBJECT_ACTIONS[function]
            wanted |= {
                (f"s3:{verb}", f"arn:aws:s3:::{bucket}/{at}*") for at, verbs in folders.items() for verb in verbs
            }
            if lists(folders):
                wanted.add(("s3:ListBucket", f"arn:aws:s3:::{bucket}"))
            if function == "push":
                stream = f"{table}.{cell}-consume/stream"
                wanted |= {
                    (f"dynamodb:{verb}", f"{stream}/label")
                    for verb in ("DescribeStream", "GetRecords", "GetShardIterator")
                }
                wanted.add(("dynamodb:ListStreams", f"{stream}/*"))
        if function in {"meta", "sweep"}:
            wanted |= {(f"lambda:{verb}EventSourceMapping", arn) for arn in mappings for verb in ("Get", "Update")}
        assert allowed(celled, function) - allowed(defaults, function) == wanted, function


def test_the_permissions_in_cells_name_what_there_is() -> None:
    assert CELL_TABLE_ACTIONS.keys() == CELL_OBJECT_ACTIONS.keys() == TABLE_ACTIONS.keys()
    assert {table for actions in CELL_TABLE_ACTIONS.values() for table in actions} == set(OF_OTHER_CELLS)
    for function, actions in HOME_ACTIONS_WITH_CELLS.items():
        for table, verbs in actions.items():
            assert not set(verbs) & set(TABLE_ACTIONS[function].get(table, ())), function


def test_the_stream_of_each_cell_wakes_push_and_is_switched_with_the_others(celled: Synthesis) -> None:
    readers = {
        key: celled.resolved(found["Properties"])
        for key, found in celled.resources("Lambda::EventSourceMapping").items()
        if "Timers" not in key
    }
    sources = readers.values()
    streams = {source["EventSourceArn"].partition("table/")[2] for source in sources}
    assert streams == {f"hourwheel{cell}-consume/stream/label" for cell in ("", ".fast", ".old")}
    assert not any("Enabled" in source for source in sources)
    for name in ("meta", "sweep"):
        mappings = celled.functions()[name]["Environment"]["Variables"]["HOURWHEEL_PUSH_MAPPING"]
        assert set(mappings.split(",")) == readers.keys()


def test_the_busy_tables_of_a_cell_have_the_alarms_of_the_home_cells(celled: Synthesis, defaults: Synthesis) -> None:
    def names(synthesis: Synthesis) -> set[str]:
        return {alarm["AlarmName"].removeprefix("hourwheel-") for alarm in synthesis.properties("CloudWatch::Alarm")}

    of_tables = {name.partition("-") for name in names(defaults) if re.match(r"(Reads|Writes|Read|Write)\w+-", name)}
    # Every process reads the table meta of the home cell alone.
    wanted = {f"{kind}-{cell}-{table}" for kind, _, table in of_tables if table != "meta" for cell in CELLS}
    assert names(celled) - names(defaults) == wanted
    (dashboard,) = celled.properties("CloudWatch::Dashboard")
    assert "hourwheel.fast-consume" in dashboard["DashboardBody"]


def test_nag_and_lint_find_nothing(celled: Synthesis, fullest: Synthesis) -> None:
    for synthesis in (celled, fullest):
        (report,) = synthesis.file("validation-report.json")["pluginReports"]
        assert report["violations"] == []
    lint = [str(Path(sys.executable).with_name("cfn-lint")), "--regions", REGION, "--ignore-checks", "W3005", "--"]
    ended = subprocess.run([*lint, str(celled.folder / "hourwheel.template.json")], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


def test_no_policy_of_a_cell_has_a_wildcard_but_below_a_folder(celled: Synthesis) -> None:
    for policy in celled.properties("IAM::Policy"):
        for statement in policy["PolicyDocument"]["Statement"]:
            for resource in listed(statement["Resource"]):
                assert resource.count("*") <= 1
                # The wake-up queues of groups are made at run time, and have no folder but the beginning of their name.
                named = re.search(r":hourwheel-wake-hourwheel_\*$", resource)
                below = re.search(r"/(batches|scheduled|archive|stream|hourwheel)/\*$", resource)
                assert "*" not in resource or below or named


def test_as_many_cells_as_there_may_be_fit_into_policies_variables_and_a_stack(fullest: Synthesis) -> None:
    assert len(fullest.template["Resources"]) < 500
    for name, function in fullest.functions().items():
        statements = fullest.statements(function["Role"])
        # Logical ids stand for the names of buckets and mappings, which are 63 and 36 characters long at most.
        size = len(json.dumps(statements, separators=(",", ":")))
        assert size < MOST_POLICY_CHARACTERS, f"{name}: {size}"
        variables = function["Environment"]["Variables"]
        assert sum(len(key) + len(text) for key, text in variables.items()) < MOST_VARIABLES_BYTES, name


@pytest.mark.parametrize(
    "value",
    [
        "fast",
        '["fast"]',
        '{"home": {}}',
        '{"Fast": {}}',
        '{"-fast": {}}',
        '{"fast": {"kinds": []}}',
        '{"fast": {"kinds": ["cold"]}}',
        '{"fast": {"size": 1}}',
        json.dumps({f"cell-{number}": {} for number in range(4)}),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(value: str) -> None:
    with pytest.raises(Wrong) as caught:
        Settings.read({f"{PREFIX}cells": value})
    assert str(caught.value) == f"{PREFIX}cells is {value!r} and must be {Settings.model_fields['cells'].description}"


def test_a_file_may_hold_an_object() -> None:
    read = Settings.read({f"{PREFIX}cells": {"fast": {}, "old": {"kinds": ["delay"]}}})
    assert {name: cell.kinds for name, cell in read.cells.items()} == {
        "fast": ("real-time", "delay"),
        "old": ("delay",),
    }
