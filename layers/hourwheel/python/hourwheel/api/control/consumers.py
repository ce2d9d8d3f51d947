"""Lists the consumers and leases of a group, counts its retries, and ends the leases of a consumer that left."""

from hourwheel.api.control.bodies import EarlyRetryBody
from hourwheel.api.control.queries import LeaveQuery
from hourwheel.api.events import Event, Response, ok
from hourwheel.api.requests import body_of, decode_control, decode_query, path_name
from hourwheel.deployment.deployment import Deployment
from hourwheel.groups.consumers import ConsumerState
from hourwheel.times import rfc3339


def list_consumers(deployment: Deployment, event: Event) -> Response:
    states = deployment.groups.consumers(path_name(event, "subject"), path_name(event, "group"))
    return ok({"consumers": [_consumer(state) for state in states.consumers], "cells_out": states.out_of_reach})


def leave(deployment: Deployment, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    forget = decode_query(LeaveQuery, event).forget
    released = deployment.groups.leave(subject, group, path_name(event, "consumer"), forget=forget)
    return ok({"released": released.messages, "cells_out": released.out_of_reach})


def list_leases(deployment: Deployment, event: Event) -> Response:
    state = deployment.groups.state(path_name(event, "subject"), path_name(event, "group"))
    return ok(state.leases(deployment.leases))


def count_retries(deployment: Deployment, event: Event) -> Response:
    state = deployment.groups.state(path_name(event, "subject"), path_name(event, "group"))
    return ok(state.retries(deployment.pending_counts, deployment.opener))


def retry_now(deployment: Deployment, event: Event) -> Response:
    from hourwheel.groups.early_retries import RetryFilter  # for operators alone

    body = decode_control(EarlyRetryBody, body_of(event))
    waiting = deployment.groups.backing_off(path_name(event, "subject"), path_name(event, "group"))
    return ok(waiting.retry(RetryFilter(body.key, body.detail), body.after))


def _consumer(state: ConsumerState) -> dict[str, object]:
    return {
        "consumer": state.consumer,
        "since": rfc3339(state.since_ms),
        "pulled_at": rfc3339(state.pulled_ms),
        "in_flight": state.in_flight,
        "leases": state.leases,
        "lease_until": rfc3339(state.lease_until_ms) if state.lease_until_ms else None,
    }
