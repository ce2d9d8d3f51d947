"""Opens the deployment in a process that ends amid its work."""

from typing import cast

from hourwheel.adapters.aws.dynamodb import DynamoStore
from hourwheel.adapters.aws.s3 import S3Blobs
from hourwheel.context import Context
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Unavailable
from hourwheel.ports.storage import Key, Record, Refused
from hourwheel.ports.timers import Timers
from hourwheel.system import SystemIds
from tests.support import HandClock, ListMeter, NoWakeups

from .system import System
from .template import CELL


def cut_off_after(system: System, *, puts: int) -> Deployment:
    """Returns the cell in a process that ends after this many writes."""
    left = iter(range(puts))

    class Ending(DynamoStore):
        def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
            if next(left, None) is None:
                raise Unavailable("the end of the process")
            return super().put(key, record, expect=expect)

    context = Context(
        store=Ending(system.dynamodb, prefix=CELL),
        blobs=S3Blobs(lambda: system.s3, system.bucket),
        clock=HandClock(round(system.clock.now() * 1_000)),
        ids=SystemIds(),
        wakeups=NoWakeups(),
        meter=ListMeter(),
        timers=cast(Timers, None),  # never reached
    )
    return Deployment(context)
