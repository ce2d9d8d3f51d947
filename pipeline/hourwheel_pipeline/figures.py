"""What reports mean for operators: figures of CloudWatch, beside those of the functions.

ReconcileFindings    errors that a reconciliation found and none before it; warnings are none
SetAsideSegments     segments of the archive that the lake lacks because they cannot be read
"""

from collections.abc import Iterable, Mapping
from typing import Any

from botocore.config import Config

from hourwheel.adapters.aws import make_client
from hourwheel_pipeline.compact import CompactReport
from hourwheel_pipeline.reconcile import Reconciled

NAMESPACE = "Hourwheel"


def figures_of(reports: Iterable[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for report in reports:
        if isinstance(report, CompactReport):
            found["SetAsideSegments"] = sum(len(table.set_aside) for table in report.tables)
        elif isinstance(report, Reconciled):
            found["ReconcileFindings"] = report.new_errors
    return found


def publish(
    figures: Mapping[str, int], cell: str, *, region: str | None = None, endpoint_url: str | None = None
) -> None:
    """Tells CloudWatch. An alarm waits for them: zeros are told, too."""
    if not figures:
        return
    client: Any = make_client("cloudwatch", Config(), region=region, endpoint_url=endpoint_url)
    dimensions = [{"Name": "service", "Value": cell}]
    data = [
        {"MetricName": name, "Dimensions": dimensions, "Value": value, "Unit": "Count"}
        for name, value in figures.items()
    ]
    client.put_metric_data(Namespace=NAMESPACE, MetricData=data)
