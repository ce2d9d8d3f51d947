"""Python, TypeScript and Java agree about which requests come from Hourwheel."""

import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyspark
import pytest

from hourwheel.client import webhooks
from hourwheel.wire.signatures import signed_headers
from tests.docs.pages import ROOT

SECRET, FORMER = "whsec_c2VjcmV0LW9mLXRlc3Rz", "whsec_b25lLWJlZm9yZQ=="
BODY = '{"messages": ["Grüße"]}'.encode()
Headers = dict[str, str]

COMPILER = str(Path(pyspark.__file__).parent / "jars/*")
"""Janino, which Spark brings: a Java without its development kit has no compiler."""

Verify = Callable[[dict[str, str], bytes], str]


def in_python(headers: dict[str, str], body: bytes) -> str:
    try:
        webhooks.verify(SECRET, headers, body)
    except webhooks.Unverified:
        return "Unverified"
    return "verified"


def printed(command: list[str], folder: Path, body: bytes) -> str:
    done = subprocess.run(command, cwd=folder, input=body, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def in_java(joined: Path, headers: dict[str, str], body: bytes) -> str:
    named = {name.lower(): value for name, value in headers.items()}
    words = [named.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")]
    command = ["java", "-cp", COMPILER, "org.codehaus.janino.SimpleCompiler", joined.name, "Verify", SECRET, *words]
    return printed(command, joined.parent, body)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns both sources as one file, which is all that the compiler takes."""
    sources = (ROOT / "clients/java/Webhooks.java", Path(__file__).with_name("Verify.java"))
    joined = tmp_path_factory.mktemp("java") / "Joined.java"
    joined.write_text("".join(source.read_text() for source in sources))
    return joined


@pytest.fixture(params=["python", "typescript", "java"])
def verify(request: pytest.FixtureRequest) -> Verify:
    if request.param == "python":
        return in_python
    if request.param == "typescript":
        client: Path = request.getfixturevalue("client")
        return lambda headers, body: printed(["node", "verify.mjs", SECRET, json.dumps(headers)], client, body)
    joined: Path = request.getfixturevalue("joined")
    return partial(in_java, joined)


def signed(*, secrets: tuple[str, ...] = (SECRET,), age_seconds: int = 0, **changed: str) -> Headers:
    """Returns the headers of a request of now, or of before; ``changed`` names some of them without their prefix."""
    headers = signed_headers(secrets, "delivery-7", int((time.time() - age_seconds) * 1_000), BODY)
    return headers | {f"webhook-{name}": value for name, value in changed.items()}


# The headers are made in the test: what is signed while tests are collected may be old when they run.
CASES: dict[str, tuple[Callable[[], Headers], bytes, str]] = {
    "signed": (signed, BODY, "verified"),
    "names in another case": (lambda: {name.title(): value for name, value in signed().items()}, BODY, "verified"),
    "two secrets": (lambda: signed(secrets=(FORMER, SECRET)), BODY, "verified"),
    "another body": (signed, BODY + b" ", "Unverified"),
    "another secret": (lambda: signed(secrets=(FORMER,)), BODY, "Unverified"),
    "old": (lambda: signed(age_seconds=600), BODY, "Unverified"),
    "from the future": (lambda: signed(age_seconds=-600), BODY, "Unverified"),
    "no time": (lambda: signed(timestamp="soon"), BODY, "Unverified"),
    "another id": (lambda: signed(id="delivery-8"), BODY, "Unverified"),
    "signatures that are no base64": (lambda: signed(signature="v1,%%% v2,AAAA v1,AAAA"), BODY, "Unverified"),
    "an empty header": (lambda: signed(signature=""), BODY, "Unverified"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_verified_or_not(verify: Verify, case: str) -> None:
    headers, body, said = CASES[case]
    assert verify(headers(), body) == said
