"""The page of the pipeline shows the archive, and the results that jobs left in the lake of the data directory."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from playwright.sync_api import Page, expect

from hourwheel.model.last_runs import REPORT as REPORT_PATH
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
    page = opened(visits, served)
    lake = page.get_by_role("region", name="Lake", exact=True)
    expect(lake.get_by_role("row").filter(has_text="messages").get_by_role("cell")).to_contain_text(["1,200", "0", "3"])
    expect(lake).to_contain_text("2 objects of the archive are damaged or missing")
    reconciled = page.get_by_role("region", name="Last reconciliation")
    expect(reconciled).to_contain_text("5 findings 1 of them is an error")
    expect(reconciled).to_contain_text("never delivered")
    expect(reconciled).to_contain_text("<b>late</b>")
    expect(reconciled).to_contain_text("messages accepted")


REPORT = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Hourwheel: report</title></head><body>
<h1>The report</h1><p>waits</p><script type="module">
document.querySelector("p").textContent = "drawn";
try { sessionStorage.length; document.querySelector("p").textContent = "read the tokens"; } catch { }
</script></body></html>"""


def write_report(lake: Path) -> None:
    path = lake / REPORT_PATH
    path.parent.mkdir(parents=True)
    path.write_text(REPORT)
    leave(lake, "report", ReportRun(made_at=MADE_AT, page=REPORT_PATH))


def test_a_link_opens_the_report_in_a_sandbox_and_names_no_path_of_the_machine(served: Served, visits: Visits) -> None:
    write_report(served.lake)
    page = opened(visits, served)
    part = page.get_by_role("region", name="Report", exact=True)
    expect(part).to_contain_text("made")
    with page.expect_popup() as popup:
        part.get_by_role("link", name="Open the report").click()
    expect(popup.value.get_by_role("heading", name="The report")).to_be_visible()
    expect(popup.value.get_by_text("drawn")).to_be_visible()
    assert str(served.lake) not in page.content()


def test_with_a_token_the_report_is_saved(tmp_path: Path, visits: Visits) -> None:
    server = Server(tmp_path / "data", tokens=["secret-of-the-shop"])
    try:
        write_report(tmp_path / "data/lake")
        assert server.call("GET", "/v1/report").status == 401
        page = visits.open(f"http://127.0.0.1:{server.port}/console/#/pipeline", expected=["401", "404"])
        page.get_by_label("Token").fill("secret-of-the-shop")
        page.get_by_role("button", name="Use it").click()
        part = page.get_by_role("region", name="Report", exact=True)
        with page.expect_download() as download:
            part.get_by_role("button", name="Save the report").click()
        assert download.value.suggested_filename == "report.html"
        assert Path(download.value.path()).read_text() == REPORT
        (tmp_path / "data/lake" / REPORT_PATH).unlink()
        part.get_by_role("button", name="Save the report").click()
        expect(part.get_by_role("alert")).to_contain_text("hourwheel pipeline run writes one")
    finally:
        server.kill()
        server.process.close()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("s3://shop-lake/reports/report.html", "aws s3 cp s3://shop-lake/reports/report.html report.html"),
        ("/mnt/other/report.html", "hourwheel pipeline report, with the options of the job, prints its path"),
    ],
)
def test_a_report_that_is_elsewhere_says_how_to_get_it(served: Served, visits: Visits, place: str, told: str) -> None:
    leave(served.lake, "report", ReportRun(made_at=MADE_AT, page=place))
    part = opened(visits, served).get_by_role("region", name="Report", exact=True)
    expect(part).to_contain_text(told)
    assert "/mnt" not in part.inner_text()


def test_a_file_of_another_version_hides_nothing_else(served: Served, visits: Visits) -> None:
    write_report(served.lake)
    (served.lake / file_of("compact")).write_text('{"tables": 7}')
    page = opened(visits, served)
    expect(page.get_by_role("region", name="Report", exact=True)).to_contain_text("Open the report")
    expect(page.get_by_role("region", name="Lake", exact=True)).to_contain_text(
        "hourwheel pipeline run fills the tables"
    )
