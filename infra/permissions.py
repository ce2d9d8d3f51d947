"""The permissions of each function: the roles are made from these tables, and allow nothing else.

Tables by name without the prefix, objects by the start of their keys. Each verb is one that the library uses there:

    add, seal   UpdateItem on counters        get   GetItem        put      PutItem
    totals      GetItem on counters           scan  Query          delete   DeleteItem
    counters    BatchGetItem on counters      get_many  BatchGetItem
"""

from collections.abc import Mapping
from typing import TypeAlias

from infra.lake import ARCHIVE

Verbs: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The actions by function, then by table or prefix of the key."""

TABLE_ACTIONS: Verbs = {
    "produce": {
        # Query and DeleteItem: a message to a deleted subject creates it anew. The first caller to do so completes the
        # deletion: it seals the logs of the groups and removes the records of pushing to them.
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("UpdateItem",),
        # GetItem: a batch whose idempotency key is repeated may have been stored and trimmed.
        "consume": ("GetItem", "PutItem"),
        # A refused condition returns the record. GetItem: before it creates a subject that may have been deleted.
        "keys": ("GetItem", "PutItem"),
        "schedule": ("PutItem",),
    },
    "pull": {
        # As for produce: a pull creates subject and group as well.
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("BatchGetItem", "UpdateItem"),
        # GetItem: a message that is retried is read by itself. PutItem: retries, dead letters, fillers of holes.
        "consume": ("GetItem", "PutItem", "Query"),
        "pull": ("GetItem", "PutItem", "Query"),
        "schedule": ("PutItem",),  # delayed retries
    },
    "ack": {
        # PutItem: the first delayed retry registers its bucket.
        "meta": ("GetItem", "PutItem"),
        "counters": ("UpdateItem",),
        "consume": ("GetItem", "PutItem"),  # copies for the retry and the dead log
        "pull": ("PutItem",),  # the receipt has the row as it was
        "schedule": ("PutItem",),
    },
    "meta": {
        # DeleteItem: notes of moves of delayed messages once they are done, and of pushing to groups.
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),  # PutItem: redrive, and fillers of holes that it meets
        "pull": ("GetItem", "PutItem", "Query"),  # PutItem: seek, and the outcome of dead letters
        "schedule": ("GetItem", "PutItem", "Query"),  # PutItem: cancel and reschedule
        "dispatch": ("GetItem", "Query"),
    },
    "sweep": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),
        "pull": ("GetItem", "PutItem", "Query"),  # no DeleteItem: expired rows are removed by TTL
        # DeleteItem here and in dispatch: rows of buckets that were closed a day ago, which have no TTL.
        "schedule": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "dispatch": ("DeleteItem", "GetItem", "Query"),
    },
    "wheel": {
        "meta": ("GetItem", "PutItem"),  # the lease, the bucket's record, logs of orphans
        "counters": ("GetItem", "UpdateItem"),
        # GetItem: to see whether a row of a former owner has been trimmed since.
        "consume": ("GetItem", "PutItem"),
        # BatchGetItem: rows that are due together and not adjacent. PutItem: fillers only.
        "schedule": ("BatchGetItem", "GetItem", "PutItem", "Query"),
        "dispatch": ("PutItem", "Query"),
    },
    # It pulls and settles as consumers do. Query on meta: whom a new row concerns. DeleteItem there: records of groups
    # that have no target any more.
    "push": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("BatchGetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),
        "pull": ("GetItem", "PutItem", "Query"),
        "schedule": ("PutItem",),
    },
    "archive": {
        "meta": ("GetItem", "PutItem", "Query"),
        "counters": ("GetItem",),
        "consume": ("PutItem", "Query"),
        "pull": ("Query",),
        "schedule": ("PutItem", "Query"),
        "dispatch": ("Query",),
    },
}

OBJECT_ACTIONS: Verbs = {
    # Copies of delayed messages go to scheduled/, all others to batches/.
    "produce": {"batches/": ("PutObject",), "scheduled/": ("PutObject",)},
    "pull": {"batches/": ("GetObject", "PutObject"), "scheduled/": ("PutObject",)},
    "ack": {"batches/": ("GetObject", "PutObject"), "scheduled/": ("PutObject",)},
    "meta": {"batches/": ("GetObject", "PutObject"), "scheduled/": ("GetObject", "PutObject")},
    # Large batches of closed buckets are deleted; those in batches/ expire by the bucket's lifecycle.
    "sweep": {"batches/": ("GetObject", "PutObject"), "scheduled/": ("DeleteObject", "GetObject", "PutObject")},
    "wheel": {"batches/": ("PutObject",), "scheduled/": ("GetObject",)},
    "push": {"batches/": ("GetObject", "PutObject"), "scheduled/": ("PutObject",)},
    "archive": {"batches/": ("GetObject",), "scheduled/": ("GetObject",)},
}

LAKE_ACTIONS: Verbs = {"archive": {ARCHIVE: ("GetObject", "PutObject")}}
"""The actions in the bucket of the lake, by function, then by prefix of the key."""


def lists(folders: Mapping[str, tuple[str, ...]]) -> bool:
    """Returns whether a role with these actions must list the bucket: without that right S3 answers 403 for a missing
    object. A condition on the prefix would never hold for a GET."""
    return any("GetObject" in verbs for verbs in folders.values())


CALLS_PUSH = frozenset({"push", "sweep"})
"""Functions that start the function push."""

TOGGLES_STREAM = ("meta", "sweep")
"""Functions that enable and disable the reading of the table's stream."""

ORDERS_WHEELS = TABLE_ACTIONS.keys() - {"archive"}
"""Functions that start the wheel, or create a schedule that does."""
