"""Parses the options for the retry policy of a group."""

from typing import Annotated, TypeAlias

import typer

from hourwheel.client import RetryPolicy

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
