"""A client tells which cells are out of reach when it ends leases or lists consumers; so does the command line."""

import asyncio
import json
import logging
import pickle

import pytest
from typer.testing import CliRunner, Result

from hourwheel.cli.app import app
from hourwheel.client import Api, AsyncApi, ConsumerStates, LeaveResult
from tests.unit.client.fake import FakeServer

CONSUMER = {"consumer": "host-1", "since": "2026-11-20T09:00:00Z", "pulled_at": "2026-11-20T09:00:00Z"}
LISTED = {"consumers": [{**CONSUMER, "in_flight": 1, "leases": 1, "lease_until": None}], "cells_out": ["fast"]}


@pytest.fixture(params=["Api", "AsyncApi"])
def client(request: pytest.FixtureRequest, server: FakeServer) -> "Client":
    return Client(server.url, twin=request.param == "AsyncApi")


class Client:
    """Ends leases and lists consumers with ``Api``, or with its twin."""

    def __init__(self, url: str, *, twin: bool) -> None:
        self._url, self._twin = url, twin

    def leave(self, *, forget: bool = False) -> LeaveResult:
        if self._twin:
            return asyncio.run(self._twin_leave(forget))
        with Api(self._url) as api:
            return api.leave("orders", "billing", "host-1", forget=forget)

    async def _twin_leave(self, forget: bool) -> LeaveResult:
        async with AsyncApi(self._url) as api:
            return await api.leave("orders", "billing", "host-1", forget=forget)

    def consumers(self) -> ConsumerStates:
        if self._twin:
            return asyncio.run(self._twin_consumers())
        with Api(self._url) as api:
            return api.list_consumers("orders", "billing")

    async def _twin_consumers(self) -> ConsumerStates:
        async with AsyncApi(self._url) as api:
            return await api.list_consumers("orders", "billing")


def answer(server: FakeServer, call: str, value: object) -> None:
    server.fail(call, status=200, raw=json.dumps(value).encode())


def test_leases_that_stay_are_told(client: Client, server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    answer(server, "leave", {"released": 2, "cells_out": ["fast", "old"]})
    released = client.leave()
    assert (released, released.cells_out) == (2, ["fast", "old"])
    (line,) = [record for record in caplog.records if record.name.startswith("hourwheel")]
    assert line.levelno == logging.WARNING
    assert line.getMessage() == (
        "leases of consumer 'host-1' (group billing of orders) in cells out of reach stay: fast, old"
    )


@pytest.mark.parametrize("told", [{"released": 1, "cells_out": []}, {"released": 1}], ids=["now", "before"])
def test_ended_leases_are_no_warning(
    client: Client, server: FakeServer, caplog: pytest.LogCaptureFixture, told: object
) -> None:
    answer(server, "leave", told)
    released = client.leave()
    assert (released, released.cells_out) == (1, [])
    assert caplog.records == []


def test_a_forgotten_consumer_has_no_leases_left(
    client: Client, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    answer(server, "leave", {"released": 0, "cells_out": ["fast"]})
    assert client.leave(forget=True).cells_out == ["fast"]
    assert caplog.records == []


def test_a_list_of_consumers_names_the_cells_that_may_have_more(client: Client, server: FakeServer) -> None:
    answer(server, "list_consumers", LISTED)
    listed = client.consumers()
    assert ([each.consumer for each in listed], listed.cells_out) == (["host-1"], ["fast"])


def test_the_results_are_a_number_and_a_list_that_can_be_pickled() -> None:
    released = pickle.loads(pickle.dumps(LeaveResult(2, ["fast"])))
    assert (json.dumps(released), released + 1, released.cells_out) == ("2", 3, ["fast"])
    listed = pickle.loads(pickle.dumps(ConsumerStates([], ["fast"])))
    assert (listed, listed.cells_out) == ([], ["fast"])


def shell(server: FakeServer, *args: str) -> Result:
    return CliRunner().invoke(app, ("group", *args), env={"HOURWHEEL_URL": server.url, "COLUMNS": "200"})


def test_the_command_says_that_leases_stay(server: FakeServer) -> None:
    answer(server, "list_consumers", {"consumers": [], "cells_out": ["fast"]})
    answer(server, "leave", {"released": 0, "cells_out": ["fast"]})
    left = shell(server, "leave", "orders", "billing", "host-1")
    assert (left.exit_code, left.stdout) == (0, "released 0 messages of host-1\n")
    assert "cell fast, offline or out of reach: what host-1 holds there stays leased until" in left.stderr
    assert "knows no consumer" not in left.stderr


def test_the_command_does_not_say_that_a_consumer_is_unknown_where_it_saw_no_cell(server: FakeServer) -> None:
    answer(server, "list_consumers", {"consumers": [], "cells_out": ["fast"]})
    answer(server, "leave", {"released": 0, "cells_out": []})
    assert shell(server, "leave", "orders", "billing", "host-1").stderr == ""


def test_as_json_the_command_names_the_cells(server: FakeServer) -> None:
    answer(server, "list_consumers", LISTED)
    answer(server, "leave", {"released": 0, "cells_out": ["fast"]})
    left = shell(server, "leave", "orders", "billing", "host-1", "--json")
    assert json.loads(left.stdout) == {"released": 0, "cells_out": ["fast"]}
    assert "cell fast, offline or out of reach" in left.stderr


def test_the_command_that_lists_consumers_says_that_there_may_be_more(server: FakeServer) -> None:
    answer(server, "list_consumers", LISTED)
    listed = shell(server, "consumers", "orders", "billing")
    assert "host-1" in listed.stdout
    assert "cell fast, offline or out of reach: consumers and leases there are not listed" in listed.stderr
