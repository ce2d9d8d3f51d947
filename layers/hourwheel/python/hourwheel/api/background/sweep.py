"""Function ``sweep``: sweeps all work of the deployment that is not delayed. The function ``delayed`` invokes it each
minute."""

import msgspec

from hourwheel.api.events import Event, Invocation, Response
from hourwheel.deployment.deployment import Deployment


def sweep(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
    report: Response = msgspec.to_builtins(deployment.sweeper.sweep_subjects())
    return report
