"""``hourwheel overview``"""

import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hourwheel.cli.output import table_of, write_json, write_line, write_table
from hourwheel.cli.settings import connect, settings_of
from hourwheel.client import Api, AttentionPage, Concern
from hourwheel.client.records.overview import SubjectOverview
from hourwheel.locks import Event
from hourwheel.wire.words import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOOKS = 20  # a server that has just started reads a quarter of a second of subjects at each look
_SHOWN = 100  # subjects; --prefix chooses others

_CONCERNS = ["level", "where", "what", "since", "command"]
_SUBJECTS = ["subject", "waiting", "in flight", "retrying", "backing off", "dead", "delayed", "groups"]


class OverviewResult(msgspec.Struct):
    """What needs an operator, and the subjects with their numbers."""

    attention: AttentionPage
    subjects: list[SubjectOverview]
    more: bool
    """Whether there are more subjects than are shown."""


def overview(
    ctx: typer.Context,
    prefix: Annotated[str | None, typer.Option(help="Show the subjects whose names begin with this.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until interrupted.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 5.0,
) -> None:
    """Show what needs attention, then up to 100 subjects with their numbers. A number with a + is at least that large.

    Example: hourwheel overview --prefix ord
    """
    with connect(ctx) as api:
        if watch:
            _watch(ctx, api, prefix, interval)
        else:
            _show(ctx, _look(api, prefix))


def _look(api: Api, prefix: str | None) -> OverviewResult:
    """Reads until the server has read every subject, or many times."""
    looks = (api.attention() for _ in range(_LOOKS))
    attention = next((page for page in looks if page.complete), None) or api.attention()
    subjects = list(islice(_subjects(api, prefix), _SHOWN + 1))
    return OverviewResult(attention, subjects[:_SHOWN], len(subjects) > _SHOWN)


def _subjects(api: Api, prefix: str | None) -> Iterator[SubjectOverview]:
    after = None
    while True:
        page = api.overview(prefix=prefix, after=after)
        yield from page.subjects
        if (after := page.next) is None:
            return


def _show(ctx: typer.Context, shown: OverviewResult) -> None:
    if settings_of(ctx).json:
        write_json(shown)
        return
    write_line(_heading(shown.attention))
    if shown.attention.concerns:
        write_table(_CONCERNS, map(_concern_row, shown.attention.concerns))
    write_table(_SUBJECTS, map(_subject_row, shown.subjects))
    if shown.more:
        write_line(f"the first {_SHOWN} subjects; --prefix shows others")


def _watch(ctx: typer.Context, api: Api, prefix: str | None, interval: float) -> None:
    pause = Event()  # never set: only Ctrl-C ends this
    if settings_of(ctx).json or not sys.stdout.isatty():  # a live display writes nothing into a pipe until it ends
        while True:
            _show(ctx, _look(api, prefix))
            pause.wait(interval)
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            live.update(_screen(_look(api, prefix)), refresh=True)
            pause.wait(interval)


def _screen(shown: OverviewResult) -> "RenderableType":
    from rich.console import Group

    concerns = [table_of(_CONCERNS, map(_concern_row, shown.attention.concerns))] if shown.attention.concerns else []
    return Group(_heading(shown.attention), *concerns, table_of(_SUBJECTS, map(_subject_row, shown.subjects)))


def _heading(attention: AttentionPage) -> str:
    unread = "" if attention.complete else "; the server has not read every subject yet"
    unread += _age(attention)
    if not attention.total:
        return f"nothing needs attention{unread}"
    left = attention.total - len(attention.concerns)
    needs = f"{counted(attention.total, 'point')} {'needs' if attention.total == 1 else 'need'} attention"
    return f"{needs}{f', {left} of them not shown' if left else ''}{unread}"


def _age(attention: AttentionPage) -> str:
    """Returns how old the oldest numbers are, if that is more than a minute."""
    age = attention.at - (attention.oldest_read_at or attention.at)
    minutes = int(age.total_seconds() // 60)
    return f"; the oldest numbers were read {counted(minutes, 'minute')} ago" if minutes else ""


def _concern_row(concern: Concern) -> list[Any]:
    where = "/".join(filter(None, (concern.subject, concern.group))) or concern.name
    return [concern.level, where, concern.text, _since(concern.since), concern.command]


def _since(since: datetime | None) -> str:
    return "-" if since is None else f"{since:%Y-%m-%d %H:%M}Z"


def _subject_row(subject: SubjectOverview) -> list[str]:
    names = ["waiting", "in_flight", "retrying", "backing_off", "dead", "delayed"]
    numbers = [f"{getattr(subject, name)}{'+' if name in subject.inexact else ''}" for name in names]
    return [subject.subject, *numbers, str(subject.groups)]
