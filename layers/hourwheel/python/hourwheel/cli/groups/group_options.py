"""Parses the options for the retry policy of a group."""

from typing import Annotated, Any, TypeAlias

import typer

from hourwheel.client import RetryPolicy

RetryDelaysOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS,…",
        help="Seconds before each retry, in place of the three above; the last one is repeated.",
    ),
]


def retry_of(delays: str | None, **growing: Any) -> RetryPolicy | None:
    """Returns the policy, or None to keep that of the group. Raises ``typer.BadParameter`` for delays that are not
    numbers, and for delays together with ``--retry-first``, ``--retry-factor`` or ``--retry-cap``."""
    if growing and delays is not None:
        raise typer.BadParameter("--retry-delays stands alone: leave out --retry-first, --retry-factor and --retry-cap")
    if delays is None:
        return RetryPolicy(**growing) if growing else None
    try:
        return RetryPolicy(delays_seconds=tuple(map(float, delays.split(","))))
    except ValueError as error:
        raise typer.BadParameter(f"--retry-delays are seconds such as 1,10,60, got {delays!r}") from error
