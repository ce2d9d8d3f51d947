"""Sends the rows of an outbox, one shard at a time.

A turn of a worker: lease a shard, and record the ids of its first rows in the shard (a *recorded batch*). Then send the
rows, one request for each subject, under the sender and the sequence of the shard; remove them and record the next
ones. The batch is recorded before it is sent and its number is used for no other rows. So a worker that takes over
sends the same requests again, and the server stores each of them once (docs/decisions/0033).
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hourwheel.apps.outbox.errors import ServerUnreachable
from hourwheel.apps.outbox.shards import BatchOutcome, LeaseLost, OutboxRow, RecordedBatch, RelaySelection, Shards
from hourwheel.client.errors import (
    AnswerError,
    BadRequest,
    Conflict,
    NotFound,
    ServerUnavailable,
    TooLarge,
    Unauthorized,
)
from hourwheel.client.records.messages import Message, SendResult
from hourwheel.client.transport.backoff import pause_seconds
from hourwheel.locks import Event
from hourwheel.ports.machine import Clock, Ids
from hourwheel.wire.words import shown

logger = logging.getLogger("hourwheel.outbox")

MOST_ROWS = 500  # half of the messages that a request may have; more would only keep a shard leased for longer
_BATCHES = 8  # of one shard in a row: then the shard that has waited longest has its turn
_REST_MS = 5_000  # the pause of a subject that takes no messages, such as a read-only one
_IN_FLIGHT_MS = 60_000  # a request without an answer takes effect within this time: API Gateway ends it after 30 s
_CULPRIT = re.compile(r"messages\[(\d+)\]")  # the field of a problem, which names the refused message
_DAMAGED = "the message of the row cannot be read"
_UNDECIDED = {"sequence-passed", "sequence-undecided", "idempotency-key-reused"}  # refuse the number, not the rows
_NOT_ALLOWED = {"iam-refused", "forbidden"}  # from API Gateway, whose policies may allow some subjects only


class ProduceApi(Protocol):
    """Declares the one call of ``Api`` that a relay makes."""

    def produce(
        self,
        subject: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        sequence: int | None = None,
        repeated: bool = False,
        retry_seconds: float | None = None,
    ) -> list[SendResult]: ...


class Stopping(Exception):
    """Says that the worker stops before the server has answered about a batch: the next worker sends it again."""


@dataclass
class _Decided:
    """Collects the answers of the server about the rows of a batch."""

    sent: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    undecided: bool = False

    def outcome(self) -> BatchOutcome:
        return BatchOutcome(sent=self.sent, refused=self.refused, undecided=self.undecided)


@dataclass
class Worker:
    """Sends rows on one thread, with a connection of its own. ``stopping`` ends its pauses. After ``most_tries``
    requests without an answer it raises ``ServerUnreachable``; with None it goes on until it is stopped."""

    shards: Shards
    queue: ProduceApi
    clock: Clock
    ids: Ids
    stopping: Event
    most_rows: int = MOST_ROWS
    most_tries: int | None = None
    not_allowed: AnswerError | None = None
    """The last answer by which the gateway refused rows of a subject."""
    _rows: int = field(init=False)
    _rest_until_ms: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rows = self.most_rows

    def is_waiting(self) -> bool:
        """Returns whether a turn may find rows to send."""
        now_ms = self.clock.now_ms()
        return self.shards.is_waiting(now_ms, self._resting(now_ms))

    def turn(self) -> int:
        """Sends up to ``_BATCHES`` batches of one shard. Returns the number of rows that were sent or refused: 0 if no
        shard had rows, or if the rows wait for a server that takes none of them now. Raises ``Stopping``,
        ``ServerUnreachable`` and the errors of the database."""
        if not self.is_waiting():
            return 0
        now_ms = self.clock.now_ms()
        batch = self.shards.claim(now_ms, self._selection())
        if batch is None:
            return 0
        settled = 0
        try:
            for outcome in self._outcomes(batch):
                settled += len(outcome.sent) + len(outcome.refused)
        except (Stopping, ServerUnreachable):
            self.shards.release(batch.shard)  # otherwise the next relay would wait for the end of the lease
            raise
        except LeaseLost:
            logger.warning("another relay has taken over a shard of the outbox: this one was paused or out of reach")
        return settled

    def _outcomes(self, batch: RecordedBatch | None) -> Iterator[BatchOutcome]:
        """Sends the batches of a shard, up to ``_BATCHES`` from this one on, and yields what became of the rows of
        each."""
        for left in reversed(range(_BATCHES)):
            if batch is None or not batch.rows:
                return
            outcome = self._send(batch).outcome()
            yield outcome
            following = None if left == 0 or self.stopping.is_set() else self._selection()
            batch = self.shards.finish(batch, outcome, self.clock.now_ms(), following)
            for row, reason in outcome.refused:
                logger.error("row %d of the outbox is set aside: %s", row, shown(reason))

    def _selection(self) -> RelaySelection:
        return RelaySelection(rows=self._rows, resting=self._resting(self.clock.now_ms()))

    def _resting(self, now_ms: int) -> set[str]:
        self._rest_until_ms = {subject: until for subject, until in self._rest_until_ms.items() if until > now_ms}
        return set(self._rest_until_ms)

    def _send(self, batch: RecordedBatch) -> _Decided:
        decided = _Decided()
        by_subject: dict[str, list[tuple[OutboxRow, Message]]] = {}
        for row in batch.rows:
            if row.message is None:
                decided.refused.append((row.id, _DAMAGED))
            else:
                by_subject.setdefault(row.subject, []).append((row, row.message))
        for subject, rows in by_subject.items():
            self._send_subject(batch, subject, rows, decided)
        return decided

    def _send_subject(
        self, batch: RecordedBatch, subject: str, rows: Sequence[tuple[OutboxRow, Message]], decided: _Decided
    ) -> None:
        """Sends the rows of one subject until the server accepts or refuses them."""
        ids = [row.id for row, _ in rows]
        try:
            self._until_answered(batch, subject, [message for _, message in rows])
        except AnswerError as error:
            self._refused(error, subject, ids, decided)
        else:
            decided.sent += ids
            self._rows = min(self._rows * 2, self.most_rows)

    def _until_answered(self, batch: RecordedBatch, subject: str, messages: Sequence[Message]) -> None:
        """Repeats the request until the server has stored it. Raises ``AnswerError`` once the server has refused it for
        certain, and ``LeaseLost``, ``Stopping`` or ``ServerUnreachable`` before that."""
        attempt = 0
        # The time of the last try without an answer: the server may have stored it, or may do so later.
        open_ms = self.clock.now_ms() if batch.tried else None
        while True:
            try:
                self.queue.produce(
                    subject,
                    messages,
                    idempotency_key=batch.sender,
                    sequence=batch.sequence,
                    repeated=open_ms is not None,
                    retry_seconds=0,
                )
                if attempt:
                    logger.info("the server takes rows of the outbox again")
                return
            except AnswerError as error:
                if _is_certain(error, self._in_flight(open_ms), tried=open_ms is not None):
                    raise
                if _may_be_stored(error):
                    open_ms = self.clock.now_ms()
                if self._gives_up(error, attempt):
                    raise unreachable(error) from error
                # The server does not answer, or fails, or the token is wrong. Only an outage that lasts is logged
                # twice.
                if attempt in {0, 5}:
                    logger.warning("the server does not take rows of the outbox, which wait: %s", shown(str(error)))
                pause = error.retry_after_seconds if isinstance(error, ServerUnavailable) else 0.0
            self._pause(pause_seconds(attempt, self.ids, at_least_seconds=pause))
            attempt += 1
            self.shards.renew(batch.shard, self.clock.now_ms())

    def _in_flight(self, open_ms: int | None) -> bool:
        """Returns whether an earlier try may still take effect."""
        return open_ms is not None and self.clock.now_ms() < open_ms + _IN_FLIGHT_MS

    def _gives_up(self, error: AnswerError, attempt: int) -> bool:
        """Returns whether the worker has used up its tries. A refusal is repeated in any case: it becomes certain as
        soon as no earlier try can take effect."""
        is_refusal = isinstance(error, Conflict | NotFound)
        return self.most_tries is not None and attempt + 1 >= self.most_tries and not is_refusal

    def _pause(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise Stopping

    def _refused(self, error: AnswerError, subject: str, ids: Sequence[int], decided: _Decided) -> None:
        """Records the outcome for the rows of a refused request: nothing of it was stored, unless its number is in
        doubt."""
        reason = f"{error.status} {error.slug}: {error}"
        if error.slug == "subject-deleted":
            # The request came before the subject was deleted: its messages were stored, and went with the subject.
            decided.sent += ids
        elif error.slug in _UNDECIDED:
            # The database or the server was restored from a backup. A relay that was overtaken gets this answer too,
            # but has lost its lease and changes nothing.
            decided.undecided = True
            reason += " (the message may have been sent: look before you retry it)"
            decided.refused += [(row_id, reason) for row_id in ids]
        elif isinstance(error, BadRequest | TooLarge) and error.slug != "name-invalid":
            culprit = _culprit(error, ids)
            if culprit is not None:
                decided.refused.append((culprit, reason))
            else:
                self._rows = max(1, len(ids) // 2)  # the rows wait: a smaller batch finds the culprit
        else:
            if isinstance(error, Unauthorized):
                self.not_allowed = error
            logger.warning(
                "the subject %s takes no messages for now, its rows wait: %s", shown(subject), shown(str(error))
            )
            self._rest_until_ms[subject] = self.clock.now_ms() + _REST_MS


def unreachable(error: AnswerError) -> ServerUnreachable:
    return ServerUnreachable(f"the server does not take the rows of the outbox, which wait: {error}")


def _culprit(error: AnswerError, ids: Sequence[int]) -> int | None:
    """Returns the row for which a request with these rows was refused; None if the answer does not name it."""
    if len(ids) == 1:
        return ids[0]
    named = _CULPRIT.match(error.problem.field or "")
    return None if named is None else dict(enumerate(ids)).get(int(named[1]))


def _may_be_stored(error: AnswerError) -> bool:
    """Returns whether the server may have stored a request with this answer, or may store it later."""
    if isinstance(error, ServerUnavailable):
        return error.sent
    return not isinstance(error, Conflict | NotFound | Unauthorized)


def _is_certain(error: AnswerError, in_flight: bool, *, tried: bool) -> bool:
    """Returns whether an answer decides about the rows: this request was not stored, and no earlier try will be."""
    if isinstance(error, TooLarge) or error.slug in _UNDECIDED or error.slug == "subject-deleted":
        return True
    if isinstance(error, BadRequest):
        return error.is_ours  # a proxy, or another server at this URL, knows nothing of the rows
    if isinstance(error, Unauthorized):
        # The gateway refuses a request before the server can look for an earlier try.
        return error.slug in _NOT_ALLOWED and not tried
    return isinstance(error, Conflict | NotFound) and not in_flight
