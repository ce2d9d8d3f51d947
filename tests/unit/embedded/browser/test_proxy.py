"""The proxy of ``hourwheel console`` answers its user alone, passes calls on, and reports a server that does not
answer."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import pytest

from hourwheel.client.transport.connections import Connections
from hourwheel.client.transport.http import begin
from hourwheel.client.transport.signing import Sign
from hourwheel.console.settings import ConsoleSettings
from hourwheel.embedded.browser.proxy import ConsoleProxy, Upstream
from hourwheel.embedded.http.bodies import SizedBody
from hourwheel.embedded.http.heads import parse_head
from hourwheel.embedded.http.requests import Request
from tests.unit.client.fake import TOKEN, FakeServer
from tests.unit.client.test_signing import REGION, SECRET, assert_signed

PORT = 7999
HOST = f"127.0.0.1:{PORT}"
KEY = "5cfa456d54dcb65e45b0f257c2ce5029"
LONG_SECONDS = 120.0


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def slug(self) -> str:
        return str(self.json["type"]).removeprefix("urn:hourwheel:")


class Browser:
    """Sends requests to a proxy, as its page does."""

    def __init__(self, proxy: ConsoleProxy) -> None:
        self._proxy = proxy

    def __call__(self, method: str, target: str, body: Any = None, **changed: str | None) -> Told:
        data = b"" if body is None else json.dumps(body).encode()
        headers: dict[str, str | None] = {"host": HOST, "x-hourwheel-console": KEY, "accept-encoding": "gzip, br"}
        if method != "GET":
            headers["origin"] = f"http://{HOST}"
        if data:
            headers |= {"content-type": "application/json", "content-length": str(len(data))}
        headers |= {name.replace("_", "-"): text for name, text in changed.items()}
        lines = [f"{method} {target} HTTP/1.1"] + [
            f"{name}: {text}" for name, text in headers.items() if text is not None
        ]
        return Told(*asyncio.run(self._sent("\r\n".join(lines).encode(), data)))

    async def _sent(self, head: bytes, data: bytes) -> Any:
        framing = SizedBody(len(data))
        request = Request(parse_head(head), framing, lambda: None, client="127.0.0.1", secure=False)
        request.take(framing.feed(data)[0])
        return await self._proxy.respond(request)


@contextmanager
def proxied(
    url: str, *, token: str | None = None, sign: Sign | None = None, read_only: bool = False
) -> Iterator[Browser]:
    endpoint, codec, _ = begin(url, token=token, ca_file=None, sign=sign, region=REGION if sign else None)
    with closing(Connections(endpoint, timeout_seconds=LONG_SECONDS)) as connections:
        upstream = Upstream(endpoint, connections, token=token, signer=codec.signer)
        settings = ConsoleSettings(read_only=read_only, passes_on=True)
        with closing(ConsoleProxy(upstream, settings, port=PORT, secret=KEY)) as proxy:
            yield Browser(proxy)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer().running() as fake:
        yield fake


@pytest.fixture
def browser(server: FakeServer) -> Iterator[Browser]:
    with proxied(server.url) as browser:
        yield browser


def test_a_call_and_its_answer_pass_through(server: FakeServer, browser: Browser) -> None:
    sent = {"messages": [{"body": "order 1", "key": "päid"}]}
    assert browser("POST", "/v1/subjects/orders/messages", sent).status == 200
    listed = browser("GET", "/v1/subjects?limit=5&after=")
    assert [each["subject"] for each in listed.json["subjects"]] == ["orders"]
    first, second = server.requests
    assert (first.method, first.target, first.body) == ("POST", "/v1/subjects/orders/messages", sent)
    assert (second.method, second.target) == ("GET", "/v1/subjects?limit=5&after=")


def test_the_secret_and_the_cookies_of_the_page_stay_here(server: FakeServer, browser: Browser) -> None:
    browser("GET", "/v1/health", cookie="a=b", authorization="Bearer of-the-page")
    headers = {name.lower() for name in server.requests[0].headers}
    assert headers.isdisjoint({"x-hourwheel-console", "cookie", "authorization", "origin"})


def test_a_refusal_of_the_deployment_passes_through(browser: Browser) -> None:
    told = browser("GET", "/v1/subjects/nothing")
    assert (told.status, told.slug) == (404, "subject-unknown")
    assert told.headers["content-type"] == "application/problem+json"


def test_a_call_is_made_once_although_its_answer_is_lost(server: FakeServer, browser: Browser) -> None:
    server.fail("produce", lose=True)
    told = browser("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "order 1"}]})
    assert (told.status, told.slug) == (502, "no-answer")
    assert server.bodies("orders") == ["order 1"]
    assert len(server.requests) == 1


def test_the_token_of_the_command_is_sent() -> None:
    with FakeServer(token=TOKEN).running() as server:
        with proxied(server.url, token=TOKEN) as browser:
            assert browser("GET", "/v1/subjects?limit=5").status == 200
        with proxied(server.url) as browser:
            assert browser("GET", "/v1/subjects?limit=5").slug == "token-missing"


@pytest.mark.parametrize(
    "changed",
    [
        {"host": "evil.example"},
        {"host": "evil.example:7999"},
        {"host": "127.0.0.1:8000"},
        {"host": f"localhost.evil.example:{PORT}"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://{HOST}"},
        {"origin": f"http://localhost:{PORT}"},  # another origin than the Host
    ],
)
@pytest.mark.parametrize("target", ["/v1/subjects?limit=5", "/console/", "/console/settings.json", "/"])
def test_pages_of_other_sites_get_nothing(
    server: FakeServer, browser: Browser, target: str, changed: dict[str, str]
) -> None:
    told = browser("GET", target, **changed)
    assert (told.status, told.slug) == (403, "origin-forbidden")
    assert server.requests == []


@pytest.mark.parametrize("secret", [None, "", "wrong", KEY[:-1], KEY.upper()])
def test_a_call_without_the_secret_is_refused(server: FakeServer, browser: Browser, secret: str | None) -> None:
    told = browser("GET", "/v1/subjects?limit=5", x_hourwheel_console=secret)
    assert (told.status, told.slug) == (403, "console-secret")
    assert server.requests == []


def test_the_page_itself_needs_no_secret_and_localhost_is_this_machine(browser: Browser) -> None:
    told = browser("GET", "/console/", host=f"localhost:{PORT}", x_hourwheel_console=None)
    assert (told.status, told.body[:15] != b"") == (200, True)
    assert browser("GET", "/").headers["location"] == "console/"
    assert browser("GET", "/console/settings.json").json["passes_on"] is True


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/v1/subjects/orders/messages"),
        ("PUT", "/v1/subjects/orders"),
        ("PATCH", "/v1/scheduled/x"),
        ("DELETE", "/v1/subjects/orders"),
        ("POST", "/v1/subjects/orders/groups/billing/seek"),
        ("HEAD", "/v1/subjects"),
        ("GET", "/v1/subjects/orders/groups/billing/push"),  # shows the secret that signs deliveries
        ("GET", "/v1/subjects/orders/groups/billing/%70ush"),
        ("GET", "/v1/subjects/orders/groups/billing/%2570ush"),
        ("GET", "/v1/subjects/orders/%67roups/billing/push"),
        ("GET", "/v1/nothing"),
    ],
)
def test_a_read_only_console_refuses_all_but_looking(server: FakeServer, method: str, target: str) -> None:
    with proxied(server.url, read_only=True) as browser:
        told = browser(method, target, {} if method in {"POST", "PUT", "PATCH"} else None)
        assert (told.status, told.slug) == (403, "console-read-only")
        assert server.requests == []
        assert browser("GET", "/v1/subjects?limit=5").status == 200


@pytest.mark.parametrize("read_only", [True, False])
def test_a_read_only_console_asks_for_what_a_read_only_caller_may_see(server: FakeServer, read_only: bool) -> None:
    with proxied(server.url, read_only=read_only) as browser:
        browser("GET", "/v1/subjects?limit=5")
    (request,) = server.requests
    assert ("x-hourwheel-read-only" in {name.lower() for name in request.headers}) is read_only


@pytest.mark.parametrize(
    "target",
    ["/v1/../admin", "/v1/%2e%2e/admin", "/v1/subjects/%2E/groups", "/v1//subjects", "/v1/", "/v2/x", "/metrics"],
)
def test_paths_outside_the_api_are_not_passed_on(server: FakeServer, browser: Browser, target: str) -> None:
    told = browser("GET", target)
    assert (told.status, told.slug) == (404, "route-unknown")
    assert server.requests == []


def test_a_body_that_is_too_large_is_refused_here(server: FakeServer, browser: Browser) -> None:
    told = browser("POST", "/v1/messages", {"messages": [{"body": "x" * 6_500_000}]})
    assert (told.status, told.slug) == (413, "request-too-large")
    assert server.requests == []


def test_what_the_deployment_answers_is_no_page_of_the_console(server: FakeServer, browser: Browser) -> None:
    server.fail("health", raw=b"<script>alert(1)</script>", kind="text/html")
    headers = browser("GET", "/v1/health").headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_without_a_server_the_page_is_told_so_and_recovers(server: FakeServer, browser: Browser) -> None:
    server.fail("list_subjects", cut=True)
    told = browser("GET", "/v1/subjects?limit=5")
    assert (told.status, told.slug) == (502, "no-answer")
    assert "did not answer" in told.json["detail"]
    assert browser("GET", "/v1/subjects?limit=5").status == 200


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.mark.parametrize("prefix", ["", "/prod"])
def test_calls_to_aws_are_signed_as_they_arrive(server: FakeServer, keys: None, prefix: str) -> None:
    with proxied(server.url + prefix, sign="aws") as browser:
        browser("GET", "/v1/subjects?limit=5&after=a%20b%2Bc%28d%29&prefix=%C3%A4~")
        browser("POST", "/v1/subjects/a.b~c/messages", {"messages": [{"body": "päid"}]})
    for request in server.requests:
        assert request.target.startswith(prefix + "/v1/")
        assert_signed(request)


def test_a_credential_that_has_expired_is_told_as_such(server: FakeServer, keys: None) -> None:
    said = b'{"message": "The security token included in the request is expired"}'
    server.fail("list_subjects", status=403, raw=said, kind="application/json")
    with proxied(server.url, sign="aws") as browser:
        told = browser("GET", "/v1/subjects?limit=5")
        assert (told.status, told.slug) == (403, "credentials-expired")
        assert "log in again" in told.json["detail"]
        assert browser("GET", "/v1/subjects?limit=5").status == 200


def test_what_iam_does_not_allow_is_told_with_what_to_check(server: FakeServer, keys: None) -> None:
    said = b'{"message": "User: arn:aws:iam::111122223333:user/x is not authorized to perform: execute-api:Invoke"}'
    server.fail("put_subject", status=403, raw=said, kind="application/json")
    with proxied(server.url, sign="aws") as browser:
        told = browser("PUT", "/v1/subjects/orders", {})
    assert (told.status, told.slug) == (403, "iam-refused")
    assert "execute-api:Invoke PUT" in told.json["detail"]


def test_without_credentials_nothing_is_sent(server: FakeServer, keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with proxied(server.url, sign="aws") as browser:
        told = browser("GET", "/v1/subjects?limit=5")
    assert (told.status, told.slug) == (401, "credentials-missing")
    assert server.requests == []
