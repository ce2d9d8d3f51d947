"""Remembers the exchanges, queues and bindings that a process has declared, and from where a queue gets its messages.

Kombu declares exchanges and queues before each use, so no server stores them. There are two kinds of exchanges:

- A durable direct exchange, such as Celery has for tasks. The sender declares the queue, so the sender knows the
  bindings, and a message goes into the subject of each queue.
- Every other exchange: fanout, topic, and direct for replies. Its sender need not know the queues. The exchange is a
  subject of its own; a durable queue is a group of that subject. Any other queue is a consumer of a broadcast group,
  which the server forgets when nobody pulls for it. The receiver drops messages whose routing key does not match.
"""

import re
from collections import Counter, defaultdict
from typing import NamedTuple

from kombu.transport import virtual
from kombu.transport.virtual.exchange import TopicExchange

_pattern = TopicExchange(None).key_to_pattern


class QueueKind(NamedTuple):
    """Says how a queue was declared. A queue that is not durable belongs to this process and ends with it."""

    durable: bool


class Source(NamedTuple):
    """Names one source of a queue's messages: a group of a subject, and the routing keys that the queue takes there.

    ``transient`` says that the queue is a consumer of a broadcast group.
    """

    subject: str
    group: str
    transient: bool = False
    keys: re.Pattern[str] | None = None

    def takes(self, routing_key: str) -> bool:
        return self.keys is None or self.keys.match(routing_key) is not None


class BrokerState(virtual.BrokerState):
    """Adds the declared queues to the exchanges and bindings that Kombu keeps, and decides where messages go."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, QueueKind] = {}
        self.ensured: set[tuple[str, ...]] = set()  # subjects, groups and consumers that exist: no further request
        self.redeclared: Counter[str] = Counter()
        """How often the subject of a queue or exchange was declared again because somebody had deleted it."""

    def is_shared(self, exchange: str) -> bool:
        """Returns whether the exchange is a subject of its own."""
        declaration = self.exchanges[exchange]
        return declaration["type"] != "direct" or not declaration["durable"]

    def shared_bindings(self, queue: str) -> dict[str, list[str]]:
        """Returns the routing keys by which the queue is bound to each exchange that is a subject of its own."""
        bound = defaultdict(list)
        for binding in self.queue_bindings(queue):
            if binding.exchange in self.exchanges and self.is_shared(binding.exchange):
                bound[binding.exchange].append(binding.routing_key or "")
        return bound

    def has_own_subject(self, queue: str) -> bool:
        """Returns whether senders can reach the queue by its name. A transient queue that is bound to an exchange has
        no subject of its own: it gets its messages from that of the exchange."""
        return self.is_durable(queue) or not self.shared_bindings(queue)

    def is_durable(self, queue: str) -> bool:
        """Returns whether the queue outlives this process. A queue that this process has not declared does."""
        kind = self.queues.get(queue)
        return kind is None or kind.durable

    def keys(self, exchange: str, routing_keys: list[str]) -> re.Pattern[str] | None:
        """Returns the pattern of the routing keys that one of these bindings takes, None for all."""
        kind = self.exchanges[exchange]["type"]
        if kind == "fanout":
            return None
        patterns = [_pattern(key) if kind == "topic" else f"^{re.escape(key)}$" for key in routing_keys]
        return re.compile("|".join(patterns))


_states: dict[tuple[str, str], BrokerState] = {}


def state_of(url: str, prefix: str) -> BrokerState:
    """Returns the state that all connections of this process to one server share."""
    return _states.setdefault((url, prefix), BrokerState())  # atomic, and so without a lock that a fork could copy held
