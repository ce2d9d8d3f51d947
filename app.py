"""The CDK app: synthesises one cell from the context values that begin with ``hourwheel:`` (see docs/deploy.md)."""

import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.settings import Settings, Wrong
from infra.stack import HourwheelStack


def synthesise(app: App) -> None:
    """Raises ``Wrong``; and ``RuntimeError`` where cdk-nag finds what nobody has acknowledged."""
    HourwheelStack(app, Settings.read(app.node.get_all_context()))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()


def main() -> str | None:
    """What is wrong, if anything is."""
    try:
        synthesise(App(analytics_reporting=False))  # else a resource tells AWS which constructs are in use
    except Wrong as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
