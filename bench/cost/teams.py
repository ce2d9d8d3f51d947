"""``python -m bench.cost.teams``: prints the table of typical teams in ``docs/costs.md``, by the package's counts."""

import sys

from hourwheel.aws.bill.counts import read_counts, read_other_prices
from hourwheel.aws.bill.items import Workload, bill_items
from hourwheel.aws.bill.services import money, other_bills

TEAMS = {
    "1 service, 1 group, 1,000 messages a day": Workload(messages_per_day=1_000),
    "3 services, 2 groups, 20,000 a day, 100 of them delayed": Workload(
        messages_per_day=20_000, services=3, groups=2, delayed_per_day=100
    ),
    "10 services, 3 groups, 100,000 a day": Workload(messages_per_day=100_000, services=10, groups=3),
    "1 service, 5 groups, 10 million a day in batches of 100": Workload(
        messages_per_day=10_000_000, groups=5, batch=100
    ),
    "5 services, 2 groups, 500 million a day in batches of 1,000": Workload(
        messages_per_day=500_000_000, services=5, groups=2, batch=1_000
    ),
}
HEAD = (
    "team, $ a month",
    *("sent and taken", "through URLs", "waiting", "delays", "idle"),
    *("SQS, SNS", "EventBridge", "RocketMQ", "Kafka: MSK", "Kafka: Confluent"),
)


def lines() -> list[str]:
    """Returns the table in Markdown."""
    counts, prices = read_counts(), read_other_prices()
    rows = [f"| {' | '.join(HEAD)} |", "|" + " --- |" * len(HEAD)]
    for name, workload in TEAMS.items():
        ours = bill_items(counts, workload, "api")
        rest = {item: ours.pop(item) for item in ("waiting", "delays", "idle")}
        urls = bill_items(counts, workload, "url")
        through_urls = sum(dollars for item, dollars in urls.items() if item not in rest)
        others = [money(bill.dollars) for bill in other_bills(counts, prices, workload)]
        cells = [name, f"**{money(sum(ours.values()))}**", money(through_urls), *map(money, rest.values()), *others]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
