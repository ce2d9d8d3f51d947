"""Tokens and TLS of a server in a process of its own, as its clients meet them."""

import logging
import ssl
from pathlib import Path

import pytest

from hourwheel import __version__
from hourwheel.api.routes import ROUTES
from hourwheel.client import Api, Message, ServerFault, Unauthorized
from tests.certificates import Certificate
from tests.integration.conftest import Start
from tests.integration.process import Server

GROUP = "/v1/subjects/orders/groups/billing"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("certificates") / "mine")


@pytest.fixture
def secure(start: Start, certificate: Certificate) -> Server:
    return start(tokens=["s3cret"], tls_cert=certificate.chain, tls_key=certificate.key)


def test_a_read_only_token_reads_and_changes_nothing(start: Start) -> None:
    server = start(tokens=["first-one", "second"], read_only_tokens=["reader"])
    for token in ("first-one", "second"):
        with server.connect(token=token) as connection:
            connection.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": token}]})
            connection.ok("PUT", GROUP, {})
    with server.connect(token="reader") as connection:
        assert connection.ok("GET", f"{GROUP}/lag")["waiting"] == 2
        assert [one["subject"] for one in connection.ok("GET", "/v1/subjects")["subjects"]] == ["orders"]
        for method, path, body in (
            ("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "x"}]}),
            ("POST", f"{GROUP}/pull", {"consumer": "c1"}),
            ("POST", f"{GROUP}/ack", {"settle": []}),
            ("PUT", GROUP, {"max_attempts": 1}),
            ("DELETE", "/v1/subjects/orders", None),
            ("GET", f"{GROUP}/push", None),
        ):
            answer = connection.call(method, path, body)
            assert (answer.status, answer.json["type"]) == (403, "urn:hourwheel:token-read-only")
        assert connection.ok("GET", f"{GROUP}/lag")["waiting"] == 2


def test_without_a_token_no_route_tells_the_version(start: Start) -> None:
    server = start(tokens=["all-rights"], read_only_tokens=["reader"])
    paths = [route.template for route in ROUTES if route.method == "GET" and "{" not in route.template]
    paths += ["/metrics", "/v1/ready", "/v1/report", "/console/", "/console/settings.json", "/console/main.js"]
    assert len(paths) > 10
    with server.raw() as raw, raw.makefile("rb") as answers:
        for path in paths:
            raw.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            head = b"".join(iter(answers.readline, b"\r\n"))
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            assert __version__.encode() not in head + answers.read(length), path
    for token in ("all-rights", "reader"):
        with server.connect(token=token) as connection:
            assert connection.ok("GET", "/v1/health") == {"status": "ok", "version": __version__}
            assert connection.ok("GET", "/console/settings.json")["version"] == __version__
    with server.connect() as connection:
        assert connection.ok("GET", "/v1/health") == {"status": "ok"}
        assert connection.ok("GET", "/v1/ready") == {"status": "ready"}


def test_a_read_only_token_sees_of_a_target_only_its_host(start: Start) -> None:
    server = start(tokens=["all-rights"], read_only_tokens=["reader"])
    url = "https://hooks.example.com:8443/services/T0/s3cret?key=s3cret"
    with server.connect(token="all-rights") as connection:
        connection.ok("PUT", "/v1/subjects/orders", {})
        assert connection.ok("PUT", GROUP, {"push": {"kind": "https", "url": url}})["push"]["url"] == url
        connection.ok("POST", f"{GROUP}/pause", None)
        assert connection.ok("GET", GROUP)["push"]["url"] == url
        reads = [route for route in ROUTES if route.method == "GET"]
    asking = {"token": "all-rights", "headers": {"X-Hourwheel-Read-Only": "1"}}  # as a console that is read-only does
    for caller in ({"token": "reader"}, asking):
        with server.connect(**caller) as connection:
            for path in (GROUP, "/v1/subjects/orders/groups"):
                shown = connection.ok("GET", path)
                (group,) = shown.get("groups", [shown])
                assert group["push"]["url"] == "https://hooks.example.com:8443/"
    with server.connect(token="reader") as connection:
        names = {
            "subject": "orders",
            "group": "billing",
            "queue": "0",
            "cell": "home",
            "consumer": "c",
            "id": "1",
            "dead_id": "1",
        }
        told = [connection.call("GET", route.template.format(**names)).json for route in reads]
        assert len(told) == len(reads) > 20
        assert "s3cret" not in str(told)


def test_a_client_that_trusts_the_certificate_is_served_over_tls(
    secure: Server, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://127.0.0.1:{secure.port}"
    with Api(url, token="s3cret", ca_file=certificate.chain) as api:
        api.produce("orders", [Message("é" * 100_000)])
        (pull,) = api.pull("orders", "billing", "c1", wait_seconds=1).pulls
        assert pull.messages[0].body == "é" * 100_000
    with Api(url, token="guess", ca_file=certificate.chain) as api, pytest.raises(Unauthorized):
        api.list_subjects()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.chain))
    with Api(url, token="s3cret") as api:
        assert [subject.subject for subject in api.list_subjects().subjects] == ["orders"]


def test_a_client_that_does_not_trust_the_certificate_says_so_at_once(secure: Server) -> None:
    with Api(f"https://127.0.0.1:{secure.port}", token="s3cret") as api, pytest.raises(ServerFault) as refused:
        api.list_subjects()
    assert refused.value.slug == "certificate-untrusted"
    assert "ca_file" in str(refused.value)


def test_what_is_older_than_tls_1_2_is_refused(secure: Server, certificate: Certificate) -> None:
    context = ssl.create_default_context(cafile=certificate.chain)
    with context.wrap_socket(secure.raw(), server_hostname="127.0.0.1") as wrapped:
        assert wrapped.version() in {"TLSv1.2", "TLSv1.3"}
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with secure.raw() as raw, pytest.raises(OSError, match=r"(?i)protocol|alert|eof|reset"):
        context.wrap_socket(raw, server_hostname="127.0.0.1")


def test_a_secure_server_ends_pulls_and_stops_in_time(secure: Server, certificate: Certificate) -> None:
    with Api(f"https://127.0.0.1:{secure.port}", token="s3cret", ca_file=certificate.chain) as api:
        api.health()
        assert secure.stop() == (0, "")


@pytest.mark.parametrize("path", ["/v1/health", "/v1/ready"])
def test_no_body_is_kept_of_somebody_without_a_token(start: Start, path: str) -> None:
    server = start(tokens=["s3cret"])
    with server.raw() as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6000000\r\n\r\nhalf".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/subjects", 400), ("/v1/subjects/a/groups/b/lag", 400), ("/metrics", 200)]
)
def test_no_body_is_awaited_for_a_route_that_takes_none(start: Start, path: str, status: int) -> None:
    server = start()
    with server.raw() as raw:
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6000000\r\n\r\n"
        raw.sendall(head.encode() + b"x" * 2_000)
        assert raw.recv(100).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("options", [{"tls_cert": "chain"}, {"tls_cert": "chain", "tls_key": "other"}])
def test_files_that_do_not_fit_are_told_before_anything_is_made(
    start: Start, tmp_path: Path, certificate: Certificate, options: dict[str, str]
) -> None:
    files = {"chain": certificate.chain, "other": Certificate(tmp_path / "other").key}
    given = {name: str(files[one]) for name, one in options.items()}
    if "tls_key" in given:
        server = start(**given)
        status, errors = server.end()
        assert (status, len(errors.splitlines())) == (1, 1)
        assert "not that of the certificate" in errors
    else:
        with pytest.raises(ValueError, match="both --tls-cert and --tls-key"):
            start(**given)
    assert not (tmp_path / "data").exists()


def test_a_token_in_clear_text_is_warned_of_once_for_each_host(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "hourwheel.client")
    for _ in range(2):
        for url in ("http://queue.example", "http://127.0.0.1:7420", "http://localhost", "http://[::1]:1"):
            Api(url, token="s3cret").close()
        Api("http://other.example").close()
        Api("https://third.example", token="s3cret").close()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "queue.example" in warning
    assert "s3cret" not in warning


@pytest.mark.parametrize("token", ["", "  "])
def test_a_client_refuses_a_blank_token(token: str) -> None:
    with pytest.raises(ValueError, match="blank"):
        Api("http://127.0.0.1:7420", token=token)
