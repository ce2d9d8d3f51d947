"""``hourwheel serve``"""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hourwheel.cli.settings import settings_of

if TYPE_CHECKING:
    from hourwheel.embedded.options import ServeOptions


def serve(
    ctx: typer.Context,
    data: Annotated[Path, typer.Option(help="Directory of the data; made if there is none.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on.")] = 7420,
    read_only_token: Annotated[
        list[str] | None, typer.Option(help="A token that may only read. Repeatable, as --token is.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without a token: anybody may read and write.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate, in PEM: serve HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, in PEM, which others may not read.")] = None,
    max_connections: Annotated[
        int,
        typer.Option(min=1, max=100_000, help="Connections at the same time; further clients are told to come back."),
    ] = 4_096,
    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        typer.Option(help="FULL survives a power cut; NORMAL may then lose the last moments, and is faster."),
    ] = "FULL",
    bucket_minutes: Annotated[
        int, typer.Option(min=5, max=60, help="Length of the buckets in which delayed messages wait.")
    ] = 60,
    archive_every: Annotated[
        int,
        typer.Option(
            min=0,
            max=86_400,
            metavar="SECONDS",
            help="Seconds between two runs of the archiver; nothing is removed before it is archived. 0: never.",
        ),
    ] = 0,
    auto_create: Annotated[
        bool,
        typer.Option(
            "--auto-create/--no-auto-create", help="Producing and pulling make the subject and group that they name."
        ),
    ] = True,
    max_subjects: Annotated[int, typer.Option(min=0, help="Make no more subjects than this. 0: any number.")] = 0,
    max_groups: Annotated[int, typer.Option(min=0, help="Make no more groups of a subject. 0: any number.")] = 0,
    group_rate: Annotated[
        float, typer.Option(min=0, max=100_000, help="Pulls a second of each group; beyond, 429. 0: any number.")
    ] = 0,
    metrics_groups: Annotated[
        int, typer.Option(min=0, help="Groups with series of their own in /metrics, those with most messages.")
    ] = 1_000,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=MODULE:FUNCTION",
            help="A Python function, importable from here, to which groups may push as python:NAME. Repeatable.",
        ),
    ] = None,
    push_loopback: Annotated[
        bool, typer.Option("--push-loopback", help="Groups may push to this machine, also over plain HTTP.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Go on where transactions are missing from the database: its log was damaged, or it is an older copy.",
        ),
    ] = False,
) -> None:
    """Run the server on this machine. With --token or --token-file each request needs a token.

    Example: hourwheel serve --data ./queue --archive-every 60
    """
    targets = _targets(target or [])
    if targets:
        sys.path.insert(0, os.getcwd())  # python -m would have; a console script has its own folder there

    from hourwheel.embedded.server import serve as run_server

    tokens = settings_of(ctx).tokens
    options = _options(
        data=data,
        host=host,
        port=port,
        tokens=tokens.full,
        read_only_tokens=(*tokens.read_only, *(read_only_token or ())),
        insecure=insecure,
        tls_cert=tls_cert,
        tls_key=tls_key,
        max_connections=max_connections,
        synchronous=synchronous,
        bucket_minutes=bucket_minutes,
        archive_seconds=archive_every,
        auto_create=auto_create,
        max_subjects=max_subjects,
        max_groups=max_groups,
        group_rate=group_rate,
        metrics_groups=metrics_groups,
        targets=targets,
        push_loopback=push_loopback,
        accept_loss=accept_loss,
    )
    raise typer.Exit(run_server(options))


def _options(**given: Any) -> "ServeOptions":
    from pydantic import ValidationError

    from hourwheel.embedded.options import ServeOptions

    try:
        return ServeOptions(**given)
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"].removeprefix("Value error, ")) from error


def _targets(given: list[str]) -> dict[str, str]:
    targets: dict[str, str] = {}
    for text in given:
        name, _, place = text.partition("=")
        if not re.fullmatch(r"[^=]{1,100}=[^:=]+:[^:=]+", text):
            raise typer.BadParameter(f"--target {text!r} is not of the form NAME=MODULE:FUNCTION")
        if name in targets:
            raise typer.BadParameter(f"--target {name!r} is there twice")
        targets[name] = place
    return targets
