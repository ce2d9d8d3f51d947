"""Holds the values of the shared options, declares the arguments that many commands take, and writes results."""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import typer

from hourwheel.cli.output import write_fields, write_json, write_line, write_table
from hourwheel.client import Api, Unauthorized
from hourwheel.client.transport.signing import Sign
from hourwheel.embedded.credentials.tokens import Tokens
from hourwheel.errors import HourwheelError, Rejected
from hourwheel.times import parse_rfc3339
from hourwheel.wire.words import shown

T = TypeVar("T")

TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "HOURWHEEL_TOKEN", "HOURWHEEL_TOKEN_FILE"

_TOKEN_ADVICE = {
    "token-missing": f"the server needs a token, and none was given: give --token-file, --token or {TOKEN_VARIABLE}",
    "token-wrong": "the server does not know the token that was given: check --token-file, --token and "
    + TOKEN_VARIABLE,
}

_EPOCH = datetime.fromtimestamp(0, UTC)
_RETRY_SECONDS = 2.0  # a user waits at the terminal
UNIT_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


class CommandSettings(NamedTuple):
    url: str
    tokens: Tokens
    ca_file: Path | None
    sign: Sign | None
    region: str | None
    json: bool

    @property
    def token(self) -> str | None:
        """The token that a client sends. Raises ``typer.BadParameter`` for more than one."""
        tokens = [*self.tokens.full, *self.tokens.read_only]
        if len(tokens) > 1:
            raise typer.BadParameter(f"a client sends one token, and {len(tokens)} were given: leave out the others")
        return tokens[0] if tokens else None


def settings_of(ctx: typer.Context) -> CommandSettings:
    settings = ctx.obj
    assert isinstance(settings, CommandSettings)
    return settings


def advice_of(error: HourwheelError) -> str:
    """Returns the text of an error. For a token that is missing or wrong, the text names the options of the command
    line."""
    return _TOKEN_ADVICE.get(error.slug, str(error)) if isinstance(error, Unauthorized) else str(error)


def write_answer(ctx: typer.Context, value: Any, line: str) -> None:
    """Writes the value as JSON with ``--json``, and the line without."""
    if settings_of(ctx).json:
        write_json(value)
    else:
        write_line(line)


def write_deletion(ctx: typer.Context, deleted: str, left: Sequence[str]) -> None:
    """Writes what was deleted, and the cells out of reach that hold something of it; nothing with ``--json``."""
    if settings_of(ctx).json:
        return
    write_line(f"deleted {deleted}")
    if left:
        noun, verb = ("cell", "is") if len(left) == 1 else ("cells", "are")
        cells = f"{noun} {', '.join(left)}"
        write_line(f"the sweeper erases the rest once {cells} can be reached or {verb} given up")


def write_record(ctx: typer.Context, record: msgspec.Struct) -> None:
    """Writes the record as JSON with ``--json``, and one field on each line without."""
    (write_json if settings_of(ctx).json else write_fields)(record)


def write_list(
    ctx: typer.Context, items: Iterable[T], columns: Sequence[str], row: Callable[[T], Sequence[Any]]
) -> None:
    """Writes each item as a line of JSON with ``--json``, and a table with a row for each item without."""
    if settings_of(ctx).json:
        for item in items:
            write_json(item)
    else:
        write_table(columns, map(row, items))


def connect(ctx: typer.Context) -> Api:
    return to_server(Api, settings_of(ctx), retry_seconds=_RETRY_SECONDS)


def to_server(make: Callable[..., T], settings: CommandSettings, **how: Any) -> T:
    """Makes a client for the server that the shared options name. Raises ``typer.BadParameter``."""
    try:
        return make(
            settings.url,
            token=settings.token,
            ca_file=settings.ca_file,
            sign=settings.sign,
            region=settings.region,
            **how,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


SubjectArgument = Annotated[str, typer.Argument(help="The subject.")]
GroupArgument = Annotated[str, typer.Argument(help="The group.")]
DelayOption = Annotated[
    str | None, typer.Option(help="Deliver after this many seconds, or after 500ms, 10s, 5m, 2h, 90d.")
]
DeliverAtOption = Annotated[
    str | None, typer.Option(help="Deliver at this time, with a zone: 2027-01-01T09:00:00Z or …+01:00.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, *, yes: bool) -> None:
    """Asks the user before data is deleted for good. Raises ``typer.Abort`` for a no, and ``typer.BadParameter`` if
    stdin is no terminal and ``--yes`` is missing."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this cannot be undone: give --yes where nobody can be asked")
    typer.confirm(shown(question), abort=True)


def moment(text: str | None, option: str) -> datetime | None:
    """Returns the time that an option gives. Raises ``typer.BadParameter`` for a text that is no time with a zone."""
    if text is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=parse_rfc3339(text, option))
    except Rejected as error:
        raise typer.BadParameter(f"{error}, got {text!r}") from error


def seconds(text: str | None) -> float | str | None:
    """Returns a delay as the client takes it: a number of seconds, or a text with a unit. Raises ``typer.BadParameter``
    for a text with several units, such as 1h30m."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass  # a text with a unit, which the client parses
    parts = re.findall(r"(\d+)([dhms])", text)
    if len(parts) > 1 and "".join(amount + unit for amount, unit in parts) == text:
        unit = parts[-1][1]
        amount = sum(int(amount) * UNIT_SECONDS[unit] for amount, unit in parts) // UNIT_SECONDS[unit]
        raise typer.BadParameter(f"a delay has one unit: {amount}{unit} instead of {text}")
    return text
