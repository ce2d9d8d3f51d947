"""Names of logs are parsed into the parts from which they were built."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.errors import Corrupt
from hourwheel.model.log_names import HOME, LogKind, LogName, Member, cell_of, is_schedule, pull_log, source_of

NAMES = st.from_regex(r"\A[A-Za-z0-9._-]{1,20}\Z").filter(str.isascii)
GENERATIONS = st.integers(1, 10**6)
CELLS = st.one_of(st.just(HOME), st.from_regex(r"\A[a-z0-9-]{1,30}\Z"))
MEMBERS = st.builds(Member, NAMES, GENERATIONS)
LOGS = st.one_of(
    st.builds(LogName.of_queue, NAMES, GENERATIONS, st.integers(0, 63)),
    st.builds(LogName.of_queue, NAMES, GENERATIONS, st.integers(0, 63), st.integers(0, 99), st.integers(1, 9), CELLS),
    st.builds(LogName.of_retries, NAMES, GENERATIONS, MEMBERS),
    st.builds(LogName.of_dead, NAMES, GENERATIONS, MEMBERS),
    st.builds(LogName.of_orphans, NAMES, GENERATIONS),
    st.builds(LogName.of_schedule, st.just("1800000000000-60/000")),
)


@given(LOGS)
def test_a_name_is_parsed_as_it_was_built(name: LogName) -> None:
    assert LogName.parse(str(name)) == name
    assert cell_of(str(name)) == name.cell
    assert is_schedule(str(name)) == (name.kind is LogKind.SCHEDULE)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("orders~1/0", LogKind.QUEUE),
        ("orders~1/0.3", LogKind.QUEUE),
        ("fast:orders~1/0.3.2", LogKind.QUEUE),
        ("orders~1/retry/billing~2", LogKind.RETRY),
        ("orders~1/dead/billing~2", LogKind.DEAD),
        ("orders~1/dead", LogKind.ORPHAN),
        ("schedule/1800000000000-60/000", LogKind.SCHEDULE),
        ("schedule~1/0", LogKind.QUEUE),
        ("dead~1/dead/dead~1", LogKind.DEAD),
    ],
)
def test_each_kind_has_a_shape_of_its_own(text: str, kind: LogKind) -> None:
    assert LogName.parse(text).kind is kind
    assert str(LogName.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders/0",
        "orders~1",
        "orders~1/retry",
        "orders~1/x",
        "orders~1/0/0",
        "fast:orders~1/dead",
        "Fast:orders~1/0",
        "orders~1/0.1.2.3",
        "o~\u0661/0",
    ],
)
def test_what_names_no_log_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt, match="not the name of a log"):
        LogName.parse(text)


@pytest.mark.parametrize("text", ["", "billing", "billing~", "billing~x", "~1", "billing~1/0"])
def test_what_names_no_member_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt, match="a group and its generation"):
        Member.parse(text)


@given(MEMBERS, LOGS)
def test_a_pull_log_names_the_log_that_it_reads(member: Member, source: LogName) -> None:
    assert source_of(pull_log(str(member), str(source))) == str(source)
