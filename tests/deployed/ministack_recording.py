"""Runs ministack until standard input ends. Functions may run at the same time. Records the events that each function
gets, and its requests; and each look of Scheduler at its schedules, with the invocations that it orders.

    DEPLOYED_CLOCK   see ``world.py``
    DEPLOYED_LOG     where to write: JSON lines
"""

import json
import os
import re
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ministack.app
from ministack.core import lambda_runtime
from ministack.services import eventbridge, scheduler, sqs
from world import shifted_time_ns  # it lies beside this script

_APP = re.compile(r"\bapp/(\S+)")
_log = Path(os.environ["DEPLOYED_LOG"]).open("a", buffering=1)  # noqa: SIM115 - until the end
_writing = threading.Lock()
_Worker = lambda_runtime.Worker
_answer = ministack.app.app
_look = scheduler._tick_schedules
_dispatch = eventbridge._dispatch_to_lambda


def _write(**entry: Any) -> None:
    with _writing:
        _log.write(json.dumps(entry) + "\n")


class Environments:
    """The processes of one function: one for each invocation that runs at the same time. ministack itself has one
    process, in which a turning wheel would delay all other invocations."""

    def __init__(self, name: str, config: dict[str, Any], code: bytes) -> None:
        self._made = name, config, code
        self._free: list[Any] = []
        self._all: list[Any] = []

    def invoke(self, event: dict[str, Any], request_id: str) -> dict[str, Any]:
        shown = {key: value for key, value in event.items() if not key.startswith("_")}
        _write(started=self._made[0], event=shown)
        worker = None
        with suppress(IndexError):
            worker = self._free.pop()
        if worker is None:
            worker = _Worker(*self._made)
            self._all.append(worker)
        try:
            result: dict[str, Any] = worker.invoke(dict(event), request_id)
        finally:
            self._free.append(worker)
        told = {"status": result["status"], "answer": result.get("result"), "log": result["log"]}
        _write(ended=self._made[0], event=shown, **told)
        return result

    def kill(self) -> None:
        for worker in self._all:
            worker.kill()


async def _recording(scope: dict[str, Any], receive: Any, send: Any) -> None:
    headers = {name.decode().lower(): value.decode() for name, value in scope.get("headers", ())}
    found = _APP.search(headers.get("user-agent", ""))
    if found is None:
        await _answer(scope, receive, send)
        return
    body = bytearray()

    async def heard() -> Any:
        message = await receive()
        body.extend(message.get("body", b""))
        return message

    async def said(message: Any) -> None:
        if message["type"] == "http.response.start":
            content = "" if headers.get("authorization", "").find("/s3/") > 0 else body.decode(errors="replace")
            _write(
                function=found.group(1),
                method=scope["method"],
                path=scope["raw_path"].decode() if scope.get("raw_path") else scope["path"],
                query=scope["query_string"].decode(),
                headers={
                    name: headers.get(name, "") for name in ("authorization", "x-amz-target", "x-amz-invocation-type")
                },
                body=content,
                status=message["status"],
            )
        await send(message)

    await _answer(scope, heard, said)


def _recorded_look() -> None:
    _look()
    _write(looked="scheduler")


def _recorded_dispatch(arn: str, payload: str) -> None:
    # A thread invokes the function some time later.
    _write(scheduled=arn.rpartition(":")[2], event=json.loads(payload))
    _dispatch(arn, payload)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


now_ns = shifted_time_ns(os.environ["DEPLOYED_CLOCK"])
scheduler._SCHEDULE_TICK_INTERVAL = 0.25  # ten seconds of its own accord
scheduler.time = SimpleNamespace(time=lambda: now_ns() / 1e9, sleep=time.sleep)
scheduler._tick_schedules = _recorded_look
eventbridge._dispatch_to_lambda = _recorded_dispatch
sqs.time = SimpleNamespace(time=lambda: now_ns() / 1e9)
lambda_runtime.Worker = Environments
_Worker._drain_stderr_bounded = _Worker._drain_stderr  # otherwise it waits 50 ms after each invocation
ministack.app.app = _recording
threading.Thread(target=_end_with_parent, daemon=True).start()
ministack.app.main()
