"""Hands messages to a consumer one after the other, on the thread that asks for them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hourwheel.client.api import Api
from hourwheel.client.calls.pull import pull_encoded
from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome
from hourwheel.client.consuming.lease_tracker import LeaseTracker
from hourwheel.client.consuming.local_queue import LocalQueue
from hourwheel.client.consuming.settlements import refused
from hourwheel.client.errors import NotFound
from hourwheel.model.fields import Delay
from hourwheel.ports.machine import Clock


class SteppedOptions(NamedTuple):
    """Holds those options of a consumer that a source needs."""

    subject: str
    group: str
    consumer_id: str
    max_messages: int
    lease_seconds: int


class SteppedSource:
    """Pulls when it has no message left, and settles before it hands out the next one: no thread and no waiting.

    ``next`` returns None once the queue has no message for the group now. ``handed`` counts the messages that were
    handed out. ``before_next`` is called before each of them, and may raise an error that ends the run.
    """

    def __init__(self, options: SteppedOptions, api: Api, clock: Clock, before_next: Callable[[], object]) -> None:
        self._options = options
        self._clock = clock
        self._before_next = before_next
        self._api = api
        # No settlement waits for others: tests see the effect of a handler when the next one runs.
        self._leases = LeaseTracker(lease_seconds=options.lease_seconds, linger_seconds=0)
        self._queue = LocalQueue()
        self._stopping = False
        self.failure: BaseException | None = None
        self.handed = 0

    @property
    def lost_messages(self) -> int:
        return self._leases.lost_messages

    def start(self, handlers: int | None = None) -> None:
        pass

    def next(self) -> Delivery | None:
        self._settle()
        if self._stopping:
            return None
        delivery = self._queue.take() or (self._queue.take() if self._pull() else None)
        if delivery is not None:
            self.handed += 1
            self._before_next()
        return delivery

    def next_batch(self) -> list[Delivery]:
        delivery = self.next()
        batch = [] if delivery is None else [delivery]
        while batch and len(batch) < self._options.max_messages and (delivery := self._queue.take()) is not None:
            batch.append(delivery)
            self.handed += 1
        return batch

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            delivery.ack()

    def release(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._decide(delivery, DeliveryOutcome.RELEASE)

    def stop(self, *, drain_seconds: float) -> None:
        self._stopping = True

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._stopping = True

    def finish(self) -> None:
        """Releases the messages that no handler has begun, and sends all settlements."""
        while self._queue.deliveries:
            self.release([self._queue.deliveries.popleft()])
        self._settle()

    def _decide(self, delivery: Delivery, outcome: DeliveryOutcome, delay: Delay | None = None) -> None:
        now = self._now()
        self._leases.decide(delivery, outcome, now, delay)
        if delivery.ordered_key is not None:
            # Later messages of a key go back if one fails: the server serves the failed message before them.
            for later in self._queue.free(delivery, outcome):
                self._leases.decide(later, DeliveryOutcome.RELEASE, now)

    def _pull(self) -> bool:
        """Pulls without waiting, and returns whether there were messages."""
        options = self._options
        pulled = pull_encoded(
            self._api,
            options.subject,
            options.group,
            options.consumer_id,
            max_messages=options.max_messages,
            wait_seconds=0,
            lease_seconds=options.lease_seconds,
            settle=(),
        )
        for pull in pulled.pulls:
            self._queue.deliveries.extend(self._leases.open(pull, self._now(), self._decide))
        return bool(pulled.pulls)

    def _settle(self) -> None:
        options, now = self._options, self._now()
        if not self._leases.lingering:
            return
        settlements = self._leases.due(now, ending=True)
        try:
            results = self._api.settle(options.subject, options.group, settlements, retry_seconds=0)
        except NotFound as error:
            results = refused(error, settlements)
        self._leases.answered(settlements, results, now)

    def _now(self) -> float:
        return self._clock.now_ms() / 1_000


class AsyncSteppedSource:
    """Hands out the messages of a ``SteppedSource`` to the tasks of an event loop."""

    def __init__(self, stepped: SteppedSource) -> None:
        self._stepped = stepped
        self.start = stepped.start
        self.acknowledge = stepped.acknowledge
        self.release = stepped.release
        self.stop = stepped.stop
        self.fail = stepped.fail

    @property
    def failure(self) -> BaseException | None:
        return self._stepped.failure

    @property
    def lost_messages(self) -> int:
        return self._stepped.lost_messages

    async def next(self) -> Delivery | None:
        return self._stepped.next()

    async def next_batch(self) -> list[Delivery]:
        return self._stepped.next_batch()

    async def finish(self) -> None:
        self._stepped.finish()
