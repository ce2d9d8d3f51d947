"""A list that ends at its limit says so, and how it goes on."""

import pytest

from tests.unit.cli.conftest import Shell

MORE = "hourwheel: the list ends at its limit, and there may be more: --after {} goes on, a higher --limit prints more"


def bury(shell: Shell, count: int) -> None:
    shell.ok("produce", "orders", *map(str, range(count)))
    shell.ok("consume", "orders", "billing", "--once", "--max", str(count), "--then", "reject")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_list_of_delayed_messages_goes_on_behind_its_limit(shell: Shell, as_json: bool) -> None:
    shell.ok("produce", "orders", *map(str, range(80)), "--delay", "1h")
    for command in (["scheduled", "list", "orders"], ["scheduled", "list"]):
        listed = shell(*command, *["--json"] * as_json)
        assert listed.exit_code == 0
        assert listed.stderr.startswith(MORE.format("50"))
    ids = [each["scheduled_id"] for each in shell.json("scheduled", "list", "orders")]
    rest = shell("scheduled", "list", "orders", "--after", "50")
    assert rest.stderr == ""
    ids += [each["scheduled_id"] for each in shell.json("scheduled", "list", "orders", "--after", "50")]
    assert len(set(ids)) == 80


def test_a_list_of_dead_letters_goes_on_behind_its_limit(shell: Shell) -> None:
    bury(shell, 130)
    listed = shell("dead", "list", "orders", "billing")
    assert listed.exit_code == 0
    last = shell.json("dead", "list", "orders", "billing")[-1]["dead_id"]
    assert listed.stderr.startswith(MORE.format(last))
    rest = shell.json("dead", "list", "orders", "billing", "--after", last)
    assert [letter["body"] for letter in rest] == list(map(str, range(100, 130)))


def test_a_list_that_is_whole_says_nothing_of_more(shell: Shell) -> None:
    bury(shell, 3)
    assert shell("dead", "list", "orders", "billing", "--limit", "3").stderr == ""
    assert shell("dead", "list", "orders", "billing").stderr == ""
    assert shell("scheduled", "list").stderr == ""


def test_a_list_of_orphans_goes_on_behind_its_limit(shell: Shell) -> None:
    accepted = shell.json("produce", "orders", "a", "b", "--delay", "1h")
    shell.ok("subject", "delete", "orders", "--yes")
    for each in accepted:
        shell.server.broker.fall_due(each["scheduled_id"])
    result = shell("dead", "orphans", "orders", "--limit", "1")
    assert result.stderr.startswith(MORE.format("0-0-0"))
    [orphan] = shell.json("dead", "orphans", "orders", "--after", "0-0-0")
    assert orphan["body"] == "b"


@pytest.mark.parametrize("verb", [["redrive"], ["drop", "--yes"]])
def test_dead_letters_that_are_chosen_in_no_way_or_in_two_are_refused_in_words_that_say_so(
    shell: Shell, verb: list[str]
) -> None:
    for options, sentence in {
        ("--all", "--reason", "attempts"): "give one of these, not 2: --all, --reason",
        ("0-0", "--all", "--to", "2030-01-01T00:00:00Z"): "give one of these, not 3: dead ids, --all, --from and --to",
        ("--detail", "x"): "--detail needs --reason",
        ("--all", "--detail", "x"): "--detail needs --reason",
        (): "say which: dead ids, --all, --reason, or --from and --to",
    }.items():
        result = shell("dead", *verb, "orders", "billing", *options)
        assert result.exit_code == 2
        assert sentence in " ".join(result.stderr.replace("│", " ").split())
