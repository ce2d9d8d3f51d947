"""Defines the records of routes and cells as operators see them: in answers, and in the client."""

from typing import Literal, TypeAlias

from msgspec import Struct

CellState: TypeAlias = Literal["normal", "read_only", "draining", "offline", "removed"]
CellKind: TypeAlias = Literal["real-time", "delay"]


class RouteMapping(Struct, frozen=True, kw_only=True):
    """A span of a queue's offsets and the log that holds it, from ``start`` up to ``end``, which is excluded. ``end``
    is None while the log takes new messages, or if it was lost while it did, so that nobody knows its end. ``state`` is
    ``normal``, ``read_only``, ``expired`` once nothing is left, or ``lost`` when the cell was given up; ``generation``
    counts the uses of this part of the queue, from 1.

    Example:
        >>> (queue,) = api.get_route("orders").queues
        >>> [(mapping.start, mapping.end, mapping.cell, mapping.state) for mapping in queue.mappings]
        [(0, None, 'home', 'normal')]
    """

    start: int
    end: int | None
    cell: str
    log: str
    state: str
    generation: int


class QueueRoute(Struct, frozen=True, kw_only=True):
    """The mappings of a queue, the oldest first. ``moving_to`` is the cell to which the queue is about to move: the
    move is pending until the cells answer (None: no move is pending).

    Example:
        >>> api.get_route("orders").queues[0].moving_to is None
        True
    """

    queue: int
    mappings: list[RouteMapping]
    moving_to: str | None = None


class SubjectRoute(Struct, frozen=True, kw_only=True):
    """The route of a subject. ``epoch`` counts the changes of the route. ``pending_queues`` is the number of queues
    that the subject is about to have (None: no addition of queues is pending).

    Example:
        >>> api.get_route("orders").epoch
        0
    """

    subject: str
    epoch: int
    queues: list[QueueRoute]
    pending_queues: int | None = None


class RouteStep(Struct, frozen=True, kw_only=True):
    """The route before and after an operation. With ``dry_run`` nothing was changed: ``after`` is the route that it
    would lead to.

    Example:
        >>> step = api.add_queues("orders", 2, dry_run=True)
        >>> len(step.before.queues), len(step.after.queues), step.dry_run
        (1, 2, True)
    """

    before: SubjectRoute
    after: SubjectRoute
    dry_run: bool


class CellContent(Struct, frozen=True, kw_only=True):
    """A part of a queue in a cell, with the number of its messages and of open pulls (None: the cell cannot be
    reached). A ``writable`` part takes new messages. The messages are kept until ``kept_until``, when the retention of
    the last one is over, also if every group has settled them (None: there are none, or they cannot be read).

    Example:
        >>> api.drain_cell("fast", dry_run=True).left
        []
    """

    subject: str
    queue: int
    log: str
    writable: bool
    messages: int | None
    leases: int | None
    kept_until: str | None = None


class CellDescription(Struct, frozen=True, kw_only=True):
    """A cell. ``queues`` is the number of queues whose new messages go there, ``parts`` the number of closed parts of
    queues in it, which take no new messages. ``reachable`` says whether the server that answers can read it.
    ``unreadable``, in the answer that sets a cell ``offline``, names the parts whose messages no group gets while the
    cell is offline. These are closed ones, and in a cell that is out of reach also those to which producers send.

    Example:
        >>> home = api.get_cell("home")
        >>> home.state, home.queues, home.reachable
        ('normal', 1, True)
    """

    cell: str
    kinds: tuple[CellKind, ...]
    state: CellState
    location: str
    queues: int
    parts: int
    reachable: bool
    unreadable: list[CellContent] = []


class LostPart(Struct, frozen=True, kw_only=True):
    """A part of a queue that is lost with its cell: the messages from the offset ``start`` up to ``end``, which is
    excluded, except those that were consumed. ``end`` is None if the part took new messages: nobody can tell how many.
    The queue then goes on at the offset ``next_start``, in the cell ``next_cell``.

    Example:
        >>> drained = api.drain_cell("fast")
        >>> api.remove_cell("fast", dry_run=True).lost
        []
    """

    subject: str
    queue: int
    log: str
    start: int
    end: int | None
    next_start: int | None = None
    next_cell: str | None = None


class RemovedCell(CellDescription, frozen=True, kw_only=True):
    """A cell that was removed. ``lost`` lists the parts of queues that are lost with a cell that was given up.

    Example:
        >>> drained = api.drain_cell("fast")
        >>> removed = api.remove_cell("fast")
        >>> removed.state, removed.lost
        ('removed', [])
    """

    lost: list[LostPart] = []


class UnmovedQueue(Struct, frozen=True, kw_only=True):
    """A queue that a drain could not move, and the ``reason``. A ``pending`` move is carried out once the cell answers;
    for any other queue repeat the drain.

    Example:
        >>> api.drain_cell("fast", dry_run=True).unmoved
        []
    """

    subject: str
    queue: int
    pending: bool
    reason: str


class DrainResult(Struct, frozen=True, kw_only=True):
    """The result of a drain: the routes that changed, the queues that could not be moved, and the contents of the cell
    until they are consumed and expire. ``state`` is the state of the cell: ``draining``, also if queues could not be
    moved.

    Example:
        >>> api.drain_cell("fast", dry_run=True).moved
        []
    """

    cell: str
    moved: list[RouteStep]
    left: list[CellContent]
    dry_run: bool
    unmoved: list[UnmovedQueue] = []
    state: CellState = "draining"
