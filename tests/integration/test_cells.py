"""A server with the data directories of other cells."""

import asyncio
import operator
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hourwheel.client import AsyncConsumer, Consumer, Delivery
from tests.integration.process import SECONDS, Server, bodies, pull, send

SUBJECTS = ("orders", "invoices")


def opened(folder: Path, **cells: str) -> Server:
    return Server(folder / "home", cells={name: folder / directory for name, directory in cells.items()})


def test_a_queue_moves_to_another_directory_and_is_there_after_a_restart(tmp_path: Path) -> None:
    server = opened(tmp_path, fast="fast")
    server.ok("PUT", "/v1/cells/fast", {})
    assert send(server, "a")[0]["offset"] == 0
    moved = server.ok("POST", "/v1/subjects/orders/queues/0/move", {"cell": "fast"})
    assert moved["after"]["queues"][0]["mappings"][-1]["cell"] == "fast"
    large = "x".join(map(str, range(120_000)))
    assert send(server, large)[0]["offset"] == 1
    server.stop()

    server = opened(tmp_path, fast="fast")
    assert bodies(pull(server)) == ["a", large]
    assert server.ok("GET", "/v1/cells/fast")["reachable"]
    assert list((tmp_path / "fast").glob("**/*.db"))
    server.stop()


def test_a_server_without_the_cell_serves_the_other_cells_and_says_so(tmp_path: Path) -> None:
    server = opened(tmp_path, fast="fast")
    server.ok("PUT", "/v1/cells/fast", {})
    send(server, "here")
    send(server, "there", subject="invoices")
    server.ok("POST", "/v1/subjects/invoices/queues/0/move", {"cell": "fast"})
    server.ok("POST", "/v1/subjects/orders/queues", {"queues": 2})
    server.ok("POST", "/v1/subjects/orders/queues/1/move", {"cell": "fast"})
    server.stop()

    server = Server(tmp_path / "home")
    assert bodies(pull(server)) == ["here"]
    assert server.ok("GET", "/v1/subjects/orders/groups/billing/lag")["cells_out"] == ["fast"]
    refused = server.call("POST", "/v1/subjects/invoices/messages", {"messages": [{"body": "x"}]})
    assert refused.status == 503
    assert "--cell fast=DIRECTORY" in refused.json["detail"]
    status, said = server.stop()
    assert (status, "warning: cell fast is not opened" in said) == (0, True)


def test_a_move_from_a_cell_that_is_not_opened_is_pending_until_it_is_withdrawn_or_the_cell_is_back(
    tmp_path: Path,
) -> None:
    server = opened(tmp_path, fast="fast")
    server.ok("PUT", "/v1/cells/fast", {})
    for subject in SUBJECTS:
        send(server, "there", subject=subject)
        server.ok("POST", f"/v1/subjects/{subject}/queues/0/move", {"cell": "fast"})
    server.stop()

    server = Server(tmp_path / "home")
    for subject in SUBJECTS:
        refused = server.call("POST", f"/v1/subjects/{subject}/queues/0/move", {"cell": "home"})
        assert refused.status == 503
        assert f"the move of queue 0 of '{subject}' to cell 'home' is pending" in refused.json["detail"]
        assert moving_to(server, subject) == "home"
    withdrawn = server.ok("DELETE", "/v1/routes/invoices/pending?queue=0")
    assert withdrawn["after"]["queues"][0]["moving_to"] is None
    drained = server.ok("POST", "/v1/cells/fast/drain", {})
    assert [(each["subject"], each["pending"]) for each in drained["unmoved"]] == [("invoices", True), ("orders", True)]
    server.ok("DELETE", "/v1/routes/invoices/pending")
    server.ok("PUT", "/v1/cells/fast", {"state": "normal"})
    server.stop()

    server = opened(tmp_path, fast="fast")
    assert bodies(pull(server)) == ["there"], "the pull carries out the move that it meets"
    cells = [server.ok("GET", f"/v1/routes/{subject}")["queues"][0]["mappings"][-1]["cell"] for subject in SUBJECTS]
    assert cells == ["home", "fast"]
    server.stop()


def moving_to(server: Server, subject: str) -> str | None:
    cell: str | None = server.ok("GET", f"/v1/routes/{subject}")["queues"][0]["moving_to"]
    return cell


def test_an_empty_directory_in_place_of_a_cell_is_refused(tmp_path: Path) -> None:
    """A disk that is not mounted: the offsets of its messages would be given out again."""
    server = opened(tmp_path, fast="fast")
    server.ok("PUT", "/v1/cells/fast", {})
    send(server, "a")
    server.ok("POST", "/v1/subjects/orders/queues/0/move", {"cell": "fast"})
    send(server, "b")
    server.stop()

    (tmp_path / "fast").rename(tmp_path / "away")
    for _ in range(2):
        status, said = opened(tmp_path, fast="fast").end()
        assert (status, "is missing or empty, and cell fast was added before" in said) == (1, True)
        assert "if it is gone for good, give the cell up then (hourwheel cell set-state fast offline, " in said
        (tmp_path / "fast").mkdir(exist_ok=True)

    (tmp_path / "fast").rmdir()
    (tmp_path / "away").rename(tmp_path / "fast")
    server = opened(tmp_path, fast="fast")
    assert send(server, "c")[0]["offset"] == 2
    assert bodies(pull(server)) == ["a", "b", "c"]
    server.stop()


def test_a_directory_that_belongs_to_something_else_is_refused(tmp_path: Path) -> None:
    opened(tmp_path, fast="fast").stop()
    status, said = opened(tmp_path, old="fast").end()
    assert (status, "belongs to cell fast: start with --cell fast=" in said) == (1, True)

    status, said = Server(tmp_path / "fast").end()
    assert (status, "is the directory of a cell" in said) == (1, True)

    Server(tmp_path / "another").stop()
    status, said = Server(tmp_path / "another", cells={"fast": tmp_path / "fast"}).end()
    assert (status, "of another home" in said) == (1, True)

    status, said = Server(tmp_path / "third", cells={"fast": tmp_path / "another"}).end()
    assert (status, "is the data directory of a home, which is a cell itself: name another" in said) == (1, True)
    assert not (tmp_path / "third").exists()

    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").touch()
    status, said = Server(tmp_path / "third", cells={"fast": tmp_path / "files"}).end()
    assert (status, "is no directory of a cell" in said) == (1, True)
    assert not (tmp_path / "third").exists()

    cells = {"new": tmp_path / "new", "old": tmp_path / "files"}
    assert Server(tmp_path / "another", cells=cells).end()[0] == 1
    assert not (tmp_path / "new").exists()


def test_a_cell_whose_directory_is_deleted_is_given_up(tmp_path: Path) -> None:
    server = opened(tmp_path, fast="fast")
    server.ok("PUT", "/v1/cells/fast", {})
    server.ok("PUT", "/v1/subjects/orders", {"queues": 2})
    for group, ordered in (("billing", False), ("ledger", True)):
        server.ok("PUT", f"/v1/subjects/orders/groups/{group}", {"ordered": ordered})
    server.ok("POST", "/v1/subjects/orders/queues/1/move", {"cell": "fast"})
    for queue, body in enumerate(("here", "there")):
        server.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": body, "queue": queue}]})
    later = {"messages": [{"body": "later", "queue": 1, "delay": "3s"}]}
    server.ok("POST", "/v1/subjects/orders/messages", later)
    server.stop()
    shutil.rmtree(tmp_path / "fast")

    server = Server(tmp_path / "home")
    refused = server.call("DELETE", "/v1/cells/fast?lost=true")
    assert (refused.status, refused.json["type"]) == (409, "urn:hourwheel:cell-state")
    server.ok("PUT", "/v1/cells/fast", {"state": "offline"})
    foreseen = server.ok("DELETE", "/v1/cells/fast?lost=true&dry_run=true")
    removed = server.ok("DELETE", "/v1/cells/fast?lost=true")
    assert removed == foreseen
    (lost,) = removed["lost"]
    assert (lost["queue"], lost["start"], lost["end"], lost["next_cell"]) == (1, 0, None, "home")
    message = {"messages": [{"body": "new", "queue": 1}]}
    (sent,) = server.ok("POST", "/v1/subjects/orders/messages", message)["results"]
    assert sent["offset"] >= lost["next_start"] > 2**45
    for group in ("billing", "ledger"):
        taken: list[str] = []
        while len(taken) < 3:
            pulls = pull(server, group=group, wait_seconds=20)
            taken += bodies(pulls)
            receipts = [{"receipt": each["receipt"]} for each in pulls]
            server.ok("POST", f"/v1/subjects/orders/groups/{group}/ack", {"settle": receipts})
        assert sorted(taken) == ["here", "later", "new"]
        lag = server.ok("GET", f"/v1/subjects/orders/groups/{group}/lag")
        assert (lag["waiting"], lag["in_flight"], lag["cells_out"]) == (0, 0, [])
    server.ok("POST", "/v1/subjects/orders/groups/billing/seek", {"to": "start"})
    assert server.ok("GET", "/v1/subjects/orders/groups/billing/lag")["waiting"] == 3
    status, said = server.stop()
    assert (status, [line for line in said.splitlines() if "fast" in line and "is not opened" not in line]) == (0, [])

    server = Server(tmp_path / "home")
    assert len(bodies(pull(server))) == 3
    status, said = server.stop()
    assert (status, "fast" in said) == (0, False)

    status, said = opened(tmp_path, fast="fast").end()
    assert (status, "cell fast was given up, and its name is not used again" in said) == (1, True)
    assert not (tmp_path / "fast").exists()


class BusyConsumer:
    """A consumer that holds the first two messages until it may ``go``."""

    def __init__(self, port: int, kind: type[Consumer] | type[AsyncConsumer]) -> None:
        self.got: list[Any] = []
        self.go = threading.Event()
        self.consumer = kind(
            f"http://127.0.0.1:{port}", "orders", "billing", concurrency=4, wait_seconds=1, lease_seconds=60
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        if isinstance(self.consumer, Consumer):
            self.consumer.handler(self._handle)
            self.consumer.run()
        else:
            self.consumer.handler(self._handle_async)
            asyncio.run(self.consumer.run())

    def _handle(self, message: Delivery) -> None:
        self.got.append(message.body)
        if message.body in {"here", "there"}:
            assert self.go.wait(SECONDS)

    async def _handle_async(self, message: Delivery) -> None:
        await asyncio.to_thread(self._handle, message)

    def stop(self) -> None:
        self.consumer.stop()
        self.thread.join(SECONDS)


def until(true: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
@pytest.mark.parametrize("lost", [False, True], ids=["out of reach", "given up"])
def test_a_running_consumer_that_holds_a_message_of_a_cell_goes_on_without_the_cell(
    tmp_path: Path, kind: type[Consumer] | type[AsyncConsumer], *, lost: bool
) -> None:
    server = opened(tmp_path, fast="fast")
    port = server.port
    server.ok("PUT", "/v1/cells/fast", {})
    server.ok("PUT", "/v1/subjects/orders", {"queues": 2})
    server.ok("POST", "/v1/subjects/orders/queues/1/move", {"cell": "fast"})
    for queue, body in enumerate(("here", "there")):
        server.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": body, "queue": queue}]})
    busy = BusyConsumer(port, kind)
    until(lambda: len(busy.got) == 2)
    server.stop()

    server = Server(tmp_path / "home", port=port)
    if lost:
        shutil.rmtree(tmp_path / "fast")
        server.ok("PUT", "/v1/cells/fast", {"state": "offline"})
        server.ok("DELETE", "/v1/cells/fast?lost=true")
    busy.go.set()
    for number in range(3):
        message = {"body": f"new {number}", "queue": 0}
        server.ok("POST", "/v1/subjects/orders/messages", {"messages": [message]})
        until(partial(operator.contains, busy.got, message["body"]))
    until(lambda: lag(server)["in_flight"] == 0)
    if not lost:
        server.stop()
        server = Server(tmp_path / "home", cells={"fast": tmp_path / "fast"}, port=port)
        until(lambda: lag(server)["in_flight"] == 0)
    busy.stop()
    assert sorted(busy.got) == ["here", "new 0", "new 1", "new 2", "there"]
    assert busy.consumer.lost_messages == int(lost)
    assert lag(server)["cells_out"] == []
    server.stop()


def lag(server: Server) -> Any:
    return server.ok("GET", "/v1/subjects/orders/groups/billing/lag")
