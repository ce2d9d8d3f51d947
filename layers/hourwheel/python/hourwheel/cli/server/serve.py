"""``hourwheel serve``"""

import os
import re
import sys
from typing import TYPE_CHECKING, Any

import typer

from hourwheel.cli.server import serve_options as options
from hourwheel.cli.settings import settings_of
from hourwheel.wire.misfits import of_pydantic

if TYPE_CHECKING:
    from hourwheel.embedded.options import ServeOptions


def serve(
    ctx: typer.Context,
    data: options.DataOption,
    cell: options.CellOption = None,
    host: options.HostOption = "127.0.0.1",
    port: options.PortOption = 7420,
    token: options.TokenOption = None,
    token_file: options.TokenFileOption = None,
    read_only_token: options.ReadOnlyTokenOption = None,
    insecure: options.InsecureOption = False,
    tls_cert: options.TlsCertOption = None,
    tls_key: options.TlsKeyOption = None,
    allow_host: options.AllowHostOption = None,
    max_connections: options.MaxConnectionsOption = 4_096,
    max_connections_per_address: options.MaxConnectionsPerAddressOption = 0,
    max_held_mb: options.MaxHeldMbOption = 256,
    synchronous: options.SynchronousOption = "FULL",
    reserve_mb: options.ReserveOption = 64,
    bucket_minutes: options.BucketMinutesOption = 60,
    archive_every: options.ArchiveEveryOption = 0,
    auto_create: options.AutoCreateOption = True,
    max_subjects: options.MaxSubjectsOption = 0,
    max_groups: options.MaxGroupsOption = 0,
    group_rate: options.GroupRateOption = 0,
    metrics_groups: options.MetricsGroupsOption = 1_000,
    target: options.TargetOption = None,
    push_loopback: options.PushLoopbackOption = False,
    console: options.ConsoleOption = True,
    accept_loss: options.AcceptLossOption = False,
) -> None:
    """Run the server on this machine. With --token or --token-file each request needs a token.

    Example: hourwheel serve --data ./queue --archive-every 60
    """
    # ``hoist`` moves these shared options to the root command; they are declared here for --help only.
    assert token is None
    assert token_file is None
    chosen = _options(
        *settings_of(ctx).tokens,
        read_only_token or [],
        options.Listening(
            host,
            port,
            insecure,
            tls_cert,
            tls_key,
            max_connections,
            max_connections_per_address,
            max_held_mb,
            tuple(allow_host or ()),
            console,
        ),
        options.Storing(
            data,
            options.directories_of(cell or []),
            synchronous,
            reserve_mb,
            bucket_minutes,
            archive_every,
            accept_loss,
        ),
        options.Quotas(auto_create, max_subjects, max_groups, group_rate, metrics_groups),
        options.Pushing(_targets(target or []), push_loopback),
    )
    if chosen.targets:
        sys.path.insert(0, os.getcwd())  # for --target modules; a console script has only its own folder there

    from hourwheel.embedded.server import serve as run_server  # slow to import: wrong options fail before

    raise typer.Exit(run_server(chosen))


def _options(
    tokens: tuple[str, ...],
    read_only_tokens: tuple[str, ...],
    more_read_only_tokens: list[str],
    *groups: options.Listening | options.Storing | options.Quotas | options.Pushing,
) -> "ServeOptions":
    from pydantic import ValidationError

    from hourwheel.embedded.options import ServeOptions

    values: dict[str, Any] = {name: value for group in groups for name, value in group._asdict().items()}
    try:
        return ServeOptions(tokens=tokens, read_only_tokens=(*read_only_tokens, *more_read_only_tokens), **values)
    except ValidationError as error:
        fault = error.errors()[0]
        # A ``value_error`` comes from a validator of ``ServeOptions``, with a whole sentence.
        prefix = "" if fault["type"] == "value_error" else f"{fault['loc'][0]} "
        raise typer.BadParameter(prefix + of_pydantic(fault)) from error


def _targets(texts: list[str]) -> dict[str, str]:
    targets: dict[str, str] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not re.fullmatch(r"[^=]{1,100}=[^:=]+:[^:=]+", text):
            raise typer.BadParameter(f"--target {text!r} is not of the form NAME=MODULE:FUNCTION")
        if name in targets:
            raise typer.BadParameter(f"--target {name!r} is given twice")
        targets[name] = path
    return targets
