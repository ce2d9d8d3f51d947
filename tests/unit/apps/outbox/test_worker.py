"""A relay sends, retries and refuses rows by the answers of the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from hourwheel import outbox
from hourwheel.apps.outbox.worker import Stopping
from hourwheel.client.errors import (
    AnswerError,
    BadRequest,
    Conflict,
    NotFound,
    ServerUnavailable,
    TooLarge,
    Unauthorized,
    from_answer,
)
from hourwheel.client.records.messages import Message
from tests.unit.apps.outbox.world import Application, Death, problem


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    with closing(Application(tmp_path)) as opened:
        yield opened


def test_rows_of_one_key_are_sent_in_the_order_of_their_commits(application: Application) -> None:
    application.send(*map(str, range(50)), key="one")
    application.drain(most_rows=7)
    assert application.bodies() == [str(number) for number in range(50)]


def test_rows_without_a_key_go_in_large_batches(application: Application) -> None:
    application.send(*map(str, range(90)))
    application.drain()
    assert max(count for _, _, count in application.queue.sent) > 40
    assert sorted(map(int, application.bodies())) == [*range(90)]


def test_a_batch_holds_about_a_mebibyte(application: Application) -> None:
    application.send(*["x" * 600_000] * 5, key="one")
    application.drain()
    assert [count for _, _, count in application.queue.sent] == [2, 2, 1]


def test_a_row_that_the_server_refuses_is_set_aside_with_the_reason_and_the_others_go_on(
    application: Application,
) -> None:
    def fault(_: str, messages: Sequence[Message], __: int) -> AnswerError | None:
        culprit = next((index for index, each in enumerate(messages) if each.body == "2"), None)
        if culprit is None:
            return None
        return BadRequest(problem(400, "field-invalid", f"messages[{culprit}].queue", "queues are numbered from 0"))

    application.queue.fault = fault
    application.send("1", "2", "3", key="one")
    application.drain()
    assert application.bodies() == ["1", "3"]
    (row,) = outbox.refused(application.connection)
    assert (row.body, row.key, row.reason) == ("2", "one", "400 field-invalid: queues are numbered from 0")


@pytest.mark.parametrize("error", [BadRequest(problem(400, "json-invalid")), TooLarge(problem(413, "batch-too-large"))])
def test_a_refusal_that_names_no_row_is_narrowed_down_to_one(application: Application, error: AnswerError) -> None:
    application.queue.fault = lambda _, messages, __: error if any(each.body == "13" for each in messages) else None
    application.send(*map(str, range(20)), key="one")
    application.drain()
    assert application.bodies() == [str(number) for number in range(20) if number != 13]
    assert [row.body for row in outbox.refused(application.connection)] == ["13"]


@pytest.mark.parametrize(
    "error", [Conflict(problem(409, "subject-read-only")), NotFound(problem(404, "subject-unknown"))]
)
def test_rows_of_a_subject_that_takes_none_wait_and_other_subjects_go_on(
    application: Application, error: AnswerError
) -> None:
    application.queue.fault = lambda subject, *_: error if subject == "closed" else None
    application.send("1", "2", subject="closed")
    application.send("3")
    worker = application.worker()
    for _ in range(9):  # a turn that sends nothing may leave the rows of another shard
        worker.turn()
    assert (application.bodies(), application.bodies("closed")) == (["3"], [])
    application.queue.fault = lambda *_: None
    application.clock.pass_time(6)
    while worker.turn():
        pass
    assert application.bodies("closed") == ["1", "2"]


def test_rows_that_were_sent_before_their_subject_was_deleted_are_done(application: Application) -> None:
    application.send("1")
    application.queue.fault = lambda *_: Conflict(problem(409, "subject-deleted"))
    application.drain()
    assert [application.rows(state) for state in (0, 1)] == [[], []]


@pytest.mark.parametrize("slug", ["sequence-passed", "sequence-undecided", "idempotency-key-reused"])
def test_rows_whose_number_is_in_doubt_are_set_aside_and_later_ones_go_on(application: Application, slug: str) -> None:
    """A database that was restored from a backup sends numbers that the server has seen."""
    application.send("0", key="one")
    application.drain()
    application.queue.fault = lambda *_: Conflict(problem(409, slug))
    application.send("1", key="one")
    application.drain()
    application.queue.fault = lambda *_: None
    application.send("2", key="one")
    application.drain()
    assert application.bodies() == ["0", "2"]
    assert "may have been sent" in outbox.refused(application.connection)[0].reason


def test_a_restored_database_goes_on_and_sends_nothing_twice(application: Application) -> None:
    application.send("0", "1", key="one")
    application.drain()
    application.connection.execute("UPDATE hourwheel_outbox_shard SET sequence = 0")
    application.connection.commit()
    application.send("2", key="one")
    application.drain()
    application.send("3", key="one")
    application.drain()
    assert application.bodies() == ["0", "1", "3"]
    assert [row.body for row in outbox.refused(application.connection)] == ["2"]


def test_damaged_bytes_of_a_row_are_set_aside(application: Application) -> None:
    application.send("1", "2", key="one")
    application.connection.execute("UPDATE hourwheel_outbox SET message = x'c1' WHERE id = 1")
    application.connection.commit()
    application.drain()
    assert application.bodies() == ["2"]
    assert [(row.id, row.reason) for row in outbox.refused(application.connection)] == [
        (1, "the message of the row cannot be read")
    ]


def test_refused_rows_are_sent_again_or_dropped_when_an_operator_says_so(application: Application) -> None:
    application.queue.fault = lambda *_: BadRequest(problem(400, "field-invalid"))
    application.send("1", "2", "3", key="one")
    application.drain()
    application.queue.fault = lambda *_: None
    ids = [row.id for row in outbox.refused(application.connection)]
    assert outbox.retry(application.connection, ids[:1]) == 1
    assert outbox.drop(application.connection, ids[1:2]) == 1
    assert outbox.retry(application.connection, [*ids[:2], 99]) == 0
    application.connection.commit()
    application.drain()
    assert application.bodies() == ["1"]
    status = outbox.status(application.connection)
    assert (status.waiting, status.refused, status.shards) == (0, 1, [])


def test_a_relay_that_stops_while_the_server_is_away_leaves_its_batch_to_the_next_one(
    application: Application,
) -> None:
    application.send("1", "2", key="one")
    first = application.worker()

    def fault(*_: object) -> AnswerError:
        first.stopping.set()
        return ServerUnavailable(problem(503, "unavailable"))

    application.queue.fault = fault
    with pytest.raises(Stopping):
        first.turn()
    status = outbox.status(application.connection)
    assert (status.waiting, [(shard.relay, shard.rows) for shard in status.shards]) == (2, [("relay", 2)])
    application.queue.fault = lambda *_: None
    assert application.worker().turn() == 2  # at once: the lease ended with the relay
    assert application.bodies() == ["1", "2"]
    assert {sequence for _, sequence, _ in application.queue.sent} == {1}


def test_a_relay_that_runs_once_gives_up_on_a_server_that_is_away(application: Application) -> None:
    """Cron starts it again: the rows wait, under the number that they have."""
    application.send("1")
    application.queue.fault = lambda *_: ServerUnavailable(problem(503, "unavailable"))
    with pytest.raises(outbox.ServerUnreachable, match="which wait"):
        application.worker(most_tries=3).turn()
    assert len(application.queue.sent) == 3
    application.queue.fault = lambda *_: None
    application.drain()
    assert application.bodies() == ["1"]


def test_a_wrong_token_sets_nothing_aside(application: Application) -> None:
    answers = iter([AnswerError(problem(401, "token-wrong")), AnswerError(problem(403, "token-read-only")), None])
    application.queue.fault = lambda *_: next(answers)
    application.send("1")
    application.drain()
    assert application.bodies() == ["1"]


def test_rows_of_a_subject_to_which_a_relay_may_not_send_wait_and_other_subjects_go_on(
    application: Application,
) -> None:
    refusal = Unauthorized(problem(403, "iam-refused"))
    application.queue.fault = lambda subject, *_: refusal if subject == "secret" else None
    application.send(*map(str, range(10)), subject="secret", key="one")
    application.send("x", "y", key="two")
    worker = application.worker(most_tries=2)
    while worker.is_waiting():
        worker.turn()
    assert application.bodies() == ["x", "y"]
    assert (worker.not_allowed, len(application.rows(0))) == (refusal, 10)


@pytest.mark.parametrize("status", [301, 400, 405])
def test_an_answer_that_is_not_of_hourwheel_sets_no_row_aside(application: Application, status: int) -> None:
    """A proxy that wants another scheme, or a wrong URL, says nothing of the rows."""
    answers = iter([from_answer(status, b"<html>go away</html>", retry_after=None), None])
    application.queue.fault = lambda *_: next(answers)
    application.send("1")
    application.drain()
    assert (application.bodies(), application.rows(1)) == (["1"], [])


def test_a_request_that_was_held_up_is_not_sent_again_under_another_number_while_it_may_take_effect(
    application: Application,
) -> None:
    """The first request has passed the check of the subject when this becomes read-only, and is stored later."""
    held_up: list[Message] = []

    def fault(subject: str, messages: Sequence[Message], sequence: int) -> AnswerError | None:
        application.clock.pass_time(4)
        requests = len(application.queue.sent)
        if requests == 1:
            held_up.extend(messages)
            return ServerUnavailable(problem(504, "gateway-error"), sent=True)
        if requests == 4:
            application.queue.fault = lambda *_: None
            application.queue.produce(subject, held_up, idempotency_key=_sender(application), sequence=1)
        return Conflict(problem(409, "subject-read-only")) if requests < 6 else None

    application.queue.fault = fault
    application.send("1", key="one")
    worker = application.worker()
    while worker.turn() or application.rows(0):
        application.clock.pass_time(6)
    assert application.bodies() == ["1"]


@pytest.mark.parametrize("refusal", [409, 404], ids=["read-only", "not there"])
def test_a_relay_that_takes_over_knows_of_the_request_that_is_under_way(application: Application, refusal: int) -> None:
    """The relay before has sent the rows and dies. Its request is stored after the server has refused the same rows to
    the relay that takes over: under another number they would be stored twice."""
    held_up: list[Message] = []

    def fault(subject: str, messages: Sequence[Message], sequence: int) -> AnswerError | None:
        requests = len(application.queue.sent)
        if requests == 1:
            held_up.extend(messages)
            raise Death
        application.clock.pass_time(4)
        if requests == 4:
            application.queue.fault = lambda *_: None
            application.queue.produce(subject, held_up, idempotency_key=_sender(application), sequence=1)
        return refused if requests < 6 else None

    kind, slug = (Conflict, "subject-read-only") if refusal == 409 else (NotFound, "subject-unknown")
    refused = kind(problem(refusal, slug))
    application.queue.fault = fault
    application.send("1", key="one")
    with pytest.raises(Death):
        application.worker().turn()
    application.clock.pass_time(16)  # the lease of the relay that died is over
    second = application.worker()
    while second.turn() or application.rows(0):
        application.clock.pass_time(6)
    assert application.bodies() == ["1"]
    assert {sequence for _, sequence, _ in application.queue.sent} == {1}


def test_a_refusal_counts_once_no_earlier_request_can_take_effect(application: Application) -> None:
    def fault(subject: str, *_: object) -> AnswerError | None:
        application.clock.pass_time(4)
        if len(application.queue.sent) == 1:
            return ServerUnavailable(problem(504, "gateway-error"), sent=True)
        return Conflict(problem(409, "subject-read-only")) if subject == "closed" else None

    application.queue.fault = fault
    application.send("1", subject="closed", key="one")
    application.send("2", key="one")
    worker = application.worker(most_tries=3)
    while worker.is_waiting():
        worker.turn()
    assert (application.bodies(), len(application.rows(0))) == (["2"], 1)


def _sender(application: Application) -> str:
    ((sender,),) = application.connection.execute("SELECT sender FROM hourwheel_outbox_shard WHERE batch IS NOT NULL")
    return str(sender)


def test_rows_that_were_sent_are_kept_as_long_as_asked(application: Application) -> None:
    application.send("1")
    worker = application.drain(keep_ms=86_400_000)
    assert application.rows(2) == [1]
    worker.shards.remove_sent(application.clock.now_ms() + 86_399_999)
    assert outbox.status(application.connection).kept == 1
    worker.shards.remove_sent(application.clock.now_ms() + 86_400_000)
    assert application.rows(2) == []


def test_each_shard_has_its_turn_while_one_has_a_backlog(application: Application) -> None:
    application.send(*map(str, range(40)), key="one")
    application.send("other", key="two")
    worker = application.worker(most_rows=1)
    worker.turn()
    worker.turn()
    assert "other" in application.bodies()


def test_two_relays_with_one_name_do_not_meet(application: Application) -> None:
    application.send(*map(str, range(20)), key="one")
    application.send(*map(str, range(20, 40)), key="two")
    workers = [application.worker(most_rows=3) for _ in range(2)]
    while sum(worker.turn() for worker in workers):
        pass
    assert sorted(map(int, application.bodies())) == [*range(40)]
