"""Sends messages of the lake to a subject again: each once, also when the job is stopped and run again.

The job sends the messages in chunks, in a stable order. It records each chunk before it sends it, and again once the
server has confirmed it. So a run that continues finds at most one chunk of which it does not know whether it arrived.
While the server remembers the chunk's idempotency key (10 minutes), the run sends the chunk again under that key. Later
it looks for the messages on the server by their ids, which the replay has chosen, and sends those that are missing. If
the server cannot tell any more, because the messages may have expired or the job may not read them, the job stops and
says so: then the option ``assume`` decides.

Messages get new ids, because they are sent anew: consumers that remember ids handle them again.
"""

from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC

import msgspec
from pyspark.sql import DataFrame, SparkSession

from hourwheel.client import Api, ServerUnavailable
from hourwheel.errors import Broken, Conflict, Rejected, Unavailable
from hourwheel.model.fields import BATCH_MESSAGES, IDEMPOTENCY_MS
from hourwheel.ports.machine import Clock, Ids
from hourwheel.system import SystemClock, SystemIds
from hourwheel_pipeline.lake.locations import blobs_at
from hourwheel_pipeline.lake.schemas import MESSAGES
from hourwheel_pipeline.replaying.chunks import ReplayChunk, ReplayChunks
from hourwheel_pipeline.replaying.options import ReplayOptions
from hourwheel_pipeline.replaying.probe import ReplayServer, stored
from hourwheel_pipeline.replaying.progress import Done, ReplayPlan, ReplayProgress, SendAttempt
from hourwheel_pipeline.replaying.selection import Totals, in_order, selected, totals_of
from hourwheel_pipeline.runs.progress import stage
from hourwheel_pipeline.runs.words import counted

__all__ = ["ReplayOptions", "ReplayReport", "run"]

# The limit of the API.
_MOST_HEADERS = 32
_MARGIN_MS = 60_000
"""A run does not rely on a key in the last minute before the server forgets it: clocks differ."""


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``replay``: the ``messages`` and ``bytes`` that it covers, and the messages of each day. Earlier
    runs sent ``before`` of them, this one ``sent``; ``found`` were on the server already, from a chunk without an
    answer.

    Example:
        >>> options = replay.ReplayOptions(lake="orders-data/lake", name="again", subject="orders", dry_run=True)
        >>> replay.run(spark, options).sent
        0
    """

    name: str
    messages: int
    bytes: int
    days: dict[str, int]
    before: int = 0
    sent: int = 0
    found: int = 0


class Undecided(Conflict):
    """The job cannot find out whether a chunk was stored: the option ``assume`` decides."""


def run(spark: SparkSession, options: ReplayOptions) -> ReplayReport:
    """Sends messages of the lake to a subject again, each once. A run after an error continues where it stopped.

    Raises:
        Unavailable: the server does not answer.
        Undecided: the job cannot find out whether a chunk was stored: the option ``assume`` decides.
        Conflict: the name stands for another replay.
        Rejected: ``where`` is no condition on the table, or the lake has no such subject.

    Example:
        >>> options = replay.ReplayOptions(lake="orders-data/lake", name="again", subject="orders", dry_run=True)
        >>> replay.run(spark, options).messages
        3
    """
    if options.url is None:
        return Replay(spark, options, None, SystemClock(), SystemIds()).run()
    with Api(options.url, token=options.token, sign=options.sign, region=options.region) as api:
        return Replay(spark, options, api, SystemClock(), SystemIds()).run()


@dataclass
class Replay:
    """One run of the job. Without a ``server`` the run only counts."""

    spark: SparkSession
    options: ReplayOptions
    server: ReplayServer | None
    clock: Clock
    ids: Ids
    _sent: int = 0
    _stored: int = 0
    _runner: str = field(init=False)
    _progress: ReplayProgress = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        self._runner = self.ids.token().hex()
        self._progress = ReplayProgress(blobs_at(options.lake, options.region, options.endpoint_url), options.name)

    def run(self) -> ReplayReport:
        earlier = self._progress.plan()
        selection, last_manifest = self._selected(earlier)
        totals, before = totals_of(selection), 0
        if self.server is not None and not self.options.dry_run:
            if self.options.header is not None and totals.headers >= _MOST_HEADERS:
                raise Rejected("header-too-many", f"a message has {totals.headers} headers already", field="header")
            plan = earlier or self._progress.begin(self._plan(totals, last_manifest))
            self._check(plan, totals, last_manifest)
            before = self._send_all(self.server, plan, selection, totals)
        return ReplayReport(
            name=self.options.name,
            messages=totals.messages,
            bytes=totals.bytes,
            days=dict(totals.days),
            before=before,
            sent=self._sent,
            found=self._stored,
        )

    def _selected(self, plan: ReplayPlan | None) -> tuple[DataFrame, int]:
        """Returns the selected rows, and the last manifest whose rows count: that of the plan, if an earlier run began
        the replay."""
        options = self.options
        with closing(options.open_lake()) as lake:
            last_manifest = lake.last_manifest(MESSAGES) if plan is None else plan.last_manifest
            since = options.since.astimezone(UTC).date() if options.since else None
            return selected(lake.read(self.spark, MESSAGES, since=since), options, last_manifest), last_manifest

    def _plan(self, totals: Totals, last_manifest: int) -> ReplayPlan:
        return ReplayPlan(
            unique=self.ids.unique(self.clock.now_ms()),
            identity=self.options.identity,
            last_manifest=last_manifest,
            messages=totals.messages,
            bytes=totals.bytes,
        )

    def _check(self, plan: ReplayPlan, totals: Totals, last_manifest: int) -> None:
        name = self.options.name
        if plan.identity != self.options.identity or plan.last_manifest != last_manifest:
            raise Conflict("replay-other", f"replay {name!r} was begun as {plan.identity}: take another name")
        if (plan.messages, plan.bytes) != (totals.messages, totals.bytes):
            raise Broken(
                f"replay {name!r} was begun with {plan.messages} messages of {plan.bytes} bytes, the lake has"
                f" {totals.messages} of {totals.bytes} now: what is missing or was added cannot be told apart from what"
                " was sent"
            )

    def _send_all(self, server: ReplayServer, plan: ReplayPlan, selection: DataFrame, totals: Totals) -> int:
        """Sends all chunks that earlier runs have not sent. Returns the number of messages that they have sent."""
        number, done = self._progress.last()
        total = before = done.total if done else 0
        if before == totals.messages:
            return before
        stage("replay", f"sends {counted(totals.messages - before, 'message')}")
        rows = in_order(selection, totals, done.last if done else None)
        chunks = ReplayChunks(plan.unique, self.options.header, rows)
        began_ms = self.clock.now_ms()
        attempts = self._progress.attempts(number)
        while chunk := chunks.take(number, attempts[-1].messages if attempts else self._most):
            sent = self._send(server, plan, chunk, attempts)
            total += len(chunk.messages)
            self._sent += sent
            self._stored += len(chunk.messages) - sent
            self._progress.done(number, Done(total=total, last=chunk.last))
            self._rest(began_ms)
            number, attempts = number + 1, []
        if total != totals.messages:
            raise Broken(f"of {totals.messages} messages {total} were found: is the lake being changed?")
        return before

    @property
    def _most(self) -> int:
        """Returns the most messages of a chunk: those of one second if there is a rate."""
        rate = self.options.rate
        return BATCH_MESSAGES if rate is None else max(1, min(BATCH_MESSAGES, int(rate)))

    def _rest(self, began_ms: int) -> None:
        """Sleeps until the rate allows the messages that were sent since ``began_ms``."""
        if self.options.rate is not None:
            wait_ms = began_ms + self._sent / self.options.rate * 1_000 - self.clock.now_ms()
            if wait_ms > 0:
                self.clock.sleep(wait_ms / 1_000)

    def _send(self, server: ReplayServer, plan: ReplayPlan, chunk: ReplayChunk, attempts: list[SendAttempt]) -> int:
        """Stores the chunk on the server once. Returns the number of messages that had to be sent. ``attempts``: those
        of earlier runs."""
        indexes = tuple(range(len(chunk.messages)))
        if attempts:
            last = attempts[-1]
            if last.digest != chunk.digest:
                raise Broken(f"chunk {chunk.number} of replay {self.options.name!r} has other messages than before")
            retry_ms = round(self.options.retry_seconds * 1_000)
            if self.clock.now_ms() + retry_ms <= last.at_ms + IDEMPOTENCY_MS - _MARGIN_MS:
                # Under the key of the last attempt the server stores the messages only if it has not stored them yet.
                self._produce(server, plan, chunk, last.indexes, len(attempts) - 1)
                return len(last.indexes)
            indexes = self._missing(server, plan, chunk, attempts)
        if indexes:
            self._attempt(chunk, indexes, len(attempts))
            self._produce(server, plan, chunk, indexes, len(attempts))
        return len(indexes)

    def _attempt(self, chunk: ReplayChunk, indexes: tuple[int, ...], number: int) -> None:
        attempt = SendAttempt(
            runner=self._runner,
            at_ms=self.clock.now_ms(),
            messages=len(chunk.messages),
            digest=chunk.digest,
            indexes=indexes,
        )
        if self._progress.attempt(chunk.number, number, attempt) != attempt:
            raise Conflict("replay-running", f"replay {self.options.name!r} is being sent by another run as well")

    def _missing(
        self, server: ReplayServer, plan: ReplayPlan, chunk: ReplayChunk, attempts: list[SendAttempt]
    ) -> tuple[int, ...]:
        """Returns the indexes of the messages that the server lacks. Raises ``Undecided``."""
        ids = [message.id or "" for message in chunk.messages]
        present = stored(
            server,
            self.options.target,
            f"replay-{plan.unique}-{self._runner}",
            ids,
            since_ms=attempts[0].at_ms,
            until_ms=attempts[-1].at_ms,
            now_ms=self.clock.now_ms(),
        )
        if present is None and self.options.assume is None:
            raise Undecided(
                "replay-undecided",
                f"chunk {chunk.number} of replay {self.options.name!r}, with the messages {ids[0]} to {ids[-1]}, was"
                " sent, and nobody knows whether it arrived; the server cannot tell any more: run again with"
                " assume=sent or assume=unsent",
            )
        if present is None:
            present = set(ids) if self.options.assume == "sent" else set()
        return tuple(index for index, name in enumerate(ids) if name not in present)

    def _produce(
        self, server: ReplayServer, plan: ReplayPlan, chunk: ReplayChunk, indexes: tuple[int, ...], number: int
    ) -> None:
        try:
            server.produce(
                self.options.target,
                [chunk.messages[index] for index in indexes],
                idempotency_key=f"{plan.unique}-{chunk.number}-{number}",
                retry_seconds=self.options.retry_seconds,
            )
        except ServerUnavailable as error:
            raise Unavailable(
                f"chunk {chunk.number} was not accepted within {self.options.retry_seconds:g} s, and may be stored or"
                f" not: run the replay again, within minutes if possible: {error}"
            ) from error
