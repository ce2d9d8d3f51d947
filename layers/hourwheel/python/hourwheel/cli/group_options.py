"""Parses the options of ``hourwheel group create``, except those of filters and push."""

from typing import Annotated, Literal, TypeAlias

import typer

from hourwheel.client import RetryPolicy

StartOption: TypeAlias = Annotated[
    Literal["earliest", "latest"] | None, typer.Option(help="Where a new group begins (default: earliest).")
]
MaxAttemptsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(help="Attempts after which a message becomes a dead letter: 1 to 1000 (16 by default)."),
]
MaxInFlightOption: TypeAlias = Annotated[
    int | None, typer.Option(help="Messages that may be leased at once: 0 to 1000000 (0: no limit).")
]
MessagesPerSecondOption: TypeAlias = Annotated[
    float | None, typer.Option(help="Messages that may be leased per second: 0 to 1000000 (0: no limit).")
]
RetryPercentOption: TypeAlias = Annotated[
    int | None,
    typer.Option(help="Percentage of retries while new messages wait: 1 to 100 (50 by default)."),
]
RetryFirstOption: TypeAlias = Annotated[float | None, typer.Option(help="Seconds before the first retry.")]
RetryFactorOption: TypeAlias = Annotated[
    float | None, typer.Option(help="Factor by which each wait is longer than the one before.")
]
RetryCapOption: TypeAlias = Annotated[float | None, typer.Option(help="The longest wait, in seconds.")]
RetryDelaysOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS,…",
        help="Seconds before each retry, in place of the three above; the last one is repeated.",
    ),
]
BroadcastOption: TypeAlias = Annotated[
    bool | None, typer.Option("--broadcast", help="Hand every message to each consumer of a new group.")
]
ConsumerExpiresOption: TypeAlias = Annotated[
    int | None,
    typer.Option(help="With --broadcast: seconds without a pull after which a consumer is forgotten (259200)."),
]
OrderedOption: TypeAlias = Annotated[
    bool | None, typer.Option("--ordered", help="Serve the messages of each key one after the other.")
]
WhenDeadOption: TypeAlias = Annotated[
    Literal["continue", "stop"] | None,
    typer.Option(help="Whether a key goes on when its message is given up (default: continue)."),
]
RedeliveryDelayOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="Seconds that a message waits whose lease ended for the first time: 0 to 2592000 (at once by default)."
    ),
]

MaxHeldOption: TypeAlias = Annotated[
    int | None,
    typer.Option(help="The most held keys of a queue: 1 to 100000 (10000 by default)."),
]


def retry_of(first: float | None, factor: float | None, cap: float | None, delays: str | None) -> RetryPolicy | None:
    """Returns the policy, or None to keep that of the group. Raises ``typer.BadParameter`` for delays that are not
    numbers, and for delays together with ``--retry-first``, ``--retry-factor`` or ``--retry-cap``."""
    growing = (first, factor, cap) != (None, None, None)
    if growing and delays is not None:
        raise typer.BadParameter("--retry-delays stands alone: leave out --retry-first, --retry-factor and --retry-cap")
    if growing:
        return RetryPolicy(first_seconds=first, factor=factor, cap_seconds=cap)
    if delays is None:
        return None
    try:
        return RetryPolicy(delays_seconds=tuple(map(float, delays.split(","))))
    except ValueError as error:
        raise typer.BadParameter(f"--retry-delays are seconds such as 1,10,60, got {delays!r}") from error
