"""The examples of README.md and docs/client.md run as they are written, but for the port."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.docs.pages import ROOT, examples
from tests.integration.process import SECONDS, Server, bodies, send

README = ROOT / "README.md"
GUIDE = ROOT / "docs/client.md"


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def python(code: str, port: int) -> list[str]:
    return [sys.executable, "-u", "-W", "error", "-c", code.replace(":7420", f":{port}")]


def test_the_readme_installs_serves_sends_and_receives(tmp_path: Path) -> None:
    environment, install, serve = examples(README, "sh")[0].splitlines()
    assert (environment, install) == ("python3 -m venv venv && . venv/bin/activate", "pip install .")
    command = [str(Path(sys.executable).with_name("hourwheel")), *shlex.split(serve)[1:], "--port", "0"]
    with running(command, tmp_path) as (server, told):
        port = int(told.readline().split(",")[0].rpartition(":")[2])
        (code,) = examples(README, "python")
        with running(python(code, port), tmp_path) as (client, received):
            lines = [received.readline().split(" ", 1) for _ in range(3)]
            client.send_signal(signal.SIGINT)
            assert client.stderr is not None
            assert (client.wait(SECONDS), client.stderr.read()) == (0, "")
        server.send_signal(signal.SIGTERM)
        assert server.wait(SECONDS) == 0
    assert [body for _, body in lines] == ["order 1\n", "order 2\n", "reminder\n"]
    assert [int(offset) for offset, _ in lines] == [0, 1, 2]


@pytest.mark.parametrize("number", range(len(examples(GUIDE, "python"))))
def test_each_example_of_the_client_guide_runs(number: int, server: Server, tmp_path: Path) -> None:
    code = examples(GUIDE, "python")[number]
    send(server, "order 1")
    with running(python(code, server.port), tmp_path) as (client, told):
        if "consumer.run()" in code and "consumer.stop()" not in code:  # it runs until somebody stops it
            # "order 1" is no JSON: a typed handler gets the order that the example itself sends.
            assert told.readline() == ("7 1\n" if "order: Order" in code else "0 order 1\n")
            client.send_signal(signal.SIGTERM)
        _, errors = client.communicate(timeout=SECONDS)
    assert client.returncode == 0
    if "order: Order" in code:
        misfit, errors = errors.split("\n", 1)
        assert "attempt 1 rejected: the body does not fit Order" in misfit
    assert errors == ""


def test_the_curl_lines_of_the_client_guide_send_and_receive(server: Server) -> None:
    sent, taken = (server.ok("POST", path, body) for path, body in lines_of_curl())
    assert [message["offset"] for message in sent["results"]] == [0]
    assert bodies(taken["pulls"]) == ["hello"]


def lines_of_curl() -> list[tuple[str, Any]]:
    """Returns the path and the body of each call of curl."""
    lines = [line for text in examples(GUIDE, "sh") for line in text.splitlines()]
    words = [shlex.split(line) for line in lines if line.startswith("curl -d ")]
    return [(url.removeprefix("http://127.0.0.1:7420"), json.loads(body)) for _, _, body, url in words]
