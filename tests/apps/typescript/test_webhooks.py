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
NOW_MS = int(time.time() * 1_000)
SIGNED = signed_headers((SECRET,), "delivery-7", NOW_MS, BODY)

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


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        (SIGNED, BODY, "verified"),
        ({name.title(): value for name, value in SIGNED.items()}, BODY, "verified"),
        (signed_headers((FORMER, SECRET), "delivery-7", NOW_MS, BODY), BODY, "verified"),
        (SIGNED, BODY + b" ", "Unverified"),
        (signed_headers((FORMER,), "delivery-7", NOW_MS, BODY), BODY, "Unverified"),
        (signed_headers((SECRET,), "delivery-7", NOW_MS - 600_000, BODY), BODY, "Unverified"),
        (signed_headers((SECRET,), "delivery-7", NOW_MS + 600_000, BODY), BODY, "Unverified"),
        ({**SIGNED, "webhook-timestamp": "soon"}, BODY, "Unverified"),
        ({**SIGNED, "webhook-id": "delivery-8"}, BODY, "Unverified"),
        ({**SIGNED, "webhook-signature": "v1,%%% v2,AAAA v1,AAAA"}, BODY, "Unverified"),
        ({name: value for name, value in SIGNED.items() if name != "webhook-signature"}, BODY, "Unverified"),
    ],
    ids=["signed", "other case", "two secrets", "another body", "another secret", "old", "future", "no time",
         "another id", "no signature is base64", "no signature"],
)  # fmt: skip
def test_a_request_is_verified_or_not(verify: Verify, headers: dict[str, str], body: bytes, said: str) -> None:
    assert verify(headers, body) == said
