"""Uploads counts from the reports of jobs to CloudWatch, beside the metrics of the functions.

    ReconcileFindings    errors that this reconciliation found and no earlier one did; warnings do not count
    QuarantinedSegments  segments of the archive that the lake lacks because they cannot be read
    ArchiveLacksObjects  manifests and segments of the archive that are missing or damaged

The metrics go to a log group as a line in the embedded metric format, from which CloudWatch makes metrics. Without a
VPC a job on EMR Serverless reaches CloudWatch Logs, and not the endpoint that takes metrics.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from botocore.config import Config
from botocore.exceptions import ClientError

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.errors import error_code
from hourwheel_pipeline.jobs.compact import CompactReport
from hourwheel_pipeline.judging.reconciliation import Reconciled

NAMESPACE = "Hourwheel"

PATIENCE_SECONDS = 30.0
"""The longest that a finished job waits for the upload."""

# Three tries end before a finished job stops waiting.
_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})


def metrics_of(reports: Iterable[Any]) -> dict[str, int]:
    """Returns the metrics of the reports by name; reports of other jobs have none."""
    metrics: dict[str, int] = {}
    for report in reports:
        if isinstance(report, CompactReport):
            metrics["QuarantinedSegments"] = sum(len(table.quarantined) for table in report.tables)
        elif isinstance(report, Reconciled):
            metrics["ReconcileFindings"] = report.new_errors
            metrics["ArchiveLacksObjects"] = 0 if report.archive is None else report.archive.count
    return metrics


def log_group(cell: str) -> str:
    """Returns the log group for the metrics of a cell's jobs; the stack creates it."""
    return f"/hourwheel/{cell}/jobs"


def publish(
    metrics: Mapping[str, int], cell: str, now_ms: int, *, region: str | None = None, endpoint_url: str | None = None
) -> None:
    """Writes the metrics to the log group of the cell, zeros included: alarms need a value of each run."""
    if not metrics:
        return
    client: Any = make_client("logs", _CONFIG, region=region, endpoint_url=endpoint_url)
    where = {"logGroupName": log_group(cell), "logStreamName": str(now_ms)}
    try:
        client.create_log_stream(**where)
    except ClientError as error:
        if error_code(error) != "ResourceAlreadyExistsException":  # an earlier try whose answer was lost
            raise
    event = {"timestamp": now_ms, "message": json.dumps(_embedded(metrics, cell, now_ms))}
    client.put_log_events(**where, logEvents=[event])


def _embedded(counts: Mapping[str, int], cell: str, now_ms: int) -> dict[str, object]:
    metrics = [{"Name": name, "Unit": "Count"} for name in counts]
    directive = {"Namespace": NAMESPACE, "Dimensions": [["service"]], "Metrics": metrics}
    return {"_aws": {"Timestamp": now_ms, "CloudWatchMetrics": [directive]}, "service": cell, **counts}


def without_failing(upload: Callable[[], None], *, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Runs ``upload``. Returns also if it raises or takes longer than ``patience_seconds``: then writes the reason to
    standard error."""
    failures: list[str] = []

    def run() -> None:
        try:
            upload()
        except Exception as error:  # any error: the tables are written, and the job has not failed
            failures.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=run, name="hourwheel-metrics", daemon=True)
    thread.start()
    thread.join(patience_seconds)
    if thread.is_alive():
        failures.append(f"CloudWatch Logs has not answered for {patience_seconds:g} s")
    for failure in failures:
        sys.stderr.write(f"the metrics of this run are not in CloudWatch: {failure}\n")
