"""Reads the lake of the data directory, and serves its report."""

from pathlib import Path

from hourwheel.api.events import Response
from hourwheel.api.problems import problem
from hourwheel.console.files import SECURITY_HEADERS
from hourwheel.model.last_runs import REPORT
from hourwheel.ports.storage import LakeFiles

_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Lets the report load nothing. (A policy within the report names its one script and style.) In the sandbox the report
has an origin of its own, so that it cannot read the token that the console keeps."""

_HEADERS = {
    **SECURITY_HEADERS,
    "content-security-policy": _POLICY,
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
}


class LakeDirectory:
    """Implements ``LakeFiles`` for a folder of this machine, which need not exist."""

    serves_report = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, path: str) -> bytes | None:
        try:
            return (self._folder / path).read_bytes()
        except FileNotFoundError:
            return None


def report_answer(lake: LakeFiles, request_id: str) -> Response:
    """Returns the last report of the pipeline, or 404 if there is none."""
    page = lake.read(REPORT)
    if page is None:
        detail = "there is no report in the lake of this data directory: hourwheel pipeline run writes one"
        return problem(404, "report-unknown", detail, instance=request_id)
    return {"statusCode": 200, "headers": _HEADERS, "body": page}
