"""Runs rare events, and checks the contents of the store at the end. No step leaves a message waiting."""

import json
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.aws.s3 import S3Blobs
from hourwheel.aws.services import ARCHIVE_PREFIX, LAKE_PREFIX
from hourwheel.errors import Unavailable
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.rows import from_record
from hourwheel.model.groups import Group
from hourwheel.model.last_runs import CompactRun, TableRun, file_of
from hourwheel.model.messages import Message
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Record
from hourwheel.times import rfc3339
from tests.unit.archive.reading import contents

from .ending import cut_off_after
from .job import (
    BUS,
    QUEUE,
    Delivered,
    across,
    bodies,
    delay,
    doze,
    flights,
    hear,
    large,
    leave,
    path,
    pull,
    push,
    received,
    send,
    settle,
    share,
    taken,
)
from .recorded import calls_of
from .starts import next_hour, order, relay, wait_minutes
from .system import DAY, HOUR, System
from .template import CELL


def carry(system: System) -> None:
    """Checks that messages whose batches lie in the bucket are copied to each log that they move to."""
    # Settled by the consumer: by its own request, and with the next pull.
    for group in ("ack", "pull"):
        subject = f"cargo-{group}"
        send(system, subject, ({"body": large(str(number))} for number in range(3)))
        (one,) = pull(system, subject, group)
        settlement = {"receipt": one["receipt"], "release": [0], "retry": [{"index": 1, "delay": "1s"}], "dead": [2]}
        if group == "ack":
            settle(system, subject, group, settlement)
        else:
            (again,) = pull(system, subject, group, settle=[settlement])
            assert bodies(again["messages"]) == [large("0")]
            settle(system, subject, group, {"receipt": again["receipt"], "release": [0]})
        assert bodies(received(system, subject, group, 2)) == [large("0"), large("1")]
        assert system.ok("POST", f"{path(subject, group)}/dead/redrive", {"all": True}) == {"redriven": 1}
        assert bodies(received(system, subject, group, 1)) == [large("2")]
        system.ok("DELETE", path(subject))
    # Settled by the sweeper when a lease ends: the second end counts an attempt, and waits.
    for group, retry in (("at-once", {"first_seconds": 0}), ("later", {"delays_seconds": [1]})):
        subject = f"mail-{group}"
        send(system, subject, [{"body": large(group)}])
        system.ok("PUT", path(subject, group), {"retry": retry})
        leave(system, subject, group)
        (message,) = received(system, subject, group, 1)
        assert (message["body"], message["attempt"]) == (large(group), 2)
        system.ok("DELETE", path(subject, group))


def lease(system: System) -> Delivered:
    """Lets a consumer stop without settling: the sweeper, started by its schedule, ends the lease."""
    send(system, "crew", [{"body": row.body} for row in flights()[:20]])
    system.ok("PUT", path("crew", "roster"), {"retry": {"first_seconds": 0}})
    (held,) = pull(system, "crew", "roster", "gone", lease_seconds=5, max_messages=10)
    assert settle(system, "crew", "roster", {"receipt": held["receipt"], "ack": [0, 1, 2]}) == ["open"]
    system.swept()
    found = received(system, "crew", "roster", 17)
    status, answer = system.call("POST", f"{path('crew', 'roster')}/ack", {"settle": [{"receipt": held["receipt"]}]})
    assert (status, answer["type"]) == (409, "urn:hourwheel:receipt-stale")
    return held["messages"][:3] + found


def expire_twice(system: System) -> list[str]:
    """Checks that the next consumer ends the lease as well, also a pusher. Returns the messages that the target got."""
    system.once(push)
    send(system, "guard", [{"body": "first"}])
    system.ok("PUT", path("guard", "gate"), {"retry": {"first_seconds": 0}})
    pull(system, "guard", "gate", "gone", lease_seconds=1)
    system.clock.pass_time(3)
    (again,) = pull(system, "guard", "gate", "also-gone", lease_seconds=1)
    assert (again["queue"], again["messages"][0]["attempt"]) == ("retry", 1)
    system.ok("PUT", path("guard", "gate"), {"push": {"kind": "sqs", "arn": QUEUE.format("airline-orders")}})
    system.clock.pass_time(3)
    send(system, "guard", [{"body": "second"}])
    return arrived(system, 2)


def arrived(system: System, count: int) -> list[str]:
    """Waits for this many messages in the airline's queue, and returns their bodies."""
    url = system.sqs.get_queue_url(QueueName="airline-orders")["QueueUrl"]
    found: list[str] = []

    def look() -> bool:
        found.extend(json.loads(text)["body"] for text in taken(system, url))
        return len(found) >= count

    system.until(look, f"{count} messages in the airline's queue")
    return sorted(found)


def renew(system: System) -> None:
    """Sends to a subject, and pulls for a group, whose deletion was cut off: the remains do not affect new messages.
    The sweeper finishes the deletion of the subject, and the pull that of the group."""
    system.once(hear)
    for way in ("sent", "pulled"):
        send(system, way, [{"body": "old"}])
        system.ok("PUT", path(way, "group"), {"push": {"kind": "sqs", "arn": QUEUE.format("airline-nobody")}})
    with system.unswept():
        _cut_off(system, "sent", "!", Subject)
        status, _ = system.call("POST", f"{path('sent')}/messages", {"messages": [{"body": "new"}]})
        assert status == 503
        _cut_off(system, "pulled", "group", Group)
        assert bodies(received(system, "pulled", "group", 1)) == ["old"]
    system.swept()
    send(system, "sent", [{"body": "new"}])
    assert bodies(received(system, "sent", "group", 1)) == ["new"]
    for way in ("sent", "pulled"):
        system.ok("DELETE", path(way))
    status, _ = system.call("GET", path("sent"))
    assert status == 404


def _cut_off(system: System, subject: str, sort: str, kind: type[Subject] | type[Group]) -> None:
    """Leaves a subject or a group as a process does that stops after the first step of its deletion."""
    key = {"pk": {"S": f"subject/{subject}"}, "sk": {"S": sort}}
    item = system.dynamodb.get_item(TableName=f"{CELL}-meta", Key=key)["Item"]
    record = msgspec.msgpack.decode(item["v"]["B"], type=kind)
    item["v"]["B"] = msgspec.msgpack.encode(msgspec.structs.replace(record, deleted=True))
    item["t"]["B"] = bytes(16)
    system.dynamodb.put_item(TableName=f"{CELL}-meta", Item=item)
    system.clock.pass_time(3)  # longer than functions remember a subject


def orphan(system: System) -> Delivered:
    """Deletes a subject while a delayed message waits: the message is kept in the orphan log."""
    send(system, "strike", [{"body": "nobody waits", "delay": 2}])
    system.ok("DELETE", path("strike"))

    def found() -> Delivered:
        return list(system.ok("GET", f"{path('strike')}/dead")["messages"])

    return system.until(found, "the message that outlived its subject")


def poison(system: System) -> list[str]:
    """Puts foreign rows into the stream: later messages are pushed nevertheless. Sets a target for a group with waiting
    messages, and delivers to a target a message that it never accepts."""
    system.once(push)
    for strange in ("strange", "/", "a~b~c/d/e", "\N{SNOWMAN}/retry/"):
        key = {"pk": {"S": strange}, "sk": {"S": "0000000000000000"}}
        system.dynamodb.put_item(TableName=f"{CELL}-consume", Item=key)
        system.dynamodb.delete_item(TableName=f"{CELL}-consume", Key=key)
    send(system, "late", [{"body": "before the target"}])
    system.ok("PUT", path("late", "orders"), {"push": {"kind": "sqs", "arn": QUEUE.format("airline-orders")}})
    system.ok("PUT", path("late", "bus"), {"push": {"kind": "eventbridge", "arn": BUS}})
    system.swept()
    found = arrived(system, 1)
    send(system, "late", [{"body": "after the poison"}])
    found += arrived(system, 1)
    system.ok("PUT", path("late", "orders"), {"push": None})
    too_large = "".join(large(str(number)) for number in range(20))
    send(system, "late", [{"body": too_large}])
    group = path("late", "bus")
    died = system.until(lambda: system.ok("GET", f"{group}/dead")["messages"], "the message that no bus takes")
    assert bodies(died) == [too_large]
    assert system.ok("DELETE", f"{group}/dead", {"all": True}) == {"dropped": 1}
    system.ok("DELETE", path("late"))
    return found


def fail(system: System) -> list[dict[str, Any]]:
    """Lets invocations fail for ever: they end in the queue of failures. Returns its contents."""
    for function, event in (("wheel", {"bucket": "noon"}), ("push", {"push": {}})):
        system.functions.invoke(FunctionName=f"{CELL}-{function}", InvocationType="Event", Payload=json.dumps(event))[
            "Payload"
        ].read()
    (url,) = (made["Ref"] for made in system.template.made.values() if "Failures" in made.get("QueueName", ""))
    found: list[dict[str, Any]] = []

    def both() -> bool:
        found.extend(map(json.loads, taken(system, url)))
        return len(found) >= 2

    system.until(both, "failures")
    return found


def lose(system: System) -> None:
    """Deletes objects: their messages are reported as missing, and all others are delivered."""
    system.once(push)
    since = len(system.entries())
    for group in ("pull", "ack", "sweep", "dead", "push", "wheel"):
        next_hour(system)
        subject, before = f"lost-{group}", objects(system)
        when = {"delay": 90} if group == "wheel" else {}
        send(system, subject, [{"body": large(group), **when}])
        settings = {"retry": {"first_seconds": 0}}
        system.ok("PUT", path(subject, group), settings)
        if group in ("ack", "sweep", "dead"):
            (one,) = pull(system, subject, group, lease_seconds=1 if group == "sweep" else 30)
        if group == "dead":
            settle(system, subject, group, {"receipt": one["receipt"], "dead": [0]})
        for key in objects(system) - before:
            system.s3.delete_object(Bucket=system.bucket, Key=key)
        if group == "ack":
            settle(system, subject, group, {"receipt": one["receipt"], "retry": [0]})
        if group == "dead":
            assert system.ok("GET", f"{path(subject, group)}/dead")["messages"] == []
        if group == "wheel":
            system.clock.pass_time(92)
            system.until(lambda: "cannot be read" in system.reported(since), "the wheel's report")
        if group == "push":
            system.ok("PUT", path(subject, group), {"push": {"kind": "sqs", "arn": QUEUE.format("airline-orders")}})
        system.clock.pass_time(3)
        send(system, subject, [{"body": "next"}])
        if group == "push":
            system.swept()
            assert arrived(system, 1) == ["next"]
        else:
            system.swept(int(group == "sweep"))
            assert bodies(received(system, subject, group, 1)) == ["next"]
        system.ok("DELETE", path(subject))


def objects(system: System) -> set[str]:
    """Returns the keys of the objects in the bucket of segments."""
    return {found["Key"] for found in system.s3.list_objects_v2(Bucket=system.bucket).get("Contents", [])}


def mend(system: System) -> None:
    """Checks that a reserved row that is never stored delays no other message, and that a move of a message and an
    addition of queues are finished that were cut off."""
    system.until(lambda: _wheel_fills(system), "a hole that the wheel meets first")
    (moved,) = send(system, "tower", [{"body": large("moved"), "delay": "50m"}])
    with pytest.raises(Unavailable):
        cut_off_after(system, puts=2).delayed.reschedule(moved["scheduled_id"], delay="1s")

    def dispatched() -> bool:
        system.swept()
        return str(system.ok("GET", f"/v1/scheduled/{moved['scheduled_id']}")["state"]) == "dispatched"

    began = system.clock.now()
    system.until(dispatched, "the end of the move")
    assert system.clock.now() < began + 45 * 60
    assert bodies(received(system, "tower", "radio", 1)) == [large("moved")]
    _add_queues(system)


def _add_queues(system: System) -> None:
    """Leaves an addition of queues as a process does that stops once the log of the first queue is sealed: the sweeper
    finishes it."""
    send(system, "runway", [{"body": "before"}])
    with pytest.raises(Unavailable):
        cut_off_after(system, puts=1).routes.add_queues("runway", 2)
    system.swept()
    assert len(system.ok("GET", "/v1/routes/runway")["queues"]) == 2
    send(system, "runway", [{"body": "after"}])
    assert bodies(received(system, "runway", "radio", 2)) == ["after", "before"]
    system.ok("DELETE", path("runway"))


def _wheel_fills(system: System) -> bool:
    """Leaves a hole in front of a delayed message, which arrives nevertheless. Returns whether the wheel has filled the
    hole: the archiver, whose time comes in the same hour, may read the log first."""
    next_hour(system)
    since = len(system.entries())
    hour_ms = round(system.clock.now() // HOUR) * HOUR * 1_000
    _give_out_row(system, f"schedule/{hour_ms}-60/000")
    send(system, "tower", [{"body": "behind a hole", "delay": 1}])
    assert bodies(received(system, "tower", "radio", 1)) == ["behind a hole"]
    made = [call for entry in system.entries()[since:] if "function" in entry for call in calls_of(entry)]
    return any(
        (call.function, call.action) == ("wheel", "dynamodb:PutItem") and call.resource.endswith("-schedule")
        for call in made
    )


def _give_out_row(system: System, log: str) -> None:
    """Reserves a row as a producer does that never stores it."""
    system.dynamodb.update_item(
        TableName=f"{CELL}-counters",
        Key={"pk": {"S": log}},
        UpdateExpression="ADD #rows :one, numbers :one",
        ExpressionAttributeNames={"#rows": "rows"},
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def repeat(system: System) -> None:
    """Repeats a batch after its messages have expired: the batch is not stored twice."""
    system.ok("PUT", path("news"), {"retention_seconds": 60})
    accepted = send(system, "news", [{"body": "old"}], idempotency_key="news")
    system.archived()
    system.swept(3)
    assert send(system, "news", [{"body": "old"}], idempotency_key="news") == accepted
    assert pull(system, "news", "readers") == []


def close(system: System) -> dict[str, list[Any]]:
    """Checks that nothing of a bucket is left a day after it was closed. Returns the remaining items."""
    for step in STEPS[: STEPS.index(close)]:
        system.once(step)
    system.clock.pass_time(12 * HOUR)

    def over() -> bool:
        system.swept()
        return not _turning(system) and not system.ok("GET", "/v1/wheels")["wheels"]

    system.until(over, "the end of all buckets")
    system.clock.pass_time(DAY)
    system.archived()
    system.swept(2)
    left = {table: system.dynamodb.scan(TableName=f"{CELL}-{table}")["Items"] for table in ("schedule", "dispatch")}
    return {**left, "objects": [key for key in objects(system) if key.startswith("scheduled/")]}


def _turning(system: System) -> list[Any]:
    """Returns the wheels that have begun and not ended."""
    left: list[Any] = []
    for entry in system.entries():
        if entry.get("started") == f"{CELL}-wheel":
            left.append(entry)
        elif entry.get("ended") == f"{CELL}-wheel":
            left.remove(next(one for one in left if one["event"] == entry["event"]))
    return left


def _look_at_the_lake(system: System) -> None:
    """Checks that the API shows the results that jobs of the pipeline left in the lake, and does without missing
    ones."""
    before = system.ok("GET", "/v1/archive")
    assert (before["enabled"], before["lake"]) == (True, None)
    table = TableRun(table="messages", rows=7, last_manifest=-1, quarantined=0, changed_at=None)
    run = CompactRun(tables=[table], problems=0)
    system.s3.put_object(Bucket=system.lake, Key=f"{LAKE_PREFIX}{file_of('compact')}", Body=msgspec.json.encode(run))
    left = system.ok("GET", "/v1/archive")
    assert [(each["table"], each["rows"]) for each in left["lake"]["tables"]] == [("messages", 7)]
    assert left["report"] is None


def archive(system: System) -> dict[str, Any]:
    """Returns the contents of the tables once all rows are archived, by log, row and message, and the contents of the
    archive, without rows that were deleted before they were archived."""
    for step in (share, carry):
        system.once(step)
    hour = (system.clock.now() // HOUR + 3) * HOUR
    when = {"deliver_at": rfc3339(round(hour * 1_000) + 60_000)}
    send(system, "cabin", [{"body": "before a hole"}])
    waiting = send(system, "cabin", [{"body": "before a hole", **when}])
    for log in ("cabin~1/0", f"schedule/{round(hour) * 1_000}-60/000"):
        _give_out_row(system, log)
    send(system, "cabin", [{"body": "behind a hole"}])
    waiting += send(system, "cabin", [{"body": "behind a hole", **when}])
    told = system.archived()
    for one in waiting:
        assert system.ok("DELETE", f"/v1/scheduled/{one['scheduled_id']}")["state"] == "cancelled"
    kept = contents(S3Blobs(lambda: system.s3, system.lake, ARCHIVE_PREFIX))
    assert kept.registry is not None
    logs = {subject.log(queue) for subject in kept.registry.subjects for queue in range(subject.queues)}
    logs |= {log for group in kept.registry.groups for log in (group.retry_log, group.dead_log)}
    stored: dict[tuple[str, int, int], Message] = {}
    for table in ("consume", "schedule"):
        for page in system.dynamodb.get_paginator("scan").paginate(TableName=f"{CELL}-{table}"):
            for item in page["Items"]:
                log = item["pk"]["S"]
                if log in logs or log.startswith("schedule/"):
                    stored |= _stored(system, log, item)
    return {"told": told, "kept": kept, "stored": stored}


def _stored(system: System, log: str, item: Any) -> dict[tuple[str, int, int], Message]:
    row = from_record(Record(item["v"]["B"], item["t"]["B"]))
    found = messages_of(row, S3Blobs(lambda: system.s3, system.bucket))
    return {(log, int(item["sk"]["S"]), index): message for index, message in enumerate(found)}


def operate(system: System) -> None:
    """Pauses, looks at and traces messages, adds queues, and lets a consumer leave. The deployment has the home cell
    alone, so that no queue can move: the answers say so."""
    subject, group = path("tower"), path("tower", "watch")
    (accepted,) = send(system, "tower", [{"body": "cleared"}])
    system.ok("PUT", group, {})
    for owner in (subject, group):
        assert system.ok("POST", f"{owner}/pause")["paused"]
        assert not system.ok("POST", f"{owner}/resume")["paused"]
    pull(system, "tower", "watch", "gone")
    shown = system.ok("GET", "/v1/overview?prefix=tower")["subjects"]
    assert [(each["subject"], each["in_flight"]) for each in shown] == [("tower", 1)]
    assert [each["in_flight"] for each in system.ok("GET", f"{subject}/overview")["groups"]] == [1]
    assert [each["consumer"] for each in system.ok("GET", f"{group}/leases")["leases"]] == ["gone"]
    assert system.call("GET", "/v1/overview?sort=dead", None)[0] == 400
    attention = system.ok("GET", "/v1/attention?limit=100")
    assert len(attention["concerns"]) == attention["total"]
    assert system.ok("GET", f"{subject}/history")["since"] is None, "functions keep no history"
    _look_at_the_lake(system)
    assert [each["consumer"] for each in system.ok("GET", f"{group}/consumers")["consumers"]] == ["gone"]
    assert bodies(system.ok("GET", f"{subject}/queues/0/messages?offset=0")["messages"]) == ["cleared"]
    assert system.ok("GET", f"{subject}/messages/{accepted['queue']}:{accepted['offset']}")["messages"]
    assert system.ok("POST", f"{group}/consumers/gone/leave") == {"released": 1, "cells_out": []}
    assert system.ok("GET", "/v1/openapi.json")["openapi"] == "3.1.0"
    assert len(system.ok("GET", "/v1/routes/tower")["queues"]) == 1
    assert len(system.ok("POST", f"{subject}/queues", {"queues": 2})["after"]["queues"]) == 2
    system.ok("POST", f"{subject}/spread", {})
    withdrawn = system.ok("DELETE", "/v1/routes/tower/pending?dry_run=true")
    assert withdrawn["before"] == withdrawn["after"]
    assert [cell["cell"] for cell in system.ok("GET", "/v1/cells")["cells"]] == ["home"]
    for method, target, body in (
        ("POST", f"{subject}/queues/0/move", {"cell": "fast"}),
        ("POST", f"{group}/held", {"then": "retry", "keys": ["a"]}),
        ("GET", "/v1/cells/fast", None),
        ("PUT", "/v1/cells/fast", {}),
        ("POST", "/v1/cells/fast/drain", {}),
        ("DELETE", "/v1/cells/fast", None),
    ):
        status, answer = system.call(method, target, body)
        assert 400 <= status < 500, f"{method} {target}: {status} {answer}"
    system.ok("DELETE", subject)


STEPS = (
    hear,
    *(hear, share, across, delay, doze, carry, archive, lease, renew, orphan, push, expire_twice, poison, fail),
    *(operate, order, wait_minutes, relay, mend, repeat, close, lose),
)
