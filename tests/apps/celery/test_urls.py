"""The URL of a broker and its options choose the server, the token and the behaviour of the transport."""

from __future__ import annotations

import pytest
from kombu import Connection

from hourwheel.apps.celery.options import Server, options_of, server_of


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("hourwheel://localhost", ("http://localhost:7420", None)),
        ("hourwheel://queue.example.org:8080/prefix", ("http://queue.example.org:8080/prefix", None)),
        ("hourwheel://:se%2Fcret@localhost:7420", ("http://localhost:7420", "se/cret")),
        ("hourwheel+http://localhost:7420", ("http://localhost:7420", None)),
        ("hourwheel+https://queue.example.org", ("https://queue.example.org", None)),
        ("hourwheel+https://:se%2Fcret@queue.example.org/v", ("https://queue.example.org/v", "se/cret")),
    ],
)
def test_a_url_names_the_server_and_perhaps_its_token(
    monkeypatch: pytest.MonkeyPatch, url: str, server: tuple[str, str | None]
) -> None:
    monkeypatch.delenv("HOURWHEEL_TOKEN", raising=False)
    assert server_of(Connection(url), options_of({})) == Server(*server)


def test_the_url_of_a_second_server_is_read_when_the_first_is_away() -> None:
    connection = Connection("hourwheel://one:1;hourwheel+https://two:443")
    connection.switch("hourwheel+https://two:443")
    assert server_of(connection, options_of({})).url == "https://two:443"


def test_a_token_in_the_options_counts_before_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOURWHEEL_TOKEN", "environment")
    connection = Connection("hourwheel://localhost")
    assert server_of(connection, options_of({})).token == "environment"
    assert server_of(connection, options_of({"token": "options"})).token == "options"


@pytest.mark.parametrize(
    "options",
    [{"visibility_timeout": 0}, {"wait_seconds": 21}, {"priority_steps": [10]}, {"sign": "gcp"}, {"on_scheduled": 1}],
)
def test_an_option_out_of_range_is_named(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        options_of(options)


def test_options_of_kombu_itself_are_unchanged() -> None:
    assert options_of({"max_retries": 3, "interval_start": 0}) == options_of({})


def test_levels_of_priority_are_sorted_and_begin_with_the_lowest_priority() -> None:
    assert options_of({"priority_steps": [9, 0, 3]}).priority_steps == (0, 3, 9)
    assert options_of({"priority_steps": [9, 3, 3]}).priority_steps == (0, 3, 9)
    assert options_of({"priority_steps": []}).priority_steps == ()


@pytest.mark.parametrize("url", ["hourwheel://sesame@localhost", "hourwheel+https://sesame@localhost"])
def test_a_token_where_kombu_would_log_it_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="write hourwheel://:TOKEN@HOST") as refused:
        Connection(url).as_uri()
    assert "sesame" not in str(refused.value)
