"""Function ``sweep``: sweeps all work of the deployment that is not delayed, or that of one share of the subjects. The
function ``delayed`` invokes it each minute, once for each share."""

import msgspec

from hourwheel.api.events import Event, Invocation, Response
from hourwheel.deployment.deployment import Deployment
from hourwheel.sweep.shares import share_of
from hourwheel.sweep.sweep import Sweeper


def sweep(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
    sweeper: Sweeper = deployment.sweeper
    report: Response = msgspec.to_builtins(sweeper.sweep_subjects(share_of(event)))
    return report
