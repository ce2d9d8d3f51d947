"""``hourwheel grant …``"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from hourwheel.cli.output import write_error
from hourwheel.cli.settings import UNIT_SECONDS, connect, write_answer, write_record
from hourwheel.client import NotFound

app = typer.Typer(no_args_is_help=True, help="Create and revoke the tokens of function URLs on AWS.")


@app.command()
def create(
    ctx: typer.Context,
    produce: Annotated[
        list[str] | None, typer.Option(help="A subject to send to; a * at the end matches any ending. Repeatable.")
    ] = None,
    pull: Annotated[
        list[str] | None, typer.Option(help="A group to pull for, as SUBJECT/GROUP; * as for --produce. Repeatable.")
    ] = None,
    delayed: Annotated[
        bool,
        typer.Option(
            "--delayed", help="Allow listing delayed messages, and moving and cancelling those of ALL subjects."
        ),
    ] = False,
    caller: Annotated[
        str | None, typer.Option(metavar="ARN", help="The IAM role or user that alone may use the token; all without.")
    ] = None,
    valid_for: Annotated[
        str, typer.Option("--for", help="How long the token is valid: 1m to 7d, in s, m, h or d.")
    ] = "12h",
    renew_for: Annotated[
        str, typer.Option(help="How long clients that use the token may renew it: up to 400d. 0s: not at all.")
    ] = "0s",
) -> None:
    """Create a token, and print it with the time until which it is valid. Only operators of the deployment may do so.

    Example: hourwheel grant create --produce orders --pull orders/billing --for 12h --renew-for 90d
    """
    seconds, renew_seconds = _seconds(valid_for, "--for"), _seconds(renew_for, "--renew-for")
    with connect(ctx) as api, _urls_hint():
        grant = api.create_grant(
            produce=produce or (),
            pull=pull or (),
            delayed=delayed,
            seconds=seconds,
            renew_seconds=renew_seconds,
            caller=caller,
        )
    write_record(ctx, grant)


@app.command()
def rotate(
    ctx: typer.Context,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Refuse every token that was created before, within a minute.")
    ] = False,
) -> None:
    """Sign tokens with another key. Tokens of the key before stay valid until they expire, and are renewed with the
    new key while they are used: only --revoke ends them.

    Example: hourwheel grant rotate --revoke
    """
    with connect(ctx) as api, _urls_hint():
        version = api.rotate_grants(revoke=revoke)
    write_answer(ctx, {"version": version}, f"tokens are now signed with key {version}")


@contextmanager
def _urls_hint() -> Iterator[None]:
    """Says which tokens a server without function URLs takes, if the server has no grants."""
    try:
        yield
    except NotFound as error:
        write_error(
            "the server has no grants: they are tokens of function URLs on AWS. A server on one machine takes the"
            " tokens of its --token or --token-file"
        )
        raise typer.Exit(1) from error


def _seconds(text: str, option: str) -> int:
    match = re.fullmatch(r"(\d{1,9})([dhms])", text)  # the server checks the range
    if match is None:
        raise typer.BadParameter(f"give a number and a unit, such as 12h, got {text!r}", param_hint=option)
    return int(match[1]) * UNIT_SECONDS[match[2]]
