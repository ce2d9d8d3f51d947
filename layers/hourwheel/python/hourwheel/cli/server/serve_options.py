"""Declares the options of ``hourwheel serve``, and groups their values."""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

import typer

DataOption = Annotated[
    Path, typer.Option(envvar="HOURWHEEL_DATA", help="Data directory; created if it does not exist.")
]
CellOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=DIRECTORY", help="Data directory of another cell, for example on another disk. Repeatable."
    ),
]
HostOption = Annotated[str, typer.Option(envvar="HOURWHEEL_HOST", help="Address to listen on.")]
PortOption = Annotated[int, typer.Option(envvar="HOURWHEEL_PORT", min=0, max=65_535, help="Port to listen on.")]
TokenOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A token that each request needs, and that allows every request. Repeatable. Also: HOURWHEEL_TOKEN."
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(help="A file of tokens, one on each line, that other users cannot read. Also: HOURWHEEL_TOKEN_FILE."),
]
ReadOnlyTokenOption = Annotated[
    list[str] | None, typer.Option(help="A token that may only read. Repeatable, as --token is.")
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Serve other machines without a token: everybody may read and write.")
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A host name at which a server without tokens answers, as that of a Docker or Kubernetes service."
        " Repeatable.",
    ),
]
TlsCertOption = Annotated[Path | None, typer.Option(help="Certificate, in PEM: serve HTTPS.")]
TlsKeyOption = Annotated[
    Path | None, typer.Option(help="Key of the certificate, in PEM, that other users cannot read.")
]
MaxConnectionsOption = Annotated[
    int,
    typer.Option(min=1, max=100_000, help="Connections at the same time; further clients get 503 and retry."),
]
MaxConnectionsPerAddressOption = Annotated[
    int, typer.Option(min=0, max=100_000, help="The most connections of one address; more get 503. 0: any number.")
]
MaxHeldMbOption = Annotated[
    int,
    typer.Option(
        min=8, max=1_000_000, help="Megabytes of unsent answers and unfinished requests; beyond, requests get 503."
    ),
]
Synchronous: TypeAlias = Literal["FULL", "NORMAL"]
SynchronousOption = Annotated[
    Synchronous,
    typer.Option(help="FULL survives a power cut; NORMAL may then lose the last moments, and is faster."),
]
ReserveOption = Annotated[
    int,
    typer.Option(
        "--reserve-mb",
        min=0,
        max=1_000_000_000,
        metavar="MB",
        help="Free space that sends leave on each volume, so that consumers can drain a full one. 0: none.",
    ),
]
BucketMinutesOption = Annotated[
    int, typer.Option(min=5, max=60, help="Length of the buckets in which delayed messages wait.")
]
ArchiveEveryOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=86_400,
        metavar="SECONDS",
        help="Seconds between two runs of the archiver; nothing is removed before it is archived. 0: never.",
    ),
]
AutoCreateOption = Annotated[
    bool,
    typer.Option(
        "--auto-create/--no-auto-create", help="Let produce and pull create the subject and group that they name."
    ),
]
MaxSubjectsOption = Annotated[int, typer.Option(min=0, help="The most subjects. 0: any number.")]
MaxGroupsOption = Annotated[int, typer.Option(min=0, help="The most groups of a subject. 0: any number.")]
GroupRateOption = Annotated[
    float, typer.Option(min=0, max=100_000, help="The most pulls a second of each group; more get 429. 0: any number.")
]
MetricsGroupsOption = Annotated[
    int,
    typer.Option(
        min=0, help="The most groups with series of their own in /metrics; groups with most messages come first."
    ),
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=MODULE:FUNCTION",
        help="A Python function, importable from here, to which groups may push as python:NAME. Repeatable.",
    ),
]
PushLoopbackOption = Annotated[
    bool, typer.Option("--push-loopback", help="Let groups push to this machine, also over plain HTTP.")
]
ConsoleOption = Annotated[
    bool, typer.Option("--console/--no-console", help="Serve the console, pages for the browser, at /console.")
]
AcceptLossOption = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Start although transactions are missing: the database's log was damaged, or it is an older copy.",
    ),
]


class Listening(NamedTuple):
    host: str
    port: int
    insecure: bool
    tls_cert: Path | None
    tls_key: Path | None
    max_connections: int
    max_connections_per_address: int
    max_held_mb: int
    allowed_hosts: tuple[str, ...]
    console: bool


class Storing(NamedTuple):
    data: Path
    cells: dict[str, Path]
    synchronous: Synchronous
    reserve_mb: int
    bucket_minutes: int
    archive_seconds: int
    accept_loss: bool


class Quotas(NamedTuple):
    auto_create: bool
    max_subjects: int
    max_groups: int
    group_rate: float
    metrics_groups: int


class Pushing(NamedTuple):
    targets: dict[str, str]
    push_loopback: bool


def directories_of(texts: list[str]) -> dict[str, Path]:
    """Returns the data directories of cells, by name, for the values of ``--cell``. Raises ``typer.BadParameter``."""
    cells: dict[str, Path] = {}
    for text in texts:
        name, _, directory = text.partition("=")
        if not name or not directory:
            raise typer.BadParameter(f"--cell {text!r} is not of the form NAME=DIRECTORY")
        if name in cells:
            raise typer.BadParameter(f"--cell {name!r} is given twice")
        cells[name] = Path(directory)
    return cells
