"""Options of a server that exclude one another, or are out of their bounds, are refused with a sentence."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hourwheel.embedded.options import ServeOptions

DATA = Path("queue")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tls_cert": "cert.pem"}, "give both --tls-cert and --tls-key"),
        ({"tls_key": "key.pem"}, "give both --tls-cert and --tls-key"),
        ({"cells": {"home": "other"}}, "home is the name of the cell in --data"),
        ({"cells": {"fast": "queue"}}, "--cell fast names the directory of --data: each cell needs one of its own"),
        ({"cells": {"fast": "one", "slow": "one"}}, "--cell slow names the directory of --cell fast"),
        ({"cells": {"fast": Path("queue").absolute()}}, "--cell fast names the directory of --data"),
        ({"cells": {"Fast": "one"}}, "'Fast' cannot be the name of a cell: .* lower-case letters"),
        ({"tokens": ("a-token",), "read_only_tokens": ("a-token",)}, "with and without read-only"),
        ({"tokens": (" ",)}, "a token is blank"),
        ({"tokens": ("a token",)}, "printable ASCII characters and no blank"),
        ({"read_only_tokens": ("é",)}, "printable ASCII characters"),
        ({"port": 65_536}, "less than or equal to 65535"),
        ({"bucket_minutes": 4}, "greater than or equal to 5"),
        ({"threads": 0}, "greater than or equal to 1"),
        ({"body_seconds": 0}, "greater than 0"),
        ({"unknown": 1}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        ServeOptions(data=DATA, **options)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("queue.example.org", False),
    ],
)
def test_only_an_address_of_this_machine_is_loopback(host: str, loopback: bool) -> None:
    assert ServeOptions(data=DATA, host=host).is_loopback is loopback


def test_a_server_is_open_without_any_token() -> None:
    assert ServeOptions(data=DATA).is_open
    assert not ServeOptions(data=DATA, tokens=("secret",)).is_open
    assert not ServeOptions(data=DATA, read_only_tokens=("secret",)).is_open
