"""``hourwheel group retry`` and ``hourwheel group purge``"""

from typing import Annotated

import typer

from hourwheel.cli.settings import GroupArgument, SubjectArgument, YesOption, confirm, connect, write_answer
from hourwheel.wire.words import counted


def retry(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    every: Annotated[bool, typer.Option("--all", help="All messages that wait for their delay.")] = False,
    key: Annotated[str | None, typer.Option("--key", help="Those of this key.")] = None,
    error: Annotated[str | None, typer.Option("--error", help="Those of this error, as the consumer told it.")] = None,
) -> None:
    """Retry messages at once that wait for the delay of their retry.

    Example: hourwheel group retry orders billing --error "time-out after 30 s"
    """
    if every == (key is not None or error is not None):
        raise typer.BadParameter("say which messages: --all, or --key, --error or both")
    retried, after = 0, None
    with connect(ctx) as api:
        while True:
            answer = api.retry_now(subject, group, everything=every, key=key, detail=error, after=after)
            retried, after = retried + answer.retried, answer.next
            if after is None:
                break
    write_answer(ctx, {"retried": retried}, f"retried {counted(retried, 'message')} now")


def purge(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument, yes: YesOption = False) -> None:
    """Pass over all messages that wait: a seek to the end. Leased messages, retries and dead letters stay.

    Example: hourwheel group purge orders billing --yes
    """
    with connect(ctx) as api:
        passed = sum(moved.passed_over or 0 for moved in api.seek(subject, group, "end", dry_run=True))
        confirm(f"Pass over {counted(passed, 'message')} of {subject} in the group {group}?", yes=yes)
        positions = api.seek(subject, group, "end")
    answer = {"passed_over": passed, "positions": positions}
    write_answer(ctx, answer, f"passed over {counted(passed, 'message')} of {subject}")
