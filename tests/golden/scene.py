"""A deployment that has something of everything under way, and what a later version makes of it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hourwheel.api.grants import AccessGrant, GrantKeys, draw_keys, open_grant, sign_grant
from hourwheel.archive.archiver import Archiver
from hourwheel.context import Settings
from hourwheel.model.groups import PushTarget, RetryPolicy, TagFilter
from hourwheel.model.messages import Message, NewMessage, SendResult
from hourwheel.model.pulls import Pull, Rejection, RetryLater, Settlement
from hourwheel.ports.storage import Blobs
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.trace.messages import SearchSpan
from tests.support import Bench

SETTINGS = Settings(archive=True, inline_bytes=2_000)
ONCE = IdempotencyKey("monday", b"d" * 32)
GROUPS = (("orders", "billing"), ("orders", "large"), ("orders", "steps"), ("moved", "billing"))
HOURS = 3


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What callers were told, and hold now. ``receipts``: of pulls that are not settled, by subject and group."""

    now_ms: int
    receipts: list[tuple[str, str, str]]
    ids: dict[str, str]
    scheduled_ids: dict[str, str]
    once: list[SendResult]
    token: str


def made(bench: Bench, archive: Blobs) -> Told:
    """Uses an empty deployment, and returns what its callers hold."""
    deployment = bench.deployment
    deployment.subjects.put("orders", queues=2)
    deployment.groups.put("orders", "billing", max_attempts=3, retry=RetryPolicy(first_seconds=60))
    deployment.groups.put("orders", "large", filter=TagFilter(tags_any=("large",)))
    deployment.groups.put("orders", "steps", ordered=True, retry=RetryPolicy(first_seconds=60))
    deployment.groups.put("orders", "pushed", push=PushTarget(kind="https", address="https://example.org/hook"))
    ids = _sent(bench)
    once = deployment.produce("orders", [NewMessage(body="once", queue=0)], ONCE)
    scheduled = _delayed(bench)
    receipts = _settled_in_part(bench)
    _moved(bench)
    _pass_minutes(bench, 2)
    assert Archiver(deployment.context, deployment.registry, archive).run(bench.clock.ms + 600_000).complete
    # The archive lacks what follows.
    ids |= {"last": _id(bench.send("last", key="k"))}
    receipts += [_receipt("moved", "billing", pull) for pull in bench.pull(1, subject="moved")]
    keys = draw_keys(deployment.context)
    until_s = bench.clock.ms // 1_000 + 86_400
    grant = AccessGrant(version=keys.version, expires_s=until_s, lifetime_s=3_600, until_s=until_s, produce=["orders"])
    return Told(
        now_ms=bench.clock.ms,
        receipts=receipts,
        ids=ids,
        scheduled_ids={name: result.scheduled_id or "" for name, result in scheduled.items()},
        once=once,
        token=sign_grant(keys, grant),
    )


def _sent(bench: Bench) -> dict[str, str]:
    produce = bench.deployment.produce
    ids = {body: _id(bench.send(body, key="k")) for body in ("first", "second", "third")}
    ids["tagged"] = _id(produce("orders", [NewMessage(body="tagged", queue=1, tags=["large"], headers={"trace": "1"})]))
    ids["bytes"] = _id(produce("orders", [NewMessage(body_base64=b"\x00\xff", queue=0, id="given")]))
    ids["long"] = _id(produce("orders", [NewMessage(body="".join(map(str, range(2_000))), queue=0)]))
    return ids


def _delayed(bench: Bench) -> dict[str, SendResult]:
    delays = {"soon": "30s", "minutes": "20m", "hours": "2h", "cancelled": "2h", "put off": "30m", "months": "90d"}
    results = {
        name: bench.deployment.produce("orders", [NewMessage(body=name, delay=delay, queue=0)])[0]
        for name, delay in delays.items()
    }
    bench.deployment.delayed.cancel(results["cancelled"].scheduled_id or "")
    bench.deployment.delayed.reschedule(results["put off"].scheduled_id or "", delay="1h")
    return results


def _settled_in_part(bench: Bench) -> list[tuple[str, str, str]]:
    """Leaves messages acknowledged, retried, dead, released and leased in each kind of group."""
    receipts = []
    for group in ("billing", "steps"):
        for number, pull in enumerate(bench.pull(3, group=group, lease=3_600)):
            if number == 0:
                retry = [RetryLater(index=0, detail="the bank is closed")]
                bench.settle(pull, group=group, ack=[], retry=retry)
            receipts.append(_receipt("orders", group, pull))
    for pull in bench.pull(1, group="billing", lease=3_600):
        bench.settle(pull, dead=[Rejection(index=0, detail="the order is empty")])
    for pull in bench.pull(1, group="large", lease=60):
        bench.settle(pull, group="large", release=[0])
    return receipts


def _moved(bench: Bench) -> None:
    """Leaves a subject with a queue more than it had, and messages on both sides of the change."""
    bench.deployment.subjects.put("moved", queues=1)
    bench.deployment.groups.put("moved", "billing")
    bench.send(*"abc", subject="moved", key="k")
    bench.pull(1, subject="moved")
    bench.deployment.subjects.put("moved", queues=2)
    bench.deployment.sweeper.sweep()
    bench.send(*"de", subject="moved", key="k")


def _pass_minutes(bench: Bench, minutes: int) -> None:
    for _ in range(minutes):
        bench.turn(60)
        bench.deployment.sweeper.sweep()


def continued(bench: Bench, told: Told, archive: Blobs) -> dict[str, Any]:
    """Goes on with all that callers hold, for some hours, and returns what they are told."""
    deployment = bench.deployment
    deployment.prepare()
    bench.clock.ms = told.now_ms
    found: dict[str, Any] = {"grant": open_grant(deployment, told.token, GrantKeys()).grant.produce}
    found["once"] = deployment.produce("orders", [NewMessage(body="once", queue=0)], ONCE) == told.once
    found["settled"] = [
        [*where, deployment.settle(*where, [Settlement(receipt=receipt)])[0].status]
        for *where, receipt in told.receipts
    ]
    found["settled again"] = [
        deployment.settle(*where, [Settlement(receipt=receipt)])[0].status for *where, receipt in told.receipts
    ]
    found["delayed"] = {name: deployment.delayed.get(place).state for name, place in told.scheduled_ids.items()}
    found["months"] = deployment.delayed.cancel(told.scheduled_ids["months"]).state
    found["offsets"] = [(result.queue, result.offset) for result in bench.send("new", key="k")]
    found["taken"] = _taken(bench)
    found["delayed at last"] = {name: deployment.delayed.get(place).state for name, place in told.scheduled_ids.items()}
    found["dead"] = _dead(bench)
    found["traced"] = {name: _trace(bench, place) for name, place in told.ids.items()}
    found["lag"] = {f"{subject}/{group}": _lag(bench, subject, group) for subject, group in GROUPS}
    found["archived"] = (
        Archiver(deployment.context, deployment.registry, archive).run(bench.clock.ms + 600_000).complete
    )
    return found


def _taken(bench: Bench) -> dict[str, list[str]]:
    """Returns what each group was handed: of an ordered group each queue in its order."""
    taken: dict[str, list[str]] = {f"{subject}/{group}": [] for subject, group in GROUPS}
    for _ in range(HOURS * 12):
        for subject, group in GROUPS:
            for pull in bench.pull(subject=subject, group=group):
                taken[f"{subject}/{group}"] += [_shown(message) for message in pull.messages]
                assert bench.settle(pull, subject=subject, group=group) == "settled"
        _pass_minutes(bench, 5)
    # The messages of one key are in one queue. Which queue comes first is nobody's promise.
    return {name: sorted(bodies, key=_queue if name.endswith("steps") else None) for name, bodies in taken.items()}


def _lag(bench: Bench, subject: str, group: str) -> list[int]:
    lag = bench.deployment.groups.lag(subject, group)
    return [lag.waiting, lag.in_flight, lag.retrying, lag.dead]


def _dead(bench: Bench) -> list[list[str | None]]:
    page = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=100)
    return [[_shown(message), message.reason, message.detail] for message in page.messages]


def _trace(bench: Bench, message_id: str) -> list[list[Any]]:
    page = bench.deployment.messages.trace("orders", message_id, SearchSpan(bench.clock.ms - 6 * 3_600_000))
    return [
        [trace.state, trace.queue, trace.offset, *sorted([group.group, group.state] for group in trace.groups)]
        for trace in page.messages
    ]


def _shown(message: Message) -> str:
    body = message.body if message.body is not None else (message.body_base64 or b"").hex()
    # A store without transactions leaves gaps between the offsets of messages that a wheel hands over.
    offset = "later" if message.due_at else message.offset
    return f"{body[:20]} at {message.queue}:{offset}, attempt {message.attempt}"


def _queue(shown: str) -> str:
    return shown.partition(" at ")[2].partition(":")[0]


def _id(results: Sequence[SendResult]) -> str:
    return results[0].id


def _receipt(subject: str, group: str, pull: Pull) -> tuple[str, str, str]:
    return subject, group, pull.receipt
