"""The CDK app: synthesises one cell from context values that begin with ``hourwheel:`` (docs/reference/settings.md)."""

import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.settings import Settings, Wrong
from infra.stack import HourwheelStack


def synthesise(app: App) -> None:
    """Synthesises the stack. Raises ``Wrong`` for a wrong setting, and ``RuntimeError`` for a finding of cdk-nag that
    ``infra/nag_suppressions.py`` does not name."""
    HourwheelStack(app, Settings.read(app.node.get_all_context()))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()


def main() -> str | None:
    """Synthesises the stack. Returns the fault of the settings as a sentence; None if there is none."""
    try:
        synthesise(App(analytics_reporting=False))  # otherwise a resource tells AWS which constructs are in use
    except Wrong as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main())
