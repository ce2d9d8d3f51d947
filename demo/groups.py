"""Plays the first act: three groups get every flight. A consumer is killed at work, another one fails on bad data."""

import signal
import time
from collections.abc import Callable

from demo import history
from demo.flights import Flight, tail_number
from demo.screen import Screen, lines_in
from demo.stage import Stage, until
from hourwheel.client import Api, DeadSelection, Producer, RetryPolicy

GROUPS = {"boards": 4, "billing": 2, "audit": 1}
BATCH = 250
# Short where a consumer is killed: the other one gets its messages soon.
LEASE_SECONDS = {"boards": 30, "billing": 5, "audit": 30}
# The consumer that is killed must still have work then.
WORK_SECONDS = {"boards": 0.0, "billing": 0.0004, "audit": 0.0}
RETRY = RetryPolicy(delays_seconds=(0.5, 1.0))


def perform(stage: Stage, screen: Screen, flights: list[Flight]) -> tuple[list[history.Account], float]:
    """Runs the act. Returns the accounts of the groups, and the seconds that sending took."""
    with Api(stage.url) as api, screen.running(dict.fromkeys(["sent", *GROUPS], len(flights))):
        for group in GROUPS:
            api.put_group("flights", group, max_attempts=3 if group == "audit" else 16, retry=RETRY)
        for group, count in GROUPS.items():
            for number in range(1, count + 1):
                _consume(stage, group, number, strict=group == "audit")
        stage.await_consumers()
        accepted, seconds = _send(stage, flights, lambda count: screen.show(sent=count))
        screen.say(f"sent {len(accepted):,} flights in {seconds:.1f} s ({len(accepted) / seconds:,.0f}/s)")
        died, dead = _disturb(stage, screen, api, len(flights))
    stage.stop_consumers()
    untailed = {message for message, body in accepted.items() if not tail_number(body)}
    accounts = [
        history.account(
            group,
            accepted,
            history.read(stage.folder, group, history.Handled),
            died=died if group == "audit" else dead[group],
            dead=dead[group],
            killed="billing-2",
            expected_dead=untailed if group == "audit" else set(),
        )
        for group in GROUPS
    ]
    return accounts, seconds


def _disturb(stage: Stage, screen: Screen, api: Api, flights: int) -> tuple[set[str], dict[str, set[str]]]:
    """Kills a consumer and replaces another by a corrected one. Returns the ids of the audit's dead letters before the
    correction, and the ids of each group's dead letters at the end."""

    def shown() -> None:
        screen.show(**{group: min(lines_in(stage.folder, group), flights) for group in GROUPS})

    def half_way() -> bool:
        shown()
        return lines_in(stage.folder, "billing-2") >= flights // 14

    def drained(*groups: str) -> bool:
        shown()
        return all(is_drained(api, "flights", group) for group in groups)

    until(half_way, "billing-2 in the middle of its work")
    stage.stop("billing-2", signal.SIGKILL)
    screen.say("killed billing-2 with SIGKILL: its lease ends in 5 s, billing-1 takes over")
    until(lambda: drained("audit"), "the audit's retries to end")
    died = _dead_ids(api, "audit")
    screen.say(f"audit gave up {len(died)} flights without a tail number: 3 attempts, 0.5 and 1 s apart")
    stage.stop("audit-1")
    _consume(stage, "audit", 2)
    screen.say("replaced audit-1 by audit-2, which takes flights without a tail number")
    screen.say(f"redrove {api.redrive('flights', 'audit', DeadSelection.everything())} dead letters")
    until(lambda: drained(*GROUPS), "all groups to be done")
    return died, {group: _dead_ids(api, group) for group in GROUPS}


def is_drained(api: Api, subject: str, group: str) -> bool:
    """Returns whether the group has no message left. Reads the lag twice: a message whose back-off ends between two of
    its counts is in neither of them."""
    for _ in range(2):
        lag = api.lag(subject, group)
        if lag.waiting or lag.in_flight or lag.retrying or lag.backing_off:
            return False
    return True


def _consume(stage: Stage, group: str, number: int, *, strict: bool = False) -> None:
    arguments = ["--group", group, "--lease", str(LEASE_SECONDS[group]), "--work", str(WORK_SECONDS[group])]
    stage.start(f"{group}-{number}", "demo.worker", *arguments, *["--strict"] * strict)


def _send(stage: Stage, flights: list[Flight], progress: Callable[[int], None]) -> tuple[dict[str, str], float]:
    """Sends all flights. Returns their bodies by the ids of the accepted messages, and the seconds that sending
    took."""
    accepted: dict[str, str] = {}
    began = time.perf_counter()
    with Producer(stage.url, subject="flights", batch_messages=BATCH) as producer:
        futures = []
        for number, flight in enumerate(flights, 1):
            futures.append(producer.send(flight.body, key=flight.carrier))
            if number % 500 == 0:
                progress(number)
        for future, flight in zip(futures, flights, strict=True):
            accepted[future.result().id] = flight.body
    progress(len(flights))
    return accepted, time.perf_counter() - began


def _dead_ids(api: Api, group: str) -> set[str]:
    """Returns the ids of the group's dead letters."""
    ids: set[str] = set()
    after = None
    while True:
        page = api.list_dead("flights", group, after=after)
        ids |= {message.id for message in page.messages}
        if page.next is None:
            return ids
        after = page.next
