"""The report shows the findings and metrics of the tables, whatever their text."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from hourwheel_pipeline.judging.integrity import ArchiveInspection, ArchiveProblem
from hourwheel_pipeline.judging.reconciliation import Finding, Reconciled, Unknown
from hourwheel_pipeline.lake.table_progress import QuarantinedSegment
from hourwheel_pipeline.reporting.charts import Series, bar_chart, count, duration, line_chart
from hourwheel_pipeline.reporting.console_files import script
from hourwheel_pipeline.reporting.contents import FORMAT, Contents, GroupHours, HotKey, Hour, SubjectHours
from hourwheel_pipeline.reporting.markup import tag
from hourwheel_pipeline.reporting.page import page
from hourwheel_pipeline.reporting.steps import MINUTE_MS, name_of, step_for
from tests.support import NOON_MS

HOUR_MS = 3_600_000
EVIL = "<script>alert('x')</script>\" onload=\"x\x00"


def found(**counts: int) -> Reconciled:
    return Reconciled(
        found_ms=NOON_MS,
        began_ms=NOON_MS - 9 * HOUR_MS,
        horizon_ms=NOON_MS - HOUR_MS,
        last_manifest={"messages": 4, "pulls": 4, "dispatches": 3},
        rows={"messages queue": 1_234_567},
        counts=counts,
        expired={},
        unknown=Unknown(segments=0, quarantined=[], ranges=0, rows=[], snapshots=[]),
        findings=[finding(kind) for kind in counts],
    )


def finding(kind: str) -> Finding:
    return Finding(
        kind=kind,
        severity="error",
        subject="orders",
        group="billing",
        queue=0,
        log="orders~1/0",
        row=7,
        index=2,
        id=EVIL,
        at_ms=NOON_MS,
        first_seen_ms=NOON_MS,
        detail=EVIL,
    )


def contents(reconciled: Reconciled | None = None, *subjects: SubjectHours) -> Contents:
    return Contents(
        made_ms=NOON_MS,
        since_ms=NOON_MS - 9 * HOUR_MS,
        reconciled=reconciled,
        subjects_total=9,
        subjects=list(subjects),
    )


def subject() -> SubjectHours:
    hours = [NOON_MS + at * HOUR_MS for at in range(4)]
    handed = [Hour(hour_ms=at, delivered=4, lag=1, total_p99_ms=70) for at in hours]
    return SubjectHours(
        subject="orders",
        hours=[Hour(hour_ms=at, accepted=5, due=3, late_p50_ms=9, hot_keys=[HotKey(EVIL, 3)]) for at in hours],
        groups=[GroupHours(group="billing", hours=handed)],
    )


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @property
    def charts(self) -> dict[str, Any]:
        """Returns the charts that the script draws, by their titles."""
        data = [attributes["data-chart"] for _, attributes in self.seen if "data-chart" in attributes]
        return {chart["title"]: chart for chart in (msgspec.json.decode(text or "") for text in data)}


def test_nothing_that_comes_from_data_becomes_markup() -> None:
    text = page(contents(found(lost=1), subject()))
    tags = Tags(text)
    assert tags.open == []
    assert [name for name, _ in tags.seen].count("script") == 1
    assert "".join(tags.texts["script"]) == script()
    assert all(not name.startswith("on") for _, attributes in tags.seen for name in attributes)
    assert "&lt;script&gt;" in text
    assert "\x00" not in text


def test_the_page_needs_nothing_from_elsewhere() -> None:
    tags = Tags(page(contents(found(), subject())))
    assert not [attributes for _, attributes in tags.seen if attributes.keys() & {"src", "href"}]
    assert "url(" not in page(contents(found(), subject()))


def test_the_page_runs_its_own_script_alone_and_loads_nothing() -> None:
    tags = Tags(page(contents(found(), subject())))
    policies = [each["content"] for _, each in tags.seen if each.get("http-equiv") == "Content-Security-Policy"]
    digests = {
        name: b64encode(sha256("".join(tags.texts[name]).encode()).digest()).decode() for name in ("script", "style")
    }
    assert policies == [
        f"default-src 'none'; script-src 'sha256-{digests['script']}'; style-src 'sha256-{digests['style']}';"
        " base-uri 'none'; form-action 'none'"
    ]


def test_the_script_is_one_module_without_imports() -> None:
    assert not re.search(r"^import\b|\bimport\(", script(), re.MULTILINE)
    assert "</script" not in script().lower()
    assert "<!--" not in script()
    declared = re.findall(r"^(?:export )?(?:const|let|function) (\w+)", script(), re.MULTILINE)
    assert {"lineChart", "timeTicks"} <= set(declared)
    assert len(declared) == len(set(declared))


def test_a_page_without_findings_says_so() -> None:
    text = page(contents(found()))
    assert "No findings: every message was delivered or accounted for." in text
    assert "Nothing before that is missing" in text


def test_each_kind_of_finding_stands_on_the_page_with_its_meaning_and_its_number() -> None:
    text = page(contents(found(lost=1_500, stuck=1)))
    assert "A group passed a message and was never handed it." in text
    assert "lost: 1\u202f500, the first 1" in text
    assert "orders~1/0, row 7, index 2" in text


def test_quarantined_segments_are_named_with_the_reason() -> None:
    segment = QuarantinedSegment(3, "segments/messages/x", 12, "segment fails its checksum")
    unknown = Unknown(segments=1, quarantined=[segment], ranges=0, rows=[], snapshots=[])
    text = page(contents(msgspec.structs.replace(found(), unknown=unknown)))
    assert "segments/messages/x" in text
    assert "segment fails its checksum" in text


def test_without_a_reconciliation_the_page_says_so() -> None:
    assert "Nothing has been reconciled yet" in page(contents())


def test_a_chart_has_its_data_and_a_table() -> None:
    series = Series(EVIL, [(NOON_MS + at * HOUR_MS, at**3) for at in (0, 1, 2, 5)], colour=1)
    span = (NOON_MS, NOON_MS + 6 * HOUR_MS)
    text = line_chart("Lag", [series, Series("mail", [])], step_ms=HOUR_MS, span=span)
    tags = Tags(text)
    assert tags.charts["Lag"] == {
        "title": "Lag",
        "stepMs": HOUR_MS,
        "unit": "count",
        "utc": True,
        "table": False,
        "from": span[0],
        "to": span[1],
        "series": [{"name": EVIL, "points": [list(point) for point in series.points], "colour": 1, "dashed": False}],
    }
    assert tags.texts["td"][1::2] == ["125", "8", "1", "0"]
    assert tags.texts["summary"] == ["Numbers: Lag"]


@pytest.mark.parametrize(
    ("span_ms", "step"),
    [
        (2 * MINUTE_MS, "second"),
        (20 * MINUTE_MS, "5 seconds"),
        (2 * HOUR_MS, "minute"),
        (7 * 24 * HOUR_MS, "hour"),
        (60 * 24 * HOUR_MS, "day"),
    ],
)
def test_the_step_of_a_chart_follows_from_its_span(span_ms: int, step: str) -> None:
    assert name_of(step_for(span_ms)) == step
    assert span_ms / step_for(span_ms) <= 240


def lines(text: str, title: str) -> list[int]:
    """Returns the number of points of each line of the chart with that title."""
    return [len(series["points"]) for series in Tags(text).charts[title]["series"]]


def test_two_minutes_are_drawn_by_the_second_and_never_as_a_dot() -> None:
    early, late = (Hour(hour_ms=NOON_MS + at, accepted=9) for at in (0, 119_000))
    handed = [Hour(hour_ms=NOON_MS + 60_000, delivered=4, lag=3, total_p50_ms=5, total_p99_ms=7), late]
    group = GroupHours(group="billing", hours=[], steps=handed)
    drawn = SubjectHours(
        subject="orders", hours=[Hour(hour_ms=NOON_MS, accepted=18)], steps=[early, late], groups=[group]
    )
    text = page(msgspec.structs.replace(contents(found(), drawn), step_ms=1_000))
    assert lines(text, "Messages per second") == [120, 120]
    assert lines(text, "Messages that wait, at the end of the second") == [120]
    assert "2025-11-20 12:00:00" in text
    chart = Tags(text).charts["From accepted to settled"]
    assert (chart["from"], chart["to"], chart["unit"]) == (NOON_MS, NOON_MS + 120_000, "ms")


def test_months_are_drawn_by_the_day() -> None:
    hours = [Hour(hour_ms=NOON_MS + at * HOUR_MS, accepted=2, late_p50_ms=at) for at in range(60 * 24)]
    text = page(contents(found(), SubjectHours(subject="orders", hours=hours, groups=[])))
    assert lines(text, "Messages per day") == [61]
    assert lines(text, "Delayed messages: how late they came") == [61]


def test_the_page_begins_with_totals() -> None:
    reconciled = msgspec.structs.replace(found(lost=2), totals={"accepted": 1_234, "delivered": 1_200, "dead": 3})
    text = page(contents(reconciled, subject()))
    totals = text.partition("<dl")[2].partition("</dl>")[0]
    assert re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", totals) == [
        ("accepted", "1\u202f234"),
        ("delivered", "1\u202f200"),
        ("dead", "3"),
        ("findings", "2"),
    ]
    assert text.index("<dl") < text.index("<section")


def test_an_incomplete_archive_stands_on_the_page() -> None:
    problem = ArchiveProblem(kind="missing_segment", key="segments/x", says="segments/x is missing: put it back")
    whole = ArchiveInspection(manifests=1, segments=1, bytes=1, deep=False, count=1, problems=[problem])
    text = page(contents(msgspec.structs.replace(found(), archive=whole)))
    assert "The archive is not complete: 1 problem." in text
    assert "segments/x is missing: put it back" in text


def test_bars_are_as_wide_as_their_steps() -> None:
    chart = Tags(bar_chart("Due", Series("due", [(NOON_MS, 0), (NOON_MS + HOUR_MS, 4)]), step_ms=HOUR_MS)).charts["Due"]
    assert [(bar["end"] - bar["at"], bar["value"]) for bar in chart["bars"]] == [(HOUR_MS, 0), (HOUR_MS, 4)]


def test_a_chart_of_nothing_is_left_out() -> None:
    assert line_chart("Lag", [Series("billing", [])], step_ms=HOUR_MS, span=(0, 1)) == ""
    assert bar_chart("Due", Series("due", []), step_ms=HOUR_MS) == ""


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (172_800_000, "2 d")]
)
def test_durations_have_the_unit_that_suits_them(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_counts_are_set_in_groups_of_three() -> None:
    assert count(1_234_567) == "1\u202f234\u202f567"


def test_attributes_are_escaped() -> None:
    assert tag("p", "a & b", class_='"x"', aria_label=None) == '<p class="&quot;x&quot;">a &amp; b</p>'


def test_the_json_keeps_its_fields() -> None:
    data = msgspec.json.decode(msgspec.json.encode(contents(found(lost=1), subject())))
    assert data["format"] == FORMAT == 1
    assert set(data) == {"format", "made_ms", "since_ms", "reconciled", "step_ms", "subjects_total", "subjects"}
    assert set(data["reconciled"]) == {
        *("found_ms", "began_ms", "horizon_ms", "last_manifest", "rows", "counts", "new_errors", "expired"),
        *("unknown", "findings", "totals", "archive", "listed_ms"),
    }
    assert data["subjects"][0]["groups"][0]["hours"][0] == {
        "hour_ms": NOON_MS,
        "delivered": 4,
        "lag": 1,
        "total_p99_ms": 70,
    }


def test_each_colour_of_a_series_has_a_light_and_a_dark_form() -> None:
    style = "".join(Tags(page(contents())).texts["style"])
    colours = re.findall(r"--series-(\d): light-dark\(#[0-9a-f]{6}, #[0-9a-f]{6}\)", style)
    assert sorted(colours) == list("1234567")
    assert sorted(re.findall(r"\.s(\d) \{ color: var\(--series-", style)) == list("0123456")


def test_a_group_has_the_same_colour_in_all_charts() -> None:
    at = NOON_MS
    hours = {
        "a": Hour(hour_ms=at, delivered=4),
        "b": Hour(hour_ms=at, delivered=4, lag=2, retried=1, dead=1),
        "c": Hour(hour_ms=at, delivered=4, lag=2, total_p50_ms=7, total_p99_ms=8),
    }
    groups = [GroupHours(group=name, hours=[hour]) for name, hour in hours.items()]
    told = SubjectHours(subject="orders", hours=[Hour(hour_ms=at, accepted=9)], groups=groups)
    drawn = [series for chart in Tags(page(contents(None, told))).charts.values() for series in chart["series"]]
    legend = [(str(series["colour"]), series["name"].split()[0]) for series in drawn]
    colours = {name: {number for number, other in legend if other == name} for _, name in legend}
    assert {name: len(numbers) for name, numbers in colours.items()} == dict.fromkeys(("accepted", *"abc"), 1)
    assert len(set.union(*colours.values())) == 4
    assert len([name for _, name in legend if name == "c"]) == 4
