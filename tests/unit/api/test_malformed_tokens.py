"""Tokens of function URLs that no deployment has issued: each is refused, and none is a fault of the server."""

import random
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hourwheel.api.grants import MOST_TOKEN_CHARACTERS, AccessGrant, draw_keys, sign_grant
from tests.support import Bench
from tests.unit.aws.test_urls import ORDERS, Urls

_MAC = bytes(16)
_MOST_BYTES = MOST_TOKEN_CHARACTERS * 3 // 4 - len("hwg_") - len(_MAC)
_RANDOM_TOKENS = 400


def _token(content: bytes) -> str:
    return "hwg_" + urlsafe_b64encode(_MAC + content).rstrip(b"=").decode()


def _nested(opening: bytes, depth: int) -> bytes:
    return opening * depth + b"\xc0"


def _contents() -> Iterator[bytes]:
    """Yields what may stand in the place of a grant: no msgpack, lists and maps in each other, wrong types."""
    yield from (
        b"",
        b"\xc1",
        b"\x90",
        b"\x9f",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    )
    for opening in (b"\x91", b"\x81\x00", b"\x81\xa1a", b"\x92\x00", b"\xdc\x00\x01", b"\xde\x00\x01\x00"):
        yield from (_nested(opening, _MOST_BYTES // len(opening) - 1), b"\x97" + _nested(opening, 400))
    fields: list[Any] = [1, 2, 3, 4, ["a"], ["a/b"], True]
    wrong: list[Any] = [None, "1", -1, 2**63, 2**64 - 1, -(2**63), 1.5, float("nan"), [], {}, [[["a"]]], b"\xff", ""]
    for position in range(len(fields)):
        for value in wrong:
            yield msgspec.msgpack.encode([*fields[:position], value, *fields[position + 1 :]])
    for opening in (b"\x91", b"\x81\xc0"):
        # A field behind those of a grant is skipped, however deeply it is nested.
        room = _MOST_BYTES - len(msgspec.msgpack.encode(fields))
        yield b"\x98" + msgspec.msgpack.encode(fields)[1:] + _nested(opening, room // len(opening) - 1)
    yield msgspec.msgpack.encode(dict(enumerate(fields)))
    yield msgspec.msgpack.encode([*fields, *fields])


def _texts() -> Iterator[str]:
    yield from ("", "hwg_", "hwg_=", "hwg_====", "hwg_a", "hwg_\x00", "hwg_é", "hwg_\udcff", "hwg_ a b", "HWG_AAAA")
    yield from ("Bearer hwg_AAAA", '{"version": [[[[]]]]}', "[" * 3_000, "e30.e30.", "hwg_" + "A" * 10_000)


def _random_tokens(bench: Bench) -> Iterator[str]:
    """Yields random bytes, and tokens that were issued and then changed in one to four places."""
    draw = random.Random(1)
    keys = draw_keys(bench.deployment.context)
    grant = AccessGrant(
        version=keys.version, expires_s=2**40, lifetime_s=60, until_s=2**40, produce=["orders"], pull=["a/*"]
    )
    issued = sign_grant(keys, grant)
    for _ in range(_RANDOM_TOKENS // 2):
        yield _token(draw.randbytes(draw.choice((1, 10, 100, _MOST_BYTES))))
        changed = list(issued)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = chr(draw.choice((draw.randrange(32, 127), draw.randrange(0x300))))
        if "".join(changed) != issued:
            yield "".join(changed)


def test_no_malformed_token_is_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    urls = Urls(bench)
    tokens = [*map(_token, _contents()), *_texts(), *_random_tokens(bench)]
    assert len(tokens) > _RANDOM_TOKENS
    for token in tokens:
        refused = urls.send(ORDERS, token, "x")
        assert (refused.status, refused.slug) == (401, "grant-invalid"), token
    assert not list(bench.deployment.registry.all_subjects())
    assert not caplog.records
