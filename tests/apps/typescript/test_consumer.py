"""The consumer of the client for TypeScript, in Node, against a server."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Connection, Server

GROUP = "/v1/subjects/orders/groups/billing"


@contextmanager
def scenario(client: Path, name: str, port: int) -> Iterator[subprocess.Popen[str]]:
    command = ["node", "scenarios.mjs", name, f"http://127.0.0.1:{port}"]
    with subprocess.Popen(command, cwd=client, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str], *, status: int = 0) -> list[Any]:
    """Returns what the process still tells until it ends."""
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (status, "")
    return [json.loads(line) for line in output.splitlines()]


def has_ended(process: subprocess.Popen[str]) -> bool:
    """Waits a moment for the end of the process."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.05)
    return process.returncode is not None


def play(client: Path, name: str, server: Server, **ending: int) -> list[Any]:
    with scenario(client, name, server.port) as process:
        return told(process, **ending)


def waiting_and_in_flight(server: Server) -> tuple[int, int]:
    with Connection(server.port) as connection:
        lag = connection.ok("GET", f"{GROUP}/lag")
    return lag["waiting"], lag["in_flight"]


def pulled(server: Server, *, wait_seconds: int = 0) -> list[tuple[str, int]]:
    """Returns the bodies and attempts of the messages that another consumer gets."""
    with Connection(server.port) as connection:
        answer = connection.ok("POST", f"{GROUP}/pull", {"consumer": "other", "wait_seconds": wait_seconds})
    return [(each["body"], each["attempt"]) for pull in answer["pulls"] for each in pull["messages"]]


def test_each_message_is_handled_once_and_settled(client: Path, server: Server) -> None:
    assert play(client, "everything", server) == [[200, 200]]
    assert waiting_and_in_flight(server) == (0, 0)


def test_a_handler_gets_all_that_a_message_has(client: Path, server: Server) -> None:
    headers = {"content-type": "text/plain"}
    assert play(client, "fields", server) == [["order-7", [0, 255], "k", ["eu"], headers, 1]]


def test_what_a_handler_throws_decides_about_its_message(client: Path, server: Server) -> None:
    with Connection(server.port) as connection:
        connection.ok("PUT", GROUP, {"retry": {"first_seconds": 1}})
    assert sorted(play(client, "outcomes", server), key=str) == [
        ["bad", 1, None],
        ["broken", 1, None],
        ["broken", 2, "TypeError: x is not a function"],
        ["busy", 1, None],
        ["busy", 2, "later"],
        ["wrong", 1, None],
        ["wrong", 2, "RangeError: a delay is a number of seconds, or one with ms, s, m, h or d, got soon"],
    ]
    with Connection(server.port) as connection:
        (letter,) = connection.ok("GET", f"{GROUP}/dead")["messages"]
    assert (letter["body"], letter["reason"], letter["detail"]) == ("bad", "rejected", "no price")
    assert waiting_and_in_flight(server) == (0, 0)


def test_a_lease_is_renewed_while_a_handler_is_at_work(client: Path, server: Server) -> None:
    assert play(client, "slow", server) == [["slow", False]]
    assert (waiting_and_in_flight(server), pulled(server)) == ((0, 0), [])


def test_a_lease_begins_when_its_message_comes(client: Path, server: Server) -> None:
    assert play(client, "late", server) == [["late", False]]
    assert (waiting_and_in_flight(server), pulled(server)) == ((0, 0), [])


def test_a_cell_out_of_reach_holds_up_no_lease_of_others(client: Path, server: Server) -> None:
    assert play(client, "unavailable", server) == [["first", False], ["second", False]]
    # The lease of the first one ends while its settlement is held up: it may come again.
    assert "second" not in [body for body, _ in pulled(server)]


def test_a_wrong_receipt_takes_no_other_settlement_with_it(client: Path, server: Server) -> None:
    assert sorted(play(client, "invalid", server)) == [["one"], ["two"]]
    assert waiting_and_in_flight(server) == (0, 1)


def test_a_detail_ends_with_a_whole_character(client: Path, server: Server) -> None:
    assert play(client, "emoji", server) == []
    with Connection(server.port) as connection:
        (letter,) = connection.ok("GET", f"{GROUP}/dead")["messages"]
    assert letter["detail"] == "x" * 999 + "\U0001f600"


def test_a_handler_learns_that_its_lease_is_lost(client: Path, server: Server) -> None:
    assert play(client, "deaf", server) == [[True, True]]
    # The last pull of the consumer, which was cut off, may have taken the message again.
    assert [body for body, _ in pulled(server, wait_seconds=20)] == ["deaf"]


def test_a_signal_lets_the_message_in_hand_end_and_gives_the_others_back(client: Path, server: Server) -> None:
    with scenario(client, "signal", server.port) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == ["began", "0"]
        process.send_signal(signal.SIGTERM)
        assert told(process) == [["ended", "0"], ["over"]]
    assert pulled(server) == [("1", 1), ("2", 1), ("3", 1)]


def test_a_handler_that_does_not_end_has_its_message_taken_away(client: Path, server: Server) -> None:
    with scenario(client, "endless", server.port) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == ["began"]
        process.send_signal(signal.SIGINT)
        assert told(process) == [["lost"], ["over"]]
    assert pulled(server) == [("endless", 1)]


def test_the_messages_of_a_key_keep_their_order_when_one_fails(client: Path, server: Server) -> None:
    with Connection(server.port) as connection:
        connection.ok("PUT", GROUP, {"ordered": True, "retry": {"first_seconds": 0}})
    assert play(client, "ordered", server) == [["0", 1], ["0", 2], ["1", 1], ["2", 1]]
    assert waiting_and_in_flight(server) == (0, 0)


def test_a_consumer_goes_on_when_its_server_is_killed_and_started_again(client: Path, start: Start) -> None:
    server = start()
    with scenario(client, "outage", server.port) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == ["ten"]
        server.kill()
        again = start(port=server.port)
        assert told(process) == [[60]]
    assert waiting_and_in_flight(again) == (0, 0)


def test_a_refusal_ends_the_consumer_with_its_type(client: Path, start: Start) -> None:
    server = start(tokens=["the-right-one"])
    assert play(client, "refused", server) == [["RequestError", 401, "urn:hourwheel:token-wrong"]]


def test_only_the_message_that_ends_its_process_dies(client: Path, server: Server) -> None:
    bodies = ["poison", "one", "two", "three"]
    with Connection(server.port) as connection:
        connection.ok("PUT", GROUP, {"max_attempts": 2, "retry": {"first_seconds": 0}, "redelivery_delay_seconds": 0})
        connection.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": body} for body in bodies]})
    for _ in range(6):
        with scenario(client, "poison", server.port) as process:
            while waiting_and_in_flight(server) != (0, 0) and not has_ended(process):
                pass
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS)
    with Connection(server.port) as connection:
        letters = connection.ok("GET", f"{GROUP}/dead")["messages"]
    assert [letter["body"] for letter in letters] == ["poison"]
    assert waiting_and_in_flight(server) == (0, 0)


def test_a_consumer_goes_on_after_its_group_was_deleted(client: Path, server: Server) -> None:
    heard = play(client, "deleted", server)
    assert heard[0] == ["first"]
    assert heard[-1] == ["after"]


def test_the_consumer_is_small_and_the_client_needs_nothing(client: Path) -> None:
    sources = {source.name: source.read_text() for source in (client / "src").glob("*.ts") if source.name != "api.ts"}
    lines = [line.strip() for name, text in sources.items() if name != "webhooks.ts" for line in text.splitlines()]
    assert len([line for line in lines if line and not line.startswith(("//", "/*", "*"))]) <= 600
    imported = [name for text in sources.values() for name in re.findall(r'from "(.+?)"', text)]
    assert imported
    assert all(name.startswith("./") for name in imported)
