"""A path is judged as it is decoded, and a query has a bounded number of parameters."""

import pytest

from hourwheel.api.router import Match, Router, check_query
from hourwheel.errors import Rejected


def test_a_query_has_a_bounded_number_of_parameters() -> None:
    check_query("")
    check_query("&".join(f"p{number}=x" for number in range(32)))
    with pytest.raises(Rejected, match="at most 32 query parameters") as raised:
        check_query("a&" * 15_000)
    assert (raised.value.slug, raised.value.status) == ("field-invalid", 400)


@pytest.mark.parametrize("path", ["/v1/subjects/a/groups/b/%70ush", "/v1/%73ubjects/a/gr%6Fups/b/push"])
def test_the_words_of_a_path_may_be_encoded(path: str) -> None:
    match = Router().find("GET", path)
    assert isinstance(match, Match)
    assert (match.route.template.rpartition("/")[2], match.parameters) == ("push", {"subject": "a", "group": "b"})


@pytest.mark.parametrize("path", ["/v1/subjects/a/groups/b/%2570ush", "/v1/subjects/a/groups/b/push%2F"])
def test_a_word_is_decoded_once(path: str) -> None:
    assert not isinstance(Router().find("GET", path), Match)
