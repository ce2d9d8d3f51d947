"""A + that a client wrote into a query as it is arrives as a space. The time is read nevertheless: before the offset of
a zone no time has a space."""

from urllib.parse import quote

import pytest

from tests.unit.api.conftest import GROUP, Api

TIME = "2026-11-20T09:00:00.500+01:00"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/scheduled", ("from", "to")),
        ("/v1/delayed", ("from", "to")),
        ("/v1/subjects/orders/delayed", ("from", "to")),
        ("/v1/subjects/orders/messages/mine", ("from", "to")),
        ("/v1/subjects/orders/queues/0/messages", ("time",)),
    ],
)
def test_a_plus_in_a_query_needs_no_escape(api: Api, path: str, names: tuple[str, ...]) -> None:
    api.send("a")
    asked = {
        text: api.call("GET", f"{path}?" + "&".join(f"{name}={text}" for name in names))
        for text in (TIME, TIME.replace("T", "%20"), quote(TIME), "2026-11-20T08:00:00.500Z")
    }
    assert all(answer == asked[quote(TIME)] for answer in asked.values()), asked


@pytest.mark.parametrize("text", ["2026-11-20T09:00+01:00", "2026-11-20+09:00", "2026-11-20T09:00:00+01", "+01:00"])
def test_a_time_without_seconds_or_with_half_a_zone_stays_refused(api: Api, text: str) -> None:
    answer = api.call("GET", f"/v1/delayed?from={text}")
    assert (answer.status, answer.slug, answer.json["field"]) == (400, "field-invalid", "from")


def test_a_space_before_the_zone_is_refused_in_a_body(api: Api) -> None:
    api.pull()
    answer = api.call("POST", f"{GROUP}/seek", {"time": TIME.replace("+", " ")})
    assert (answer.status, answer.json["field"]) == (400, "time")
