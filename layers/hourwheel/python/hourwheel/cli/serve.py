"""``hourwheel serve``"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hourwheel.cli.settings import settings_of


def serve(
    ctx: typer.Context,
    data: Annotated[Path, typer.Option(help="Directory of the data; made if it is not there.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on.")] = 7420,
    synchronous: Annotated[
        Literal["FULL", "NORMAL"],
        typer.Option(help="FULL survives a power cut; NORMAL may then lose the last moments, and is faster."),
    ] = "FULL",
    bucket_minutes: Annotated[
        int, typer.Option(min=5, max=60, help="Length of the buckets in which delayed messages wait.")
    ] = 60,
) -> None:
    """Run the server on this machine. With --token it serves only those who have it."""
    from hourwheel.embedded.options import ServeOptions
    from hourwheel.embedded.server import serve as run_server

    options = ServeOptions(
        data=data,
        host=host,
        port=port,
        token=settings_of(ctx).token,
        synchronous=synchronous,
        bucket_minutes=bucket_minutes,
    )
    raise typer.Exit(run_server(options))
