"""Each token may do what its kind allows, and may be in a file that only its owner reads."""

import os
from pathlib import Path

import pytest

from hourwheel.api.routes import ROUTES, HttpRoute
from hourwheel.embedded.credentials.access import Access, Grant, read_only_refusal
from hourwheel.embedded.credentials.tls import server_context
from hourwheel.embedded.credentials.tokens import Tokens, read_tokens
from hourwheel.embedded.options import ServeOptions
from tests.certificates import Certificate

PUSH = "GET /v1/subjects/{subject}/groups/{group}/push"
TOKENS = Access(["first", "second"], ["reader"])


@pytest.mark.parametrize(
    ("given", "grant"),
    [
        ("Bearer first", Grant.ALL),
        ("Bearer second", Grant.ALL),
        ("bearer second", Grant.ALL),
        ("Bearer reader", Grant.READ),
        ("Bearer firs", Grant.NONE),
        ("Bearer first second", Grant.NONE),
        ("Bearer ", Grant.NONE),
        ("Basic first", Grant.NONE),
        ("first", Grant.NONE),
    ],
)
def test_each_token_has_its_grant(given: str, grant: Grant) -> None:
    assert TOKENS.grant([(b"authorization", given.encode())]) is grant


def test_without_tokens_every_program_may_do_everything() -> None:
    assert Access([], []).grant([]) is Grant.ALL
    assert Access([], ["reader"]).grant([]) is Grant.NONE


def test_a_read_only_token_may_get_everything_but_the_secret_that_signs() -> None:
    allowed = {route.key for route in ROUTES if read_only_refusal(Grant.READ, route, "1") is None}
    assert allowed == {route.key for route in ROUTES if route.method == "GET"} - {PUSH}
    assert read_only_refusal(Grant.READ, HttpRoute("GET", "/metrics", "metrics"), "1") is None
    assert all(read_only_refusal(Grant.ALL, route, "1") is None for route in ROUTES)


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("localhost", True),
        ("LOCALHOST:7420", True),
        ("127.0.0.1", True),
        ("10.1.2.3:80", True),
        ("[::1]", True),
        ("[::1]:7420", True),
        ("[::1].evil.com", False),
        ("[::1].evil.com:7420", False),
        ("evil[::1]", False),
        ("[127.0.0.1]", False),
        ("[localhost]", False),
        ("::1", False),
        ("localhost.evil.com", False),
        ("127.0.0.1.evil.com", False),
        ("127.0.0.1:7420:1", False),
    ],
)
def test_without_tokens_only_addresses_and_localhost_are_served(host: str, served: bool) -> None:
    refusal = Access([], []).refusal(Grant.ALL, "/", [(b"host", host.encode())], secure=False, request_id="1")
    assert (refusal is None) is served


@pytest.mark.parametrize(
    ("host", "origin", "served"),
    [
        ("hourwheel:7420", None, True),
        ("HOURWHEEL", None, True),
        ("hourwheel.queues.svc", "http://hourwheel.queues.svc", True),
        ("hourwheel:7420", "http://evil.com", False),
        ("hourwheel.evil.com", None, False),
        ("evil.com", None, False),
    ],
)
def test_a_server_without_tokens_answers_at_the_names_that_are_allowed(
    host: str, origin: str | None, served: bool
) -> None:
    access = Access([], [], ["hourwheel", "hourwheel.queues.svc"])
    headers = [(b"host", host.encode())] + ([] if origin is None else [(b"origin", origin.encode())])
    refusal = access.refusal(Grant.ALL, "/v1/subjects", headers, secure=False, request_id="1")
    assert (refusal is None) is served


def test_the_refusal_of_a_name_tells_how_to_allow_it() -> None:
    refusal = Access([], []).refusal(
        Grant.ALL, "/v1/health", [(b"host", b"hourwheel:7420")], secure=False, request_id="1"
    )
    assert refusal is not None
    assert "allow the name 'hourwheel' with --allow-host" in refusal["body"]


@pytest.mark.parametrize("name", ["", "a b", "a:80", "http://a", "-" * 64, "a..b"])
def test_a_text_that_is_no_host_name_is_not_allowed(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="--allow-host takes a host name"):
        ServeOptions(data=tmp_path, allowed_hosts=(name,))


def token_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "tokens"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_file_has_a_token_on_each_line(tmp_path: Path) -> None:
    file = token_file(tmp_path, "# ours\none\n\n  two   read-only  \nthree#3\n", 0o640)
    assert read_tokens(file) == Tokens(("one", "three#3"), ("two",))


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("one\n", 0o644, "chmod 600"),
        ("one\n", 0o604, "chmod 600"),
        ("one\n", 0o620, "chmod 600"),
        ("# none\n\n", 0o600, "holds no token"),
        ("one two\n", 0o600, "line 1"),
        ("one read-only no\n", 0o600, "line 1"),
        ("é\n", 0o600, "printable ASCII"),
    ],
)
def test_a_file_that_others_may_read_or_that_holds_none_is_refused(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        read_tokens(token_file(tmp_path, text, mode))


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    mine = Certificate(tmp_path / "mine")
    with pytest.raises(ValueError, match="is a named pipe"):
        read_tokens(pipe)
    for certificate, key in ((pipe, mine.key), (mine.chain, pipe)):
        with pytest.raises(ValueError, match="is a named pipe"):
            server_context(certificate, key)


def test_a_pipe_of_the_shell_is_read() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"secret\n")
        os.close(writing)
        assert read_tokens(Path(f"/dev/fd/{reading}")) == Tokens(("secret",))
    finally:
        os.close(reading)


@pytest.mark.parametrize("token", ["t", "short"])
def test_a_token_that_could_be_guessed_is_refused(tmp_path: Path, token: str) -> None:
    for given in ({"tokens": (token,)}, {"read_only_tokens": (token,)}):
        with pytest.raises(ValueError, match="at least 6"):
            ServeOptions(data=tmp_path, **given)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*: No such file"):
        read_tokens(tmp_path / "none")


def test_what_is_wrong_with_a_certificate_or_its_key_is_said_in_one_sentence(tmp_path: Path) -> None:
    mine, other = Certificate(tmp_path / "mine"), Certificate(tmp_path / "other")
    locked = Certificate(tmp_path / "locked", password=b"sesame")
    words = tmp_path / "words"
    words.write_text("no key")
    words.chmod(0o600)
    server_context(mine.chain, mine.key)
    for certificate, key, said in (
        (mine.chain, other.key, "not that of the certificate"),
        (locked.chain, locked.key, "encrypted"),
        (mine.chain, words, "not a certificate and its key"),
        (words, mine.key, "not a certificate and its key"),
        (tmp_path / "none", mine.key, "cannot read .*none: No such file"),
        (mine.chain, tmp_path / "none", "cannot read .*none: No such file"),
    ):
        with pytest.raises(ValueError, match=said):
            server_context(certificate, key)
    mine.key.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        server_context(mine.chain, mine.key)
