"""Deliveries over HTTP go to no address that is not public, and to no URL that can never do."""

import socket
from ipaddress import ip_address
from typing import Any

import pytest

from hourwheel.adapters.webhooks import Webhooks, public, resolved
from hourwheel.errors import Rejected
from hourwheel.model.targets import DONE
from tests.support import HandClock
from tests.unit.push.deliveries import DELIVERY, deliver, target
from tests.unit.push.receivers import Authority, receiving

FORBIDDEN_TEXT = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254
    168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 169.254.169.123 172.16.0.1 172.31.255.255 192.0.0.1
    192.0.0.9 192.0.0.10 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255
    198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:169.254.169.254 ::169.254.169.254
    64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::1 64:ff9b:1::8.8.8.8 100::1 100:0:0:1::1
    2001::1 2001:0:a9fe:a9fe::1 2001:0:4136:e378:8000:63bf:5601:5601 2001:2::1 2001:10::1 2001:20::1 2001:1::1
    2001:db8::1 2002:7f00:1::1 2002:a9fe:a9fe::1 2002:808:808::1 3fff::1 4000::1 5f00::1 fc00::1 fd00::1 fd00:ec2::254
    fd20:ce::254 fe80::1 fe80::a9fe:a9fe fec0::1 ff02::1 ff0e::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
"""
FORBIDDEN = FORBIDDEN_TEXT.split()
ALLOWED_TEXT = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 52.94.236.248 99.255.255.255 100.63.255.255 100.128.0.1 126.0.0.1 128.0.0.1
    169.253.255.255 169.255.0.1 172.15.255.255 172.32.0.1 192.0.1.1 192.167.255.255 192.169.0.1 198.17.255.255
    198.20.0.1 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:200::1 2001:4860:4860::8888 2600:1f18::1
    2606:4700:4700::1111 2a00:1450::1 3ffe:ffff::1
"""
ALLOWED = ALLOWED_TEXT.split()


def refusing(*addresses: str) -> Webhooks:
    return Webhooks(HandClock(), resolve=lambda *_: addresses)


@pytest.fixture
def unplugged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Lets nothing connect, and returns the addresses to which a connection would have been made."""
    wanted: list[Any] = []

    def connect(address: Any, *_: Any, **__: Any) -> Any:
        wanted.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    return wanted


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_public(address: str, unplugged: list[Any]) -> None:
    assert not public(ip_address(address))
    url = f"https://[{address}]/" if ":" in address else f"https://{address}/"
    with pytest.raises(Rejected, match="not a public address"):
        Webhooks(HandClock()).check(target(url))
    outcome = refusing(address).deliver(target("https://hooks.example.com/"), DELIVERY)
    assert outcome.unreached
    assert "not a public address" in outcome.error
    assert unplugged == []


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_name_with_one_address_that_is_not_public(address: str, unplugged: list[Any]) -> None:
    for addresses in (("8.8.8.8", address), (address, "8.8.8.8", "2600:1f18::1")):
        assert refusing(*addresses).deliver(target("https://hooks.example.com/"), DELIVERY).unreached
    assert unplugged == []


@pytest.mark.parametrize("address", ALLOWED)
def test_an_address_that_is_public(address: str, unplugged: list[Any]) -> None:
    assert public(ip_address(address))
    Webhooks(HandClock()).check(target(f"https://[{address}]/" if ":" in address else f"https://{address}/"))
    assert refusing(address).deliver(target("https://hooks.example.com:8443/"), DELIVERY).unreached
    assert unplugged == [(str(ip_address(address)), 8443)]


LONG = "a" * 63
MALFORMED = {
    "no TLS": "http://example.com/",
    "another scheme": "ftp://example.com/",
    "a file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:6379/_x",
    "no scheme": "example.com/hook",
    "no host": "https:///hook",
    "only a port": "https://:443/",
    "nothing": "",
    "a user": "https://user@example.com/",
    "a user and a password": "https://user:word@example.com/",
    "an empty user": "https://@example.com/",
    "a host in disguise": "https://example.com@127.0.0.1/",
    "a backslash": "https://example.com\\@127.0.0.1/",
    "another backslash": "https://127.0.0.1\\.example.com/",
    "a fragment": "https://example.com/#top",
    "a space": "https://example.com/a b",
    "a space in front": " https://example.com/",
    "a new line": "https://example.com/\nHost: inside",
    "CRLF in the path": "https://example.com/a\r\nHost: inside\r\n\r\n",
    "CRLF in the host": "https://example.com\r\nx: y/",
    "CRLF, quoted, in the host": "https://example.com%0d%0ax/",
    "a tab": "https://exam\tple.com/",
    "a NUL": "https://example.com/\x00",
    "a DEL": "https://example.com/\x7f",
    "a Unicode host": "https://bücher.example/",
    "a Unicode dot": "https://127。0。0。1/",
    "Unicode digits": "https://①②⑦.⓪.⓪.①/",
    "a Unicode path": "https://example.com/ü",
    "a long URL": "https://example.com/" + "a" * 2_000,
    "a long label": f"https://{LONG}a.example.com/",
    "a long host": f"https://{'.'.join([LONG] * 4)}.example.com/",
    "a dot at the end": "https://example.com./",
    "a dot at the end of an address": "https://127.0.0.1./",
    "an empty label": "https://example..com/",
    "a leading dot": "https://.example.com/",
    "a quoted host": "https://%31%32%37.0.0.1/",
    "decimal": "https://2130706433/",
    "decimal metadata": "https://2852039166/",
    "hexadecimal": "https://0x7f000001/",
    "hexadecimal parts": "https://0xa9.0xfe.0xa9.0xfe/",
    "octal": "https://017700000001/",
    "octal parts": "https://0251.0376.0251.0376/",
    "leading zeros": "https://127.0.0.01/",
    "a short form": "https://127.1/",
    "another short form": "https://169.254.43518/",
    "too many parts": "https://127.0.0.0.1/",
    "a part out of range": "https://256.1.1.1/",
    "a zone": "https://[fe80::1%25eth0]/",
    "a zone on a public address": "https://[2600:1f18::1%25eth0]/",
    "a bare zone": "https://[2600:1f18::1%eth0]/",
    "no bracket at the end": "https://[::1/",
    "no bracket at the start": "https://::1]/",
    "no brackets": "https://2600:1f18::1/",
    "brackets around a name": "https://[example.com]/",
    "an address of the future": "https://[v1.abc]/",
    "port 0": "https://example.com:0/",
    "a port that is too large": "https://example.com:65536/",
    "a negative port": "https://example.com:-1/",
    "a port that is a name": "https://example.com:https/",
    "a port of another alphabet": "https://example.com:४४३/",
    "a semicolon": "https://example.com;.internal/",
    "a comma": "https://a.example,b.example/",
    "an asterisk": "https://*.example.com/",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_url_that_can_never_do(what: str, unplugged: list[Any]) -> None:
    webhooks = refusing("8.8.8.8")
    with pytest.raises(Rejected, match=r"push\.url: ") as raised:
        webhooks.check(target(MALFORMED[what]))
    assert raised.value.field == "push.url"
    assert "\n" not in str(raised.value)
    outcome = webhooks.deliver(target(MALFORMED[what]), DELIVERY)
    assert outcome.unreached
    assert unplugged == []


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://EXAMPLE.com/Hook?a=b&c=%20d",
        "HTTPS://example.com:8443/",
        "https://xn--bcher-kva.example/",
        "https://a_b.example.com/",
        "https://8.8.8.8/",
        "https://[2600:1f18::1]:8443/hook",
        "https://3com.example/",
        "https://example.com/?",
        "https://example.com//double",
    ],
)
def test_a_url_that_will_do(url: str) -> None:
    Webhooks(HandClock()).check(target(url))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.localdomain", "ip6-localhost"])
def test_names_of_this_machine(host: str, unplugged: list[Any]) -> None:
    webhooks = Webhooks(HandClock(), resolve=lambda *_: resolved("localhost", 443))
    outcome = webhooks.deliver(target(f"https://{host}/"), DELIVERY)
    assert outcome.unreached
    assert "not a public address" in outcome.error
    assert unplugged == []


def test_the_connection_goes_to_the_address_that_was_checked(trusted: Authority) -> None:
    """The name points elsewhere a moment later: it is not resolved again."""
    answers = iter([["127.0.0.2"]])
    with receiving(host="127.0.0.2", context=trusted.context("hooks.example.com")) as receiver:
        webhooks = Webhooks(HandClock(), loopback=True, resolve=lambda *_: next(answers))
        outcome = webhooks.deliver(target(f"https://hooks.example.com:{receiver.port}/"), DELIVERY)
    assert outcome == DONE
    assert receiver.connections == 1


def test_each_delivery_looks_a_name_up_once(unplugged: list[Any]) -> None:
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["2600:1f18::1", "8.8.8.8", "8.8.4.4", "8.8.8.8", "1.1.1.1", "1.0.0.1"]

    Webhooks(HandClock(), resolve=resolve).deliver(target("https://hooks.example.com/"), DELIVERY)
    assert asked == [("hooks.example.com", 443)]
    assert unplugged == [("8.8.8.8", 443), ("8.8.4.4", 443), ("1.1.1.1", 443), ("1.0.0.1", 443)]


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would look the name up themselves."""
    with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert deliver(receiver) == DONE
    assert proxy.connections == 0


def test_a_name_without_an_address(unplugged: list[Any]) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    outcome = Webhooks(HandClock(), resolve=resolve).deliver(target("https://hooks.example.com/"), DELIVERY)
    assert outcome.unreached
    assert "Name or service not known" in outcome.error
    assert refusing().deliver(target("https://hooks.example.com/"), DELIVERY).unreached
    assert unplugged == []


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "0.0.0.0", "8.8.8.8", "::", "fe80::1"])
def test_plain_http_goes_to_this_machine_alone(address: str, unplugged: list[Any]) -> None:
    webhooks = Webhooks(HandClock(), loopback=True, resolve=lambda *_: [address])
    assert webhooks.deliver(target("http://hooks.example.com/"), DELIVERY).unreached
    with pytest.raises(Rejected, match="this machine alone"):
        webhooks.check(target(f"http://[{address}]/" if ":" in address else f"http://{address}/"))
    assert unplugged == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", "http://[::1]:8080/", "http://[::ffff:127.0.0.1]/"])
def test_loopback_where_it_is_allowed(url: str) -> None:
    Webhooks(HandClock(), loopback=True).check(target(url))


ADVICE = "to push to this machine, restart the server with --push-loopback"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://localhost:8000/", f"push.url: use an https:// URL with a host; {ADVICE}"),
        ("http://127.0.0.1:8000/", f"push.url: use an https:// URL with a host; {ADVICE}"),
        ("https://127.0.0.1:8000/", f"push.url: 127.0.0.1 is not a public address; {ADVICE}"),
        ("https://10.0.0.1/", "push.url: 10.0.0.1 is not a public address"),
        ("ftp://localhost/", "push.url: use an https:// URL with a host"),
    ],
)
def test_a_server_says_how_it_pushes_to_its_own_machine(url: str, says: str) -> None:
    with pytest.raises(Rejected) as raised:
        Webhooks(HandClock(), advice=ADVICE).check(target(url))
    assert str(raised.value) == says


def test_so_does_the_error_of_a_delivery() -> None:
    webhooks = Webhooks(HandClock(), resolve=lambda *_: ["127.0.0.1"], advice=ADVICE)
    outcome = webhooks.deliver(target("https://localhost/"), DELIVERY)
    assert outcome.error == f"cannot be reached: 127.0.0.1 is not a public address; {ADVICE}"
