"""Shows subjects and groups with their numbers side by side, and what works in the background."""

from hourwheel.api.control.queries import AttentionQuery, DueQuery, HistoryQuery, OverviewQuery, PageQuery
from hourwheel.api.events import Event, Response, ok
from hourwheel.api.requests import decode_query, path_name, time_of
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.fields import check_name


def subjects(deployment: Deployment, event: Event) -> Response:
    from hourwheel.operations.overview import OverviewRequest  # only operators look at the overview

    query = decode_query(OverviewQuery, event)
    order = query.order or ("asc" if query.sort == "name" else "desc")
    after = query.after or ""
    if after and (query.sort, order) == ("name", "asc"):
        check_name(after, "after")
    prefix = check_name(query.prefix, "prefix") if query.prefix else ""
    return ok(deployment.overview.page(OverviewRequest(after, query.limit, prefix, query.sort, order)))


def attention(deployment: Deployment, event: Event) -> Response:
    return ok(deployment.attention.page(decode_query(AttentionQuery, event).limit))


def groups(deployment: Deployment, event: Event) -> Response:
    query = decode_query(PageQuery, event)
    after = check_name(query.after, "after") if query.after else ""
    return ok(deployment.overview.groups(path_name(event, "subject"), after, query.limit))


def history(deployment: Deployment, event: Event) -> Response:
    from hourwheel.operations.history import HistoryRequest, history_page  # for operators alone

    query = decode_query(HistoryQuery, event)
    after = check_name(query.after, "after") if query.after else ""
    group = None if query.group is None else check_name(query.group, "group")
    request = HistoryRequest(path_name(event, "subject"), group, after, query.limit)
    return ok(history_page(deployment.overview, request))


def due(deployment: Deployment, event: Event) -> Response:
    query = decode_query(DueQuery, event)
    subject = None if query.subject is None else deployment.subjects.get(check_name(query.subject, "subject"))
    since_ms = time_of(query.since, "from")
    until_ms = time_of(query.until, "to")
    return ok(deployment.background.due(subject, since_ms, until_ms, query.step))


def wheels(deployment: Deployment, event: Event) -> Response:
    return ok(deployment.background.wheels())


def archive(deployment: Deployment, event: Event) -> Response:
    return ok(deployment.background.archive())
