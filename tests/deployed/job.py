"""Uses the queue for its main purposes, with the demo's flights. No step leaves a message waiting."""

import base64
import io
import json
import random
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any
from urllib.parse import urlencode

from demo.flights import Flight, january, tail_number
from hourwheel.buckets.lease import START_MS
from hourwheel.buckets.starts import KEPT_MS, RELAY_MS
from hourwheel.client.webhooks import verify
from hourwheel.times import rfc3339
from tests.support import HandClock

from .system import HOST, HOUR, System
from .template import ACCOUNT, CELL, REGION

GROUPS = ("boards", "billing", "audit")
BATCH = 60
SHIP = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:airline-ship"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{{}}"
BUS = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/airport"
RETRY = {"delays_seconds": [1, 2]}
IDLE_SECONDS = 1e6  # longer than the job takes: no mark of a dozing group is from before the last message

Delivered = list[dict[str, Any]]


@cache
def flights() -> list[Flight]:
    """Returns flights of the first days: those without a tail number, and others."""
    found = january(days=5)
    untailed = [flight for flight in found if not tail_number(flight.body)]
    return untailed + [flight for flight in found if tail_number(flight.body)][: 600 - len(untailed)]


def large(name: str) -> str:
    """Returns a body of 20 kB that compression does not shorten: its batch goes to the bucket."""
    return name + base64.b64encode(random.Random(name).randbytes(15_000)).decode()


def path(subject: str, group: str | None = None) -> str:
    return f"/v1/subjects/{subject}" + (f"/groups/{group}" if group else "")


def send(system: System, subject: str, messages: Iterable[Any], **more: Any) -> list[dict[str, Any]]:
    answer = system.ok("POST", f"{path(subject)}/messages", {"messages": list(messages), **more})
    return list(answer["results"])


def pull(system: System, subject: str, group: str, consumer: str = "one", **how: Any) -> list[dict[str, Any]]:
    answer = system.ok("POST", f"{path(subject, group)}/pull", {"consumer": consumer, **how})
    assert all(settled["status"] in ("settled", "open") for settled in answer.get("settled", ()))
    return list(answer["pulls"])


def leave(system: System, subject: str, group: str) -> None:
    """Lets the sweeper end the leases of a message twice. The second end counts an attempt."""
    for _ in range(2):
        (one,) = pull(system, subject, group, lease_seconds=1)
        assert [message["attempt"] for message in one["messages"]] == [1]
        system.swept()


def settle(system: System, subject: str, group: str, *settlements: dict[str, Any]) -> list[str]:
    answer = system.ok("POST", f"{path(subject, group)}/ack", {"settle": list(settlements)})
    return [result["status"] for result in answer["results"]]


def received(system: System, subject: str, group: str, count: int) -> Delivered:
    """Pulls and acknowledges exactly this many messages. Fails for fewer or more."""
    found: Delivered = []

    def look() -> bool:
        for one in pull(system, subject, group):
            found.extend(one["messages"])
            settle(system, subject, group, {"receipt": one["receipt"]})
        return len(found) >= count

    system.until(look, f"{count} messages for {group} of {subject}")
    assert not pull(system, subject, group)
    assert len(found) == count
    assert idle(system, subject, group)
    return found


def idle(system: System, subject: str, group: str) -> bool:
    lag = system.ok("GET", f"{path(subject, group)}/lag")
    return not (lag["waiting"] or lag["in_flight"] or lag["retrying"] or lag["backing_off"])


def bodies(messages: Delivered) -> list[str]:
    return sorted(message["body"] for message in messages)


def in_batches(messages: list[Any], size: int) -> Iterator[tuple[int, list[Any]]]:
    return ((at // size, messages[at : at + size]) for at in range(0, len(messages), size))


def share(system: System) -> dict[str, Any]:
    """Checks that three groups get every flight, however their consumers settle it."""
    assert system.ok("GET", "/v1/health")
    system.ok("PUT", path("flights"), {"queues": 3})
    for group in GROUPS:
        system.ok("PUT", path("flights", group), {"max_attempts": 3 if group == "audit" else 16, "retry": RETRY})
    rows = flights()
    sent = {}
    keyed, whole = rows[:240], rows[240:]
    for number, batch in in_batches(keyed, BATCH):
        messages = [{"body": row.body, "key": row.carrier, "tags": [row.name[-3:]]} for row in batch]
        accepted = send(system, "flights", messages, idempotency_key=f"batch {number}")
        assert send(system, "flights", messages, idempotency_key=f"batch {number}") == accepted
        sent |= {one["id"]: row.body for one, row in zip(accepted, batch, strict=True)}
    assert {group["group"] for group in system.ok("GET", f"{path('flights')}/groups")["groups"]} == set(GROUPS)
    assert system.ok("GET", path("flights", "audit"))["max_attempts"] == 3
    accepted = send(system, "flights", ({"body": row.body} for row in whole))  # larger than a row of the table may be
    sent |= {one["id"]: row.body for one, row in zip(accepted, whole, strict=True)}
    assert len(sent) == len(rows)

    boards = _board(system, len(rows))
    billed = _bill(system, len(rows))
    audited, died = _audit(system, len(rows))
    system.ok("POST", f"{path('flights', 'boards')}/seek", {"to": "start"})
    again = received(system, "flights", "boards", len(rows))
    system.ok("POST", f"{path('flights', 'boards')}/seek", {"queue": 0, "offset": 0})
    planned = system.ok("POST", f"{path('flights', 'boards')}/seek", {"to": "end", "dry_run": True})
    end = system.ok("POST", f"{path('flights', 'boards')}/seek", {"to": "end"})
    assert planned["messages"] > 0
    assert [each["offset"] for each in planned["positions"]] == [each["offset"] for each in end["positions"]]
    assert len(end["positions"]) == 3
    assert all(idle(system, "flights", group) for group in GROUPS)
    return {"sent": sent, "boards": boards, "billed": billed, "audited": audited, "died": died, "again": again}


def _board(system: System, count: int) -> Delivered:
    """Runs two consumers: one releases its first messages, and the other extends its lease."""
    first, second = (pull(system, "flights", "boards", who, max_messages=50) for who in ("one", "two"))
    back = [{"receipt": one["receipt"], "release": [*range(len(one["messages"]))]} for one in first]
    assert set(settle(system, "flights", "boards", *back)) == {"settled"}
    longer = [{"receipt": one["receipt"], "extend_seconds": 60} for one in second]
    assert set(settle(system, "flights", "boards", *longer)) == {"extended"}
    assert set(settle(system, "flights", "boards", *({"receipt": one["receipt"]} for one in second))) == {"settled"}
    done = [message for one in second for message in one["messages"]]
    return done + received(system, "flights", "boards", count - len(done))


def _bill(system: System, count: int) -> Delivered:
    """Settles with the next pull."""
    found: Delivered = []
    receipts: list[str] = []
    while len(found) < count or receipts:
        requests = {"settle": [{"receipt": receipt} for receipt in receipts]} if receipts else {}
        pulls = pull(system, "flights", "billing", max_messages=250, **requests)
        receipts = [one["receipt"] for one in pulls]
        found += [message for one in pulls for message in one["messages"]]
    return found


def _audit(system: System, count: int) -> tuple[Delivered, Delivered]:
    """Fails three times on flights without a tail number; then redrives half of them and drops the others."""
    done: Delivered = []
    untailed = {row.body for row in flights() if not tail_number(row.body)}
    group = path("flights", "audit")

    def work() -> bool:
        for one in pull(system, "flights", "audit"):
            failed = [at for at, message in enumerate(one["messages"]) if message["body"] in untailed]
            done.extend(message for message in one["messages"] if message["body"] not in untailed)
            settle(system, "flights", "audit", {"receipt": one["receipt"], "retry": failed})
        return len(done) == count - len(untailed) and idle(system, "flights", "audit")

    system.until(work, "the end of the audit's attempts")
    first = system.ok("GET", f"{group}/dead?limit=1")
    died = first["messages"] + system.ok("GET", f"{group}/dead?after={first['next']}")["messages"]
    assert bodies(died) == sorted(untailed)
    counted = system.ok("GET", f"{group}/dead/reasons")
    assert [(each["reason"], each["messages"]) for each in counted["reasons"]] == [("attempts", len(died))]
    assert system.ok("GET", f"{group}/dead?reason=rejected")["messages"] == []
    assert {message["attempt"] for message in died} == {3}
    assert system.ok("GET", f"{group}/dead/{died[0]['dead_id']}") == died[0]
    half = [message["dead_id"] for message in died[::2]]
    assert system.ok("POST", f"{group}/dead/redrive", {"ids": half}) == {"redriven": len(half)}
    done += received(system, "flights", "audit", len(half))
    assert system.ok("DELETE", f"{group}/dead", {"all": True}) == {"dropped": len(died) - len(half)}
    assert system.ok("GET", f"{group}/dead")["messages"] == []
    return done, died


def across(system: System) -> Delivered:
    """Sends one batch for two subjects."""
    messages = [{"subject": f"gate-{number % 2}", "body": str(number)} for number in range(10)]
    batch = {"messages": messages, "idempotency_key": "all gates"}
    accepted = system.ok("POST", "/v1/messages", batch)
    assert system.ok("POST", "/v1/messages", batch) == accepted
    assert system.ok("GET", "/v1/subjects?limit=1")["next"]
    return [one for gate in (0, 1) for one in received(system, f"gate-{gate}", "staff", 5)]


def _scheduled_ids(system: System, first: str) -> list[str]:
    """Returns the ids of all pages of a list of delayed messages."""
    ids, page = [], system.ok("GET", first)
    while True:
        ids += [message["scheduled_id"] for message in page["messages"]]
        if page["next"] is None:
            return ids
        page = system.ok("GET", f"{first}&{urlencode({'after': page['next']})}")


def delay(system: System) -> dict[str, Any]:
    """Lets an hour end. Checks that messages due in it and in the next one arrive at their latest due time, and that
    cancelled ones never do."""
    now = system.clock.now()
    following = (now // HOUR + 1) * HOUR
    at = [rfc3339(round((following + second) * 1_000)) for second in range(10)]
    first = len(system.entries())
    requested = {
        "soon": {"delay": 1},
        "in the next hour": {"deliver_at": at[5]},
        large("in the next hour"): {"deliver_at": at[6]},
        "cancelled": {"delay": "2h"},
        "moved here": {"delay": "2h"},
        large("moved there"): {"delay": "2h"},
    }
    accepted = send(system, "boarding", ({"body": body, **when} for body, when in requested.items()))
    ids = {body: one["scheduled_id"] for body, one in zip(requested, accepted, strict=True)}
    assert system.ok("GET", f"{path('boarding')}/scheduled?hours=3")["messages"] == 6
    assert system.ok("GET", "/v1/scheduled?subject=boarding")["messages"] in (5, 6)  # the first one is due by now
    minutes = system.ok("GET", f"/v1/scheduled?subject=boarding&step=minute&from={at[0]}")
    assert minutes["messages"] == 2
    for listed in (f"{path('boarding')}/delayed?bodies=true", "/v1/delayed?bodies=true"):
        assert ids["cancelled"] in _scheduled_ids(system, listed)
    assert [wheel["state"] for wheel in system.ok("GET", "/v1/wheels")["wheels"]]
    for change in ({"change": "cancel"}, {"change": "move", "deliver_at": at[7]}):
        choice = {"all": True, "dry_run": True, **change}
        found = system.ok("POST", f"{path('boarding')}/delayed/{choice.pop('change')}", choice)["messages"]
        assert ids["cancelled"] in [message["scheduled_id"] for message in found]
    assert system.ok("GET", f"/v1/scheduled/{ids['cancelled']}")["state"] == "waiting"
    assert system.ok("DELETE", f"/v1/scheduled/{ids['cancelled']}")["state"] == "cancelled"
    assert system.ok("PATCH", f"/v1/scheduled/{ids['moved here']}", {"delay": "1s"})["state"] == "moved"
    moved = {"deliver_at": at[7]}
    assert system.ok("PATCH", f"/v1/scheduled/{ids[large('moved there')]}", moved)["state"] == "moved"
    early = received(system, "boarding", "gate", 2)
    waking = _schedules(system)

    bucket = f"{round(following) * 1_000}-60/000"
    wakes = following + 5 - START_MS / 1_000
    system.clock.pass_time(wakes - RELAY_MS / 1_000 - system.clock.now())
    started = system.until(lambda: _started(system, first, bucket), "the start that its schedule relays")
    system.until(lambda: _told(system, first, bucket, "relayed"), "the precise timer that it orders")
    system.swept(2)
    read = [system.reads_timers()]
    system.clock.pass_time(wakes - 1 - system.clock.now())
    timed = system.until(lambda: _timed(system, first, bucket), "the wheel that the queue of timers starts")
    system.clock.pass_time(following + 8 - system.clock.now())
    late = received(system, "boarding", "gate", 3)
    told = {body: system.ok("GET", f"/v1/scheduled/{one}")["state"] for body, one in ids.items()}
    system.clock.pass_time(2 * KEPT_MS / 1_000)
    system.until(lambda: not system.reads_timers(), "the sweep that ends the reading of timers")
    read.append(system.reads_timers())
    told_of_starts = {"waking": waking, "started": started, "timed": timed, "wakes": wakes, "read": read}
    return {"early": early, "late": late, "told": told, "following": following, **told_of_starts}


def _schedules(system: System) -> dict[str, Any]:
    """Returns the groups by name."""
    scheduler = system.client("scheduler")
    names = [found["Name"] for found in scheduler.list_schedules(GroupName=CELL)["Schedules"]]
    return {name: scheduler.get_schedule(GroupName=CELL, Name=name) for name in names}


def _started(system: System, since: int, bucket: str) -> list[Any]:
    wheel = f"{CELL}-wheel"
    entries = system.entries()[since:]
    return [entry for entry in entries if entry.get("started") == wheel and entry["event"].get("bucket") == bucket]


def _told(system: System, since: int, bucket: str, answer: str) -> bool:
    """Returns whether a start of the bucket's wheel has ended with this answer."""
    ended = (entry for entry in system.ended("wheel", since) if entry["event"].get("bucket") == bucket)
    return any(entry["answer"] == {"ended": answer} for entry in ended)


def _timed(system: System, since: int, bucket: str) -> list[tuple[float, dict[str, Any]]]:
    """Returns the messages of the queue of timers that have started the function for the bucket, with the time by which
    each was there."""
    now = system.clock.now()
    starts = (entry for entry in system.entries()[since:] if entry.get("started") == f"{CELL}-wheel")
    bodies_of = [json.loads(each["body"]) for entry in starts for each in entry["event"].get("Records", ())]
    return [(now, body) for body in bodies_of if body["bucket"] == bucket]


def doze(system: System) -> list[str]:
    """Lets a group doze, and wakes it in each way that another function has. Returns the bodies in the order in which
    its consumer takes them, and at the end whether the queue is there."""
    system.ok("PUT", path("resting", "lounge"), {"retry": {"delays_seconds": [0]}})
    taken_bodies: list[str] = []

    def take(url: str, **how: Any) -> str:
        _woken(system, url)
        (one,) = pull(system, "resting", "lounge", wakeup="woken", idle_seconds=IDLE_SECONDS, **how)
        taken_bodies.extend(message["body"] for message in one["messages"])
        return str(one["receipt"])

    url = dozing(system, "resting", "lounge")
    send(system, "resting", [{"body": "produced"}])
    settle(system, "resting", "lounge", {"receipt": take(url)})

    send(system, "resting", [{"body": "released"}])
    (held,) = pull(system, "resting", "lounge", "two")
    dozing(system, "resting", "lounge")
    settle(system, "resting", "lounge", {"receipt": held["receipt"], "release": [0]})
    settle(system, "resting", "lounge", {"receipt": take(url)})

    dozing(system, "resting", "lounge")
    send(system, "resting", [{"body": "first"}, {"body": "passed on"}])
    receipt = take(url, max_messages=1)
    settle(system, "resting", "lounge", {"receipt": receipt}, {"receipt": take(url)})

    dozing(system, "resting", "lounge")
    send(system, "resting", [{"body": "due", "delay": 1}])
    system.clock.pass_time(2)
    settle(system, "resting", "lounge", {"receipt": take(url)})

    send(system, "resting", [{"body": "left behind"}])
    pull(system, "resting", "lounge", "two", lease_seconds=1_800)  # longer than the steps to the queue may take
    dozing(system, "resting", "lounge")
    system.clock.pass_time(1_800)

    def swept() -> list[str]:
        system.swept()
        return taken(system, url)

    system.until(swept, "a wake-up of the sweeper")
    (one,) = pull(system, "resting", "lounge", wakeup="woken", idle_seconds=IDLE_SECONDS)
    taken_bodies.extend(message["body"] for message in one["messages"])
    settle(system, "resting", "lounge", {"receipt": one["receipt"]})

    dozing(system, "resting", "lounge")
    system.ok("POST", f"{path('resting', 'lounge')}/seek", {"to": "start"})
    _woken(system, url)
    received(system, "resting", "lounge", 6)
    system.ok("DELETE", path("resting", "lounge"))
    queues = system.sqs.list_queues(QueueNamePrefix=f"hourwheel-wake-{CELL}_").get("QueueUrls", [])
    return [*taken_bodies, f"queues: {len(queues)}"]


def dozing(system: System, subject: str, group: str) -> str:
    """Pulls as a consumer without messages does, until it is told where to wait. Returns the queue's URL."""

    def rest() -> str | None:
        asked = {"consumer": "one", "idle_seconds": IDLE_SECONDS, "wakeup": "able"}
        answer = system.ok("POST", f"{path(subject, group)}/pull", asked)
        assert answer["pulls"] == []
        system.clock.pass_time(answer.get("next_pull_seconds", 0))
        return answer["wakeup"]["url"] if "wakeup" in answer else None

    url = system.until(rest, f"a group {group} that dozes")
    assert url is not None
    while taken(system, url):  # a wake-up that came before the group dozed
        pass
    return url


def _woken(system: System, url: str) -> None:
    system.until(lambda: taken(system, url), "a wake-up")


_SHIP = """
import json
def handler(event, context):
    failed = [one["id"] for one in event["messages"] if one["body"].startswith("fragile") and one["attempt"] == 1]
    with open({path!r}, "a") as file:
        file.write(json.dumps(event) + "\\n")
    return {{"batchItemFailures": [{{"itemIdentifier": id}} for id in failed]}}
"""


def hear(system: System) -> list[bool]:
    """Returns whether the stream of the table is read: before any group has a target, with a target, and after the
    sweep that follows the removal of the last one."""
    system.swept()  # the mapping is enabled until the first sweep
    heard = [system.listens()]
    system.ok("PUT", path("heard", "queue"), {"push": {"kind": "sqs", "arn": QUEUE.format("airline-nobody")}})
    heard.append(system.listens())
    system.until(lambda: _heard(system), "a row that the stream tells of")
    system.swept()
    heard.append(system.listens())
    system.ok("PUT", path("heard", "queue"), {"push": None})
    system.swept()
    heard.append(system.listens())
    system.ok("DELETE", path("heard"))
    return heard


def _heard(system: System) -> bool:
    """Stores a row that belongs to no subject. Returns whether the function push has received such a row. It receives
    only rows that are stored after the first read of the stream."""
    key = {"pk": {"S": "unheard/0"}, "sk": {"S": str(len(system.entries()))}}
    system.dynamodb.put_item(TableName=f"{CELL}-consume", Item=key)
    system.dynamodb.delete_item(TableName=f"{CELL}-consume", Key=key)
    return any("Records" in entry["event"] for entry in system.entries() if entry.get("started") == f"{CELL}-push")


def push(system: System) -> dict[str, Any]:
    """Checks that five targets get all messages through the stream of the table; one of them fails at first."""
    system.once(hear)
    shipped = system.log.parent / "shipped.jsonl"
    shipped.touch()
    _targets(system, str(shipped))
    targets = {
        "ship": {"kind": "lambda", "arn": SHIP},
        "queue": {"kind": "sqs", "arn": QUEUE.format("airline-orders")},
        "bus": {"kind": "eventbridge", "arn": BUS},
        "web": {"kind": "https", "url": f"https://{HOST}/flights"},
        "notice": {"kind": "notify", "arn": BUS},
    }
    for group, target in targets.items():
        system.ok("PUT", path("departures", group), {"push": target, "retry": RETRY})
    assert system.listens()
    system.clock.pass_time(3)
    sent = [{"body": row.body, "key": row.carrier} for row in flights()[:40]]
    sent += [{"body": "fragile"}, {"body": large("fragile")}]
    send(system, "departures", sent)
    wanted = sorted(message["body"] for message in sent)

    got: dict[str, Delivered] = {name: [] for name in ("ship", "queue", "bus", "web", "notice")}
    orders, events = (
        system.sqs.get_queue_url(QueueName=f"airline-{name}")["QueueUrl"] for name in ("orders", "events")
    )

    def all_there() -> bool:
        got["ship"] = [
            message
            for line in shipped.read_text().splitlines()
            for message in json.loads(line)["messages"]
            if not message["body"].startswith("fragile") or message["attempt"] == 2
        ]
        got["web"] = [message for request in system.hooks.requests for message in json.loads(request.body)["messages"]]
        got["queue"] += map(json.loads, taken(system, orders))
        for event in map(json.loads, taken(system, events)):
            got["notice" if "Available" in event["detail-type"] else "bus"].append(event["detail"])
        return got["notice"] != [] and all(
            len(got[name]) >= len(sent) and idle(system, "departures", name) for name in ("ship", "queue", "bus", "web")
        )

    system.until(all_there, "what was pushed")
    state = system.ok("GET", f"{path('departures', 'web')}/push")
    clock = HandClock(round(system.clock.now() * 1_000))
    for request in system.hooks.requests:
        verify(state["signing_secret"], request.headers, request.body, clock=clock)
    return {"wanted": wanted, **got}


def taken(system: System, url: str) -> list[str]:
    """Empties a queue and returns its contents."""
    found = system.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    for message in found:
        system.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return [message["Body"] for message in found]


def _targets(system: System, shipped: str) -> None:
    system.functions.create_function(
        FunctionName="airline-ship",
        Runtime="python3.13",
        Handler="index.handler",
        Role=f"arn:aws:iam::{ACCOUNT}:role/airline",
        Code={"ZipFile": packed("index.py", _SHIP.format(path=shipped))},
    )
    for name in ("orders", "events"):
        system.sqs.create_queue(QueueName=f"airline-{name}")
    events = system.client("events")
    events.create_event_bus(Name="airport")
    events.put_rule(Name="all", EventBusName="airport", EventPattern=json.dumps({"source": ["hourwheel"]}))
    target = {"Id": "queue", "Arn": QUEUE.format("airline-events")}
    events.put_targets(Rule="all", EventBusName="airport", Targets=[target])


def packed(name: str, text: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, text)
    return data.getvalue()


def counted(messages: Delivered) -> Counter[str]:
    return Counter(message["id"] for message in messages)
