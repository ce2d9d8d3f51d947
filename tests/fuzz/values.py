"""Draws values that a field may not expect."""

import json
from random import Random
from typing import Any

import msgspec

TEXTS = (
    "",
    " ",
    ".",
    "..",
    "a",
    "A-b_c.d",
    "x" * 100,
    "x" * 101,
    "x" * 300,
    "é",
    "漢字",
    "\u0000",
    "\u001b]0;x\u0007",
    "\u202e",
    "a/b",
    "a%2Fb",
    "../../etc/passwd",
    "'; DROP TABLE rows; --",
    "${jndi:ldap://x}",
    "null",
    "1e5",
    "earliest",
    "2020-02-30T00:00:00Z",
    "2030-01-01T00:00:00.000Z",
    "2030-01-01T00:00:00",
    "9999-12-31T23:59:59.999+00:00",
    "90d",
    "1.5h",
    "-1s",
    "1e9d",
    "٣s",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    64,
    65,
    1_000,
    1_001,
    43_200,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**30,
    0.5,
    -0.0,
    1e308,
    1e-308,
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [None], [[]], {"": None}, [0] * 1_100, {"a": {"b": {"c": []}}})

RAW = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"x"',
    b"0",
    b"{}{}",
    b'{"messages": [{"body": "\\ud800"}]}',
    b'{"messages": [{"body": "\xff\xfe"}]}',
    b'{"messages": [{"body": "a", "body": "b"}]}',
    b'{"messages": [' + b"{}," * 500 + b"{}]}",
    b"\xef\xbb\xbf{}",
    b"[" * 50_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"n": ' + b"9" * 20_000 + b"}",
    b'{"n": NaN}',
    b'{"n": 1e999}',
    b'{"' + b"x" * 20_000 + b'": 1}',
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    b"a=b&c=d",
    b"DELETE /v1/subjects/kept-a HTTP/1.1\r\nHost: localhost\r\n\r\n",
)


RAW_MSGPACK = (
    b"",
    b"\x80",
    b"\xc1",
    b"\x93\x01\x02\x03",
    b"\x81\xa8messages\xdd\xff\xff\xff\xff",
    b"\x81\xa8messages\xdd\x00\x0f\xff\xff" + b"\x80" * 100_000,
    b"\x81\xa8messages" + b"\x91" * 50_000,
    b"\x81\xa1x" + b"\x81\xa1a" * 50_000,
    b"\x81\xa8messages\x91\x81\xa4body\xdb\xff\xff\xff\xff",
    b"\x81\xa8messages\x91\x81\xa4body\xd4\x05x",
    b"\x81\xa8messages\x91\x82\xa4body\xa1x\xaadeliver_at\xd6\xff\x00\x00\x00\x00",
    b"\x81\xa8messages\x91\x81\xa4body\xa2\xff\xfe",
    b"\x81\xa8messages\x91\x82\xa4body\xa1x\xa5delay\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\x81\xa8messages\x91\x82\xa4body\xa1x\xa5queue\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x81\xa8messages\x91\x81\xabbody_base64\xc4\x03\x00\xff\xfe",
    b"\x81\xa8messages\x91\x81\xa4body\xa1x" * 2,
    b"\x82\xa8consumer\xa1c\xacwait_seconds\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
    b"\x81\xa6settle\xdd\x00\xff\xff\xff",
)


def hostile(rng: Random) -> Any:
    return rng.choice(rng.choice((TEXTS, NUMBERS, OTHERS)))


def twisted(rng: Random, value: Any) -> Any:
    """Returns the value with one of its parts replaced, left out, added or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(sorted(value))
        deed = rng.randrange(6)
        rest = {key: part for key, part in value.items() if key != name}
        if deed == 0:
            return rest
        if deed == 1:
            return {**value, rng.choice(TEXTS): hostile(rng)}
        return {**value, name: twisted(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        if rng.randrange(5) == 0:
            return value + [value[at]] * rng.choice((1, 2, 1_000))
        return [*value[:at], twisted(rng, value[at]), *value[at + 1 :]]
    return hostile(rng)


def packed_document(value: Any) -> bytes | None:
    """Returns the value as msgpack; None where msgpack has no such value."""
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return None


def document(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
