"""Sends single messages by a client that costs next to nothing: requests whose bytes are prepared, over plain sockets.

``python -m bench.prepared URL SUBJECT CONNECTIONS SECONDS KIND`` prints, as JSON, the messages that were answered as
stored, the seconds, and the CPU seconds of this process. Each connection has one request under way. Of the ``keyed``
ones each has a new idempotency key, as those of the clients of this library; ``plain`` ones have none. Nothing is
parsed but the status of the answer, and no work of the interpreter is left for a message but one turn of epoll,
``recv`` and ``send``. The row shows the speed of the server, where rows of ``Producer`` show that of client and server.
"""

import json
import select
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import msgspec

from bench.limits import commits, cpu_seconds
from bench.measures import bodies
from bench.serving import Served

CASES = {
    f"{connections} connections, {kind}": (connections, kind) for connections in (16, 64) for kind in ("keyed", "plain")
}

_KEY = b"0000000000000000"
_STORED = b"HTTP/1.1 200 OK\r\n"


def prepared_request(url: str, subject: str, kind: str) -> tuple[bytes, bytes]:
    """Returns the bytes of a request with one message of 200 bytes, before the idempotency key and after it; those of a
    plain request before a number that its text contains and after it."""
    text = bodies(1)[0]
    batch = {"idempotency_key": _KEY.decode(), "messages": [{"body": text}]}
    if kind == "plain":
        batch = {"messages": [{"body": _KEY.decode() + text[len(_KEY) :]}]}
    body = msgspec.msgpack.encode(batch)
    head = (
        f"POST /v1/subjects/{subject}/messages HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\n"
        "content-type: application/msgpack\r\naccept: application/msgpack\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    before, _, after = (head.encode() + body).partition(_KEY)
    return before, after


def send_prepared(url: str, subject: str, connections: int, seconds: float, kind: str) -> dict[str, float]:
    """Sends requests on each connection, one after the other. Returns its counts."""
    before, after = prepared_request(url, subject, kind)
    place = urlsplit(url)
    poll, sockets = select.epoll(), {}
    for _ in range(connections):
        connection = socket.create_connection((str(place.hostname), place.port or 80))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        sockets[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
    sent = answered = 0
    cpu, began = time.process_time(), time.perf_counter()
    for connection in sockets.values():
        connection.send(b"%b%016d%b" % (before, sent, after))
        sent += 1
    while answered < sent:
        for descriptor, _ in poll.poll():
            connection = sockets[descriptor]
            answer = connection.recv(4_096)
            if not answer.startswith(_STORED):
                raise SystemExit(f"a message was not stored: {answer[:200]!r}")
            answered += 1
            if time.perf_counter() - began < seconds:
                connection.send(b"%b%016d%b" % (before, sent, after))
                sent += 1
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    for connection in sockets.values():
        connection.close()
    return {"messages": answered, "seconds": taken, "cpu_seconds": cpu}


def prepared(served: Served, syncs_per_s: float, subject: str, seconds: float, case: str) -> dict[str, float]:
    """Returns the messages/s of a run with the client in a process of its own, the microseconds of CPU that a message
    took on both sides. Also returns the parts of a core and of the disk's syncs that were in use."""
    before = cpu_seconds(served.pid), commits(served)
    connections, kind = CASES[case]
    arguments = ["bench.prepared", served.url, subject, str(connections), str(seconds), kind]
    done = subprocess.run([sys.executable, "-m", *arguments], check=True, stdout=subprocess.PIPE, text=True)
    client = json.loads(done.stdout)
    server, synced = cpu_seconds(served.pid) - before[0], commits(served) - before[1]
    return {
        "produced_per_s": round(client["messages"] / client["seconds"]),
        "client_us": round(client["cpu_seconds"] / client["messages"] * 1e6, 2),
        "server_us": round(server / client["messages"] * 1e6, 2),
        "client_of_a_core": round(client["cpu_seconds"] / client["seconds"], 2),
        "server_of_a_core": round(server / client["seconds"], 2),
        "syncs_of_the_disk": round(synced / client["seconds"] / syncs_per_s, 2),
    }


def by_case(served: Served, syncs_per_s: float, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Returns the middle round of each case; the cases take turns."""
    rows: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    for number in range(rounds):
        for index, case in enumerate(CASES):
            rows[case].append(prepared(served, syncs_per_s, f"prepared-{index}-{number}", seconds, case))
    return {case: middle(of_case) for case, of_case in rows.items()}


def middle(rows: list[dict[str, float]]) -> dict[str, float]:
    """Returns the run with the median rate."""
    return sorted(rows, key=lambda row: row["produced_per_s"])[len(rows) // 2]


if __name__ == "__main__":
    found = send_prepared(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
    print(json.dumps(found))
