"""The options of ``hourwheel serve``, as the command line has them, and in groups."""

from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

import typer

DataOption = Annotated[Path, typer.Option(help="Directory of the data; made if there is none.")]
HostOption = Annotated[str, typer.Option(help="Address to listen on.")]
PortOption = Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on.")]
TokenOption = Annotated[
    list[str] | None,
    typer.Option(help="A token that each request needs, and that allows all. Repeatable. Also: HOURWHEEL_TOKEN."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(help="A file of tokens, one on each line, that others may not read. Also: HOURWHEEL_TOKEN_FILE."),
]
ReadOnlyTokenOption = Annotated[
    list[str] | None, typer.Option(help="A token that may only read. Repeatable, as --token is.")
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Serve other machines without a token: anybody may read and write.")
]
TlsCertOption = Annotated[Path | None, typer.Option(help="Certificate, in PEM: serve HTTPS.")]
TlsKeyOption = Annotated[Path | None, typer.Option(help="Its key, in PEM, which others may not read.")]
MaxConnectionsOption = Annotated[
    int,
    typer.Option(min=1, max=100_000, help="Connections at the same time; further clients are told to come back."),
]
Synchronous: TypeAlias = Literal["FULL", "NORMAL"]
SynchronousOption = Annotated[
    Synchronous,
    typer.Option(help="FULL survives a power cut; NORMAL may then lose the last moments, and is faster."),
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
        "--auto-create/--no-auto-create", help="Producing and pulling make the subject and group that they name."
    ),
]
MaxSubjectsOption = Annotated[int, typer.Option(min=0, help="Make no more subjects than this. 0: any number.")]
MaxGroupsOption = Annotated[int, typer.Option(min=0, help="Make no more groups of a subject. 0: any number.")]
GroupRateOption = Annotated[
    float, typer.Option(min=0, max=100_000, help="Pulls a second of each group; beyond, 429. 0: any number.")
]
MetricsGroupsOption = Annotated[
    int, typer.Option(min=0, help="Groups with series of their own in /metrics, those with most messages.")
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=MODULE:FUNCTION",
        help="A Python function, importable from here, to which groups may push as python:NAME. Repeatable.",
    ),
]
PushLoopbackOption = Annotated[
    bool, typer.Option("--push-loopback", help="Groups may push to this machine, also over plain HTTP.")
]
AcceptLossOption = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Go on where transactions are missing from the database: its log was damaged, or it is an older copy.",
    ),
]


class Listening(NamedTuple):
    host: str
    port: int
    insecure: bool
    tls_cert: Path | None
    tls_key: Path | None
    max_connections: int


class Storing(NamedTuple):
    data: Path
    synchronous: Synchronous
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
