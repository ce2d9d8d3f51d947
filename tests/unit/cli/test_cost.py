"""``hourwheel cost`` computes without a server, and refuses what makes no sense."""

import pytest

from hourwheel.aws.bill.counts import read_counts
from hourwheel.aws.bill.items import Workload, bill_items
from tests.unit.cli.conftest import Shell

TEAM = ["--messages-per-day", "100000", "--services", "10", "--groups", "3"]


def test_the_bill_is_computed_for_programs(shell: Shell) -> None:
    (bill,) = shell.json("cost", *TEAM)
    ours = bill_items(read_counts(), Workload(messages_per_day=100_000, services=10, groups=3), "api")
    assert bill["dollars"] == pytest.approx(sum(ours.values()), abs=0.001)
    assert bill["items"].keys() == ours.keys()
    assert bill["others"][0]["service"] == "SNS + SQS"
    assert {each["checked"] for each in bill["others"]} == {True, False}
    assert bill["counted"] == read_counts().date
    assert not shell.server.requests


def test_the_bill_is_printed_for_people(shell: Shell) -> None:
    printed = shell.ok("cost", *TEAM)
    for text in (
        "waiting consumers",
        "total",
        "SNS + SQS",
        "Kafka (MSK Serverless)",
        "(Confluent Cloud Basic)",
        "price not checked",
    ):
        assert text in printed
    assert "Kafka (Confluent Cloud Basic) stays cheaper here" in printed
    assert "list prices of us-east-1" in printed


def test_urls_cost_less_than_the_http_api(shell: Shell) -> None:
    (api,), (url,) = (shell.json("cost", *TEAM, "--front", front) for front in ("api", "url"))
    assert url["items"]["requests"] == 0 < api["items"]["requests"]
    assert url["items"]["writes"] == api["items"]["writes"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "Missing option '--messages-per-day'"),
        (["--messages-per-day", "-1"], "must be a whole number from 0 to 1,000,000,000,000"),
        (["--messages-per-day", "many"], "--messages-per-day"),
        (["--messages-per-day", "10", "--groups", "0"], "--groups"),
        (["--messages-per-day", "10", "--batch", "1001"], "--batch"),
        (["--messages-per-day", "10", "--message-bytes", "0"], "--message-bytes"),
        (["--messages-per-day", "10", "--front", "ftp"], "--front"),
        (["--messages-per-day", "10", "--delayed-per-day", "11"], "at most 10, got 11"),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(shell: Shell, args: list[str], says: str) -> None:
    result = shell("cost", *args)
    assert result.exit_code == 2
    assert says in result.output
