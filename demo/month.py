"""Plays the second act: the month passes in about a minute. Each flight has a boarding call, which is delayed until the
scheduled departure.
"""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from demo import boarding, history, lateness
from demo.boarding import Call, Seen
from demo.flights import Flight
from demo.groups import RETRY, is_drained
from demo.screen import Screen, lines_in
from demo.stage import Stage, until
from hourwheel.client import Api, ClientError, Producer, SendResult

DAY_SECONDS = 1.7  # 31 days take 53 s
BATCH = 1_000
LEASE_SECONDS = 5
CANCELLERS = 8
AHEAD_SECONDS = 3.0
"""The time before its due time at which a call is cancelled: about two days of the month."""

_MINUTES = 24 * 60


@dataclass(frozen=True)
class Report:
    """The result of the act. ``spared`` and ``hit``: the lateness in milliseconds of calls outside and inside the
    outage."""

    account: boarding.Account
    spared: list[float]
    hit: list[float]
    outage: lateness.Outage
    resumed_seconds: float


def perform(stage: Stage, screen: Screen, flights: list[Flight], days: int, lead_seconds: float) -> Report:
    """Runs the act. The month begins in ``lead_seconds``: by then all calls should be sent."""
    begin_ms = _now_ms() + lead_seconds * 1_000
    calls = boarding.timetable(flights, round(begin_ms), DAY_SECONDS * 1_000 / _MINUTES)
    unwanted = [call for call in calls if call.cancelled]
    totals = {"day": days, "called": len(calls) - len(unwanted), "cancelled": len(unwanted)}
    answers: dict[str, str] = {}

    def shown() -> None:
        day = min(days, max(0, int((_now_ms() - begin_ms) / 1_000 / DAY_SECONDS) + 1))
        called = min(lines_in(stage.folder, "gate"), totals["called"])
        screen.show(day=day, called=called, cancelled=len(answers))

    def reached(at_ms: float) -> Callable[[], bool]:
        def look() -> bool:
            shown()
            return _now_ms() >= at_ms

        return look

    # Cancels continue during the outage: each is repeated until the server answers.
    with Api(stage.url, retry_seconds=60) as api, screen.running(totals):
        api.put_group("boarding", "gates", retry=RETRY)
        stage.start("gate-1", "demo.gate", "--lease", str(LEASE_SECONDS))
        stage.await_consumers()
        accepted = _send(stage, calls)
        screen.say(
            f"{api.pending('boarding').messages:,} boarding calls wait for their departures; "
            f"the month begins in {(begin_ms - _now_ms()) / 1_000:.1f} s"
        )
        cancellers = _cancel(api, unwanted, accepted, answers)
        until(reached(begin_ms + (days // 2 + 0.5) * DAY_SECONDS * 1_000), "noon in the middle of the month")
        outage = _restart(stage, screen)
        until(reached(calls[-1].due_ms + 1_000), "the end of the month")
        for canceller in cancellers:
            canceller.join(60)
        until(lambda: _is_over(api, shown), "all calls to be received")
    stage.stop_consumers()
    seen = history.read(stage.folder, "gate", Seen)
    first = lateness.first_receipts(seen)
    spared, hit = lateness.split(first, outage)
    resumed_seconds = (lateness.resumed_ms(first, outage) - outage.ready_ms) / 1_000
    return Report(boarding.account(calls, answers, seen), spared, hit, outage, resumed_seconds)


def _send(stage: Stage, calls: Sequence[Call]) -> dict[str, SendResult]:
    with Producer(stage.url, subject="boarding", batch_messages=BATCH) as producer:
        futures = [
            producer.send(
                f"{call.id} is boarding",
                key=call.key,
                message_id=call.id,
                deliver_at=datetime.fromtimestamp(call.due_ms / 1_000, UTC),
            )
            for call in calls
        ]
        return {call.id: future.result() for call, future in zip(calls, futures, strict=True)}


def _cancel(
    api: Api, calls: Sequence[Call], accepted: dict[str, SendResult], answers: dict[str, str]
) -> list[threading.Thread]:
    """Starts threads that cancel the calls, each a little before its due time, and record the answers."""

    def run(share: Sequence[Call]) -> None:
        for call in share:
            time.sleep(max(0.0, call.due_ms / 1_000 - AHEAD_SECONDS - time.time()))
            try:
                answers[call.id] = api.cancel(accepted[call.id].scheduled_id or "").state
            except ClientError as error:
                answers[call.id] = str(error)

    threads = [threading.Thread(target=run, args=(calls[n::CANCELLERS],), daemon=True) for n in range(CANCELLERS)]
    for thread in threads:
        thread.start()
    return threads


def _restart(stage: Stage, screen: Screen) -> lateness.Outage:
    killed_ms = _now_ms()
    stage.stop("server", signal.SIGKILL)
    stage.serve()
    outage = lateness.Outage(killed_ms, _now_ms())
    screen.say(f"killed the server, and its wheel with it, with SIGKILL; back after {outage.seconds:.1f} s")
    return outage


def _is_over(api: Api, shown: Callable[[], None]) -> bool:
    shown()
    return not api.pending("boarding").messages and is_drained(api, "boarding", "gates")


def _now_ms() -> float:
    return time.time_ns() / 1e6
