"""The page of the pipeline: the archive, and what the jobs left in the lake of the data directory."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from playwright.sync_api import Page, expect

from hourwheel.model.last_runs import CompactRun, LeavingJob, ReconcileRun, ReportRun, TableRun, file_of
from tests.console.pages import Visits
from tests.integration.process import Server

MADE_AT = "2025-11-20T12:00:00.000Z"


class Served(NamedTuple):
    server: Server
    lake: Path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    started = Server(tmp_path / "data")
    yield Served(started, tmp_path / "data/lake")
    started.kill()
    started.process.close()


def leave(lake: Path, job: LeavingJob, run: CompactRun | ReconcileRun | ReportRun) -> None:
    path = lake / file_of(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(run))


def opened(visits: Visits, served: Served) -> Page:
    page = visits.open(f"http://127.0.0.1:{served.server.port}/console/#/pipeline")
    expect(page.get_by_role("region", name="Archive", exact=True)).to_contain_text("manifests")
    return page


def test_before_the_first_run_the_page_says_what_to_do(served: Served, visits: Visits) -> None:
    page = opened(visits, served)
    expect(page.get_by_role("region", name="Lake", exact=True)).to_contain_text(
        "hourwheel pipeline run fills the tables"
    )
    expect(page.get_by_role("region", name="Last reconciliation")).to_contain_text("Never reconciled")
    expect(page.get_by_role("region", name="Report", exact=True)).to_contain_text("There is no report yet")


def test_the_tables_the_findings_and_the_report_are_shown(served: Served, visits: Visits) -> None:
    table = TableRun(table="messages", rows=1_200, last_manifest=-1, quarantined=3, changed_at=MADE_AT)
    leave(served.lake, "compact", CompactRun(tables=[table], problems=2))
    leave(
        served.lake,
        "reconcile",
        ReconcileRun(
            found_at=MADE_AT,
            horizon_at=MADE_AT,
            findings={"never_delivered": 1, "<b>late</b>": 4},
            errors=1,
            totals={"accepted": 600},
        ),
    )
    leave(served.lake, "report", ReportRun(made_at=MADE_AT, page="/data/lake/report/report.html"))
    page = opened(visits, served)
    lake = page.get_by_role("region", name="Lake", exact=True)
    expect(lake.get_by_role("row").filter(has_text="messages").get_by_role("cell")).to_contain_text(["1,200", "0", "3"])
    expect(lake).to_contain_text("2 objects of the archive are damaged or missing")
    reconciled = page.get_by_role("region", name="Last reconciliation")
    expect(reconciled).to_contain_text("5 findings 1 of them is an error")
    expect(reconciled).to_contain_text("never delivered")
    expect(reconciled).to_contain_text("<b>late</b>")
    expect(reconciled).to_contain_text("messages accepted")
    expect(page.get_by_role("region", name="Report", exact=True)).to_contain_text("/data/lake/report/report.html")


def test_a_file_of_another_version_hides_nothing_else(served: Served, visits: Visits) -> None:
    leave(served.lake, "report", ReportRun(made_at=MADE_AT, page="/data/lake/report/report.html"))
    (served.lake / file_of("compact")).write_text('{"tables": 7}')
    page = opened(visits, served)
    expect(page.get_by_role("region", name="Report", exact=True)).to_contain_text("report.html")
    expect(page.get_by_role("region", name="Lake", exact=True)).to_contain_text(
        "hourwheel pipeline run fills the tables"
    )
