"""Shows and moves routes, and administers cells."""

from hourwheel.api.control.bodies import CellBody, DrainBody, MoveBody, QueuesBody, SpreadBody
from hourwheel.api.control.messages import queue_number
from hourwheel.api.control.queries import RemovalQuery, WithdrawQuery
from hourwheel.api.events import Event, Response, ok
from hourwheel.api.requests import body_of, decode_control, decode_query, path_name, path_text
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Rejected

_NOTHING = b"{}"


def get_route(deployment: Deployment, event: Event) -> Response:
    return ok(deployment.routes.show(path_name(event, "subject")))


def withdraw(deployment: Deployment, event: Event) -> Response:
    query = decode_query(WithdrawQuery, event)
    return ok(deployment.routes.withdraw(path_name(event, "subject"), query.queue, dry_run=query.dry_run))


def move(deployment: Deployment, event: Event) -> Response:
    body = decode_control(MoveBody, body_of(event))
    queue = queue_number(path_text(event, "queue"))
    return ok(deployment.routes.move(path_name(event, "subject"), queue, body.cell, dry_run=body.dry_run))


def spread(deployment: Deployment, event: Event) -> Response:
    body = decode_control(SpreadBody, body_of(event) or _NOTHING)
    return ok(deployment.routes.spread(path_name(event, "subject"), body.cells, dry_run=body.dry_run))


def add_queues(deployment: Deployment, event: Event) -> Response:
    body = decode_control(QueuesBody, body_of(event))
    return ok(deployment.routes.add_queues(path_name(event, "subject"), body.queues, dry_run=body.dry_run))


def list_cells(deployment: Deployment, event: Event) -> Response:
    return ok({"cells": deployment.cells.all()})


def get_cell(deployment: Deployment, event: Event) -> Response:
    return ok(deployment.cells.show(path_name(event, "cell")))


def put_cell(deployment: Deployment, event: Event) -> Response:
    name = path_name(event, "cell")
    body = decode_control(CellBody, body_of(event) or _NOTHING)
    if body.state is None:
        return ok(deployment.cells.add(name, body.kinds, dry_run=body.dry_run))
    if body.kinds is not None:
        raise Rejected("field-invalid", "send kinds or state, not both: one request makes one change", field="state")
    return ok(deployment.cells.set_state(name, body.state, dry_run=body.dry_run))


def drain(deployment: Deployment, event: Event) -> Response:
    body = decode_control(DrainBody, body_of(event) or _NOTHING)
    return ok(deployment.cells.drain(path_name(event, "cell"), dry_run=body.dry_run))


def remove(deployment: Deployment, event: Event) -> Response:
    query = decode_query(RemovalQuery, event)
    return ok(deployment.cells.remove(path_name(event, "cell"), lost=query.lost, dry_run=query.dry_run))
