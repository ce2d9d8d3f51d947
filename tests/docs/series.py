"""Lists the series of ``/metrics`` of a server: ``python -m tests.docs.series`` writes docs/reference/series.md."""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.prometheus import Exporter
from hourwheel.embedded.runtime import Runtime
from hourwheel.model.messages import NewMessage
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/reference/series.md"
_HEAD = """\
# Series of /metrics

What `GET /metrics` of a server on one machine exports for Prometheus. [In production](../production.md) has alerts and
a dashboard. A deployment on AWS has [metrics](metrics.md) in CloudWatch instead.

Counters count what this process did since its start. Gauges of groups and of disks are the same at each server of a
directory. Consumers of a broadcast group have the label `consumer` too.

| series | kind | labels | is |
| --- | --- | --- | --- |
"""


def families() -> list[Metric]:
    """Returns what a server with an archive, a group and a message exports."""
    with TemporaryDirectory() as data:
        runtime = Runtime(ServeOptions(data=Path(data), archive_seconds=3_600))
        try:
            runtime.deployment.groups.put("orders", "billing")
            runtime.deployment.produce("orders", [NewMessage(body="order 1")])
            text = Exporter(runtime, groups=1).answer()["body"]
        finally:
            runtime.close()
    assert isinstance(text, str)
    return sorted(text_string_to_metric_families(text), key=lambda family: family.name)


def rows() -> Iterator[str]:
    for family in families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = dict.fromkeys(f"`{label}`" for sample in family.samples for label in sample.labels if label != "le")
        yield f"| `{name}` | {family.type} | {', '.join(labels)} | {family.documentation} |"


def page() -> str:
    return _HEAD + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
