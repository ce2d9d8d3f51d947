"""The trace from the lake equals the API's trace, also once the logs have expired."""

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from hourwheel.cli.app import app
from hourwheel.client import TracePage as ShownPage
from hourwheel.errors import NotFound, Rejected
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from hourwheel.model.traces import TracePage
from hourwheel.trace.messages import SearchSpan
from hourwheel_pipeline.jobs import trace
from hourwheel_pipeline.jobs.trace import TraceOptions
from hourwheel_pipeline.lake.tables import Lake
from tests.pipeline.worlds import DAY, World, hurries, lively

EACH = 7
"""Traced messages of a subject: each costs some scans of the lake."""


@dataclass
class Told:
    """``known``: the API's traces of messages, by subject and name, while the logs had them."""

    world: World
    known: dict[tuple[str, str], Any] = field(default_factory=dict)

    def by_lake(self, subject: str, message: str, **given: Any) -> TracePage:
        options = TraceOptions(
            archive=self.world.archive, lake=self.world.lake, subject=subject, message=message, **given
        )
        return trace.run(options, self.world.now_ms)

    def command(self, *words: str) -> Result:
        places = ("--archive", self.world.archive, "--lake", self.world.lake)
        return CliRunner().invoke(app, [*words, *places], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    world = World(tmp_path_factory.mktemp("traced"))
    lively(world)
    hurries(world)
    _strict(world)
    named = _delayed(world)
    world.pass_time(60)
    world.archived()
    world.compacted(spark)
    deployment = world.bench.another_process()
    names = [*_some_messages(world), *(("planned", name) for name in named)]
    known = {name: _comparable(deployment.messages.trace(*name, SearchSpan())) for name in names}
    world.bench.clock.pass_time(10 * DAY)
    return Told(world, known)


def _strict(world: World) -> None:
    """Adds an ordered and a broadcast group. In the ordered group a message fails twice, and holds its key
    meanwhile."""
    bench, where = world.bench, {"subject": "strict", "group": "line"}
    bench.deployment.groups.put("strict", "line", ordered=True, max_attempts=2)
    bench.deployment.groups.put("strict", "screens", broadcast=True)
    bench.deployment.produce("strict", [NewMessage(body=f"{at}", key="ab"[at % 2]) for at in range(4)])
    for screen in ("hall", "lobby"):
        bench.deployment.pull("strict", "screens", PullRequest(consumer=screen, max_messages=3))
    for _ in range(8):
        bench.clock.pass_time(1)
        for pull in bench.pull(2, **where):
            fails = [at for at, message in enumerate(pull.messages) if message.body == "0"]
            assert bench.settle(pull, retry=fails, **where) == "settled"
    world.pass_time(60)


def _delayed(world: World) -> list[str]:
    """Returns the scheduled ids of messages: sent, cancelled, moved and sent, moved and cancelled, waiting."""
    bench = world.bench
    bench.deployment.groups.put("planned", "billing")
    placed = [bench.send_later("x", delay=90, subject="planned")[0] for _ in range(4)]
    placed += bench.send_later("far", delay="20d", subject="planned")
    ids = [each.scheduled_id or "" for each in placed]
    bench.clock.pass_time(1)
    bench.deployment.delayed.cancel(ids[1])
    bench.deployment.delayed.reschedule(ids[2], delay=200)
    moved = bench.deployment.delayed.reschedule(ids[3], delay=400)
    bench.clock.pass_time(1)
    bench.deployment.delayed.cancel(moved.scheduled_id)
    world.pass_time(300)
    assert world.acknowledge("planned", "billing") == 2
    return ids


def _some_messages(world: World) -> list[tuple[str, str]]:
    with closing(Lake.open(world.lake)) as lake:
        rows = lake.rows("messages", "kind = 'queue'", ("subject", "generation", "queue", "sequence", "expires_at"))
    names: dict[str, list[str]] = {}
    table = rows.to_pylist()
    newest = {row["subject"]: max(r["generation"] for r in table if r["subject"] == row["subject"]) for row in table}
    for row in sorted(table, key=lambda row: (row["queue"], row["sequence"])):
        live = round(row["expires_at"].timestamp() * 1_000) > world.now_ms
        if live and row["generation"] == newest[row["subject"]]:
            names.setdefault(row["subject"], []).append(f"{row['queue']}:{row['sequence']}")
    return [(subject, name) for subject, all_ in names.items() for name in all_[:: max(1, len(all_) // EACH)]]


def _comparable(page: TracePage) -> Any:
    """Returns the answer as JSON."""
    return msgspec.json.decode(msgspec.json.encode(page))


def test_the_lake_tells_what_the_api_told(told: Told) -> None:
    assert {subject for subject, _ in told.known} > {"wide", "moved", "picky", "orders", "strict", "sought", "planned"}
    states = {
        group["state"] for page in told.known.values() for one in page["messages"] for group in one.get("groups", ())
    }
    assert {"acknowledged", "dead", "dropped", "filtered", "skipped", "waiting"} <= states
    differing = {name: page for name, page in told.known.items() if _comparable(told.by_lake(*name)) != page}
    assert differing == {}


def test_the_logs_have_expired_by_then_and_the_api_names_the_lake(told: Told) -> None:
    deployment = told.world.bench.another_process()
    with pytest.raises(NotFound, match="the lake keeps messages that expired"):
        deployment.messages.trace("wide", "0:0", SearchSpan())


def test_a_message_is_found_by_its_id_without_a_time(told: Told) -> None:
    (found,) = told.by_lake("wide", "0:0").messages
    (by_id,) = told.by_lake("wide", found.id).messages
    assert by_id == found
    assert told.by_lake("wide", found.id, since="2025-11-20T00:00:00Z").messages == [found]
    assert told.by_lake("wide", found.id, since="2025-11-21T00:00:00+14:00").messages == [found], "10 o'clock in UTC"
    with pytest.raises(NotFound, match="no message with the id"):
        told.by_lake("wide", found.id, until="2025-11-20T00:00:00Z")


def test_a_delayed_message_is_found_by_its_own_id_before_and_after_its_time(told: Told) -> None:
    states = {name: page["messages"][0] for (subject, name), page in told.known.items() if subject == "planned"}
    assert sorted(each["state"] for each in states.values()) == [
        *("accepted", "accepted", "accepted", "accepted"),
        *("cancelled", "cancelled", "scheduled"),
    ]
    for one in states.values():
        (found,) = told.by_lake("planned", one["id"]).messages
        assert (found.state, found.id, found.queue) == (one["state"], one["id"], one.get("queue"))


def test_many_messages_with_one_id_come_in_pages(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = told.by_lake("wide", "0:0").messages
    monkeypatch.setattr(trace, "MOST", 0)
    page = told.by_lake("wide", found.id)
    assert (page.messages, page.next) == ([], "0:0")
    monkeypatch.undo()
    assert told.by_lake("wide", found.id, after=page.next).messages == [found]
    with pytest.raises(Rejected, match="after is next of the answer before"):
        told.by_lake("wide", found.id, after="x")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"message": "0:99999"}, "no message at 0:99999"),
        ({"message": "0:0", "group": "nobody"}, "knows no group 'nobody'"),
        ({"message": "0:0", "generation": 7}, "no message at 0:0"),
        ({"message": "it's"}, "no message with the id"),
        ({"message": f"{'f' * 28}-0"}, "no message with the id"),
        ({"message": "6924a1c0-60-0-7-7-0123456789abcdef"}, "no delayed message"),
    ],
)
def test_what_the_lake_does_not_have_is_said(told: Told, given: dict[str, Any], says: str) -> None:
    with pytest.raises(NotFound, match=says):
        told.by_lake("wide", **given)


def test_an_earlier_generation_of_a_subject_is_traced_when_it_is_named(told: Told) -> None:
    (first,) = told.by_lake("brief", "0:0", generation=1).messages
    (last,) = told.by_lake("brief", "0:0").messages
    assert first.id != last.id
    assert [group.group for group in first.groups] == ["one", "two"]


def test_the_command_prints_the_history_and_json_is_the_answer_of_the_api(told: Told) -> None:
    words = ("run", "trace", "--subject", "orders", "--message", "0:0", "--group", "billing")
    printed = told.command("pipeline", *words)
    assert printed.exit_code == 0, printed.output
    lines = printed.stdout.splitlines()
    assert lines[0].startswith("trace     1 message (")
    assert "at 0:0: accepted" in lines[1]
    assert "acknowledged" in printed.stdout
    as_json = told.command("--json", "pipeline", *words)
    answer = msgspec.json.decode(as_json.stdout)
    assert answer["report"] == told.known["orders", "0:0"]
    assert msgspec.convert(answer["report"], ShownPage).messages[0].offset == 0


def test_the_command_says_where_to_trace_a_message_of_a_stack(told: Told) -> None:
    words = ("pipeline", "run", "trace", "--subject", "orders", "--message", "0:0", "--stack", "hourwheel")
    refused = told.command(*words)
    assert refused.exit_code == 2
    assert "trace reads the lake here" in refused.output


def test_a_place_without_a_lake_is_said(tmp_path: Path) -> None:
    options = TraceOptions(archive=str(tmp_path), lake=str(tmp_path / "no"), subject="orders", message="0:0")
    with pytest.raises(NotFound, match="run compact first"):
        trace.run(options, 0)
