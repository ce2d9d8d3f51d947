"""Provides a group with a push target, and makes the calls of its pusher."""

from typing import Any

from hourwheel.model.groups import PushTarget
from hourwheel.model.lag import Lag
from hourwheel.push.decisions import PusherEnd
from hourwheel.push.pusher import Pusher
from hourwheel.push.state import PushState
from hourwheel.push.waking import start_overdue, wake
from tests.support import Bench

TARGET = PushTarget(kind="lambda", address="arn:aws:lambda:eu-west-1:123456789012:function:bill", concurrency=1)
LOG = "orders~1/0"


def bench_with(target: PushTarget = TARGET, *, store: Any = None, **settings: Any) -> Bench:
    bench = Bench() if store is None else Bench(store)
    bench.deployment.groups.put("orders", "billing", push=target, **settings)
    return bench


def pusher(bench: Bench, owner: str = "p1", **how: Any) -> Pusher:
    deployment = bench.another_process()
    return Pusher(deployment, bench.targets, "orders", "billing", owner, **how)


def push(bench: Bench, owner: str = "p1", **how: Any) -> PusherEnd:
    return pusher(bench, owner, **how).run()


def overdue(bench: Bench) -> int:
    deployment = bench.another_process()
    return start_overdue(deployment.context, deployment.registry)


def woken(bench: Bench, *logs: str) -> int:
    return wake(bench.another_process().context, logs or (LOG,))


def state(bench: Bench) -> PushState:
    return bench.deployment.groups.push_state("orders", "billing")[1]


def lag(bench: Bench) -> Lag:
    return bench.another_process().groups.lag("orders", "billing")
