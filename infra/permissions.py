"""What each function may do, and no more: the role of a function is made from these tables.

Tables by name without the prefix, objects by the start of their keys. Each verb is one that the library uses there:

    add, seal   UpdateItem on counters        get   GetItem        put      PutItem
    totals      GetItem on counters           scan  Query          delete   DeleteItem
    counters    BatchGetItem on counters      get_many  BatchGetItem
"""

from collections.abc import Mapping
from typing import TypeAlias

from infra.lake import ARCHIVE

Verbs: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
"""By function, then by table or by the start of the key."""

TABLE_ACTIONS: Verbs = {
    "produce": {
        # Query and DeleteItem: what is sent to a deleted subject makes it anew, and whoever does so first finishes the
        # deletion: seals the logs of its groups, removes what is noted of pushing to them.
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("UpdateItem",),
        # GetItem: a batch whose idempotency key comes again may have been stored and trimmed.
        "consume": ("GetItem", "PutItem"),
        # What it remembers comes back with the refusal. GetItem: before a subject is made that may have been deleted.
        "keys": ("GetItem", "PutItem"),
        "schedule": ("PutItem",),
    },
    "pull": {
        # As produce: a pull makes subject and group as well.
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("BatchGetItem", "UpdateItem"),
        # GetItem: a message that is retried is read by itself. PutItem: retries, dead letters, fillers of holes.
        "consume": ("GetItem", "PutItem", "Query"),
        "pull": ("GetItem", "PutItem", "Query"),
        "schedule": ("PutItem",),  # retries that wait
    },
    "ack": {
        # PutItem: the first retry that waits registers its bucket.
        "meta": ("GetItem", "PutItem"),
        "counters": ("UpdateItem",),
        "consume": ("GetItem", "PutItem"),  # copies for the retry and the dead log
        "pull": ("PutItem",),  # the receipt holds the row as it was
        "schedule": ("PutItem",),
    },
    "meta": {
        # DeleteItem: notes of moves of delayed messages once they are done, and of pushing to groups.
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),  # PutItem: redrive, and fillers of holes met on the way
        "pull": ("GetItem", "PutItem", "Query"),  # PutItem: seek, and what became of dead letters
        "schedule": ("GetItem", "PutItem", "Query"),  # PutItem: cancel and reschedule
        "dispatch": ("GetItem", "Query"),
    },
    "sweep": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),
        "pull": ("GetItem", "PutItem", "Query"),  # nothing is deleted: expired rows go by TTL
        # DeleteItem here and in dispatch: buckets that were closed a day ago. They have no TTL.
        "schedule": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "dispatch": ("DeleteItem", "GetItem", "Query"),
    },
    "wheel": {
        "meta": ("GetItem", "PutItem"),  # the lease, the bucket's record, logs of orphans
        "counters": ("GetItem", "UpdateItem"),
        # GetItem: whether a row that a former owner put has been trimmed since.
        "consume": ("GetItem", "PutItem"),
        # BatchGetItem: rows that lie scattered and are due together. PutItem: fillers only.
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
    # Copies of messages that wait go to scheduled/, all others to segments/.
    "produce": {"segments/": ("PutObject",), "scheduled/": ("PutObject",)},
    "pull": {"segments/": ("GetObject", "PutObject"), "scheduled/": ("PutObject",)},
    "ack": {"segments/": ("GetObject", "PutObject"), "scheduled/": ("PutObject",)},
    "meta": {"segments/": ("GetObject", "PutObject"), "scheduled/": ("GetObject", "PutObject")},
    # Segments of closed buckets are deleted; those in segments/ go by the bucket's lifecycle.
    "sweep": {"segments/": ("GetObject", "PutObject"), "scheduled/": ("DeleteObject", "GetObject", "PutObject")},
    "wheel": {"segments/": ("PutObject",), "scheduled/": ("GetObject",)},
    "push": {"segments/": ("GetObject", "PutObject"), "scheduled/": ("PutObject",)},
    "archive": {"segments/": ("GetObject",), "scheduled/": ("GetObject",)},
}

LAKE_ACTIONS: Verbs = {"archive": {ARCHIVE: ("GetObject", "PutObject")}}
"""The same in the bucket of the lake."""


def lists(folders: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether who may do so may list the bucket: without it S3 answers 403 for an object that is not there, and a
    condition on the prefix would never hold for a GET."""
    return any("GetObject" in verbs for verbs in folders.values())


CALLS_PUSH = frozenset({"push", "sweep"})
"""Functions that start the function push."""

TOGGLES_STREAM = ("meta", "sweep")
"""Functions that have the stream of the table read, or no longer."""

ORDERS_WHEELS = TABLE_ACTIONS.keys() - {"archive"}
"""Functions that start the wheel, or have Scheduler start it."""
