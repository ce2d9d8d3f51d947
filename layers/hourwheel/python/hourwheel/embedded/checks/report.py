"""The report of a check."""

from dataclasses import dataclass, field

import msgspec

_MOST = 1_000  # a damaged disk gives one for each row


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must not be. ``repair`` says what the operator may do about it."""

    what: str
    repair: str


class CheckReport(msgspec.Struct, kw_only=True):
    """What a check has read, and its findings, at most ``_MOST``. ``holes``: rows whose numbers were given out and that
    are not stored, which the next reader fills. ``open_leases``, ``open_transfers``: those in pull rows.
    ``unnamed_objects``: objects that no row names, as a cut-off request leaves them; they are removed once their hour
    is over."""

    transaction: int = 0
    logs: int = 0
    rows: int = 0
    messages: int = 0
    holes: int = 0
    pull_logs: int = 0
    pull_rows: int = 0
    open_leases: int = 0
    open_transfers: int = 0
    subjects: int = 0
    groups: int = 0
    buckets: int = 0
    objects: int = 0
    unnamed_objects: int = 0
    left_out: int = 0
    findings: list[Finding] = []


@dataclass
class Findings:
    """Gathers what a check finds."""

    report: CheckReport = field(default_factory=CheckReport)

    def add(self, what: str, repair: str) -> None:
        if len(self.report.findings) < _MOST:
            self.report.findings.append(Finding(what=what, repair=repair))
        else:
            self.report.left_out += 1
