"""A server on a full volume stores nothing, says so, and loses nothing."""

import json
import re
import signal
from pathlib import Path
from urllib.request import urlopen

from tests.integration.conftest import Start
from tests.integration.process import bodies, pull, send

PAGES = 60


def test_a_full_disk_is_told_survived_and_left_behind(start: Start) -> None:
    server = start(pages=PAGES)
    accepted = []
    with server.connect() as connection:
        for n in range(10_000):
            body = f"{n:05d}" + "".join(chr(0x100 + (n * 7 + i * i) % 5_000) for i in range(1_000))
            answer = connection.call("POST", "/v1/subjects/orders/messages", {"messages": [{"body": body}]})
            if answer.status != 200:
                break
            accepted.append(body)
        assert (answer.status, answer.json["type"]) == (507, "urn:hourwheel:storage-full")
        assert connection.ok("GET", "/v1/health")["status"] == "ok"
        server.signal(signal.SIGUSR1)
        while connection.call("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "later"}]}).status == 507:
            pass
        found = []
        while pulls := pull(connection, max_messages=1_000):
            found += bodies(pulls)
    assert found[: len(accepted)] == accepted
    assert found[len(accepted)] == "later"
    send(server, "and on")
    status, errors = server.stop()
    assert status == 0
    assert {json.loads(line)["error"] for line in errors.splitlines()} == {"StorageFull"}


HUGE_MB = 1_000_000_000
"""A reserve of a petabyte: each volume has less left."""


def test_a_volume_with_nothing_but_its_reserve_is_drained(tmp_path: Path, start: Start) -> None:
    """The server starts there, refuses new messages, and lets consumers and operators make room."""
    before = start(tmp_path)
    send(before, "a", "b", "c", "d")
    assert before.call("GET", "/v1/ready").json == {"status": "ready"}
    assert before.stop()[0] == 0
    server = start(tmp_path, reserve_mb=HUGE_MB, retry_seconds=0)
    with server.connect() as connection:
        assert connection.ok("GET", "/v1/ready") == {"status": "ready", "space": "low", "volumes": ["home"]}
        for path in ("/v1/subjects/orders/messages", "/v1/messages"):
            message = {"body": "x"} if path != "/v1/messages" else {"body": "x", "subject": "orders"}
            refused = connection.call("POST", path, {"messages": [message]})
            assert (refused.status, refused.json["type"]) == (507, "urn:hourwheel:storage-full")
        path = "/v1/subjects/orders/groups/billing"
        (pulled,) = connection.ok("POST", f"{path}/pull", {"consumer": "c", "max_messages": 9})["pulls"]
        settled = {"receipt": pulled["receipt"], "ack": [0], "retry": [1], "dead": [2, 3]}
        answers = connection.ok("POST", f"{path}/ack", {"settle": [settled]})["results"]
        assert [answer["status"] for answer in answers] == ["settled"]
        assert bodies(pull(connection)) == ["b"]
        assert connection.ok("DELETE", f"{path}/dead", {"all": True}) == {"dropped": 2}
        assert connection.call("PUT", "/v1/subjects/orders", {"retention_seconds": 60}).status == 200
        with urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
            metrics = page.read().decode()
        assert re.search(r"^hourwheel_reserve_bytes 1\.?0485", metrics, re.MULTILINE)
        assert re.search(r'^hourwheel_free_bytes{volume="home"} [1-9]', metrics, re.MULTILINE)
        assert connection.call("DELETE", "/v1/subjects/orders").status == 204
    status, errors = server.stop()
    assert status == 0
    assert {json.loads(line)["error"] for line in errors.splitlines()} == {"StorageFull"}
