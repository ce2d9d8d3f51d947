"""``hourwheel subject peek``"""

from collections.abc import Iterator
from datetime import datetime
from operator import attrgetter
from typing import Annotated

import typer

from hourwheel.cli.output import write_error
from hourwheel.cli.settings import SubjectArgument, connect, moment, write_list
from hourwheel.client import Api
from hourwheel.client.records.peek import PeekPage
from hourwheel.errors import HourwheelError
from hourwheel.model.fields import MAX_QUEUES
from hourwheel.wire.words import counted

_PAGE = 100  # the largest page of the server


def peek(
    ctx: typer.Context,
    subject: SubjectArgument,
    queue: Annotated[int, typer.Option(min=0, max=MAX_QUEUES - 1, help="The number of the queue, from 0.")] = 0,
    offset: Annotated[int | None, typer.Option(min=0, help="Begin at this offset.")] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Begin at the first message sent at this time or later, such as 2026-11-20T09:00:00Z."),
    ] = None,
    newest: Annotated[
        bool,
        typer.Option(
            "--newest", help="Show the newest first: from the last message, from --offset, or from before --time."
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Print at most this many.")] = 10,
) -> None:
    """Show messages of a queue without being a group. Rows that cannot be read are reported.

    Example: hourwheel subject peek orders --newest --limit 5
    """
    if offset is not None and time is not None:
        raise typer.BadParameter("give --offset or --time, not both")
    pages: list[PeekPage] = []
    with connect(ctx) as api:
        try:
            pages += _pages(api, subject, queue, offset, moment(time, "--time"), newest, limit)
        except HourwheelError:
            if pages:
                _write(ctx, pages)
            raise
    _write(ctx, pages)


def _write(ctx: typer.Context, pages: list[PeekPage]) -> None:
    messages = [message for page in pages for message in page.messages]
    columns = ["offset", "produced at", "key", "id", "body"]
    write_list(ctx, messages, columns, attrgetter(*(column.replace(" ", "_") for column in columns)))
    for row in (row for page in pages for row in page.damaged):
        where = "at an unknown offset" if row.offset is None else f"from offset {row.offset} on"
        write_error(f"{counted(row.messages, 'message')} {where} cannot be read: {row.reason}")


def _pages(
    api: Api, subject: str, queue: int, offset: int | None, time: datetime | None, newest: bool, limit: int
) -> Iterator[PeekPage]:
    while limit > 0:
        page = api.peek(subject, queue, offset=offset, time=time, newest=newest, limit=min(limit, _PAGE))
        yield page
        limit -= len(page.messages) + len(page.damaged)
        offset, time = page.next, None
        if offset is None:
            return
