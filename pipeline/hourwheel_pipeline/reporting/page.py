"""Writes the report as a page: one file, which loads nothing. The page has the styles of the console, and draws its
charts with the modules of the console."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from hourwheel_pipeline.judging.findings import KINDS
from hourwheel_pipeline.judging.reconciliation import Finding, Reconciled
from hourwheel_pipeline.reporting.charts import Series, bar_chart, count, line_chart, moment
from hourwheel_pipeline.reporting.console_files import script, style
from hourwheel_pipeline.reporting.contents import Contents, Hour, SubjectHours
from hourwheel_pipeline.reporting.markup import Content, Markup, join, table, tag
from hourwheel_pipeline.reporting.steps import HOUR_MS, Points, gathered, name_of, spread, step_for
from hourwheel_pipeline.runs.words import counted

# The charts have seven colours, and one is the subject's.
_GROUPS = 6
_KEYS = 10  # hot keys of a subject: enough to see whether one stands out

_STYLE = Markup("""
main { max-width: 60rem }
section { border-top: 1px solid var(--line); display: grid; gap: 16px; padding-top: 16px;
  grid-template-columns: minmax(0, 1fr) }
section h2 { margin: 0 }
main { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr) }
main p { margin: 0 }
summary { cursor: pointer }
.charted summary { font-size: 13px; color: var(--muted) }
.charted .table { max-height: 20rem; overflow: auto }
.table td { overflow-wrap: anywhere }
caption { font-weight: 600; padding: 5px 10px; text-align: left }
.good { color: var(--good) } .error { color: var(--bad) } .warning { color: var(--warn) }
.totals { display: flex; flex-wrap: wrap; gap: 1rem 3rem } .totals dt { color: var(--muted) }
.totals dd { font-size: 28px; font-variant-numeric: tabular-nums; margin: 0 }
""")

_COUNTED = ("accepted", "delivered", "settled", "retried", "dead", "dispatched")
_CHARTED = (*_COUNTED, "lag")

_NO_SCRIPT = "Charts are drawn by a script, which this viewer does not run. The tables have all numbers."


def page(contents: Contents) -> str:
    head = tag(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", "Hourwheel: report"),
        tag("style", style(), _STYLE),
    )
    made = tag("p", f"Made at {moment(contents.made_ms)} UTC.", class_="muted")
    title = tag("h1", "Hourwheel: report")
    drawn = [tag("noscript", tag("p", _NO_SCRIPT)), *_subjects(contents)]
    main = tag("main", title, made, *_totals(contents.reconciled), *_reconciled(contents.reconciled), *drawn)
    body = tag("body", main, tag("script", script(), type="module"))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _policy() -> str:
    """Returns the content security policy: the page runs its own script alone, and loads nothing."""
    sources = " ".join(
        f"{kind} 'sha256-{b64encode(sha256(text.encode()).digest()).decode()}';"
        for kind, text in (("script-src", script()), ("style-src", style() + _STYLE))
    )
    return f"default-src 'none'; {sources} base-uri 'none'; form-action 'none'"


def _totals(report: Reconciled | None) -> Iterator[Markup]:
    """Yields the totals, which a reader wants to see first."""
    if report is None:
        return
    numbers = {**report.totals, "findings": sum(report.counts.values())}
    cells = (tag("div", tag("dt", name), tag("dd", count(number))) for name, number in numbers.items())
    yield tag("dl", *cells, class_="totals")
    yield tag(
        "p",
        "Accepted: messages in queues. Delivered: acknowledged, once for each group. Dead: given up by a group. A"
        " message that is neither was accounted for: it waits, was cancelled, expired or skipped by a seek.",
        class_="muted",
    )


def _reconciled(report: Reconciled | None) -> Iterator[Markup]:
    if report is None:
        yield tag("section", tag("h2", "Findings"), tag("p", "Nothing has been reconciled yet."))
        return
    yield tag("section", tag("h2", "Findings"), *_findings(report))
    yield tag("section", tag("h2", "Unknown"), *_unknown(report))


def _findings(report: Reconciled) -> Iterator[Markup]:
    judged = f"Judged: what was stored before {moment(report.horizon_ms)} UTC"
    complete = f"known without gaps since {moment(report.began_ms)}"
    yield tag("p", f"{judged}, {complete}. Comparing began at {moment(report.found_ms)}.", class_="muted")
    if not report.counts:
        yield tag("p", "No findings: every message was delivered or accounted for.", class_="good")
    else:
        yield table("Findings by kind", ["kind", "severity", "number", "what it means"], [*_kinds(report)])
    for kind in report.counts:
        yield _listed(kind, [finding for finding in report.findings if finding.kind == kind], report.counts[kind])
    sizes: list[list[Content]] = [[name, count(rows)] for name, rows in report.rows.items()]
    yield tag("details", tag("summary", "Rows that were compared"), table("Rows", ["what", "rows"], sizes))
    if report.expired:
        rows: list[list[Content]] = [[name, count(messages)] for name, messages in report.expired.items()]
        yield tag("p", "Messages expired before their group came to them. That is no fault of the queue.")
        yield table("Expired", ["subject and group", "messages"], rows)


def _kinds(report: Reconciled) -> Iterator[list[Content]]:
    for kind, number in report.counts.items():
        severity = KINDS[kind].severity
        yield [kind, tag("span", severity, class_=severity), count(number), KINDS[kind].says]


def _listed(kind: str, listed: Sequence[Finding], total: int) -> Markup:
    more = "" if len(listed) == total else f", the first {len(listed)}"
    heads = ["at (UTC)", "subject", "group", "place", "id", "detail", "first seen"]
    rows: list[list[Content]] = [
        [
            "" if finding.at_ms is None else moment(finding.at_ms),
            finding.subject,
            finding.group,
            _position(finding),
            finding.id,
            finding.detail,
            moment(finding.first_seen_ms),
        ]
        for finding in listed
    ]
    return tag("details", tag("summary", f"{kind}: {count(total)}{more}"), table(kind, heads, rows))


def _position(finding: Finding) -> str:
    row = "" if finding.row is None else f", row {finding.row}"
    index = "" if finding.index is None else f", index {finding.index}"
    return f"{finding.log}{row}{index}"


def _unknown(report: Reconciled) -> Iterator[Markup]:
    unknown = report.unknown
    last_manifest = ", ".join(f"{name} up to manifest {number}" for name, number in report.last_manifest.items())
    yield tag("p", f"The lake holds {last_manifest}. Rows stored later, and pulls that were open then, are not judged.")
    if report.archive is not None and report.archive.count:
        problems: list[list[Content]] = [[problem.kind, problem.says] for problem in report.archive.problems]
        yield tag("p", f"The archive is not complete: {counted(report.archive.count, 'problem')}.", class_="error")
        yield table("Problems of the archive", ["kind", "what to do"], problems)
    if not (unknown.segments or unknown.ranges or unknown.snapshots):
        yield tag("p", "Nothing before that is missing.", class_="good")
    if unknown.segments:
        rows: list[list[Content]] = [
            [segment.key, segment.manifest, segment.rows, segment.reason] for segment in unknown.quarantined
        ]
        heads = ["segment", "manifest", "rows", "why"]
        yield tag(
            "p",
            f"Quarantined, because they could not be read: {counted(unknown.segments, 'segment')}.",
            class_="warning",
        )
        yield table("Quarantined segments", heads, rows)
    if unknown.ranges:
        in_doubt: list[list[Content]] = [[rows.log, rows.start, rows.end - 1, rows.why] for rows in unknown.rows]
        yield tag("p", f"May be missing, and are not judged: {counted(unknown.ranges, 'range')} of rows.")
        yield table("Rows in doubt", ["log", "first row", "last row", "why"], in_doubt)
    if unknown.snapshots:
        yield table("Copies of the registry that cannot be read", ["why"], [[why] for why in unknown.snapshots])


def _subjects(contents: Contents) -> Iterator[Markup]:
    shown, total = len(contents.subjects), contents.subjects_total
    if shown < total:
        yield tag("p", f"{shown} of {count(total)} subjects follow: those with the most messages.", class_="muted")
    for subject in contents.subjects:
        yield tag("section", tag("h2", subject.subject), *_charts(subject, contents.step_ms), _keys(subject))


def _charts(subject: SubjectHours, fine_ms: int) -> Iterator[Markup]:
    groups = subject.groups[:_GROUPS]
    own = subject.steps if fine_ms else subject.hours
    of_groups = {group.group: group.steps if fine_ms else group.hours for group in groups}
    drawn = _Drawn.of([own, *of_groups.values()], fine_ms or HOUR_MS)
    unit = name_of(drawn.step_ms)

    def of_each_group(value: str, suffix: str = "", *, dashed: bool = False) -> list[Series]:
        return [
            Series(f"{group}{suffix}", drawn.points(steps, value), colour, dashed)
            for colour, (group, steps) in enumerate(of_groups.items(), 1)
        ]

    span = (drawn.start_ms, drawn.end_ms + drawn.step_ms)
    draw = partial(line_chart, step_ms=drawn.step_ms, span=span)
    accepted = Series("accepted", drawn.points(own, "accepted"))
    yield draw(f"Messages per {unit}", [accepted, *of_each_group("delivered", " delivered")])
    yield draw(f"Messages that wait, at the end of the {unit}", of_each_group("lag"))
    yield draw("From accepted to first handed out, 99 %", of_each_group("pull_p99_ms"), unit="ms")
    totals = [
        series
        for share in ("p50", "p99")
        for series in of_each_group(f"total_{share}_ms", f" {share}", dashed=share == "p99")
    ]
    yield draw("From accepted to settled", totals, unit="ms")
    failed = [*of_each_group("retried", " retried"), *of_each_group("dead", " given up", dashed=True)]
    yield draw(f"Tried again, given up, per {unit}", failed)
    shares = enumerate(("p50", "p99", "max"))
    late = [Series(share, drawn.points(own, f"late_{share}_ms"), colour) for colour, share in shares]
    yield draw("Delayed messages: how late they came", late, unit="ms")
    due = [(hour.hour_ms, float(hour.due)) for hour in subject.hours if hour.due is not None]
    yield bar_chart("Delayed messages: due in hours to come", Series("due", due), step_ms=HOUR_MS)


@dataclass(frozen=True)
class _Drawn:
    """The span and the step that the charts of a subject share. The step may be coarser than that of the numbers."""

    start_ms: int
    end_ms: int
    step_ms: int

    @classmethod
    def of(cls, lines: Sequence[Sequence[Hour]], numbers_ms: int) -> "_Drawn":
        """Returns the span of these hours, and a step that is at least ``numbers_ms``, the step of the numbers."""
        times = [hour.hour_ms for hours in lines for hour in hours if any(_value(hour, name) for name in _CHARTED)]
        start_ms, end_ms = min(times, default=0), max(times, default=0)
        step_ms = max(numbers_ms, step_for(end_ms - start_ms))
        return cls(start_ms // step_ms * step_ms, end_ms // step_ms * step_ms, step_ms)

    def points(self, hours: Sequence[Hour], value: str) -> Points:
        """Returns the points of a value. For a step without a number a count is 0, and a lag is that of the step
        before; a time has no point there."""
        numbers = [(hour.hour_ms, number) for hour in hours if (number := _value(hour, value)) is not None]
        within = [(at, number) for at, number in numbers if self.start_ms <= at < self.end_ms + self.step_ms]
        if value in _COUNTED:
            return spread(gathered(within, self.step_ms, sum), self.start_ms, self.end_ms, self.step_ms, "nothing")
        if value == "lag":
            last = gathered(within, self.step_ms, lambda values: [*values][-1])
            return spread(last, self.start_ms, self.end_ms, self.step_ms, "the last")
        return gathered(within, self.step_ms, max)


def _value(hour: Hour, name: str) -> float | None:
    number: float | None = getattr(hour, name)
    return number


def _keys(subject: SubjectHours) -> Markup:
    totals: dict[str, int] = {}
    for hour in subject.hours:
        for hot in hour.hot_keys or ():
            totals[hot.key] = totals.get(hot.key, 0) + hot.messages
    if not totals:
        return Markup()
    first = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:_KEYS]
    # An hour lists only its hottest keys.
    rows: list[list[Content]] = [[key, f"at least {count(messages)}"] for key, messages in first]
    return join(table("Hot keys", ["key", "messages"], rows))
