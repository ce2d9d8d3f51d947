"""``hourwheel subject …``"""

from collections.abc import Iterator
from typing import Any

import typer

from hourwheel.cli.setting_options import takes_settings
from hourwheel.cli.settings import (
    SubjectArgument,
    YesOption,
    confirm,
    connect,
    write_deletion,
    write_list,
    write_record,
)
from hourwheel.cli.subjects.peek import peek
from hourwheel.client import Api
from hourwheel.client.records.subjects import Subject
from hourwheel.model.subject_settings import SubjectSettings

app = typer.Typer(no_args_is_help=True, help="Create, show, change, pause and delete subjects.")

app.command()(peek)

_PAGE = 100  # the largest page of the server


@app.command()
@takes_settings(SubjectSettings)
def create(ctx: typer.Context, subject: SubjectArgument, **settings: Any) -> None:
    """Create a subject, or change one. Settings that no option names stay as they are.

    Example: hourwheel subject create orders --queues 4 --retention 604800
    """
    with connect(ctx) as api:
        record = api.put_subject(subject, **settings)
    write_record(ctx, record)


@app.command()
def show(ctx: typer.Context, subject: SubjectArgument) -> None:
    """Show a subject.

    Example: hourwheel subject show orders
    """
    with connect(ctx) as api:
        write_record(ctx, api.get_subject(subject))


@app.command("list")
def list_(ctx: typer.Context) -> None:
    """List all subjects.

    Example: hourwheel subject list --json
    """
    with connect(ctx) as api:
        columns = ["subject", "queues", "retention seconds", "groups"]
        write_list(
            ctx,
            _all(api),
            columns,
            lambda subject: (subject.subject, subject.queues, subject.retention_seconds, subject.groups),
        )


@app.command()
def pause(ctx: typer.Context, subject: SubjectArgument) -> None:
    """Pause the delivery to all groups of a subject. Producers go on, and so do settlements.

    Example: hourwheel subject pause orders
    """
    with connect(ctx) as api:
        write_record(ctx, api.pause_subject(subject))


@app.command()
def resume(ctx: typer.Context, subject: SubjectArgument) -> None:
    """Resume the delivery to all groups of a subject, except those that are paused themselves.

    Example: hourwheel subject resume orders
    """
    with connect(ctx) as api:
        write_record(ctx, api.resume_subject(subject))


@app.command()
def delete(ctx: typer.Context, subject: SubjectArgument, yes: YesOption = False) -> None:
    """Delete a subject with its messages and groups.

    Example: hourwheel subject delete orders --yes
    """
    confirm(f"Delete {subject} with all its messages and groups?", yes=yes)
    with connect(ctx) as api:
        left = api.delete_subject(subject)
    write_deletion(ctx, subject, left)


def _all(api: Api) -> Iterator[Subject]:
    after: str | None = None
    while True:
        page = api.list_subjects(limit=_PAGE, after=after)
        yield from page.subjects
        after = page.next
        if after is None:
            return
