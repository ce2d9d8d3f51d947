"""``hourwheel consume``"""

import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer

from hourwheel.cli.output import without_advice, write_body, write_error, write_json
from hourwheel.cli.settings import GroupArgument, SubjectArgument, connect, seconds, settings_of
from hourwheel.client import (
    AnswerError,
    Api,
    NotFound,
    Pull,
    Pulled,
    Received,
    ServerUnavailable,
    Settlement,
)
from hourwheel.client.calls.pull import pull_resting
from hourwheel.client.consuming.dozing import Doze, QueueListener
from hourwheel.client.due import checked_retry_delay
from hourwheel.client.transport.backoff import PullBackoff
from hourwheel.client.transport.steps import finished
from hourwheel.model.fields import Delay
from hourwheel.model.lag import HeldKeys, QueueLag
from hourwheel.model.pulls import RetryLater
from hourwheel.system import SystemClock, SystemIds
from hourwheel.wire.words import counted

_MOST = 100  # messages of a pull: a person at a terminal reads no more at a time
_WAIT_SECONDS = 20  # the longest wait that a server allows

_LIMITS = {
    "paused": "the group is paused: hourwheel group resume {subject} {group}",
    "subject_paused": "the subject is paused: hourwheel subject resume {subject}",
    "max_in_flight": "the group has as many messages in flight as it allows (max_in_flight)",
    "messages_per_second": "the group gets no more messages a second than it allows (messages_per_second)",
}
"""Explains each value of ``limited_by`` to a person at a terminal."""


class ConsumeOutcome(StrEnum):
    """The values of ``--then``, by which the printed messages are settled."""

    ACK = "ack"
    RETRY = "retry"
    REJECT = "reject"


def consume(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Stop after this many messages.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Wait for more messages, or stop when none is left.")
    ] = True,
    consumer: Annotated[
        str | None,
        typer.Option(help="The name of the consumer; needed in a broadcast group, where each name gets every message."),
    ] = None,
    then: Annotated[
        ConsumeOutcome, typer.Option(help="Acknowledge the printed messages, retry them, or make them dead letters.")
    ] = ConsumeOutcome.ACK,
    delay: Annotated[
        str | None,
        typer.Option(help="With --then retry: retry after this time, such as 10m, not by the group's policy."),
    ] = None,
) -> None:
    """Print messages, one on each line, and acknowledge them, or settle them as --then says.

    Example: hourwheel consume orders billing --once --max 10
    """
    write = write_json if settings_of(ctx).json else _write_body
    settle = _Settle(then, _checked(delay, then))
    with connect(ctx) as api:
        is_new = _is_missing(api, subject, follow)
        if consumer is None:
            _check_shared(api, subject, group)
            consumer = f"cli-{SystemIds().token().hex()[:12]}"
        try:
            ended = _run(_Session(api, subject, group, consumer, settle, is_new), write, most, follow)
            if ended:
                _report_left(api, subject, group)
        except BrokenPipeError:
            # The reader of the pipe has ended, which is no error. Python flushes stdout at exit, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_missing(api: Api, subject: str, follow: bool) -> bool:
    """Returns whether there is no such subject, as far as the server tells. Raises ``ServerUnavailable`` unless the
    command waits for the server."""
    try:
        api.get_subject(subject)
    except NotFound as error:
        return error.slug == "subject-unknown"
    except ServerUnavailable:
        if not follow:
            raise
    except AnswerError:
        pass  # a consumer on AWS may be allowed to pull alone
    return False


def _check_shared(api: Api, subject: str, group: str) -> None:
    """Raises ``typer.BadParameter`` for a broadcast group: it would keep each random name as one more consumer, which
    gets every message and has a position of its own."""
    try:
        is_broadcast = api.get_group(subject, group).broadcast
    except AnswerError:
        return  # a new group shares its messages, and a consumer on AWS may be allowed to pull alone
    if is_broadcast:
        raise typer.BadParameter(
            f"group {group!r} is a broadcast group, which keeps a position for each consumer: give a name that stays"
            " the same, such as --consumer host-1",
            param_hint="--consumer",
        )


def _report_left(api: Api, subject: str, group: str) -> None:
    """Says on stderr what may be left that was not printed: messages in cells that are out of reach, and messages that
    wait behind held keys."""
    try:
        lag = api.lag(subject, group)
    except AnswerError:
        return  # a consumer on AWS may be allowed to pull alone
    _report_cells_out(subject, lag.queues)
    if lag.held is not None and lag.held.keys:
        write_error(_held(subject, group, lag.held))


def _held(subject: str, group: str, held: HeldKeys) -> str:
    """Returns which messages wait behind the held keys of an ordered group, and what to do about it."""
    parts = [f"{counted(held.keys, 'key')} held: messages of the same key wait until the first one is settled"]
    if held.full:
        queues = ", ".join(map(str, held.full))
        parts.append(f"new messages of queue {queues} wait as well, because it holds as many keys as max_held allows")
    if held.stopped:
        parts.append(
            f"{counted(held.stopped, 'key')} stopped: decide with hourwheel group decide {subject} {group} retry --all,"
            " or dead"
        )
    return f"{'; '.join(parts)}; hourwheel lag {subject} {group} shows the keys"


def _report_cells_out(subject: str, queues: Sequence[QueueLag]) -> None:
    cells = sorted({cell for queue in queues for cell in queue.cells_out})
    if cells:
        noun, numbers = "cell" if len(cells) == 1 else "cells", [q.queue for q in queues if q.cells_out]
        write_error(
            f"{noun} {', '.join(cells)}, offline or out of reach: messages that wait there were not pulled (queue"
            f" {', '.join(map(str, numbers))} of {subject}); hourwheel cell list shows the state of each cell"
        )


def _checked(delay: str | None, then: ConsumeOutcome) -> Delay | None:
    """Returns the delay of retries; None to leave it to the group. Raises ``typer.BadParameter`` for a text that is no
    delay, and for a delay without ``--then retry``."""
    if delay is None:
        return None
    if then is not ConsumeOutcome.RETRY:
        raise typer.BadParameter("only retries have a delay: add --then retry", param_hint="--delay")
    try:
        return checked_retry_delay(seconds(delay) or 0)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--delay") from error


class _Settle(NamedTuple):
    """Makes the settlements of pulls, of whose messages some were printed."""

    outcome: ConsumeOutcome
    delay: Delay | None

    def settlement(self, pull: Pull, printed: int) -> Settlement:
        """Returns the settlement of a pull: it settles the first ``printed`` messages, and releases the others."""
        indexes = list(range(printed))
        settlement = Settlement(receipt=pull.receipt, release=list(range(printed, len(pull.messages))) or None)
        if self.outcome is ConsumeOutcome.REJECT:
            settlement.dead = [*indexes] or None
        elif self.outcome is ConsumeOutcome.RETRY:
            delay = self.delay
            retries = [index if delay is None else RetryLater(index=index, delay=delay) for index in indexes]
            settlement.retry = retries or None
        return settlement


class _Session:
    """Pulls as one consumer. Each pull also sends the settlements of the pull before. ``is_new``: the first pull
    creates the subject."""

    def __init__(self, api: Api, subject: str, group: str, consumer: str, settle: _Settle, is_new: bool) -> None:
        self._api = api
        self._subject = subject
        self._group = group
        self._consumer = consumer
        self._settle = settle
        self._is_new = is_new
        self._doze = Doze(api._http.signer, api._http.host)
        self._listener = QueueListener()
        self._clock = SystemClock()
        self._ids = SystemIds()
        self._settlements: list[Settlement] = []
        self._limited_by: str | None = None
        self._rest_seconds = 0.0

    def pull(self, most: int, wait_seconds: float) -> list[Pull]:
        """Pulls, and settles the messages of the pull before, and those of earlier pulls whose cell was out of reach.
        If a pull that may wait brings no message, waits after it as long as the server says, or at the wake-up
        queue."""
        self._clock.sleep(self._rest_seconds)
        rest = self._doze.fields() if wait_seconds else {}
        pulled = self._answered(most, wait_seconds, rest)
        self._settlements = [
            settlement
            for settlement, settled in zip(self._settlements, pulled.settled, strict=True)
            if settled.status == "unavailable"
        ]
        # Without waiting, a limit matters only where it ends the command: the next pull settles messages first.
        if wait_seconds or not pulled.pulls:
            self._report_limit(pulled.limited_by)
        self._doze.answered(bool(pulled.pulls))
        # The messages are printed before the pause; without messages the pause is now, in ``_rest``.
        self._rest_seconds = pulled.next_pull_seconds if pulled.pulls else 0.0
        if rest and not pulled.pulls:
            self._rest(pulled)
        return pulled.pulls

    def _answered(self, most: int, wait_seconds: float, rest: dict[str, Any]) -> Pulled:
        """Returns the answer to a pull. A pull that may wait is repeated until the server answers; the first failure
        and the answer after it are reported on stderr."""
        backoff, unavailable = PullBackoff(self._ids), False
        while True:
            try:
                pulled = self._pull(most, wait_seconds, rest)
            except ServerUnavailable as error:
                if not wait_seconds:
                    raise
                if not unavailable:
                    reason = without_advice(str(error)) or "the server cannot serve the request now"
                    write_error(f"{reason}; trying again until it answers")
                unavailable = True
                backoff.failed(error)
                self._clock.sleep(backoff.seconds())
            else:
                if unavailable:
                    write_error("the server answers again")
                return pulled

    def _pull(self, most: int, wait_seconds: float, rest: dict[str, Any]) -> Pulled:
        pulled = pull_resting(
            self._api,
            self._subject,
            self._group,
            self._consumer,
            max_messages=most,
            wait_seconds=0 if self._is_new else wait_seconds,  # to report at once that the subject is new
            settle=self._settlements,
            rest=rest,
        )
        if self._is_new:
            self._is_new = False
            self._report_new_subject()
        return pulled

    def _report_new_subject(self) -> None:
        """Says on stderr that nothing was sent to the subject, which this command created, also under a mistyped
        name."""
        write_error(
            f"nothing was sent to {self._subject!r}: there was no such subject before this command, which created it;"
            " hourwheel subject list shows the others"
        )

    def _rest(self, pulled: Pulled) -> None:
        seconds = pulled.next_pull_seconds
        waiting = None if pulled.wakeup is None else self._doze.begin(pulled.wakeup)
        if waiting is not None:
            finished(self._listener.wait(waiting))
            self._doze.ended(waiting)
            seconds = waiting.pause_seconds
        self._clock.sleep(seconds)

    def _report_limit(self, limited_by: str | None) -> None:
        """Reports on stderr which limit keeps messages from the group, once for each change."""
        if limited_by is not None and limited_by != self._limited_by:
            write_error(_LIMITS.get(limited_by, limited_by).format(subject=self._subject, group=self._group))
        self._limited_by = limited_by

    def print(self, pulls: Sequence[Pull], write: Callable[[Received], None]) -> None:
        """Prints messages, and prepares their settlements. If printing fails, the settlements release the messages that
        were not printed."""
        printed = dict.fromkeys((pull.receipt for pull in pulls), 0)
        try:
            for pull in pulls:
                for message in pull.messages:
                    write(message)
                    printed[pull.receipt] += 1
        finally:
            self._settlements += [self._settle.settlement(pull, printed[pull.receipt]) for pull in pulls]

    def finish(self) -> None:
        finished(self._listener.give_back(self._doze.given_back()))
        if self._settlements:
            results = self._api.settle(self._subject, self._group, self._settlements)
            if any(settled.status == "unavailable" for settled in results):
                write_error("a cell is out of reach, and printed messages in it are not settled: they come again")


def _run(session: _Session, write: Callable[[Received], None], most: int | None, follow: bool) -> bool:
    """Prints messages until ``most`` are printed, or, without ``follow``, none is left. Returns whether none is
    left."""
    left = most
    try:
        while left is None or left > 0:
            pulls = session.pull(_MOST if left is None else min(left, _MOST), _WAIT_SECONDS if follow else 0)
            if not pulls and not follow:
                return True
            session.print(pulls, write)
            if left is not None:
                left -= sum(len(pull.messages) for pull in pulls)
        return False
    finally:
        session.finish()


def _write_body(message: Received) -> None:
    write_body(message.body)
