"""Function ``sweep``: sweeps the whole deployment once. A schedule invokes the function, not a request."""

import msgspec

from hourwheel.api.events import Event, Invocation, Response
from hourwheel.deployment.deployment import Deployment


def sweep(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
    report: Response = msgspec.to_builtins(deployment.sweeper.sweep())
    return report
