"""Reads as many pages as ``--limit`` asks for, and tells the user how the list continues."""

import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol, TypeVar

import typer

from hourwheel.cli.output import write_error

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PAGE = 100  # the largest page of the server

LimitOption = Annotated[int, typer.Option(min=1, help="Print at most this many.")]
AfterOption = Annotated[
    str | None,
    typer.Option(metavar="CURSOR", help="Continue after the cursor that the previous list printed at its --limit."),
]


class Page(Protocol[T_co]):
    @property
    def messages(self) -> Sequence[T_co]: ...

    @property
    def next(self) -> str | None: ...


def first(list_page: Callable[..., Page[T]], limit: int, after: str | None) -> tuple[list[T], str | None]:
    """Returns up to ``limit`` items behind the cursor ``after``, and the cursor of the next ones (None: there are
    none)."""
    items: list[T] = []
    while True:
        page = list_page(limit=min(limit - len(items), _PAGE), after=after)
        items += page.messages
        after = page.next
        if after is None or len(items) >= limit:
            return items, after


def say_more(after: str | None) -> None:
    """Tells the user on stderr how to continue a list that ended at its limit."""
    if after is not None:
        # "May", because the last page can name a cursor behind which nothing comes.
        go_on = f"--after {shlex.quote(after)} goes on, a higher --limit prints more at once"
        write_error(f"the list ends at its limit, and there may be more: {go_on}")
