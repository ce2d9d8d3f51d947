"""Checks the limits of the account and the format of its tables for a cell, before ``make deploy`` deploys.

A pull that waits holds a Lambda execution, and all functions of an account share one limit: 1,000 executions, or 10 in
new accounts. So pulls get a share of the limit and no more.

    enough executions    the share is reserved for ``pull``, which also caps it
    too few              Lambda refuses any reservation: pulls do not wait, and the route takes only as many requests
                         as the share can answer

Writes these settings, unless the operator has set them, to standard output as options of the CDK, and the reasons to
standard error.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from hourwheel.adapters.aws.clients import make_client
from infra.functions import RESERVED, layers_runtime, reserved_executions
from infra.names import function_name
from infra.settings import PREFIX, Settings, Wrong, operator_context
from infra.stored_format import check_stored_formats

UNRESERVED = 100
"""Lambda keeps this many executions free of reservations."""

ANSWER_SECONDS = 0.2
"""The longest pull that does not wait: assumed for the throttle that replaces a reservation."""

_SHARE = 2
"""Pulls get one in this many executions: the other functions need the rest."""

_FEWEST = 20
"""A smaller reservation serves too few calls to be worth the executions that it takes from others."""


# On older ones Lambda escapes every character beyond ASCII in answers.
_OLDEST_RUNTIME = (3, 12)

_RESERVING = ("pull", *RESERVED)
"""The functions that may have reserved executions."""


@dataclass(frozen=True)
class Account:
    """The executions of an account. ``limit``: the most at once. ``unreserved``: those that no function has reserved.
    ``reserved``: those that functions of this cell have from an earlier deployment."""

    limit: int
    unreserved: int
    reserved: int = 0

    @property
    def reservable(self) -> int:
        """Returns the number of executions that this cell may reserve."""
        return max(0, self.unreserved + self.reserved - UNRESERVED)


def chosen(account: Account, *, others: int = 0) -> dict[str, int]:
    """Returns settings with which pulls hold no more than their share of the executions, whatever consumers do.
    ``others``: the executions that other functions of the cell reserve."""
    share = min(account.limit // _SHARE, account.reservable - others)
    if share >= _FEWEST:
        return {"lambda_concurrency": account.limit, "pull_concurrency": share}
    share = account.limit // _SHARE
    burst = max(1, share // 2)
    rate = max(1, int((share - burst) / ANSWER_SECONDS))
    return {"lambda_concurrency": account.limit, "max_wait_seconds": 0, "pull_burst": burst, "pull_rate": rate}


def refused(account: Account, settings: Settings) -> str | None:
    """Returns the reason why Lambda would refuse the settings, after minutes of deployment; None if it would not."""
    wanted = settings.pull_concurrency + _others(settings)
    if wanted <= account.reservable:
        return None
    return (
        f"pull_concurrency and reserve_concurrency reserve {wanted:,} executions, and this account can reserve"
        f" {account.reservable:,} of its {account.limit:,}: Lambda keeps {UNRESERVED} free"
    )


@dataclass(frozen=True)
class TableQuota:
    """The most units a second of one table of the account."""

    writes: int
    reads: int


def too_warm(quota: TableQuota, settings: Settings) -> str | None:
    """Returns the reason why DynamoDB would refuse the warm units of the tables; None if it would not."""
    for name, wanted, most in (
        ("warm_write_units", settings.warm_write_units, quota.writes),
        ("warm_read_units", settings.warm_read_units, quota.reads),
    ):
        if wanted is not None and wanted > most:
            return (
                f"{PREFIX}{name} is {wanted:,}, and a table of this account has {most:,} units a second at most: raise"
                " the quota for the throughput of a table of DynamoDB first, or set fewer"
            )
    return None


def table_quota(client: Any) -> TableQuota:
    """Reads the quota of a table from DynamoDB. Raises errors of botocore."""
    limits = client.describe_limits()
    return TableQuota(writes=limits["TableMaxWriteCapacityUnits"], reads=limits["TableMaxReadCapacityUnits"])


def check_tables(make_tables: Callable[[], Any], context: Mapping[str, object]) -> str:
    """Returns a sentence for the operator where the quota of the tables is not known; "" where it is, or where no
    setting needs it. Raises ``Wrong`` for more warm units than a table may have."""
    settings = Settings.read(context)
    if settings.warm_write_units is None and settings.warm_read_units is None:
        return ""
    try:
        reason = too_warm(table_quota(make_tables()), settings)
    except (BotoCoreError, ClientError) as error:
        return f"the quota of tables is not known, so the warm units are not checked: {error}"
    if reason is not None:
        raise Wrong(reason)
    return ""


def old_runtime(settings: Settings, runtime: str) -> str | None:
    """Returns the reason why the functions should not run on this Python; None if they may. The layers are built for
    3.13 if it is installed, and otherwise for the Python that builds them."""
    if settings.runtime is not None or tuple(map(int, runtime.split("."))) >= _OLDEST_RUNTIME:
        return None
    return (
        f"the layers are for Python {runtime}, as it built them: Lambda supports it for a short time yet, and escapes"
        " every character beyond ASCII in answers. Install Python 3.13 and run `make layers`, or say that it is meant:"
        f" {PREFIX}runtime={runtime}"
    )


def _others(settings: Settings) -> int:
    return sum(reserved_executions(settings).values())


def account_limits(client: Any, cell: str) -> Account:
    """Reads the executions of the account and of the cell from Lambda. Raises errors of botocore."""
    limits = client.get_account_settings()["AccountLimit"]
    return Account(
        limit=limits["ConcurrentExecutions"],
        unreserved=limits["UnreservedConcurrentExecutions"],
        reserved=sum(_reserved(client, function_name(cell, name)) for name in _RESERVING),
    )


def _reserved(client: Any, function: str) -> int:
    try:
        return int(client.get_function_concurrency(FunctionName=function).get("ReservedConcurrentExecutions", 0))
    except client.exceptions.ResourceNotFoundException:
        return 0  # the function is not deployed yet


def explanation(account: Account, settings: Settings) -> str:
    """Returns a sentence for the operator about the executions that pulls may take, and the reason."""
    first = f"this account runs {account.limit:,} Lambda executions at once"
    if settings.pull_concurrency:
        return f"{first}; {settings.pull_concurrency:,} of them are reserved for pull, which gets no more"
    if settings.max_wait_seconds or settings.pull_rate is None:
        return f"{first}; pulls that wait may take all of them, as pull_concurrency is not set"
    return (
        f"{first}, too few to reserve any: pulls do not wait, and the API takes {settings.pull_rate} of them a second."
        " Idle consumers ask every few seconds. Raise the quota 'Concurrent executions' of AWS Lambda to 1,000 and"
        " deploy again"
    )


def options(client: Any, context: Mapping[str, object]) -> tuple[str, str]:
    """Returns the options for the CDK and the reasons for them. Raises ``Wrong``, and errors of botocore."""
    settings = Settings.read(context)
    account = account_limits(client, settings.cell)
    if reason := refused(account, settings) or old_runtime(settings, layers_runtime()):
        raise Wrong(reason)
    more = {
        f"{PREFIX}{name}": value
        for name, value in chosen(account, others=_others(settings)).items()
        if f"{PREFIX}{name}" not in context
    }
    text = " ".join(f"-c {name}={value}" for name, value in more.items())
    return text, explanation(account, Settings.read({**context, **more}))


def main(arguments: Sequence[str]) -> int:
    config = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})

    def client(service: str) -> Any:
        return make_client(service, config, region=os.environ.get("AWS_REGION"), endpoint_url=None)

    try:
        context = operator_context(arguments, Path("cdk.context.json"))
        for unknown in (
            check_stored_formats(client("dynamodb"), Settings.read(context)),
            check_tables(lambda: client("dynamodb"), context),
        ):
            sys.stderr.write(f"{unknown}\n" * bool(unknown))
        text, why = options(client("lambda"), context)
    except Wrong as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (BotoCoreError, ClientError) as error:
        text, why = "", f"the account's Lambda limit is not known, so pulls get no share of it: {error}"
    sys.stderr.write(f"{why}\n")
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
