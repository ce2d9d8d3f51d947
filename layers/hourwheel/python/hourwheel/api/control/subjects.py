"""Creates, changes, shows, lists, pauses and deletes subjects and groups, and moves groups to other positions."""

from urllib.parse import urlsplit

from msgspec.structs import replace

from hourwheel.api.control.bodies import DecisionBody, FilterBody, GroupBody, PushBody, RetryBody, SeekBody, SubjectBody
from hourwheel.api.control.queries import PageQuery
from hourwheel.api.events import Event, Response, no_content, ok
from hourwheel.api.requests import body_of, decode_control, decode_query, path_name
from hourwheel.deployment.deployment import Deployment
from hourwheel.groups.seeks import QueueSeek
from hourwheel.model.fields import check_name
from hourwheel.model.groups import Group, RetryPolicy
from hourwheel.model.settings import DeclaredField, declared, named_fields
from hourwheel.model.subjects import Subject
from hourwheel.times import parse_rfc3339, rfc3339
from hourwheel.wire.signatures import secrets_of

_NOTHING = b"{}"

READ_ONLY_HEADER = "x-hourwheel-read-only"
"""Asks for the answer that a caller who may only read would get."""


def list_subjects(deployment: Deployment, event: Event) -> Response:
    query = decode_query(PageQuery, event)
    after = check_name(query.after, "after") if query.after else ""
    subjects, following = deployment.subjects.page(after, query.limit)
    return ok({"subjects": [_subject(deployment, subject) for subject in subjects], "next": following})


def get_subject(deployment: Deployment, event: Event) -> Response:
    return ok(_subject(deployment, deployment.subjects.get(path_name(event, "subject"))))


def put_subject(deployment: Deployment, event: Event) -> Response:
    name = path_name(event, "subject")
    body = decode_control(SubjectBody, body_of(event) or _NOTHING)
    return ok(_subject(deployment, deployment.subjects.put(name, **named_fields(body))))


def pause_subject(deployment: Deployment, event: Event) -> Response:
    return ok(_subject(deployment, deployment.subjects.pause(path_name(event, "subject"), paused=True)))


def resume_subject(deployment: Deployment, event: Event) -> Response:
    return ok(_subject(deployment, deployment.subjects.pause(path_name(event, "subject"), paused=False)))


def delete_subject(deployment: Deployment, event: Event) -> Response:
    return _deleted(deployment.subjects.delete(path_name(event, "subject")))


def _deleted(cells_out: list[str]) -> Response:
    return ok({"cells_out": cells_out}) if cells_out else no_content()


def list_groups(deployment: Deployment, event: Event) -> Response:
    query = decode_query(PageQuery, event)
    after = check_name(query.after, "after") if query.after else ""
    groups, following = deployment.groups.page(path_name(event, "subject"), after, query.limit)
    return ok({"groups": [_shown_group(deployment, group, event) for group in groups], "next": following})


def get_group(deployment: Deployment, event: Event) -> Response:
    return ok(
        _shown_group(deployment, deployment.groups.get(path_name(event, "subject"), path_name(event, "group")), event)
    )


def put_group(deployment: Deployment, event: Event) -> Response:
    subject, name = path_name(event, "subject"), path_name(event, "group")
    named = named_fields(decode_control(GroupBody, body_of(event) or _NOTHING))
    settings = {
        field: value.stored if isinstance(value, RetryBody | PushBody | FilterBody) else value
        for field, value in named.items()
    }
    return ok(_group(deployment, deployment.groups.put(subject, name, **settings)))


def pause_group(deployment: Deployment, event: Event) -> Response:
    return ok(
        _group(deployment, deployment.groups.pause(path_name(event, "subject"), path_name(event, "group"), paused=True))
    )


def resume_group(deployment: Deployment, event: Event) -> Response:
    return ok(
        _group(
            deployment, deployment.groups.pause(path_name(event, "subject"), path_name(event, "group"), paused=False)
        )
    )


def delete_group(deployment: Deployment, event: Event) -> Response:
    return _deleted(deployment.groups.delete(path_name(event, "subject"), path_name(event, "group")))


def seek(deployment: Deployment, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    body = decode_control(SeekBody, body_of(event))
    seeks = deployment.seeks(dry_run=body.dry_run)
    if body.to is not None:
        moved = seeks.seek(subject, group, body.to)
    elif body.time is not None:
        moved = seeks.seek_time(subject, group, parse_rfc3339(body.time, "time"))
    else:
        assert body.queue is not None
        assert body.offset is not None
        moved = seeks.seek_offset(subject, group, body.queue, body.offset)
    return ok(
        _dry_run(moved) if body.dry_run else {"positions": [_position(*entry) for entry in sorted(moved.items())]}
    )


def _position(queue: int, seek: QueueSeek) -> dict[str, int]:
    return {"queue": queue, "offset": seek.offset}


def _dry_run(moved: dict[int, QueueSeek]) -> dict[str, object]:
    positions = [
        {**_position(queue, seek), "served_again": seek.served_again, "passed_over": seek.passed_over}
        for queue, seek in sorted(moved.items())
    ]
    messages = sum(seek.served_again + seek.passed_over for seek in moved.values())
    return {"positions": positions, "messages": messages, "dry_run": True}


def decide_held(deployment: Deployment, event: Event) -> Response:
    body = decode_control(DecisionBody, body_of(event))
    keys = None if body.keys is None else frozenset(body.keys)
    decided = deployment.groups.decide(path_name(event, "subject"), path_name(event, "group"), keys, body.then)
    return ok({"decided": decided})


def get_push(deployment: Deployment, event: Event) -> Response:
    group, state = deployment.groups.push_state(path_name(event, "subject"), path_name(event, "group"))
    now_ms = deployment.context.clock.now_ms()
    paused = state.paused(now_ms)
    secrets = secrets_of(deployment.secret, group)
    return ok(
        {
            "state": "paused" if paused or group.paused else "running" if state.alive(now_ms) else "idle",
            "paused_until": rfc3339(state.resumes_ms) if paused else None,
            "failures": state.failures,
            "last_error": state.error or None,
            "signing_secret": secrets[0] if secrets else None,
        }
    )


def lag(deployment: Deployment, event: Event) -> Response:
    return ok(deployment.groups.lag(path_name(event, "subject"), path_name(event, "group")))


def _subject(deployment: Deployment, subject: Subject) -> dict[str, object]:
    """Returns the subject with its first page of groups, so that a page of subjects fits into an answer."""
    groups, following = deployment.registry.group_page(subject)
    return {
        "subject": subject.name,
        **{field.name: getattr(subject, field.name) for field in declared(Subject)},
        "paused": subject.paused,
        "created_at": rfc3339(subject.created_ms),
        "groups": [group.name for group in groups],
        "more_groups": following is not None,
    }


def _shown_group(deployment: Deployment, group: Group, event: Event) -> dict[str, object]:
    """Returns the group for the caller of the event. A caller who may only read, or who asks to be answered so, gets of
    a target's URL the scheme and the host. The rest may be all that it takes to be able to send to the target."""
    reads_only = event.get("readOnly") or READ_ONLY_HEADER in (event.get("headers") or {})
    if group.push is not None and group.push.kind == "https" and reads_only:
        group = replace(group, push=replace(group.push, address=_origin_of(group.push.address)))
    return _group(deployment, group)


def _origin_of(url: str) -> str:
    """Returns the scheme, the host and the port of a URL, without a user, a password, a path or a query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"


def _group(deployment: Deployment, group: Group) -> dict[str, object]:
    return {
        "subject": group.subject,
        "group": group.name,
        **{field.name: _value(group, field) for field in declared(Group)},
        "retry": _retry(group.retry or deployment.context.settings.retry),
        "push": None if group.push is None else PushBody.of(group.push),
        "paused": group.paused,
        "filter": group.filter,
        "created_at": rfc3339(group.created_ms),
    }


def _value(group: Group, field: DeclaredField) -> object:
    """Returns the value of a setting; None for one that groups of this kind do not have."""
    has = not field.setting.needs or getattr(group, field.setting.needs)
    return getattr(group, field.name) if has else None


def _retry(policy: RetryPolicy) -> dict[str, object]:
    """Returns the body that a client would send for the policy."""
    if policy.delays_seconds:
        return {"delays_seconds": policy.delays_seconds}
    return {"first_seconds": policy.first_seconds, "factor": policy.factor, "cap_seconds": policy.cap_seconds}
