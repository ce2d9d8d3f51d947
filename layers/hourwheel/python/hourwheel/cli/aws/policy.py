"""``hourwheel policy …``"""

from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from hourwheel.cli.output import write_json, write_line
from hourwheel.cli.settings import GroupArgument, SubjectArgument, settings_of
from hourwheel.client.transport.signing import EXECUTE_API

app = typer.Typer(no_args_is_help=True, help="Print the IAM policies of programs that use one subject or group.")

ApiArnOption = Annotated[
    str | None,
    typer.Option(metavar="ARN", help="arn:aws:execute-api:REGION:ACCOUNT:API/STAGE; by default the API of --url."),
]
CellOption = Annotated[str, typer.Option(help="The name of the deployment, its setting hourwheel:cell.")]
KeyOption = Annotated[
    str | None, typer.Option(metavar="ARN", help="The output KeyArn of a deployment with hourwheel:customer_key.")
]
AccountOption = Annotated[
    str | None, typer.Option(help="The account of the API, twelve digits; needed if --url names the API.")
]


@app.command()
def producer(
    ctx: typer.Context,
    subject: SubjectArgument,
    api_arn: ApiArnOption = None,
    account: AccountOption = None,
    delayed: Annotated[
        bool,
        typer.Option(
            "--delayed", help="Allow listing delayed messages, and moving and cancelling those of ALL subjects."
        ),
    ] = False,
) -> None:
    """Print the policy of a program that sends to a subject.

    Example: hourwheel policy producer orders --api-arn 'arn:aws:execute-api:eu-west-1:111122223333:abc/$default'
    """
    from hourwheel.aws.policies import producer_policy

    arn = api_arn or _arn(settings_of(ctx).url, account)
    try:
        _show(ctx, producer_policy(arn, subject, delayed=delayed))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@app.command()
def consumer(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    api_arn: ApiArnOption = None,
    account: AccountOption = None,
    cell: CellOption = "hourwheel",
    key_arn: KeyOption = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Allow listing, redriving and dropping dead letters.")
    ] = False,
    seek: Annotated[bool, typer.Option("--seek", help="Allow moving the group.")] = False,
    pause: Annotated[bool, typer.Option("--pause", help="Allow pausing and resuming the group.")] = False,
) -> None:
    """Print the policy of a program that pulls for a group.

    Example: hourwheel policy consumer orders billing --api-arn "$API_ARN" --dead-letters
    """
    from hourwheel.aws.policies import consumer_policy

    arn = api_arn or _arn(settings_of(ctx).url, account)
    try:
        allowed = {"dead_letters": dead_letters, "seek": seek, "pause": pause}
        _show(ctx, consumer_policy(arn, subject, group, cell=cell, key_arn=key_arn, **allowed))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@app.command()
def urls(
    ctx: typer.Context,
    function_arn: Annotated[list[str], typer.Option(metavar="ARN", help="The ARN of a function. Repeatable.")],
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="SUBJECT/GROUP", help="Allow waiting at the wake-up queue of this group. Repeatable."),
    ] = None,
    cell: CellOption = "hourwheel",
    key_arn: KeyOption = None,
) -> None:
    """Print the policy of a program that calls functions through their URLs, with a token of `hourwheel grant create`.

    Example: hourwheel policy urls --function-arn arn:aws:lambda:eu-west-1:111122223333:function:hourwheel-produce
    """
    from hourwheel.aws.policies import url_policy

    try:
        _show(ctx, url_policy(function_arn, [_group(text) for text in group or ()], cell=cell, key_arn=key_arn))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _group(text: str) -> tuple[str, str]:
    subject, slash, name = text.partition("/")
    if not slash:
        raise typer.BadParameter(f"give SUBJECT/GROUP, got {text[:200]!r}", param_hint="--group")
    return subject, name


def _arn(url: str, account: str | None) -> str:
    parts = urlsplit(url)
    address = EXECUTE_API.fullmatch(parts.hostname or "")
    if address is None or account is None:
        raise typer.BadParameter("say which API: --api-arn, or its …execute-api… address as --url with --account")
    region = address["region"]
    # The regions of China and of GovCloud belong to partitions of their own, which ARNs name.
    partition = "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"
    stage = parts.path.strip("/") or "$default"
    return f"arn:{partition}:execute-api:{region}:{account}:{address['api']}/{stage}"


def _show(ctx: typer.Context, policy: dict[str, Any]) -> None:
    if settings_of(ctx).json:
        write_json(policy)
    else:
        for line in msgspec.json.format(msgspec.json.encode(policy)).decode().splitlines():
            write_line(line)
