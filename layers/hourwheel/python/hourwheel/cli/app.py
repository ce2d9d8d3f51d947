"""Assembles the commands, parses the options that they share, and prints errors as one line."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from hourwheel import __version__
from hourwheel.cli import outbox, overview
from hourwheel.cli.aws import cost, grants, policy
from hourwheel.cli.groups import groups, lag, retry
from hourwheel.cli.messages import consume, dead, messages, produce, scheduled
from hourwheel.cli.misfits import describe_misfit, name_values, suggest_options
from hourwheel.cli.output import write_error, write_raw
from hourwheel.cli.pipeline import pipeline
from hourwheel.cli.server import backups, console, serve
from hourwheel.cli.settings import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, CommandSettings, advice_of
from hourwheel.cli.subjects import cells, queues, subjects
from hourwheel.client import DEFAULT_URL
from hourwheel.client.transport.signing import Sign
from hourwheel.embedded.credentials.tokens import Tokens, check_token, read_tokens
from hourwheel.errors import HourwheelError
from hourwheel.wire.words import shown

# The shared options of ``hourwheel`` below: ``hoist`` has to know which of them take a value.
_FLAGS = {"--json", "--raw"}
_WITH_VALUE = {"--url", "--token", "--token-file", "--ca-file", "--sign", "--region"}


class _Root(TyperGroup):
    """Accepts the shared options anywhere on the command line, and prints errors as one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        name_values(self, ctx)
        try:
            return super().parse_args(ctx, hoist(args))
        except typer.BadParameter as error:
            describe_misfit(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HourwheelError as error:
            write_error(advice_of(error))
            raise typer.Exit(1) from error
        except typer.BadParameter as error:
            describe_misfit(error)
            error.message = shown(error.message)  # the message may quote lines of a file
            raise
        except TyperException as error:
            suggest_options(error)
            raise


def hoist(args: list[str]) -> list[str]:
    """Returns the arguments with the shared options first, where typer accepts them. Keeps the order of the shared
    options and of the rest, and everything behind ``--``."""
    shared: list[str] = []
    rest: list[str] = []
    index = 0
    while index < len(args) and args[index] != "--":
        arg = args[index]
        width = 2 if arg in _WITH_VALUE else 1
        is_shared = arg in _FLAGS or arg.split("=", 1)[0] in _WITH_VALUE
        (shared if is_shared else rest).extend(args[index : index + width])
        index += width
    return [*shared, *rest, *args[index:]]


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="These options, except --help and --version, may also follow the command.",
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"hourwheel {__version__}")
        raise typer.Exit


@app.callback()
def hourwheel(
    ctx: typer.Context,
    url: Annotated[str, typer.Option(envvar="HOURWHEEL_URL", help="The server.")] = DEFAULT_URL,
    token: Annotated[
        list[str] | None,
        typer.Option(
            envvar=TOKEN_VARIABLE,
            help="The token of the server. Other users can see the command line, but not a file or the variable.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(envvar=TOKEN_FILE_VARIABLE, help="A file with the token, which other users may not read."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            envvar="HOURWHEEL_CA_FILE", help="Certificates to trust for https, in PEM, in place of the system's."
        ),
    ] = None,
    sign: Annotated[
        Sign | None,
        typer.Option(envvar="HOURWHEEL_SIGN", help="Sign requests for AWS; …execute-api… URLs do not need it."),
    ] = None,
    region: Annotated[str | None, typer.Option(help="The region of the API, where the URL does not name it.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value, or one on each line, for programs.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print messages unchanged on a terminal too, escape sequences included.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Send, receive and administer messages; run the server and the pipeline.

    Example: hourwheel --url http://127.0.0.1:7420 lag orders billing
    """
    write_raw(raw)
    tokens = _tokens(token, token_file)
    ctx.obj = CommandSettings(url=url, tokens=tokens, ca_file=ca_file, sign=sign, region=region, json=json)


def _tokens(tokens: list[str] | None, file: Path | None) -> Tokens:
    """Returns the tokens of the command line, the variables and the file. Raises ``typer.BadParameter`` for a value
    that is no token, and for a blank variable."""
    for name, values in ((TOKEN_VARIABLE, tokens), (TOKEN_FILE_VARIABLE, file)):
        # Else a server whose operator meant to set a token would start without one, and serve everybody.
        if not values and os.environ.get(name) is not None:
            raise typer.BadParameter(f"{name} is set, but blank: give it a value, or unset it")
    try:
        listed = Tokens() if file is None else read_tokens(file)
        return Tokens((*map(check_token, tokens or ()), *listed.full), listed.read_only)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


app.command()(serve.serve)
app.command()(console.console)
app.command()(backups.backup)
app.command()(backups.restore)
app.command()(backups.check)
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(subjects.app, name="subject")
app.add_typer(queues.app, name="queue")
app.add_typer(cells.app, name="cell")
groups.app.command()(retry.retry)
groups.app.command()(retry.purge)
app.add_typer(groups.app, name="group")
app.add_typer(messages.app, name="message")
app.add_typer(dead.app, name="dead")
app.add_typer(scheduled.app, name="scheduled")
app.command()(lag.lag)
app.command()(overview.overview)
app.command()(cost.cost)
app.add_typer(outbox.app, name="outbox")
app.add_typer(policy.app, name="policy")
app.add_typer(grants.app, name="grant")
app.add_typer(pipeline.app, name="pipeline")
