"""``hourwheel cost``"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hourwheel.cli.output import write_json, write_line, write_table
from hourwheel.cli.settings import settings_of

if TYPE_CHECKING:
    from hourwheel.aws.bill.counts import Counts
    from hourwheel.aws.bill.items import Workload
    from hourwheel.aws.bill.services import ServiceBill

_MOST_MESSAGES = 10**12
_MOST = 1_000


class Front(StrEnum):
    """The values of ``--front``: requests reach the functions through the HTTP API, or through function URLs."""

    API = "api"
    URL = "url"


_LABELS = {
    "writes": "writes (DynamoDB)",
    "reads": "reads (DynamoDB)",
    "objects": "large batches (S3)",
    "requests": "requests (HTTP API)",
    "functions": "functions (Lambda)",
    "logs": "logs (CloudWatch)",
    "storage": "storage",
    "waiting": "waiting consumers",
    "delays": "delays",
    "idle": "idle cell (sweeper)",
}


def cost(
    ctx: typer.Context,
    messages_per_day: Annotated[
        int, typer.Option(min=0, max=_MOST_MESSAGES, help="Messages that all services send in a day.")
    ],
    groups: Annotated[int, typer.Option(min=1, max=_MOST, help="Groups of each subject.")] = 1,
    consumers: Annotated[
        int, typer.Option(min=0, max=_MOST, help="Consumers of each group that wait for messages; 0 with push.")
    ] = 1,
    services: Annotated[int, typer.Option(min=1, max=_MOST, help="Services, each with a subject of its own.")] = 1,
    batch: Annotated[
        int, typer.Option(min=1, max=1_000, help="Messages in each request that sends or pulls them.")
    ] = 1,
    # By default as many bytes as the messages that were counted have (docs/costs.md).
    message_bytes: Annotated[int, typer.Option(min=1, max=1 << 20, help="Bytes of a message.")] = 327,
    delayed_per_day: Annotated[
        int, typer.Option(min=0, max=_MOST_MESSAGES, help="The part of the messages that is delayed, at any hour.")
    ] = 0,
    front: Annotated[Front, typer.Option(help="The HTTP API, or function URLs (hourwheel:front).")] = Front.API,
) -> None:
    """Compute the bill of a month on AWS, and compare it with other services. Needs no server.

    Example: hourwheel cost --messages-per-day 100000 --services 10 --groups 3 --batch 10
    """
    if delayed_per_day > messages_per_day:
        raise typer.BadParameter(
            f"delayed messages are a part of --messages-per-day: at most {messages_per_day}, got {delayed_per_day}",
            param_hint="--delayed-per-day",
        )
    # Imported here, as the other commands need no bill.
    from hourwheel.aws.bill.counts import read_counts, read_other_prices
    from hourwheel.aws.bill.items import Workload, bill_items
    from hourwheel.aws.bill.services import other_bills

    workload = Workload(
        messages_per_day=messages_per_day,
        groups=groups,
        consumers=consumers,
        services=services,
        batch=batch,
        message_bytes=message_bytes,
        delayed_per_day=delayed_per_day,
    )
    counts = read_counts()
    items = bill_items(counts, workload, front.value)
    others = other_bills(counts, read_other_prices(), workload)
    if settings_of(ctx).json:
        _write_json(counts, workload, front, items, others)
    else:
        _write_tables(counts, items, others)


def _write_json(
    counts: "Counts", workload: "Workload", front: Front, items: dict[str, float], others: "list[ServiceBill]"
) -> None:
    from hourwheel.aws.bill.services import comparison

    write_json(
        {
            "workload": workload,
            "front": front.value,
            "items": {item: round(dollars, 4) for item, dollars in items.items()},
            "dollars": round(sum(items.values()), 4),
            "others": [
                {
                    "service": other.service,
                    "dollars": round(other.dollars, 4),
                    "remark": other.remark,
                    "checked": other.checked,
                }
                for other in others
            ],
            "comparison": comparison(items, others),
            "counted": counts.date,
            "region": counts.region,
        }
    )


def _write_tables(counts: "Counts", items: dict[str, float], others: "list[ServiceBill]") -> None:
    from hourwheel.aws.bill.services import comparison, money

    rows = [(_LABELS[item], money(dollars)) for item, dollars in items.items()]
    write_table(["Hourwheel", "$ a month"], [*rows, ("total", money(sum(items.values())))])
    write_table(
        ["other services", "$ a month", "remark"],
        [(other.service, money(other.dollars), _remark(other)) for other in others],
    )
    write_line(comparison(items, others))
    write_line(
        f"Requests counted on {counts.date}, list prices of {counts.region} without free tiers; consumers wait by"
        f" {counts.waiting}."
    )


def _remark(bill: "ServiceBill") -> str:
    return "; ".join(filter(None, [bill.remark, "" if bill.checked else "price not checked"]))
