"""``hourwheel consume``"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from hourwheel.cli.output import write_body, write_error, write_json
from hourwheel.cli.settings import GroupArgument, SubjectArgument, connect, settings_of
from hourwheel.client import Api, Pull, Received, Settlement
from hourwheel.system import SystemIds

_MOST = 100  # messages of a pull: a reader at a terminal needs no more at a time
_WAIT_SECONDS = 20  # the longest wait that a server allows

_LIMITS = {
    "paused": "the group is paused: hourwheel group resume {subject} {group}",
    "subject_paused": "the subject is paused: hourwheel subject resume {subject}",
    "max_in_flight": "the group has as many messages in flight as it allows (max_in_flight)",
    "messages_per_second": "the group gets no more messages a second than it allows (messages_per_second)",
}
"""What ``limited_by`` of an answer means to somebody at a terminal."""


def consume(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Stop after this many messages.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Wait for more messages, or stop when none is left.")
    ] = True,
    consumer: Annotated[
        str | None, typer.Option(help="The name of the consumer; in a broadcast group each name gets every message.")
    ] = None,
) -> None:
    """Print messages, one on each line, and acknowledge the printed ones.

    Example: hourwheel consume orders billing --once --max 10
    """
    write = write_json if settings_of(ctx).json else _write_body
    with connect(ctx) as api:
        try:
            _run(
                _Session(api, subject, group, consumer or f"cli-{SystemIds().token().hex()[:12]}"), write, most, follow
            )
        except BrokenPipeError:
            # The reader of the pipe has ended, which is no error. Python flushes stdout at exit, now to nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Session:
    """Pulls as one consumer. Each pull also sends the settlements of the pull before."""

    def __init__(self, api: Api, subject: str, group: str, consumer: str) -> None:
        self._api = api
        self._subject = subject
        self._group = group
        self._consumer = consumer
        self._settlements: list[Settlement] = []
        self._limited_by: str | None = None

    def pull(self, most: int, wait_seconds: float) -> list[Pull]:
        pulled = self._api.pull(
            self._subject,
            self._group,
            self._consumer,
            max_messages=most,
            wait_seconds=wait_seconds,
            settle=self._settlements,
        )
        self._settlements = []
        self._say(pulled.limited_by)
        return pulled.pulls

    def _say(self, limited_by: str | None) -> None:
        """Says on stderr what keeps messages from the group, once until it changes."""
        if limited_by is not None and limited_by != self._limited_by:
            write_error(_LIMITS.get(limited_by, limited_by).format(subject=self._subject, group=self._group))
        self._limited_by = limited_by

    def print(self, pulls: Sequence[Pull], write: Callable[[Received], None]) -> None:
        """Prints messages, and prepares settlements that acknowledge the printed ones and release the others."""
        printed = dict.fromkeys((pull.receipt for pull in pulls), 0)
        try:
            for pull in pulls:
                for message in pull.messages:
                    write(message)
                    printed[pull.receipt] += 1
        finally:
            self._settlements = [_settlement(pull, printed[pull.receipt]) for pull in pulls]

    def finish(self) -> None:
        if self._settlements:
            self._api.settle(self._subject, self._group, self._settlements)


def _run(session: _Session, write: Callable[[Received], None], most: int | None, follow: bool) -> None:
    left = most
    try:
        while left is None or left > 0:
            pulls = session.pull(_MOST if left is None else min(left, _MOST), _WAIT_SECONDS if follow else 0)
            if not pulls and not follow:
                return
            session.print(pulls, write)
            if left is not None:
                left -= sum(len(pull.messages) for pull in pulls)
    finally:
        session.finish()


def _settlement(pull: Pull, printed: int) -> Settlement:
    rest = list(range(printed, len(pull.messages)))
    return Settlement(receipt=pull.receipt, release=rest or None)


def _write_body(message: Received) -> None:
    write_body(message.body)
