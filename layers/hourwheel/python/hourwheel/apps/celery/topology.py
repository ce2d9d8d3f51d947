"""Creates subjects and groups for the queues and exchanges that Kombu declares.

Each program declares its queues and bindings and keeps them in memory. In a subject of their own, each send would
depend on a second subject, and bindings of killed programs would stay. On a shared exchange a queue that is not
durable is a consumer of one broadcast group, which forgets it; its name ends with a token of its process.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from hourwheel.apps.celery.names import exchange_subject, name_of, queue_subject
from hourwheel.apps.celery.options import TransportOptions
from hourwheel.apps.celery.state import BrokerState, Source
from hourwheel.client.api import Api
from hourwheel.client.ensure import ensure_group, ensure_subject
from hourwheel.client.errors import NotFound, Unauthorized
from hourwheel.model.pulls import Settlement

_log = logging.getLogger("hourwheel.celery")

_BROADCAST_GROUP = "queues"
_CONSUMER_EXPIRES_SECONDS = 120  # a broadcast queue belongs to one worker, and is removed soon after its last pull
_TRANSIENT_RETENTION_SECONDS = 3_600  # replies and events: nobody asks for older ones


class SendTarget(NamedTuple):
    """Names the subject of a message. ``declare_again`` creates it with its own settings once it was deleted."""

    subject: str
    declare_again: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Topology:
    """Creates, measures and deletes the subjects and groups of queues and exchanges. Makes no request for those that
    ``state`` remembers as created."""

    api: Api
    state: BrokerState
    options: TransportOptions
    process: str
    """Tells the transient queues of this process from those of the same name that another process had."""

    def subject_of(self, queue: str, level: int = 0) -> str:
        return queue_subject(self.options.queue_name_prefix, queue, level)

    def exchange_subject(self, exchange: str) -> str:
        return exchange_subject(self.options.queue_name_prefix, exchange)

    def consumer_of(self, queue: str) -> str:
        # A worker that comes back under its name must not obey commands that were sent while it was away.
        return f"{name_of(queue)}.{self.process}"[-100:].lstrip(".")

    def levels(self) -> tuple[int, ...]:
        """Returns the levels of priority that a queue has, the highest first."""
        return tuple(reversed(self.options.priority_steps)) or (0,)

    def sources(self, queue: str) -> list[Source]:
        """Returns the sources of the queue's messages, the highest level of priority first."""
        sources = []
        if self.state.has_own_subject(queue):
            for level in self.levels():
                sources.append(Source(self.subject_of(queue, level), self.options.group))
        for exchange, keys in self.state.shared_bindings(queue).items():
            transient = not self.state.is_durable(queue)
            group = _BROADCAST_GROUP if transient else name_of(queue)
            pattern = self.state.keys(exchange, keys)
            sources.append(Source(self.exchange_subject(exchange), group, transient, pattern))
        return sources

    def ensure_queue(self, queue: str) -> None:
        """Creates the subject and the group of a queue that senders reach by its name."""
        if self.state.has_own_subject(queue):
            for level in self.levels():
                subject = self.subject_of(queue, level)
                self._ensure_subject(subject, self.options.retention_seconds)
                self._ensure_group(subject, self.options.group)

    def ensure_exchange(self, exchange: str) -> str:
        """Creates the subject of an exchange. Returns the subject."""
        subject = self.exchange_subject(exchange)
        durable = self.state.exchanges[exchange]["durable"]
        default = self.options.retention_seconds if durable else _TRANSIENT_RETENTION_SECONDS
        self._ensure_subject(subject, self.options.exchange_retention.get(exchange, default))
        return subject

    def ensure_binding(self, queue: str, exchange: str, *, latest: bool = True) -> None:
        """Creates the subject of an exchange, and the group or the consumer for the queue: messages that are sent to
        the exchange from now on reach the queue. Without ``latest`` a durable queue also gets those that the exchange
        holds: a sender may have created the subject again, and sent messages, since it was deleted."""
        subject = self.ensure_exchange(exchange)
        if self.state.is_durable(queue):
            self._ensure_group(subject, name_of(queue), latest=latest)
            return
        self._ensure_group(subject, _BROADCAST_GROUP, latest=True, broadcast=True)
        key = ("consumer", subject, queue)
        if key not in self.state.ensured:
            # The server registers a consumer at its first pull.
            pulled = self.api.pull(subject, _BROADCAST_GROUP, self.consumer_of(queue), max_messages=1)
            releases = [Settlement(receipt=pull.receipt, release=[0]) for pull in pulled.pulls]
            if releases:
                self.api.settle(subject, _BROADCAST_GROUP, releases)
            self.state.ensured.add(key)

    def target_of(self, queue: str, level: int = 0) -> SendTarget:
        return SendTarget(self.subject_of(queue, level), self._once(self.declare_again, queue, self.subject_of(queue)))

    def exchange_target(self, exchange: str) -> SendTarget:
        subject = self.ensure_exchange(exchange)
        return SendTarget(subject, self._once(self.declare_exchange_again, exchange, subject))

    def _once(self, declare: Callable[[str], None], name: str, subject: str) -> Callable[[], None]:
        """Returns a call that declares a queue or exchange again, unless that was done meanwhile: many messages may be
        refused for one deletion."""
        before = self.state.redeclared[subject]

        def declare_once() -> None:
            if self.state.redeclared[subject] == before:
                declare(name)

        return declare_once

    def declare_again(self, queue: str) -> None:
        """Creates the subjects, groups and consumers of a queue that somebody has deleted, with its own settings."""
        _log.warning("queue %r is missing on the server: it is declared again", queue)
        bound = [self.exchange_subject(exchange) for exchange in self.state.shared_bindings(queue)]
        self._forget({queue, name_of(queue), *self._own_subjects(queue), *bound})
        self.ensure_queue(queue)
        for exchange in self.state.shared_bindings(queue):
            self.ensure_binding(queue, exchange, latest=False)
        self.state.redeclared[self.subject_of(queue)] += 1

    def declare_exchange_again(self, exchange: str) -> None:
        """Creates the subject of an exchange that somebody has deleted, with its own settings."""
        _log.warning("exchange %r is missing on the server: it is declared again", exchange)
        self._forget({self.exchange_subject(exchange)})
        self.ensure_exchange(exchange)
        self.state.redeclared[self.exchange_subject(exchange)] += 1

    def exists(self, queue: str) -> bool:
        if not self.state.has_own_subject(queue):
            return bool(self.state.shared_bindings(queue))
        with suppress(NotFound):
            self.api.get_subject(self.subject_of(queue))
            return True
        return False

    def size(self, queue: str) -> int:
        """Counts the messages that can be pulled now."""
        count = 0
        for source in self.sources(queue):
            if not source.transient:
                with suppress(NotFound):
                    lag = self.api.lag(source.subject, source.group)
                    count += lag.waiting + lag.retrying
        return count

    def purge(self, queue: str) -> int:
        """Acknowledges every message that can be pulled now, cancels the delayed messages of the queue's own subject,
        and returns their number. Delayed messages of an exchange stay: other queues get them too."""
        count = 0
        own = self._own_subjects(queue)
        for source in self.sources(queue):
            if source.subject in own:
                count += self._cancel_delayed(source.subject)
            consumer = self.consumer_of(queue)
            with suppress(NotFound):
                count += self._acknowledge_all(source, consumer)
        return count

    def _acknowledge_all(self, source: Source, consumer: str) -> int:
        count = 0
        subject, group = source.subject, source.group
        while pulls := self.api.pull(subject, group, consumer, max_messages=1_000, create=False).pulls:
            self.api.settle(subject, group, [Settlement(receipt=pull.receipt) for pull in pulls])
            count += sum(len(pull.messages) for pull in pulls)
        return count

    def _cancel_delayed(self, subject: str) -> int:
        """Cancels the delayed messages of a subject, and returns how many were not handed over before."""
        count, after = 0, None
        with suppress(NotFound):
            while True:
                page = self.api.list_subject_delayed(subject, after=after)
                for message in page.messages:
                    if message.state in {None, "waiting"}:  # the list has cancelled messages too
                        count += self.api.cancel(message.scheduled_id).state == "cancelled"
                after = page.next
                if after is None:
                    break
        return count

    def delete(self, queue: str) -> None:
        """Deletes the subjects of the queue, its groups of exchanges, and its consumers of broadcast groups."""
        # The subject of an exchange stays: other queues get messages from it.
        own = self._own_subjects(queue)
        for source in self.sources(queue):
            with suppress(NotFound):
                if source.subject in own:
                    self.api.delete_subject(source.subject)
                elif source.transient:
                    self._end_consumer(source, self.consumer_of(queue))
                else:
                    self.api.delete_group(source.subject, source.group)
        self._forget(own | {queue, name_of(queue)})

    def _end_consumer(self, source: Source, consumer: str) -> None:
        """Lets a broadcast group forget a consumer. Where the token does not allow that, the consumer expires."""
        with suppress(Unauthorized):
            self.api.leave(source.subject, source.group, consumer, forget=True)

    def has_exchange(self, exchange: str) -> bool:
        """Returns whether the exchange has a subject: another program has bound a queue to it."""
        key = ("exchange", self.exchange_subject(exchange))
        if key not in self.state.ensured:
            with suppress(NotFound):
                self.api.get_subject(key[1])
                self.state.ensured.add(key)
        return key in self.state.ensured

    def delete_exchange(self, exchange: str) -> None:
        subject = self.exchange_subject(exchange)
        with suppress(NotFound):
            self.api.delete_subject(subject)
        self._forget({subject})

    def _own_subjects(self, queue: str) -> set[str]:
        return {self.subject_of(queue, level) for level in self.levels()}

    def _forget(self, names: set[str]) -> None:
        """Drops what the state remembers as created under one of these names."""
        self.state.ensured.difference_update([key for key in list(self.state.ensured) if not names.isdisjoint(key)])

    def _ensure_subject(self, subject: str, retention_seconds: int) -> None:
        key = ("subject", subject)
        if key not in self.state.ensured:
            ensure_subject(self.api, subject, retention_seconds=retention_seconds)
            self.state.ensured.add(key)

    def _ensure_group(self, subject: str, group: str, *, latest: bool = False, broadcast: bool = False) -> None:
        key = ("group", subject, group)
        if key not in self.state.ensured:
            ensure_group(
                self.api,
                subject,
                group,
                max_attempts=self.options.max_attempts,
                latest=latest,
                consumer_expires_seconds=_CONSUMER_EXPIRES_SECONDS if broadcast else None,
            )
            self.state.ensured.add(key)
