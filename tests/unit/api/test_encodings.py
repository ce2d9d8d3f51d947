"""Bodies compressed by gzip: requests are decompressed within bounds, answers compressed for clients that accept it."""

import base64
import gzip
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.api.events import Response
from hourwheel.aws.compression import compressed
from hourwheel.model.fields import REQUEST_BYTES
from hourwheel.wire import gzipped
from tests.lambdajson import as_lambda_encodes
from tests.memory import peak_bytes
from tests.unit.api.conftest import MESSAGES, Api

MIB = 1 << 20
GZIP = {"content-encoding": "gzip"}
BATCH = json.dumps({"messages": [{"body": "é" * 300}, {"body": '"' * 300}]}).encode()


def answered(response: Response) -> tuple[int, str]:
    return response["statusCode"], json.loads(response["body"]).get("type", "").removeprefix("urn:hourwheel:")


@pytest.mark.parametrize("name", ["gzip", "GZIP", " gzip "])
def test_a_packed_request_is_served_as_if_it_were_not(api: Api, name: str) -> None:
    response = api.respond("POST", MESSAGES, raw=gzip.compress(BATCH), headers={"content-encoding": name})
    assert answered(response) == (200, "")
    (pull,) = api.pull()
    assert [message["body"] for message in pull["messages"]] == ["é" * 300, '"' * 300]


def test_a_body_may_be_said_to_have_no_encoding(api: Api) -> None:
    assert answered(api.respond("POST", MESSAGES, raw=BATCH, headers={"content-encoding": "identity"})) == (200, "")


def test_a_plain_body_that_is_said_to_be_packed_is_refused(api: Api) -> None:
    response = api.respond("POST", MESSAGES, raw=BATCH, headers=GZIP)
    assert answered(response) == (400, "encoding-invalid")
    detail = json.loads(response["body"])["detail"]
    assert detail == "the header content-encoding says gzip, but the body is not: compress it, or leave out the header"
    assert api.pull() == []


def test_a_request_without_a_body_has_nothing_to_unpack(api: Api) -> None:
    assert api.respond("PUT", "/v1/subjects/orders", headers=GZIP)["statusCode"] == 200


@pytest.mark.parametrize("name", ["br", "zstd", "deflate", "gzip, gzip", "x" * 5_000])
def test_another_encoding_is_told_to_be_unknown(api: Api, name: str) -> None:
    response = api.respond("POST", MESSAGES, raw=gzip.compress(BATCH), headers={"content-encoding": name})
    assert answered(response) == (415, "encoding-unknown")
    assert len(response["body"]) < 1_000


def test_a_body_that_unpacks_to_more_than_a_request_may_hold_takes_no_memory_for_it(api: Api) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(packer.compress(b" " * MIB) for _ in range(200)), packer.flush()])
    assert len(bomb) < MIB
    answers: list[Any] = []
    peak = peak_bytes(lambda: answers.append(answered(api.respond("POST", MESSAGES, raw=bomb, headers=GZIP))))
    assert answers == [(413, "request-too-large")]
    assert peak < 4 * REQUEST_BYTES


def test_a_packed_request_is_bounded_as_it_unpacks(api: Api) -> None:
    for spare, status in ((0, 200), (1, 413)):
        room = REQUEST_BYTES - len(b'{"messages":[{"body":"a"}]}') + spare
        blanks = random.Random(1).choices(b" \t\n\r", k=room)  # others would be packed too well
        raw = b'{"messages":[{"body":"a"}]' + bytes(blanks) + b"}"
        assert answered(api.respond("POST", MESSAGES, raw=gzip.compress(raw, 1), headers=GZIP))[0] == status


@pytest.mark.parametrize(
    "raw",
    [
        gzip.compress(BATCH)[:-9],
        gzip.compress(BATCH)[:-1],
        gzip.compress(BATCH) + b"more",
        gzip.compress(BATCH) + gzip.compress(BATCH),
        gzipped.MAGIC,
        gzipped.MAGIC + b"\xff" * 40,
        gzip.compress(BATCH)[:-8] + b"\x00" * 8,
    ],
    ids=["cut off", "a byte short", "more", "twice", "the beginning", "noise", "a wrong checksum"],
)
def test_what_gzip_does_not_make_is_refused(api: Api, raw: bytes) -> None:
    assert answered(api.respond("POST", MESSAGES, raw=raw, headers=GZIP)) == (400, "encoding-invalid")
    assert api.pull() == []


@given(st.binary(max_size=2_000), st.integers(0, 2_000))
def test_no_more_is_unpacked_than_is_allowed(data: bytes, most: int) -> None:
    if len(data) <= most:
        assert gzipped.unpack(gzipped.pack(data), most) == data
    else:
        with pytest.raises(gzipped.TooLong):
            gzipped.unpack(gzipped.pack(data), most)


def response(body: str) -> Response:
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": body}


def event(accepted: str) -> dict[str, Any]:
    return {"headers": {"accept-encoding": accepted}}


LONG = json.dumps(["word"] * 4_000)


@pytest.mark.parametrize("accepted", ["gzip", "br, gzip", "deflate;q=0.1,gzip;q=0.5", "*", "GZIP ; q=1.0"])
def test_a_long_answer_is_packed_for_those_who_take_it(accepted: str) -> None:
    found = compressed(event(accepted), response(LONG))
    assert found["isBase64Encoded"] is True
    assert gzip.decompress(base64.b64decode(found["body"])).decode() == LONG
    assert (found["headers"]["content-encoding"], found["headers"]["vary"]) == ("gzip", "accept-encoding")
    assert found["headers"]["content-type"] == "application/json"


@pytest.mark.parametrize("accepted", ["", "identity", "br", "gzip;q=0", "gzip; q=0.0, br", "gzippy", "x-gzip"])
def test_others_are_answered_in_plain_text(accepted: str) -> None:
    assert compressed(event(accepted), response(LONG)) == response(LONG)


@pytest.mark.parametrize("body", ["", "{}", "a" * 4_000, random.Random(1).randbytes(40_000).decode("latin-1")])
def test_what_is_short_or_does_not_shrink_is_not_packed(body: str) -> None:
    assert compressed(event("gzip"), response(body)) == response(body)
    assert compressed({}, response(body)) == response(body)


@given(st.text(min_size=1, max_size=60), st.integers(1, 9_000), st.integers(0, 9_000))
def test_a_packed_answer_is_never_longer_for_lambda_than_it_was(text: str, times: int, noise: int) -> None:
    text = text * times + random.Random(noise).randbytes(noise).decode("latin-1")
    plain = response(json.dumps(text, ensure_ascii=False))
    spare = len(as_lambda_encodes({"content-encoding": "gzip", "vary": "accept-encoding", "isBase64Encoded": True}))
    assert len(as_lambda_encodes(compressed(event("gzip"), plain))) <= len(as_lambda_encodes(plain)) + spare
