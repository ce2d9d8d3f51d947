"""Traces of a server: any number of them leaves the event loop and the threads of other calls alone."""

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hourwheel.deployment.messages import MessageService
from hourwheel.embedded.application import Application
from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.bodies import SizedBody
from hourwheel.embedded.http.heads import parse_head
from hourwheel.embedded.http.requests import Request
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.model.messages import NewMessage

TRACES = 5


def get(application: Application, path: str) -> "asyncio.Task[Answer]":
    head = parse_head(f"GET {path} HTTP/1.1\r\nhost: localhost".encode())
    request = Request(head, SizedBody(0), lambda: None, client="127.0.0.1", secure=False)
    return asyncio.ensure_future(application.respond(request))


@pytest.mark.parametrize("threads", [1, 32])
def test_one_trace_is_computed_at_a_time_and_no_other_call_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    options = ServeOptions(data=tmp_path, threads=threads)
    with closing(Runtime(options)) as runtime:
        runtime.deployment.produce("orders", [NewMessage(body="é")])
        application = Application(runtime, options)
        entered, go_on = threading.Semaphore(0), threading.Event()
        computing: list[int] = []
        kept = runtime.deployment.messages.trace

        def trace(*arguments: Any) -> Any:
            computing.append(1)
            entered.release()
            assert go_on.wait(60)
            try:
                return kept(*arguments)
            finally:
                computing.pop()

        monkeypatch.setattr(MessageService, "trace", lambda _, *arguments: trace(*arguments))

        async def ask() -> list[Answer]:
            traces = [get(application, "/v1/subjects/orders/messages/0:0") for _ in range(TRACES)]
            await asyncio.get_running_loop().run_in_executor(None, entered.acquire)
            assert (await asyncio.wait_for(get(application, "/v1/subjects"), 60)).status == 200
            assert computing == [1]
            assert not entered.acquire(blocking=False)
            go_on.set()
            return [await trace for trace in traces]

        answers = asyncio.run(ask())
        assert [answer.status for answer in answers] == [200] * TRACES
        assert all("é".encode() in answer.body for answer in answers)
