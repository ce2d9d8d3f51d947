"""A data directory whose database is gone, made again from its archive."""

from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.archive.archiver import Archiver
from hourwheel.archive.rebuild import rebuild
from hourwheel.archive.rebuild_records import Rebuilding, Rebuilt
from hourwheel.embedded.offline import opened
from hourwheel.logs.cas import CasRecord
from hourwheel.ports.storage import Key, Table
from hourwheel.sweep.erasure import make_registry
from tests.integration.conftest import Start
from tests.integration.process import Server, bodies, pull, send

ORDERS = "/v1/subjects/orders"
GAP = 1_000


def archived(data: Path, archive: FileBlobs) -> None:
    with opened(data) as context:
        report = Archiver(context, make_registry(context), archive).run(context.clock.now_ms() + 30_000)
        assert report.complete


def rebuilt(data: Path, archive: FileBlobs) -> Rebuilt:
    with opened(data, accept_loss=True) as context:
        return rebuild(context, archive, gap=GAP)


def ack(server: Server, **how: object) -> None:
    assert server.ok("POST", f"{ORDERS}/groups/billing/ack", {"settle": [how]})["results"] == [{"status": "settled"}]


def test_a_lost_database_is_rebuilt_and_every_message_is_accounted_for(start: Start, tmp_path: Path) -> None:
    data, archive = tmp_path / "data", FileBlobs(tmp_path / "archive")
    server = start(data)
    large = "large " * 100_000
    sent = send(server, "acked", "again", "dead", large, "waiting")
    (first,) = pull(server, max_messages=3)
    ack(server, receipt=first["receipt"], retry=[1], dead=[2])
    later = [{"body": "in a moment", "delay": "2s"}, {"body": "in a while", "delay": "30d"}]
    _, far = server.ok("POST", f"{ORDERS}/messages", {"messages": later})["results"]
    archived(data, archive)
    (held,) = pull(server, group="forgotten", max_messages=1)
    assert bodies([held]) == ["acked"]
    assert server.stop()[0] == 0
    for file in data.glob("hourwheel.db*"):
        file.unlink()

    report = rebuilt(data, archive)
    assert (report.lost, report.unreadable, report.unreadable_segments) == (0, 0, ())

    server = start(data)
    found: list[dict[str, object]] = []
    while len(found) < 4:
        found += [message for one in pull(server, wait_seconds=20) for message in one["messages"]]
    assert {message["body"]: message["attempt"] for message in found} == {
        "again": 2,
        large: 1,
        "waiting": 1,
        "in a moment": 1,
    }
    offsets = {message["body"]: message["offset"] for message in found}
    assert offsets[large] == sent[3]["offset"]
    assert offsets["waiting"] == sent[4]["offset"]
    dead = server.ok("GET", f"{ORDERS}/groups/billing/dead")["messages"]
    assert [letter["body"] for letter in dead] == ["dead"]
    (accepted,) = send(server, "anew")
    assert accepted["offset"] > sent[4]["offset"] + GAP
    assert server.ok("GET", f"{ORDERS}/scheduled?hours=744")["messages"] == 1
    refused = server.call("GET", f"/v1/scheduled/{far['scheduled_id']}")
    assert refused.json["type"].endswith("scheduled-id-invalid")
    archived(data, archive)
    assert server.stop()[0] == 0


def test_a_data_directory_that_is_half_rebuilt_is_not_served(tmp_path: Path) -> None:
    with opened(tmp_path) as context:
        record = CasRecord(context.store, context.ids, Key(Table.META, "rebuild", "state"), Rebuilding)
        record.swap(None, Rebuilding(began_ms=context.clock.now_ms(), end_manifest=1))
    code, errors = Server(tmp_path).end()
    assert code != 0
    assert "is half rebuilt: run hourwheel pipeline run rebuild" in errors
