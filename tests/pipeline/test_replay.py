"""Replays one lake, each time to another cell."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from hourwheel.cells.requests import shown_route
from hourwheel.client import BadRequest, Message, NotFound, Pulled, SendResult, ServerUnavailable
from hourwheel.client.errors import Problem, Unauthorized, problem_of
from hourwheel.client.records.messages import on_the_wire
from hourwheel.client.records.subjects import Subject
from hourwheel.dead_letters.dead_rows import dead_id_of
from hourwheel.errors import Broken, Conflict, Rejected, Unavailable
from hourwheel.errors import NotFound as Missing
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from hourwheel.model.route_records import SubjectRoute
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.system import SystemIds
from hourwheel_pipeline.jobs import replay
from hourwheel_pipeline.jobs.job_names import Job
from hourwheel_pipeline.jobs.replay import Replay, ReplayReport, Undecided
from hourwheel_pipeline.replaying import selection
from hourwheel_pipeline.replaying.options import ReplayOptions
from hourwheel_pipeline.replaying.probe import stored
from hourwheel_pipeline.runs.session import session
from tests.integration.process import Server, bodies, pull
from tests.pipeline.worlds import World
from tests.support import NOON_MS, Bench, HandClock

HOUR = 3_600
NAMES = iter(range(1_000))


@dataclass
class CellServer:
    """Serves the API of a cell in this process. Fails the ``fails``-th batch, before or after it is stored."""

    bench: Bench
    fails: int = 0
    after: bool = False
    batches: list[int] = field(default_factory=list)
    blind: bool = False
    """Nobody may read."""
    asked: list[str] = field(default_factory=list)
    """By these groups."""

    def produce(self, subject: str, messages: Sequence[Message], **how: Any) -> list[SendResult]:
        sent = [on_the_wire(message) for message in messages]
        digest = blake2b(msgspec.json.encode(sent), digest_size=16).digest()
        self.batches.append(len(messages))
        if self.fails == len(self.batches) and not self.after:
            raise ServerUnavailable(Problem(detail="no answer"))
        new = [msgspec.convert(msgspec.to_builtins(message), NewMessage) for message in sent]
        self.bench.deployment.produce(subject, new, IdempotencyKey(how["idempotency_key"], digest))
        if self.fails == len(self.batches):
            raise ServerUnavailable(Problem(detail="no answer"))
        return []

    def get_subject(self, subject: str) -> Subject:
        if self.blind:
            raise Unauthorized(Problem(status=403))
        try:
            found = self.bench.deployment.subjects.get(subject)
        except Missing:
            raise NotFound(problem_of("subject-unknown", "there is no subject", status=404)) from None
        return Subject(
            subject=subject,
            queues=found.queues,
            retention_seconds=found.retention_seconds,
            created_at=datetime.fromtimestamp(found.created_ms / 1_000, UTC),
        )

    def get_route(self, subject: str) -> SubjectRoute:
        return shown_route(self.bench.deployment.subjects.get(subject))

    def put_group(self, subject: str, group: str, *, start: Any = None) -> None:
        self.asked.append(group)
        self.bench.deployment.groups.put(subject, group, start=start)

    def seek(self, subject: str, group: str, to: Any) -> None:
        self.bench.deployment.seeks().seek_time(subject, group, round(to.timestamp() * 1_000))

    def pull(self, subject: str, group: str, consumer: str, **how: Any) -> Pulled:
        request = PullRequest(consumer=consumer, max_messages=how["max_messages"], settle=list(how["settle"]))
        return msgspec.json.decode(
            msgspec.json.encode(self.bench.deployment.pull(subject, group, request)), type=Pulled
        )

    def delete_group(self, subject: str, group: str) -> None:
        self.bench.deployment.groups.delete(subject, group)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a lake with three days of ``orders`` in two queues, and dead letters of ``billing``, of which one was
    redriven."""
    world = World(tmp_path_factory.mktemp("replay"))
    bench = world.bench
    bench.deployment.subjects.put("orders", queues=2)
    for day in range(3):
        for at in range(20):
            tags = ["even"] if at % 2 == 0 else ["odd", "late"]
            message = NewMessage(body=f"{day}-{at}", key=f"k{at % 5}", tags=tags, id=f"id-{day}-{at}")
            bench.deployment.produce("orders", [message])
            bench.clock.pass_time(60)
        bench.clock.pass_time(24 * HOUR - 20 * 60)
    bench.deployment.produce(
        "others", [NewMessage(body_base64=b"\xff\x00", headers={"h": "1"}), NewMessage(body="plain")]
    )
    bench.clock.pass_time(-60)
    bench.send("by a clock that is behind", subject="others")
    bench.clock.pass_time(60)
    for _ in range(2):
        bench.send("dead", "redriven", "fine", subject="bills")
        bench.clock.pass_time(5)
    (pulled,) = bench.pull(subject="bills")
    bench.settle(pulled, subject="bills", dead=[0, 1, 4])
    bench.clock.pass_time(5)
    second = bench.deployment.dead_letters("bills", "billing").page(after=None, limit=10).messages[1].dead_id
    bench.deployment.dead_letters("bills", "billing").redrive(lambda position, _: dead_id_of(position) == second)
    world.acknowledge("bills", "billing")
    world.archived()
    world.compacted(spark)
    return world.lake


@pytest.fixture
def server() -> CellServer:
    return CellServer(Bench(clock=HandClock(NOON_MS + 100 * 86_400_000)))


@dataclass
class Runs:
    """Runs of one replay."""

    spark: SparkSession
    server: CellServer
    given: dict[str, Any]

    def run(self, **how: Any) -> ReplayReport:
        options = ReplayOptions(**{"url": "http://here", **self.given, **how})
        return Replay(self.spark, options, self.server, self.server.bench.clock, SystemIds()).run()

    def arrived(self, subject: str = "again") -> list[str | None]:
        """Returns the messages of the subject, in their order."""
        return [one.body for one in self.server.bench.take(1_000, subject=subject, group="look")]

    @property
    def once(self) -> bool:
        """Returns whether each message is there once."""
        return Counter(self.arrived()) == Counter(f"{day}-{at}" for day in range(3) for at in range(20))


@pytest.fixture
def runs(spark: SparkSession, lake: str, server: CellServer) -> Runs:
    return Runs(spark, server, {"lake": lake, "name": f"r{next(NAMES)}", "subject": "orders", "to": "again"})


def moment(day: int, minutes: int = 0) -> datetime:
    return datetime.fromtimestamp(NOON_MS / 1_000 + day * 24 * HOUR + minutes * 60, UTC)


def test_a_dry_run_counts_and_sends_nothing(runs: Runs) -> None:
    report = runs.run(dry_run=True)
    assert report.days == {"2025-11-20": 20, "2025-11-21": 20, "2025-11-22": 20}
    size = sum(len(f"{day}-{at}k0") + len("even" if at % 2 == 0 else "oddlate") for day in range(3) for at in range(20))
    assert (report.messages, report.bytes, report.sent) == (60, size, 0)
    assert runs.server.batches == []
    assert runs.run().sent == 60


def test_messages_arrive_once_in_their_order_with_ids_of_their_own(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_PARTITION_BYTES", 100)
    assert runs.run(header="was").sent == 60
    found = runs.server.bench.take(1_000, subject="again", group="look")
    assert [one.body for one in found] == [f"{day}-{at}" for day in range(3) for at in range(20)]
    first = found[0]
    assert (first.key, first.tags, first.headers) == ("k0", ["even"], {"was": "id-0-0"})
    assert len({one.id for one in found} - {f"id-0-{at}" for at in range(20)}) == 60
    assert runs.run(header="was").before == 60
    assert runs.server.batches == [60]


def test_bytes_and_headers_are_sent_as_they_were(runs: Runs) -> None:
    runs.run(subject="others")
    found = runs.server.bench.take(subject="again")
    assert [(one.body, one.body_base64, one.headers) for one in found] == [
        (None, b"\xff\x00", {"h": "1"}),
        ("plain", None, None),
        ("by a clock that is behind", None, None),
    ]


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({"since": moment(1), "until": moment(1, 3)}, {"1-0", "1-1", "1-2"}),
        ({"since": moment(2), "keys": ("k1", "k2"), "tags": ("odd",)}, {"2-1", "2-7", "2-11", "2-17"}),
        (
            {"where": "body like '0-1%' and array_contains(tags, 'late')"},
            {"0-1", *(f"0-1{at}" for at in (1, 3, 5, 7, 9))},
        ),
        ({"where": "queue = 7"}, set()),
    ],
)
def test_the_selected_messages_are_sent(runs: Runs, which: dict[str, Any], expected: set[str]) -> None:
    report = runs.run(**which)
    assert report.messages == report.sent == len(expected)
    assert set(runs.arrived()) == expected


@pytest.mark.parametrize("where", ["body like", "price > 3", "row + 1"])
def test_a_condition_that_is_none_is_named_and_nothing_else_is_written(
    runs: Runs, where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    session("replay", log_level="ERROR")
    with pytest.raises(Rejected, match="where is no condition on messages: ") as refused:
        runs.run(where=where)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr().err == ""


def test_dead_letters_of_a_group_are_sent_but_for_those_that_were_redriven(runs: Runs) -> None:
    assert runs.run(subject="bills", dead_of="billing").sent == 2
    assert runs.arrived() == ["dead", "redriven"]


def test_a_rate_is_kept(runs: Runs) -> None:
    before_ms = runs.server.bench.clock.now_ms()
    runs.run(rate=10)
    assert runs.server.batches == [10] * 6
    assert runs.server.bench.clock.now_ms() - before_ms == 6_000


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("later", [60, 11 * 60])
def test_a_replay_that_is_cut_off_goes_on_and_sends_each_message_once(runs: Runs, later: int, after: bool) -> None:
    runs.server.fails, runs.server.after = 3, after
    with pytest.raises(Unavailable, match="run the replay again"):
        runs.run(rate=20, retry_seconds=0)
    runs.server.bench.clock.pass_time(later)
    report = runs.run(rate=20)
    assert report.before == 40
    assert report.sent + report.found == 20
    assert runs.once
    assert [group.name for group in runs.server.bench.deployment.groups.page("again")[0]] == ["look"]


def test_of_a_chunk_that_is_there_in_part_the_rest_is_sent(runs: Runs) -> None:
    runs.server.fails = 1
    with pytest.raises(Unavailable):
        runs.run()
    server = runs.server
    sent = sent_of(runs)
    server.bench.deployment.subjects.put("again", queues=2)
    server.bench.deployment.produce("again", sent[:25])
    server.bench.clock.pass_time(11 * 60)
    report = runs.run()
    assert (report.found, report.sent) == (25, 35)
    assert runs.once
    (asked,) = server.asked
    assert re.fullmatch(r"replay-[0-9a-f]{28}-[0-9a-f]{32}", asked)  # of this replay, and of this run of it alone


def sent_of(runs: Runs) -> list[NewMessage]:
    """Returns the messages that a run without failure sends."""
    kept: list[NewMessage] = []

    class Listening(CellServer):
        def produce(self, subject: str, messages: Sequence[Message], **how: Any) -> list[SendResult]:
            kept.extend(msgspec.convert(msgspec.to_builtins(on_the_wire(one)), NewMessage) for one in messages)
            raise ServerUnavailable(Problem(detail="no answer"))

    server = runs.server
    runs.server = Listening(server.bench)
    with pytest.raises(Unavailable):
        runs.run()
    runs.server = server
    return kept


@pytest.mark.parametrize(("assumed", "there"), [("sent", 0), ("unsent", 60)])
def test_a_chunk_whose_fate_is_unknown_needs_the_decision_of_an_operator(runs: Runs, assumed: str, there: int) -> None:
    runs.server.fails = 1
    with pytest.raises(Unavailable):
        runs.run()
    runs.server.bench.clock.pass_time(11 * 60)
    runs.server.blind = True
    with pytest.raises(Undecided, match="assume=sent or assume=unsent"):
        runs.run()
    assert runs.run(assume=assumed).sent == there
    assert len(runs.arrived()) == there


def test_a_chunk_that_may_have_expired_needs_a_decision_too(runs: Runs) -> None:
    runs.server.fails, runs.server.after = 1, True
    with pytest.raises(Unavailable):
        runs.run()
    runs.server.bench.clock.pass_time(4 * 24 * HOUR)
    with pytest.raises(Undecided):
        runs.run()


def test_two_at_once_are_found_out(runs: Runs) -> None:
    class Preempted(CellServer):
        def produce(self, subject: str, messages: Sequence[Message], **how: Any) -> list[SendResult]:
            if len(self.batches) == 1:
                self.batches.append(0)
                runs.run(rate=20)
            return super().produce(subject, messages, **how)

    runs.server = Preempted(runs.server.bench)
    with pytest.raises(Conflict, match="another run"):
        runs.run(rate=20)
    assert runs.once


def test_a_name_stands_for_one_replay(runs: Runs) -> None:
    runs.run()
    with pytest.raises(Conflict, match="another name"):
        runs.run(keys=("k1",))
    assert runs.run(rate=5).before == 60


def test_a_lake_that_lost_messages_meanwhile_is_reported(runs: Runs) -> None:
    runs.run()
    plan = next(Path(runs.given["lake"]).glob(f"replays/{runs.given['name']}/plan*"))
    plan.write_bytes(plan.read_bytes().replace(b'"messages":60', b'"messages":61'))
    with pytest.raises(Broken, match="61 messages"):
        runs.run()


def test_a_refusal_is_the_servers(runs: Runs) -> None:
    class Refusing(CellServer):
        def produce(self, subject: str, messages: Sequence[Message], **how: Any) -> list[SendResult]:
            raise BadRequest(Problem(detail="not this one", status=400))

    runs.server = Refusing(runs.server.bench)
    with pytest.raises(BadRequest, match="not this one"):
        runs.run()


Ask = Callable[[], set[str] | None]


@pytest.fixture
def asked(server: CellServer) -> Ask:
    """Asks a subject for two messages, of which it has one."""
    now_ms = server.bench.clock.now_ms()
    server.bench.deployment.produce("again", [NewMessage(body="a", id="there")])

    def ask() -> set[str] | None:
        return stored(
            server, "again", "probe", ["there", "gone"], since_ms=now_ms, until_ms=now_ms, now_ms=now_ms + 1_000
        )

    return ask


def failing(patch: pytest.MonkeyPatch, call: str, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    patch.setattr(CellServer, call, fail)


def test_only_of_a_subject_that_is_unknown_nothing_is_stored(
    server: CellServer, asked: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked() == {"there"}
    for call, slug in (("get_subject", "route-unknown"), ("seek", "subject-unknown"), ("pull", "group-unknown")):
        with monkeypatch.context() as patch:
            failing(patch, call, NotFound(problem_of(slug, "not found", status=404)))
            assert asked() is None
    server.bench.deployment.subjects.delete("again")
    assert asked() == set()


def test_a_server_that_does_not_answer_may_be_asked_later(asked: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in ("get_subject", "pull"):
        with monkeypatch.context() as patch:
            failing(patch, call, ServerUnavailable(Problem(detail="no answer")))
            with pytest.raises(Unavailable, match="run the replay again: no answer"):
                asked()


def test_a_probe_group_that_cannot_be_deleted_is_named_and_its_result_holds(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(monkeypatch, "delete_group", ServerUnavailable(Problem(detail="no answer")))
    assert asked() == {"there"}
    assert "group probe of subject again could not be deleted" in caplog.text


def test_the_same_replay_goes_to_the_same_server() -> None:
    given = {"lake": "l", "name": "n", "subject": "orders"}
    first, second = (ReplayOptions(**given, url=url).identity for url in ("http://a", "http://b"))
    assert first != second


def test_options_come_as_text_as_well() -> None:
    given = {
        "lake": "l",
        "name": "n",
        "subject": "orders",
        "dry_run": "true",
        "keys": "a,b",
        "since": "2026-11-20T09:00:00Z",
    }
    options = ReplayOptions.model_validate_strings(given)
    assert options.keys == ("a", "b")
    assert options.since == datetime(2026, 11, 20, 9, tzinfo=UTC)
    for wrong in ({"dry_run": "false"}, {"since": "2026-11-20T09:00:00"}, {"subject": "a/b"}):
        with pytest.raises(ValidationError):
            ReplayOptions.model_validate_strings({**given, **wrong})
    assert "each once" in Job("replay").about


def test_it_goes_over_http_to_a_server(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    server = Server(tmp_path / "data", tokens=["secret"])
    try:
        url = f"http://127.0.0.1:{server.port}"
        given = {"lake": lake, "name": f"r{next(NAMES)}", "subject": "orders", "to": "again", "url": url}
        options = ReplayOptions(**given, token="secret", until=moment(1))
        assert replay.run(spark, options).sent == 20
        assert replay.run(spark, options).before == 20
        with server.connect(token="secret") as connection:
            assert bodies(pull(connection, subject="again", group="look")) == [f"0-{at}" for at in range(20)]
    finally:
        assert server.stop()[0] == 0


def test_a_message_in_an_earlier_part_of_a_queue_is_found_though_a_later_part_comes_first(
    server: CellServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LastFirst(CellServer):
        """Answers with the latest of the pulls that there are, one at a time."""

        def pull(self, subject: str, group: str, consumer: str, **how: Any) -> Pulled:
            pulled = super().pull(subject, group, consumer, **how)
            left.extend(pulled.pulls)
            left.sort(key=lambda pull: pull.messages[0].produced_at)
            return msgspec.structs.replace(pulled, pulls=[left.pop()] if left else [])

    left: list[Any] = []
    bench = server.bench
    now_ms = bench.clock.now_ms()
    bench.deployment.subjects.put("again", queues=1)
    bench.deployment.produce("again", [NewMessage(body="a", id="there", queue=0)])
    bench.clock.pass_time(HOUR)
    bench.deployment.routes.add_queues("again", 2)
    bench.deployment.produce("again", [NewMessage(body="b", id=f"later-{queue}", queue=queue) for queue in (0, 1)])
    times = {"since_ms": now_ms, "until_ms": now_ms, "now_ms": now_ms + HOUR * 1_000}
    wanted = ["there", "gone"]
    assert stored(LastFirst(bench), "again", "probe", wanted, **times) == {"there"}
    failing(monkeypatch, "get_route", Unauthorized(Problem(status=403)))
    assert stored(LastFirst(bench), "again", "probe", wanted, **times) == {"there"}
