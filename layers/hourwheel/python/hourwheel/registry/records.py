"""The records of subjects and groups, and the errors for those that there are not.

    table      meta
    partition  subject/{subject}    subject/{subject}
    sort       !                    {group}
    value      Subject, msgpack     Group, msgpack

Each subject has a partition of its own, so that the requests for one do not slow those for another, and one query reads
a subject with its groups. The names of all subjects are a list of their own: ``subject_list.py``.

A deleted record stays as a tombstone: it keeps the generation, from which the next one counts on, and says whether the
logs of the subject or group are erased.
"""

from typing import Literal

from hourwheel.context import Context
from hourwheel.errors import NotFound, Unavailable
from hourwheel.logs.cas import CasRecord
from hourwheel.model.fields import DEFAULT_CONSUMER_EXPIRES_SECONDS
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Key, Table


def unknown_subject(name: str, *, creating: bool = False) -> NotFound:
    """``creating``: the request would create the subject if ``auto_create`` was set."""
    lists = "hourwheel subject list shows those that exist"
    advice = f"create it with hourwheel subject create {name}, or PUT /v1/subjects/{name}" if creating else lists
    return NotFound("subject-unknown", f"there is no subject {name!r}: {advice}", field="subject")


def unfinished_deletion(name: str) -> Unavailable:
    return Unavailable(
        f"the deletion of subject {name!r} is not finished, which takes the sweeper a minute: send the request again"
    )


def unknown_group(subject: str, name: str, *, creating: bool = False) -> NotFound:
    """``creating``: the request would create the group if ``auto_create`` was set."""
    lists = f"hourwheel group list {subject} shows those that exist"
    creates = f"create it with hourwheel group create {subject} {name}, or PUT /v1/subjects/{subject}/groups/{name}"
    advice = creates if creating else lists
    return NotFound("group-unknown", f"subject {subject!r} has no group {name!r}: {advice}", field="group")


SUBJECT_SORT = "!"  # before the names of all groups, those of consumers included
FIRST_GROUP = SUBJECT_SORT + "\x00"


def partition_of(subject: str) -> str:
    """Returns the partition of the subject's record and of those of its groups."""
    return f"subject/{subject}"


def subject_key(name: str) -> Key:
    return Key(Table.META, partition_of(name), SUBJECT_SORT)


def subject_record(context: Context, name: str) -> CasRecord[Subject]:
    return CasRecord(context.store, context.ids, subject_key(name), Subject)


def group_record(context: Context, subject: str, name: str) -> CasRecord[Group]:
    return CasRecord(context.store, context.ids, Key(Table.META, partition_of(subject), name), Group)


def alive(group: Group | None, subject: Subject) -> bool:
    """Returns whether the group exists and belongs to this generation of the subject."""
    return group is not None and not group.deleted and group.subject_generation == subject.generation


def new_subject(context: Context, name: str, last: Subject | None, queues: int) -> Subject:
    """Returns the record of a new subject. ``last`` is the tombstone of a former one with its name."""
    return Subject(
        name=name,
        generation=last.generation + 1 if last else 1,
        queues=queues,
        retention_seconds=context.settings.retention_seconds,
        created_ms=context.clock.now_ms(),
    )


def new_group(
    context: Context,
    subject: Subject,
    name: str,
    last: Group | None,
    *,
    start: Literal["earliest", "latest"],
    broadcast: bool,
    ordered: bool,
) -> Group:
    """Returns the record of a new group that begins at ``start``. ``last`` is the tombstone of a former one with its
    name."""
    # The parts that are closed lie before the latest message.
    logs = [subject.log(queue) for queue in range(subject.queues)] if start == "latest" else []
    return Group(
        subject=subject.name,
        subject_generation=subject.generation,
        name=name,
        generation=last.generation + 1 if last else 1,
        start=start,
        created_ms=context.clock.now_ms(),
        origins=tuple(context.log(log).totals().rows for log in logs),
        origin_epoch=subject.epoch,
        origin_logs=tuple(logs) if subject.routes else (),
        broadcast=broadcast,
        consumer_expires_seconds=DEFAULT_CONSUMER_EXPIRES_SECONDS if broadcast else 0,
        ordered=ordered,
    )
