"""A server on a full volume stores nothing, says so, and loses nothing."""

import json
import signal

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
