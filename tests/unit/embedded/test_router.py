"""A query has a bounded number of parameters."""

import pytest

from hourwheel.api.router import check_query
from hourwheel.errors import Rejected


def test_a_query_has_a_bounded_number_of_parameters() -> None:
    check_query("")
    check_query("&".join(f"p{number}=x" for number in range(32)))
    with pytest.raises(Rejected, match="at most 32 query parameters") as raised:
        check_query("a&" * 15_000)
    assert (raised.value.slug, raised.value.status) == ("field-invalid", 400)
