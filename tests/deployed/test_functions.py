"""Tests the settings with which the functions start."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from . import job, rare
from .system import System
from .template import CELL

FUNCTIONS = ("produce", "pull", "ack", "meta", "delayed", "sweep", "wheel", "push", "archive")
FAILED = (*(("wheel", {"bucket": "noon"}),) * 3, ("push", {"push": {}}))  # Lambda repeats an event of a wheel twice
NEEDED = ("TABLE_PREFIX", "BUCKET", "WHEEL_FUNCTION", "TIMER_GROUP", "TIMER_ROLE")
_PROBE = """
import os
import hourwheel

def handler(event, context):
    return {"variables": dict(os.environ), "library": hourwheel.__file__}
"""


def template_of(system: System, function: str) -> Any:
    functions = (found for _, found in system.template.of_type("Lambda::Function"))
    return next(found for found in functions if found["FunctionName"] == f"{CELL}-{function}")


def variant(system: System, function: str, variables: Mapping[str, str], code: Any) -> tuple[bool, Any]:
    """Starts a copy of a function with other variables or code. Returns whether it failed, and its answer."""
    found = template_of(system, function)
    name = f"{CELL}-{function}-variant"
    shared = {key: found[key] for key in ("Handler", "Layers", "Role", "Runtime", "Timeout")}
    system.functions.create_function(FunctionName=name, Environment={"Variables": dict(variables)}, Code=code, **shared)
    answer = system.functions.invoke(FunctionName=name, Payload=b"{}")
    told = json.loads(answer["Payload"].read())
    system.functions.delete_function(FunctionName=name)
    return "FunctionError" in answer, told


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_has_the_variables_of_the_template(system: System, function: str) -> None:
    wanted = template_of(system, function)["Environment"]["Variables"]
    configured = system.functions.get_function_configuration(FunctionName=f"{CELL}-{function}")
    assert configured["Environment"]["Variables"] == wanted
    failed, told = variant(system, function, wanted, {"ZipFile": job.packed("handler.py", _PROBE)})
    assert not failed
    assert {name: text for name, text in told["variables"].items() if name.startswith("HOURWHEEL_")} == wanted
    assert str(system.log.parent) in told["library"], "the layer's, not the repository's"


@pytest.mark.parametrize(("function", "missing"), [*zip(FUNCTIONS, NEEDED * 2, strict=False)])
def test_a_function_without_a_variable_does_not_start(system: System, function: str, missing: str) -> None:
    found = template_of(system, function)
    variables = dict(found["Environment"]["Variables"])
    del variables[f"HOURWHEEL_{missing}"]
    failed, told = variant(system, function, variables, found["Code"])
    assert failed
    assert missing.lower() in told["errorMessage"]


def test_a_function_with_an_unknown_variable_does_not_start(system: System) -> None:
    found = template_of(system, "meta")
    variables = {**found["Environment"]["Variables"], "HOURWHEEL_TICKS": "1"}
    failed, told = variant(system, "meta", variables, found["Code"])
    assert failed
    assert "ticks" in told["errorMessage"]


def test_functions_are_started_with_what_they_take(system: System) -> None:
    for step in rare.STEPS:
        system.once(step)
    events: dict[str, list[Any]] = {function: [] for function in FUNCTIONS}
    failed = []
    for entry in system.entries():
        function = str(entry.get("started") or entry.get("ended")).removeprefix(f"{CELL}-")
        if "started" in entry and function in events:
            events[function].append(entry["event"])
        elif function in events and entry["status"] != "ok":
            failed.append((function, entry["event"]))
    assert sorted(map(str, failed)) == sorted(map(str, FAILED))
    assert {event["source"] for event in events["delayed"] + events["archive"]} == {"aws.scheduler"}
    # Delayed work starts a wheel at once, Scheduler names the time of a start that it relays, the queue sends records.
    early = frozenset({"bucket", "wakes_ms"})
    assert {frozenset(event) for event in events["wheel"]} == {frozenset({"bucket"}), early, frozenset({"Records"})}
    timers = [record for event in events["wheel"] for record in event.get("Records", ())]
    assert {record["eventSource"] for record in timers} == {"aws:sqs"}
    records = [record for event in events["push"] for record in event.get("Records", ())]
    assert records
    for record in records:
        assert record["eventName"] == "INSERT"
        assert record["dynamodb"].keys() >= {"Keys"}
        assert not record["dynamodb"].keys() & {"NewImage", "OldImage"}
    woken = [event["push"] for event in events["push"] if "push" in event]
    assert {frozenset(event) for event in woken} == {frozenset({"subject", "group"}), frozenset()}
