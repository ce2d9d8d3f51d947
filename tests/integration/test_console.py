"""The server serves the console to the right callers, with the right headers, with and without a token."""

import http.client
import json
from typing import Any

import pytest

from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server


def fetch(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def settings(server: Server, **headers: str) -> Any:
    status, _, body = fetch(server, "/console/settings.json", **headers)
    assert status == 200
    return json.loads(body)


def test_the_page_may_load_its_own_files_only(server: Server) -> None:
    status, headers, body = fetch(server, "/console/")
    assert (status, body[:15]) == (200, b"<!doctype html>")
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    for path in ("/console/main.js", "/console/settings.json"):
        assert fetch(server, path)[1]["content-security-policy"] == headers["content-security-policy"]


def test_the_path_without_its_slash_leads_to_the_page(server: Server) -> None:
    status, headers, _ = fetch(server, "/console")
    assert (status, headers["location"]) == (307, "console/")


def test_the_root_leads_to_the_page(server: Server) -> None:
    for method in ("GET", "HEAD"):
        status, headers, body = fetch(server, "/", method)
        assert (status, headers["location"], body) == (307, "console/", b"")
    assert fetch(server, "/", "POST")[0] == 405


def test_a_file_that_has_not_changed_is_answered_without_a_body(server: Server) -> None:
    tag = fetch(server, "/console/main.js")[1]["etag"]
    status, headers, body = fetch(server, "/console/main.js", if_none_match=tag)
    assert (status, body, "content-length" in headers) == (304, b"", False)


@pytest.mark.parametrize("path", ["/console/nothing.js", "/console/../main.js", "/console/%2e%2e/main.js", "/consoles"])
def test_there_is_nothing_at_other_paths(server: Server, path: str) -> None:
    assert fetch(server, path)[0] == 404


def test_the_console_takes_no_post(server: Server) -> None:
    status, headers, _ = fetch(server, "/console/", "POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert fetch(server, "/console/main.js", "HEAD")[::2] == (200, b"")


def test_without_tokens_a_name_of_another_site_does_not_get_the_page(server: Server) -> None:
    assert fetch(server, "/console/", host="evil.example")[0] == 403
    assert fetch(server, "/console/main.js", origin="http://evil.example")[0] == 403
    assert fetch(server, "/console/", host=f"localhost:{server.port}")[0] == 200


def test_files_need_no_token_and_the_settings_say_what_a_token_may_do(start: Start) -> None:
    server = start(tokens=["all-rights"], read_only_tokens=["look-only"])
    assert fetch(server, "/console/", host="queue.example")[0] == 200
    assert fetch(server, "/v1/subjects")[0] == 401
    assert settings(server)["needs_token"] is True
    assert settings(server, authorization="Bearer all-rights")["read_only"] is False
    assert settings(server, authorization="Bearer look-only")["read_only"] is True


def test_the_console_can_be_turned_off(start: Start) -> None:
    server = start(console=False)
    assert fetch(server, "/console/")[0] == 404
    assert fetch(server, "/console")[0] == 404
    assert fetch(server, "/")[0] == 404


def test_the_server_prints_the_address_at_its_start(server: Server) -> None:
    assert server.process.stdout.readline() == f"console: http://127.0.0.1:{server.port}/console/\n".encode()
