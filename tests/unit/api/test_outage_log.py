"""An outage is told in the log under the correlation id of its answer, and does not flood the log."""

import json

import pytest

from hourwheel.api.outage_log import OutageLog
from hourwheel.errors import CellUnavailable, HourwheelError, OutcomeUnknown, StorageFull, Throttled
from tests.unit.api.conftest import Api
from tests.unit.api.test_faults import fail

ERRORS = [Throttled("busy"), OutcomeUnknown("lost"), CellUnavailable("cell fast is offline"), StorageFull("full")]


def lines(api: Api) -> list[dict[str, object]]:
    return [json.loads(line) for line in api.log.getvalue().splitlines()]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_answer_of_an_outage_has_a_line_with_its_correlation_id(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: HourwheelError
) -> None:
    answer = fail(api, monkeypatch, error)
    (line,) = lines(api)
    assert answer.status in (503, 507)
    assert (line["correlation_id"], line["error"]) == (answer.json["instance"], type(error).__name__)
    assert (line["level"], line["reason"]) == ("WARNING", str(error))


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_outage_does_not_flood_the_log(api: Api, monkeypatch: pytest.MonkeyPatch, error: HourwheelError) -> None:
    for _ in range(100):
        fail(api, monkeypatch, error)
    assert len(lines(api)) == 1
    api.bench.clock.pass_time(10)
    fail(api, monkeypatch, error)
    assert [line["left_out"] for line in lines(api)] == [0, 99]


def test_another_kind_of_outage_has_a_line_of_its_own(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in ERRORS:
        fail(api, monkeypatch, error)
    assert [line["error"] for line in lines(api)] == [type(error).__name__ for error in ERRORS]


def test_a_clock_that_is_set_back_does_not_silence_the_log(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(api, monkeypatch, Throttled("busy"))
    api.bench.clock.pass_time(-3_600)
    fail(api, monkeypatch, Throttled("busy"))
    assert len(lines(api)) == 2


def test_a_busy_cell_does_not_hide_the_outage_of_another(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for cell in ("fast", "fast", "slow", "fast"):
        fail(api, monkeypatch, CellUnavailable(f"the storage of cell {cell} does not answer"))
    assert [line["reason"] for line in lines(api)] == [
        f"the storage of cell {cell} does not answer" for cell in ("fast", "slow")
    ]


def test_many_cells_do_not_fill_the_memory() -> None:
    log = OutageLog()
    told = [log.left_out(CellUnavailable(f"cell {number} is offline"), 0) for number in range(3_000)]
    assert told.count(0) == 1_001
