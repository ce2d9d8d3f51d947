"""Uses the cells of a deployment: queues move to them and back, and everything goes on. No step leaves a message
waiting, except in the cell whose tables the last step deletes."""

from typing import Any

from .job import QUEUE, bodies, large, path, pull, received, send, settle, taken
from .system import HOUR, System
from .template import CELL

CELLS = {"fast": {}, "old": {"kinds": ["real-time"]}}


def to(queue: int, *texts: str) -> list[dict[str, Any]]:
    return [{"body": text, "queue": queue} for text in texts]


def move(system: System, subject: str, queue: int, cell: str) -> Any:
    moved = system.ok("POST", f"{path(subject)}/queues/{queue}/move", {"cell": cell})
    return moved["after"]["queues"][queue]["mappings"][-1]


def add(system: System) -> list[dict[str, Any]]:
    """Adds both cells; a third one has no storage. Returns the cells."""
    status, answer = system.call("PUT", "/v1/cells/nowhere", {})
    assert (status, answer["type"]) == (404, "urn:hourwheel:cell-unknown")
    for cell in CELLS:
        system.ok("PUT", f"/v1/cells/{cell}", {})
    return list(system.ok("GET", "/v1/cells")["cells"])


def carry(system: System) -> None:
    """Moves a queue of two to another cell. Small and large batches are sent there, pulled, retried, given up,
    redriven, looked at, and found again after a seek."""
    system.once(add)
    system.ok("PUT", path("cargo"), {"queues": 2})
    send(system, "cargo", [*to(0, "old 0"), *to(1, "old 1")])
    assert move(system, "cargo", 1, "fast") == move_of("fast", "cargo~1/1.1", start=1)
    texts = ["new 1", large("new 1")]
    placed = send(system, "cargo", to(1, *texts), idempotency_key="cargo")
    assert send(system, "cargo", to(1, *texts), idempotency_key="cargo") == placed
    send(system, "cargo", to(0, "new 0"))
    group = path("cargo", "dock")
    system.ok("PUT", group, {"retry": {"first_seconds": 0}})
    found: list[str] = []
    for one in pull(system, "cargo", "dock"):
        found += [message["body"] for message in one["messages"]]
        first, *rest = range(len(one["messages"]))
        settle(system, "cargo", "dock", {"receipt": one["receipt"], "retry": [first], "dead": rest})
    assert sorted(found) == sorted(["old 0", "old 1", "new 0", *texts])
    dead = bodies(system.ok("GET", f"{group}/dead")["messages"])
    again = bodies(received(system, "cargo", "dock", len(found) - len(dead)))
    assert sorted(again + dead) == sorted(found)
    assert system.ok("POST", f"{group}/dead/redrive", {"all": True}) == {"redriven": len(dead)}
    assert bodies(received(system, "cargo", "dock", len(dead))) == dead
    shown = system.ok("GET", f"{path('cargo')}/queues/1/messages?offset=0")["messages"]
    assert bodies(shown) == sorted(["old 1", *texts])
    trace = system.ok("GET", f"{path('cargo')}/messages/1:1")["messages"]
    assert trace
    assert system.ok("GET", "/v1/cells/fast")["queues"] == 1
    shown = system.ok("GET", f"{path('cargo')}/overview")
    assert [each["start"] for each in shown["queues"]] == [0, 0]
    ends = sum(each["end"] for each in shown["queues"])  # the repeated batch had reserved offsets of its own
    assert [(each["group"], each["settled"]) for each in shown["groups"]] == [("dock", ends)]
    system.ok("POST", f"{group}/seek", {"to": "start"})
    assert bodies(received(system, "cargo", "dock", len(found))) == sorted(found)


def move_of(cell: str, log: str, *, start: int, generation: int = 1) -> dict[str, Any]:
    return {"start": start, "end": None, "cell": cell, "log": log, "state": "normal", "generation": generation}


def delay(system: System) -> None:
    """Lets delayed messages fall due after their queue has moved: the wheel hands them over in its new cell."""
    system.once(add)
    system.ok("PUT", path("tower"), {})
    send(system, "tower", [{"body": text, "delay": 3} for text in ("soon", large("soon"))])
    move(system, "tower", 0, "old")
    system.clock.pass_time(5)
    assert bodies(received(system, "tower", "radio", 2)) == sorted(["soon", large("soon")])
    assert system.ok("GET", "/v1/cells/old")["queues"] == 1


def order(system: System) -> None:
    """Serves an ordered group in another cell while one key fails, and lets a lease end there."""
    system.once(add)
    group = path("gates", "staff")
    system.ok("PUT", group, {"ordered": True, "retry": {"first_seconds": 0}})
    move(system, "gates", 0, "fast")
    send(system, "gates", [{"body": f"{key}{number}", "key": key} for number in range(3) for key in "ab"])
    (held,) = pull(system, "gates", "staff", "one", max_messages=1, lease_seconds=2)
    (other,) = pull(system, "gates", "staff", "two")
    assert bodies(other["messages"]) == ["b0", "b1", "b2"]
    settle(system, "gates", "staff", {"receipt": other["receipt"], "retry": [0]})
    assert system.ok("GET", f"{group}/consumers")["consumers"]
    system.swept(2)
    assert bodies(held["messages"]) == ["a0"]
    assert bodies(received(system, "gates", "staff", 6)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    system.ok("DELETE", path("gates"))


def push(system: System) -> list[str]:
    """Pushes from a queue in another cell. Returns the messages that the target got."""
    system.once(add)
    system.sqs.create_queue(QueueName="airline-orders")
    url = system.sqs.get_queue_url(QueueName="airline-orders")["QueueUrl"]
    system.ok("PUT", path("departures"), {})
    move(system, "departures", 0, "fast")
    target = {"kind": "sqs", "arn": QUEUE.format("airline-orders")}
    system.ok("PUT", path("departures", "orders"), {"push": target})
    system.clock.pass_time(3)
    found: list[str] = []
    for number in range(2):
        send(system, "departures", [{"body": str(number)}, {"body": large(str(number))}])
        system.swept()
        system.until(lambda: _heard(system, url, found), "a pushed message")
    system.until(lambda: _heard(system, url, found) or len(found) >= 4, "all pushed messages")
    system.ok("DELETE", path("departures"))
    return sorted(found)


def _heard(system: System, url: str, found: list[str]) -> bool:
    texts = taken(system, url)
    found += texts
    return bool(texts)


def archive(system: System) -> dict[str, Any]:
    """Archives the rows of all cells. Returns the report of the last run."""
    for step in (carry, delay, order):
        system.once(step)
    return system.archived()


def leave(system: System) -> list[str]:
    """Drains a cell, moves its queue back, and removes it once the retention has emptied it. Returns its state at each
    step."""
    for step in (carry, delay, order, push, archive):
        system.once(step)
    states = []
    for subject in ("cargo", "tower"):
        system.ok("PUT", path(subject), {"retention_seconds": 60})
    drained = system.ok("POST", "/v1/cells/fast/drain", {})
    assert {step["after"]["subject"] for step in drained["moved"]} == {"cargo"}
    states.append(system.ok("GET", "/v1/cells/fast")["state"])
    send(system, "cargo", to(1, "back again"))
    assert bodies(received(system, "cargo", "dock", 1)) == ["back again"]
    status, answer = system.call("DELETE", "/v1/cells/fast")
    assert (status, answer["type"]) == (409, "urn:hourwheel:cell-in-use")

    def removed() -> bool:
        system.clock.pass_time(13 * HOUR)
        system.archived()
        system.swept(2)
        return system.call("DELETE", "/v1/cells/fast")[0] == 200

    for _ in range(8):
        if removed():
            break
    assert system.call("GET", "/v1/cells/fast")[0] == 404
    system.ok("PUT", "/v1/cells/fast", {})
    states.append(system.ok("GET", "/v1/cells/fast")["state"])
    return states


def lose(system: System) -> dict[str, Any]:
    """Deletes the tables of a cell. The queues in other cells go on, and the answers name the cell. Returns the lag,
    the report of an archiver, the cell and the functions' log."""
    system.once(leave)
    subject, group = path("tower"), path("tower", "radio")
    system.ok("POST", f"{subject}/queues", {"queues": 2})
    for table in ("meta", "counters", "consume", "pull"):
        system.dynamodb.update_table(TableName=f"{CELL}.old-{table}", DeletionProtectionEnabled=False)
        system.dynamodb.delete_table(TableName=f"{CELL}.old-{table}")
    if system.ok("GET", "/v1/routes/tower")["queues"][1]["mappings"][-1]["cell"] != "home":
        move(system, "tower", 1, "home")
    since = len(system.entries())
    send(system, "tower", to(1, "goes on"))
    assert bodies(message for one in pull(system, "tower", "radio") for message in one["messages"]) == ["goes on"]
    status, answer = system.call("POST", f"{subject}/messages", {"messages": to(0, "x")})
    assert status == 503
    assert "cell old does not answer" in answer["detail"]
    system.swept()
    before = len(system.ended("archive"))
    system.clock.pass_time(HOUR)
    report = system.until(lambda: system.ended("archive")[before:], "an archiver")[-1]
    shown = system.ok("GET", "/v1/cells/old")
    lag = system.ok("GET", f"{group}/lag")
    assert system.ok("GET", f"{subject}/overview")["cells_out"] == lag["cells_out"]
    return {"lag": lag, "archived": report["answer"], "cell": shown, "log": system.reported(since)}


def give_up(system: System) -> list[dict[str, Any]]:
    """Gives up the cell whose tables are deleted: its queue goes on in the home cell. Returns the lost parts."""
    system.once(lose)
    system.ok("PUT", "/v1/cells/old", {"state": "offline"})
    removed = system.ok("DELETE", "/v1/cells/old?lost=true")
    assert removed["state"] == "removed"
    system.clock.pass_time(5)  # the functions have read the new route then
    send(system, "tower", to(0, "behind the gap"))

    def arrived() -> bool:
        # A message of the step before may come again, because its lease is over.
        pulled = (message for one in pull(system, "tower", "radio") for message in one["messages"])
        return "behind the gap" in bodies(pulled)

    system.until(arrived, "a message behind the gap")
    assert system.ok("GET", f"{path('tower', 'radio')}/lag")["cells_out"] == []
    return list(removed["lost"])


STEPS = (add, carry, delay, order, push, archive, leave, lose, give_up)
