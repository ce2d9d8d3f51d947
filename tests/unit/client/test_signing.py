import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.exceptions
import botocore.session
import pytest

from hourwheel.client import (
    Api,
    BadRequest,
    ClientError,
    Consumer,
    Message,
    NotFound,
    Producer,
    ServerUnavailable,
    Settlement,
    TooLarge,
    Unauthorized,
)
from hourwheel.client.transport.signing import Signer, signer_of
from tests.unit.client import sigv4
from tests.unit.client.fake import FakeServer, Request
from tests.unit.client.ids import StillIds

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
REGION = "eu-west-1"
LONG_SECONDS = 120.0


@pytest.fixture(autouse=True)
def configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hides the machine's own settings, and returns an empty file for settings."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path / "config"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def signed(server: FakeServer, keys: None) -> Iterator[Api]:
    with signing(server.url) as api:
        yield api


def signing(url: str, **how: Any) -> Api:
    return Api(url, sign="aws", **{"region": REGION, "ids": StillIds(), **how})


def headers_of(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def assert_signed(request: Request, secret: str = SECRET) -> sigv4.Authorization:
    """Checks the signature of a received request by the documents of AWS, and by botocore's signer."""
    headers = headers_of(request)
    authorization = sigv4.parsed(headers["authorization"])
    day = headers["x-amz-date"][:8]
    assert authorization.scope == f"{day}/{REGION}/execute-api/aws4_request"
    ours = sigv4.signature(
        secret, authorization.scope, request.method, request.target, headers, authorization.signed, request.data
    )
    assert authorization.signature == ours

    credentials = botocore.credentials.Credentials(authorization.key_id, secret, headers.get("x-amz-security-token"))
    signer = botocore.auth.SigV4Auth(credentials, "execute-api", REGION)
    given = {name: headers[name] for name in authorization.signed}
    again = botocore.awsrequest.AWSRequest(
        request.method, f"http://{headers['host']}{request.target}", given, request.data
    )
    again.context["timestamp"] = headers["x-amz-date"]
    text = signer.string_to_sign(again, signer.canonical_request(again))
    assert authorization.signature == signer.signature(text, again)
    return authorization


VECTORS = [  # of AWS's test suite: get-vanilla, post-vanilla, get-vanilla-query-order-key-case
    ("GET", "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("POST", "/", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ("GET", "/?Param2=value2&Param1=value1", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
]


@pytest.mark.parametrize(("method", "target", "expected"), VECTORS)
def test_the_check_itself_agrees_with_the_vectors_of_aws(method: str, target: str, expected: str) -> None:
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    scope = "20150830/us-east-1/service/aws4_request"
    assert sigv4.signature(SECRET, scope, method, target, headers, sorted(headers), b"") == expected


CALLS: list[Callable[[Api], object]] = [
    lambda api: api.health(),
    lambda api: api.produce("orders", [Message("päid", key="k"), Message(b"\0\xff")], idempotency_key="k"),
    lambda api: api.pull("orders", "billing", "host-1", settle=[]),
    lambda api: api.settle("orders", "billing", [Settlement(receipt="r/+ =")]),
    lambda api: api.list_subjects(limit=7, after="a b+c/d=e&f~g%2F*'()ä"),
    lambda api: api.list_dead("a.b-c_d", "~x", after="12-0"),
    lambda api: api.pending("orders", hours=3),
    lambda api: api.get_scheduled("made/up %2F?#+ü..;:@"),
    lambda api: api.cancel("a=b&c"),
    lambda api: api.put_subject("orders"),
    lambda api: api.delete_group("...", ".a."),
]


@pytest.mark.parametrize("prefix", ["", "/prod", "/a/b%20c"])
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_the_signature_is_over_what_arrives(server: FakeServer, keys: None, number: int, prefix: str) -> None:
    answer = contextlib.suppress(BadRequest, NotFound)  # nothing is there; the request came through
    with signing(server.url + prefix, retry_seconds=0) as api, answer:
        CALLS[number](api)
    (request,) = server.requests
    assert request.target.startswith(prefix + "/v1/")
    authorization = assert_signed(request)
    assert authorization.key_id == "AKIDEXAMPLE"
    assert authorization.signed == [*(["content-type"] if request.data else []), "host", "x-amz-date"]


def test_a_session_token_is_sent_and_signed(server: FakeServer, keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a/token+of=a role")
    with signing(server.url) as api:
        api.health()
    authorization = assert_signed(server.requests[0])
    assert "x-amz-security-token" in authorization.signed
    assert headers_of(server.requests[0])["x-amz-security-token"] == "a/token+of=a role"


def test_each_attempt_is_signed_anew_with_credentials_of_its_moment(
    server: FakeServer, configuration: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # These end so soon that they are renewed before each use.
    ends = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    program = tmp_path / "give.py"
    program.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        f"print(json.dumps(dict(Version=1, AccessKeyId=f'AKID{{number}}', SecretAccessKey={SECRET!r},"
        f" SessionToken='t', Expiration={ends!r})))\n"
    )
    configuration.write_text(f"[profile work]\ncredential_process = {sys.executable} {program}\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    server.fail("health", status=503, times=2)
    with signing(server.url) as api:
        api.health()
    key_ids = [assert_signed(request).key_id for request in server.calls("health")]
    assert len(set(key_ids)) == 3


def test_threads_share_a_signer(server: FakeServer, signed: Api) -> None:
    def call(number: int) -> None:
        for index in range(5):
            signed.produce("orders", [Message(f"{number}-{index}")])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_SECONDS)
    assert len(server.bodies("orders")) == 40
    for request in server.requests:
        assert_signed(request)


def test_a_fork_does_not_wait_for_a_thread_of_its_parent(keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer("http://127.0.0.1", REGION)
    signed: list[dict[str, str]] = []
    child = threading.Thread(target=lambda: signed.append(signer.headers("GET", "/", None, None)), daemon=True)
    with signer._lock:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        child.start()
        child.join(LONG_SECONDS)
        assert signed


def test_producers_and_consumers_sign(server: FakeServer, keys: None) -> None:
    with Producer(server.url, subject="orders", sign="aws", region=REGION) as producer:
        producer.send("a").result(LONG_SECONDS)
        producer.send_batch(["b"])
    with Consumer(server.url, "orders", "billing", sign="aws", region=REGION, wait_seconds=0) as messages:
        assert next(iter(messages)).body == "a"
    assert {request.call for request in server.requests} >= {"produce", "pull", "settle"}
    for request in server.requests:
        assert_signed(request)


# Which requests are signed, and for which region


@pytest.mark.parametrize(
    ("url", "region", "expected"),
    [
        ("https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com", None, "eu-central-1"),
        ("https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com/prod/", None, "eu-central-1"),
        ("https://A1B2.Execute-API.eu-central-1.amazonaws.com:443", None, "eu-central-1"),
        ("https://a1b2c3d4e5.execute-api.cn-north-1.amazonaws.com.cn", None, "cn-north-1"),
        ("https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com", "us-east-1", "us-east-1"),
    ],
)
def test_the_address_of_an_api_signs_by_itself(keys: None, url: str, region: str | None, expected: str) -> None:
    signer = signer_of(url, token=None, sign=None, region=region)
    assert signer is not None
    signed = signer.headers("GET", "/v1/health", None, None)
    assert f"/{expected}/execute-api/aws4_request" in signed["Authorization"]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:7420",
        "https://queue.example.com",
        "https://a1.execute-api.eu-west-1.amazonaws.com.example.com",
        "https://execute-api.eu-west-1.amazonaws.com",
        "https://example.com/a1.execute-api.eu-west-1.amazonaws.com",
        "https://a1.execute-api.eu-west-1.amazonaws.com@example.com",
    ],
)
def test_no_other_address_does(url: str) -> None:
    assert signer_of(url, token="t", sign=None, region=None) is None


def test_an_address_of_ones_own_takes_the_configured_region(
    server: FakeServer, keys: None, configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="does not name the region"):
        Api(server.url, sign="aws")
    configuration.write_text(f"[default]\nregion = {REGION}\n")
    with Api(server.url, sign="aws") as api:
        api.health()
    configuration.write_text("")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with Api(server.url, sign="aws") as api:
        api.health()
    for request in server.requests:
        assert_signed(request)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"sign": "aws", "region": REGION, "token": "t"}, "not both"),
        ({"url": "https://a1.execute-api.eu-west-1.amazonaws.com", "token": "t"}, "not both"),
        ({"sign": "gcp"}, "sign is 'aws'"),
        ({"region": REGION}, "only for signed requests"),
    ],
)
def test_what_contradicts_itself_is_refused(how: dict[str, Any], says: str) -> None:
    for make in (
        lambda url="http://127.0.0.1:1", **rest: Api(url, **rest),
        lambda url="http://127.0.0.1:1", **rest: Producer(url, **rest),
        lambda url="http://127.0.0.1:1", **rest: Consumer(url, "orders", "billing", **rest),
    ):
        with pytest.raises(ValueError, match=says):
            make(**how)


def test_without_botocore_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(ClientError, match=r"pip install 'hourwheel\[aws\]'"):
        Api("https://a1.execute-api.eu-west-1.amazonaws.com")


def test_botocore_is_imported_for_signing_only() -> None:
    program = (
        "import sys\n"
        "from hourwheel.client import Api, Consumer, Producer\n"
        "Api(); Producer(); Consumer('http://127.0.0.1:1', 's', 'g')\n"
        "print('botocore' in sys.modules)\n"
        "Api('https://a1.execute-api.eu-west-1.amazonaws.com')\n"
        "print('botocore' in sys.modules, 'boto3' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LONG_SECONDS
    )
    assert done.stdout == "False\nTrue False\n"


# Refusals


def refused(api: Api, server: FakeServer, message: str, **how: Any) -> Unauthorized:
    server.fail("health", status=403, raw=json.dumps({"message": message}).encode(), **how)
    with pytest.raises(Unauthorized) as caught:
        api.health()
    assert len(server.requests) == 1
    assert caught.value.status == 403
    return caught.value


def test_a_refusal_of_iam_says_what_to_check(signed: Api, server: FakeServer) -> None:
    error = refused(signed, server, "Forbidden")
    assert error.slug == "iam-refused"
    for word in ("Forbidden", "execute-api:Invoke GET /v1/health", "account", REGION):
        assert word in str(error)


def test_a_denial_written_otherwise_is_understood(signed: Api, server: FakeServer) -> None:
    said = "User: arn:aws:iam::111122223333:user/u is not authorized to perform: execute-api:Invoke"
    server.fail("health", status=403, raw=json.dumps({"Message": said}).encode())
    with pytest.raises(Unauthorized, match="user/u is not authorized") as caught:
        signed.health()
    assert caught.value.slug == "iam-refused"


def test_expired_credentials_are_named(signed: Api, server: FakeServer) -> None:
    error = refused(signed, server, "The security token included in the request is expired")
    assert error.slug == "credentials-expired"
    assert "log in again" in str(error)


@pytest.mark.parametrize("fault", ["expired", "invalid."])
def test_credentials_written_anew_are_taken_after_the_old_ones_were_refused(
    server: FakeServer, tmp_path: Path, fault: str
) -> None:
    def write(key: str) -> None:
        file = tmp_path / "credentials"
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")

    write("AKIDOLD")
    with signing(server.url) as api:
        refused(api, server, f"The security token included in the request is {fault}")
        write("AKIDNEW")
        api.health()
    assert [assert_signed(request).key_id for request in server.requests] == ["AKIDOLD", "AKIDNEW"]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wrong_clock_is_seen_by_the_date_of_the_answer(signed: Api, server: FakeServer, hours: int) -> None:
    there = datetime.now(UTC) - timedelta(hours=hours)
    error = refused(signed, server, "Forbidden", date=f"{there:%a, %d %b %Y %H:%M:%S} GMT")
    assert error.slug == "clock-wrong"
    assert f"s {'ahead' if hours > 0 else 'behind'}: set it" in str(error)


def test_a_wrong_clock_is_seen_by_what_is_said(signed: Api, server: FakeServer) -> None:
    said = "Signature expired: 20170517T062414Z is now earlier than 20170517T062840Z (20170517T063340Z - 5 min.)"
    error = refused(signed, server, said, date="no date")
    assert (error.slug, said in str(error)) == ("clock-wrong", True)


def test_a_refusal_of_the_server_itself_stays_as_it_is(signed: Api, server: FakeServer) -> None:
    server.fail("health", status=403)
    with pytest.raises(Unauthorized, match=r"^as told$"):
        signed.health()


def test_no_credentials(server: FakeServer) -> None:
    with signing(server.url) as api, pytest.raises(Unauthorized, match="no AWS credentials were found") as caught:
        api.health()
    assert caught.value.slug == "credentials-missing"
    assert not server.requests


def test_credentials_that_come_later_are_found(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with signing(server.url) as api:
        with pytest.raises(Unauthorized):
            api.health()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        api.health()


def test_a_profile_that_is_not_there(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "gone")
    with signing(server.url) as api, pytest.raises(Unauthorized, match="gone"):
        api.health()
    with pytest.raises(Unauthorized, match="gone"):
        Api(server.url, sign="aws")


@pytest.mark.parametrize(
    "error",
    [
        botocore.exceptions.EndpointConnectionError(endpoint_url="https://sts"),
        botocore.exceptions.ReadTimeoutError(endpoint_url="https://sts"),
        botocore.exceptions.MetadataRetrievalError(error_msg="away"),
        botocore.exceptions.CredentialRetrievalError(provider="process", error_msg="away"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_source_of_credentials_is_read_again(
    server: FakeServer, keys: None, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    errors = [error]

    class Flaky(botocore.session.Session):
        def get_credentials(self) -> Any:
            if errors:
                raise errors.pop()
            return super().get_credentials()

    monkeypatch.setattr(botocore.session, "Session", Flaky)
    with signing(server.url) as api:
        api.produce("orders", [Message("a")])  # not safe to repeat, but nothing was sent
        assert server.bodies("orders") == ["a"]
    errors.append(error)
    with signing(server.url, retry_seconds=0) as api, pytest.raises(ServerUnavailable) as caught:
        api.health()
    assert (caught.value.slug, caught.value.sent) == ("credentials-unavailable", False)


@pytest.mark.parametrize(
    "error",
    [
        botocore.exceptions.UnauthorizedSSOTokenError(),
        botocore.exceptions.ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole"),
        RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_credentials_that_are_refused(server: FakeServer, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(_: Any) -> Any:
        raise error

    monkeypatch.setattr(botocore.session.Session, "get_credentials", refuse)
    with signing(server.url) as api, pytest.raises(Unauthorized) as caught:
        api.health()
    assert caught.value.slug == "credentials-refused"


# The gateway's own answers


@pytest.mark.parametrize(
    ("status", "message", "error", "slug"),
    [
        (403, "Forbidden", Unauthorized, "forbidden"),
        (403, "Missing Authentication Token", Unauthorized, "forbidden"),
        (404, "Not Found", NotFound, "route-unknown"),
        (413, "Request Entity Too Large", TooLarge, "request-too-large"),
        (429, "Too Many Requests", ServerUnavailable, "gateway-error"),
        (500, "Internal Server Error", ServerUnavailable, "gateway-error"),
        (503, "Service Unavailable", ServerUnavailable, "gateway-error"),
        (504, "Gateway Timeout", ServerUnavailable, "gateway-error"),
    ],
)
def test_errors_of_the_gateway(
    server: FakeServer, status: int, message: str, error: type[Exception], slug: str
) -> None:
    server.fail("health", status=status, raw=json.dumps({"message": message}).encode())
    with Api(server.url, retry_seconds=0, ids=StillIds()) as api, pytest.raises(error, match=message) as caught:
        api.health()
    assert (caught.value.status, caught.value.slug) == (status, slug)


def test_who_forgot_to_sign_is_told(api: Api, server: FakeServer) -> None:
    server.fail("health", status=403, raw=b'{"message":"Forbidden"}')
    with pytest.raises(Unauthorized, match="sign='aws'"):
        api.health()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_the_gateways_passing_errors_are_tried_again(signed: Api, server: FakeServer, status: int) -> None:
    server.fail("produce", status=status, raw=b'{"message":"Service Unavailable"}', times=2)
    signed.produce("orders", [Message("a")], idempotency_key="k")
    assert server.bodies("orders") == ["a"]
    assert len(server.calls("produce")) == 3


def test_a_batch_that_is_too_large_for_the_gateway_is_split(server: FakeServer, keys: None) -> None:
    server.fail("produce", status=413, raw=b'{"message":"Request Entity Too Large"}')
    with Producer(server.url, subject="orders", sign="aws", region=REGION, batch_messages=2, linger_seconds=60) as sent:
        futures = [sent.send(body) for body in "ab"]
        assert [future.result(LONG_SECONDS).offset for future in futures] == [0, 1]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_would_be_taken_out_of_the_path_are_refused(api: Api, server: FakeServer, name: str) -> None:
    with pytest.raises(BadRequest, match="cannot be empty") as caught:
        api.delete_group("orders", name)
    assert caught.value.slug == "name-invalid"
    assert not server.requests
