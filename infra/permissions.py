"""Lists the permissions of each function: the roles are made from these tables, and allow nothing else.

Tables by name without the prefix, objects by the start of their keys. Each verb is one that the library uses there:

    add, seal   UpdateItem on counters        get   GetItem        put      PutItem
    totals      GetItem on counters           scan  Query          delete   DeleteItem
    counters    BatchGetItem on counters      get_many, get_keys  BatchGetItem    remove_many  BatchWriteItem
"""

from collections.abc import Mapping
from typing import TypeAlias

from infra.lake import ARCHIVE, LAST_RUNS

Verbs: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
"""The actions by function, then by table or prefix of the key."""

TABLE_ACTIONS: Verbs = {
    "produce": {
        # No Query and DeleteItem: a message to a deleted subject creates it again, but finishes no deletion that was
        # cut off. The sweeper does.
        "meta": ("GetItem", "PutItem"),
        "counters": ("UpdateItem",),
        # GetItem: a batch whose idempotency key is repeated may have been stored and trimmed.
        "consume": ("GetItem", "PutItem"),
        # A refused condition returns the record. GetItem: before it creates a subject that may have been deleted.
        "keys": ("GetItem", "PutItem"),
        # GetItem: a numbered batch that is repeated after the end of its idempotency key may have been stored.
        "schedule": ("GetItem", "PutItem"),
    },
    "pull": {
        # A pull creates subject and group as well. Query and DeleteItem: it finishes the deletion of a former group,
        # and removes the pages of the former state of an ordered group.
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("BatchGetItem", "UpdateItem"),
        # GetItem: a message that is retried is read by itself. BatchGetItem: messages that were parked behind a busy
        # key of an ordered group. PutItem: retries, dead letters, fillers of holes.
        "consume": ("BatchGetItem", "GetItem", "PutItem", "Query"),
        # BatchGetItem: the pulls that count for a limit of the group, and the open ones of an ordered group.
        "pull": ("BatchGetItem", "GetItem", "PutItem", "Query"),
        "schedule": ("PutItem",),  # delayed retries
    },
    "ack": {
        # Query: the subject with its first groups. PutItem: the first delayed retry registers its bucket.
        "meta": ("GetItem", "PutItem", "Query"),
        "counters": ("UpdateItem",),
        "consume": ("GetItem", "PutItem"),  # copies for the retry and the dead log
        # A receipt has the row as it was. GetItem: a row of an ordered group is too large for a receipt.
        "pull": ("GetItem", "PutItem"),
        "schedule": ("PutItem",),
    },
    "meta": {
        # DeleteItem: records of moves of delayed messages once they are done, and of pushing to groups. BatchGetItem:
        # the records of many subjects, for lists.
        "meta": ("BatchGetItem", "DeleteItem", "GetItem", "PutItem", "Query"),
        # BatchGetItem: the logs of many groups, for the overview.
        "counters": ("BatchGetItem", "GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),  # PutItem: redrive, and fillers of holes
        # PutItem: seek, and the outcome of dead letters. BatchGetItem: as for pull, for the lag.
        "pull": ("BatchGetItem", "GetItem", "PutItem", "Query"),
        # PutItem: cancel and reschedule. BatchGetItem: retries that wait for their delay, to count their attempts, and
        # the states of delayed messages in a list.
        "schedule": ("BatchGetItem", "GetItem", "PutItem", "Query"),
        "dispatch": ("GetItem", "Query"),
    },
    "sweep": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        # GetItem: a queue whose addition was cut off, and a log of orphans that has expired.
        "counters": ("BatchGetItem", "GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),
        # No DeleteItem: expired rows are removed by TTL. BatchGetItem: the open pulls of an ordered group.
        "pull": ("BatchGetItem", "GetItem", "PutItem", "Query"),
        "schedule": ("PutItem",),  # delayed retries
    },
    "delayed": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        # GetItem: how far the archive has the rows of a bucket. UpdateItem: a bucket that is closed is sealed, and a
        # message that moves gets a row.
        "counters": ("GetItem", "UpdateItem"),
        # BatchWriteItem here and in dispatch: rows of buckets that were closed a day ago. DeleteItem: requested changes
        # of their messages.
        "schedule": ("BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query"),
        "dispatch": ("BatchWriteItem", "GetItem", "Query"),
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
    # It pulls and settles as consumers do. Query on meta: the groups with a target for which a new row matters.
    # DeleteItem there: records of groups that have no target any more.
    "push": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("BatchGetItem", "UpdateItem"),
        "consume": ("BatchGetItem", "GetItem", "PutItem", "Query"),
        "pull": ("BatchGetItem", "GetItem", "PutItem", "Query"),
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
    "sweep": {"batches/": ("GetObject", "PutObject"), "scheduled/": ("PutObject",)},
    # Large batches of closed buckets are deleted; those in batches/ expire by the bucket's lifecycle.
    "delayed": {"scheduled/": ("DeleteObject", "GetObject", "PutObject")},
    "wheel": {"batches/": ("PutObject",), "scheduled/": ("GetObject",)},
    "push": {"batches/": ("GetObject", "PutObject"), "scheduled/": ("PutObject",)},
    "archive": {"batches/": ("GetObject",), "scheduled/": ("GetObject",)},
}

CELL_TABLE_ACTIONS: Verbs = {
    # GetItem on meta: the claim of the cell. GetItem and UpdateItem on counters, here and below: a function that finds
    # a move carries it out. GetItem on consume: a batch whose idempotency key is repeated.
    "produce": {
        "meta": ("GetItem",),
        "counters": ("GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem"),
    },
    "pull": {
        # PutItem: the state of an ordered group. DeleteItem and Query, here and below: the pages of a former state.
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("BatchGetItem", "GetItem", "UpdateItem"),
        "consume": ("BatchGetItem", "GetItem", "PutItem", "Query"),  # PutItem: fillers of holes
        "pull": ("BatchGetItem", "GetItem", "PutItem", "Query"),
    },
    # Copies for the retry and the dead log go to the home cell.
    "ack": {
        "meta": ("GetItem",),
        "consume": ("GetItem",),
        "pull": ("GetItem", "PutItem"),
    },
    "meta": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),  # PutItem: the claim of a cell that is added
        "counters": ("BatchGetItem", "GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),
        "pull": ("BatchGetItem", "GetItem", "PutItem", "Query"),
    },
    "sweep": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("BatchGetItem", "GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem", "Query"),
        "pull": ("BatchGetItem", "GetItem", "PutItem", "Query"),
    },
    "delayed": {},
    "wheel": {
        "meta": ("GetItem",),
        "counters": ("GetItem", "UpdateItem"),
        "consume": ("GetItem", "PutItem"),
    },
    "push": {
        "meta": ("DeleteItem", "GetItem", "PutItem", "Query"),
        "counters": ("BatchGetItem", "GetItem", "UpdateItem"),
        "consume": ("BatchGetItem", "GetItem", "PutItem", "Query"),
        "pull": ("BatchGetItem", "GetItem", "PutItem", "Query"),
    },
    "archive": {
        "meta": ("GetItem",),
        "counters": ("GetItem",),
        "consume": ("PutItem", "Query"),
        "pull": ("Query",),
    },
}
"""The actions in the tables of each cell other than the home cell, which holds logs of queues only."""

CELL_OBJECT_ACTIONS: Verbs = {
    "produce": {"batches/": ("PutObject",)},
    "pull": {"batches/": ("GetObject",)},
    "ack": {"batches/": ("GetObject",)},
    "meta": {"batches/": ("GetObject",)},
    "sweep": {"batches/": ("GetObject",)},
    "delayed": {},
    "wheel": {"batches/": ("PutObject",)},
    "push": {"batches/": ("GetObject",)},
    "archive": {"batches/": ("GetObject",)},
}

HOME_ACTIONS_WITH_CELLS: Verbs = {
    # A function that gives a move up checks whether the old log, which may be in the home cell, was sealed already.
    "produce": {"counters": ("GetItem",)},
    "pull": {"counters": ("GetItem",)},
    "push": {"counters": ("GetItem",)},
}
"""Further actions in the tables of the home cell, which only deployments with other cells need."""

TABLE_ACTIONS_WITH_QUOTA: Verbs = {
    "produce": {"meta": ("BatchGetItem", "Query")},
    "pull": {"meta": ("BatchGetItem",)},
}
"""Further actions in the tables where ``max_subjects`` is set: a function counts the subjects before it creates one."""

LAKE_ACTIONS: Verbs = {
    "archive": {ARCHIVE: ("GetObject", "PutObject")},
    "meta": {LAST_RUNS: ("GetObject",)},  # the results of the pipeline's jobs, for GET /v1/archive
}
"""The actions in the bucket of the lake, by function, then by prefix of the key."""


def lists(folders: Mapping[str, tuple[str, ...]]) -> bool:
    """Returns whether a role with these actions needs the right to list the bucket. Without it S3 answers 403 for a
    missing object, and only the reader of the last runs expects that. The right has no condition on the prefix, which
    would never hold for a GET."""
    return any("GetObject" in verbs for folder, verbs in folders.items() if folder != LAST_RUNS)


CALLS_PUSH = frozenset({"push", "sweep"})
"""Functions that start the function push."""

TOGGLES_STREAM = ("meta", "sweep")
"""Functions that enable and disable the reading of the table's stream."""

WAKEUP_ACTIONS: Mapping[str, tuple[str, ...]] = {
    # A message that is stored, retried, due, redriven or resumed wakes the group. A pull wakes the next consumer.
    **dict.fromkeys(("produce", "ack", "wheel"), ("SendMessage",)),
    "sweep": ("DeleteQueue", "SendMessage"),
    "pull": ("CreateQueue", "SendMessage"),
    "meta": ("DeleteQueue", "SendMessage"),
}
"""The actions on the wake-up queues of the cell. The function push has none: it pulls for groups with a target, which
do not doze."""

ORDERS_WHEELS = TABLE_ACTIONS.keys() - {"archive"}
"""Functions that start the wheel, or create a schedule that does."""
