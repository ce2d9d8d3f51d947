"""Validates the options of the server."""

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from hourwheel.embedded.credentials.tokens import check_new_token

_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.IGNORECASE)
_CELL_NAME = "[a-z0-9-]{1,30}"


def _check_host_name(name: str) -> str:
    """Returns the name in lower case. Raises ``ValueError`` for a text that is no host name."""
    if not _HOST_NAME.fullmatch(name):
        raise ValueError(f"--allow-host takes a host name without a port, not {name[:100]!r}")
    return name.lower()


Token: TypeAlias = Annotated[str, AfterValidator(check_new_token)]

HostName: TypeAlias = Annotated[str, AfterValidator(_check_host_name)]


class ServeOptions(BaseModel):
    """Holds the options of a server.

    ``port=0`` takes a free port. With ``tokens`` or ``read_only_tokens``, each request needs one of them, as
    ``Authorization: Bearer {token}``. Without tokens the server serves other machines only if ``insecure``. With
    ``tls_cert`` and ``tls_key``, files in PEM, the server speaks HTTPS only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path
    host: str = "127.0.0.1"
    port: int = Field(default=7420, ge=0, le=65_535)
    tokens: tuple[Token, ...] = ()
    read_only_tokens: tuple[Token, ...] = ()
    insecure: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    synchronous: Literal["FULL", "NORMAL"] = "FULL"

    cells: dict[str, Path] = {}
    """The data directories of other cells, by name."""

    reserve_mb: int = Field(default=64, ge=0, le=1_000_000_000)
    """Megabytes of each volume that new messages leave free; 0: none."""

    bucket_minutes: int = Field(default=60, ge=5, le=60)
    """Length of the buckets in which delayed messages wait. It may change between two starts, while messages wait."""

    retry_seconds: float = Field(default=5.0, ge=0, le=7_200)
    """Seconds before the first retry of a message, in groups without a retry policy of their own."""

    targets: dict[str, str] = {}
    """Python targets to which groups may push: ``package.module:function`` by name."""

    push_loopback: bool = False
    """Whether groups may push to this machine, also over plain HTTP."""

    archive_seconds: float = Field(default=0, ge=0, le=86_400)
    """Seconds between two runs of the archiver, without which no row is removed; 0: no archive."""

    auto_create: bool = True
    """Whether produce and pull create the subject and the group that they name."""

    max_subjects: int = Field(default=0, ge=0)
    max_groups: int = Field(default=0, ge=0)
    """The most subjects, and the most groups of each subject; 0: any number."""

    group_rate: float = Field(default=0, ge=0, le=100_000)
    """Pulls a second of each group; 0: any number."""

    metrics_groups: int = Field(default=1_000, ge=0)
    """The most groups with series of their own in ``/metrics``: those with the most messages."""

    console: bool = True
    """Whether the console is served at ``/console``."""

    accept_loss: bool = False
    """Whether to start although transactions are missing from the database: see ``loss.py``."""

    threads: int = Field(default=32, ge=1, le=256)
    """Threads for the control plane, and for the files of large batches."""

    max_waiting: int = Field(default=2_000, ge=0, le=10_000)
    """The most pulls that wait for messages at the same time; further ones are answered at once."""

    max_connections: int = Field(default=4_096, ge=1, le=100_000)
    """The most connections at the same time; fewer if the process has fewer descriptors. Further ones get 503."""

    max_connections_per_address: int = Field(default=0, ge=0, le=100_000)
    """The most connections of one address; 0: any number. Further ones get 503."""

    max_held_mb: int = Field(default=256, ge=8, le=1_000_000)
    """The most megabytes of unsent answers and unfinished requests. Beyond, requests get 503."""

    allowed_hosts: tuple[HostName, ...] = ()
    """Names in the Host header at which a server without tokens answers, besides localhost."""

    body_seconds: float = Field(default=30.0, gt=0)
    """The longest time from the first byte of a request to its last."""

    stop_seconds: int = Field(default=10, ge=1)
    """The time that requests in flight have to finish after the server is asked to stop."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tls_cert is None) is not (self.tls_key is None):
            raise ValueError("give both --tls-cert and --tls-key, or none of them")
        for cell in self.cells:
            if not re.fullmatch(_CELL_NAME, cell):
                raise ValueError(
                    f"{cell[:40]!r} cannot be the name of a cell: a name has 1 to 30 lower-case letters, digits and"
                    " dashes, as in --cell fast-1=DIRECTORY"
                )
        if "home" in self.cells:
            raise ValueError("home is the name of the cell in --data: give the cell another name")
        names = {self.data.resolve(): "--data"}
        for cell, path in self.cells.items():
            owner = names.setdefault(path.resolve(), f"--cell {cell}")
            if owner != f"--cell {cell}":
                raise ValueError(f"--cell {cell} names the directory of {owner}: each cell needs one of its own")
        if set(self.tokens) & set(self.read_only_tokens):
            raise ValueError("a token is given with and without read-only: give it once")
        return self

    @property
    def is_open(self) -> bool:
        """Whether requests need no token."""
        return not (self.tokens or self.read_only_tokens)

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
